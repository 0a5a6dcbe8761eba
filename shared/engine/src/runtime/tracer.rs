//! Shell: traces: where each input stands in one, and the spans of what was done.
//!
//! A span is written down when it is over, whole: until then there is nothing but its [`TraceContext`], which is what is
//! stored and sent. Names and attributes follow OpenTelemetry's semantic conventions where there are any.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use saga_core::trace::TraceContext;
use uuid::Uuid;

/// Where spans go, and which traces are recorded.
pub trait Spans: Send + Sync + 'static {
    /// Whether a trace that begins here is recorded.
    fn samples(&self, trace_id: u128) -> bool;

    /// Whether a trace is recorded that was not to be: something went wrong in it here.
    fn has_kept(&self, trace_id: u128) -> bool;

    /// Something went wrong in this trace: whatever is known of it is recorded, and all that comes.
    fn keep(&self, trace_id: u128);

    /// Takes a span that is over.
    fn take(&self, span: Span);
}

/// What was done, from when to when.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its own place in its trace.
    pub context: TraceContext,
    /// The span that caused it; `None` of the first.
    pub parent: Option<u64>,
    /// Its role.
    pub kind: SpanKind,
    /// What was done, of few different things: no ids.
    pub name: Cow<'static, str>,
    /// When it began.
    pub began: SystemTime,
    /// When it was over.
    pub ended: SystemTime,
    /// Why it failed, when it did. Nothing that the business says is a failure.
    pub failed: Option<String>,
    /// What else is to be known of it.
    pub attributes: Vec<(&'static str, String)>,
    /// Spans that it belongs together with: all that went in one batch.
    pub links: Vec<TraceContext>,
}

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside a service.
    Internal,
    /// The answer to a request.
    Server,
    /// A request.
    Client,
    /// A message was published.
    Producer,
    /// A message was handled.
    Consumer,
}

/// Where a service's spans go. Clones are the same.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<dyn Spans>>);

/// A span that is under way: where it stands, and what it is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Its own place.
    pub context: TraceContext,
    /// The span that caused it.
    pub parent: Option<u64>,
}

impl Tracer {
    /// Records what `spans` wants recorded.
    #[must_use]
    pub fn new(spans: Arc<dyn Spans>) -> Self {
        Self(Some(spans))
    }

    /// Records nothing, and hands on no context.
    #[must_use]
    pub const fn off() -> Self {
        Self(None)
    }

    /// Whether anything is traced.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A place below `parent`; without one, at the beginning of the trace of this saga.
    #[must_use]
    pub fn begin(&self, parent: Option<TraceContext>, saga: Uuid) -> Option<Begun> {
        let spans = self.0.as_ref()?;
        let trace_id = parent.map_or_else(|| TraceContext::trace_of(saga), |parent| parent.trace_id);
        let is_sampled = match parent {
            Some(parent) => parent.is_sampled || spans.has_kept(trace_id),
            None => spans.samples(trace_id),
        };
        let context = TraceContext { trace_id, span_id: some_id(), is_sampled };
        Some(Begun { context, parent: parent.map(|parent| parent.span_id) })
    }

    /// A batch of which these are parts, when they are several and recorded: a trace of its own, linked to them, and they
    /// to it.
    #[must_use]
    pub fn begin_batch(&self, parts: &[TraceContext]) -> Option<Begun> {
        let is_batch = self.is_on() && parts.len() > 1;
        let context =
            || TraceContext { trace_id: Uuid::now_v7().as_u128(), span_id: some_id(), is_sampled: true };
        is_batch.then(|| Begun { context: context(), parent: None })
    }

    /// Something went wrong in this trace.
    pub fn keep(&self, context: TraceContext) {
        if let Some(spans) = self.0.as_ref().filter(|_| !context.is_sampled) {
            spans.keep(context.trace_id);
        }
    }

    /// Takes a span that is over now after it `took` so long.
    pub fn end(&self, begun: Begun, took: Duration, kind: SpanKind, describe: impl FnOnce(&mut Span)) {
        let Some(spans) = &self.0 else { return };
        let ended = SystemTime::now();
        let began = ended.checked_sub(took).unwrap_or(ended);
        let Begun { context, parent } = begun;
        let (attributes, links) = (Vec::new(), Vec::new());
        let name = Cow::Borrowed("");
        let mut span = Span { context, parent, kind, name, began, ended, failed: None, attributes, links };
        describe(&mut span);
        spans.take(span);
    }
}

fn some_id() -> u64 {
    fastrand::u64(1..)
}

tokio::task_local! {
    static REQUEST: Arc<Mutex<Request>>;
}

/// The trace of the HTTP request that is being answered.
#[derive(Debug, Default)]
struct Request {
    /// What the caller said.
    parent: Option<TraceContext>,
    /// The span of the answer, once something is asked of the engine.
    begun: Option<Begun>,
}

/// Answers a request that stands there in its trace; with the span of the answer, when there is one. One that only looks,
/// and whose caller traces nothing, has none.
pub async fn answering<T>(
    tracer: &Tracer,
    parent: Option<TraceContext>,
    answer: impl Future<Output = T>,
) -> (T, Option<Begun>) {
    if !tracer.is_on() {
        return (answer.await, None);
    }
    let begun = parent.and_then(|parent| tracer.begin(Some(parent), Uuid::nil()));
    let request = Arc::new(Mutex::new(Request { parent, begun }));
    let answer = REQUEST.scope(request.clone(), answer).await;
    let begun = request.lock().begun;
    (answer, begun)
}

/// Where a command that a request asks for stands: below the answer to the request, which is a part of the saga's trace
/// unless its caller has one.
pub(super) fn of_the_request(tracer: &Tracer, saga: Uuid) -> Option<TraceContext> {
    let place = REQUEST.try_with(|request| {
        let mut request = request.lock();
        if request.begun.is_none() {
            request.begun = tracer.begin(request.parent, saga);
        }
        request.begun
    });
    place.ok().flatten().map(|begun| begun.context)
}

/// The span of the answer that is made here, once there is one; also while the answer is dropped.
#[must_use]
pub fn of_the_answer() -> Option<Begun> {
    REQUEST.try_with(|request| request.lock().begun).ok().flatten()
}
