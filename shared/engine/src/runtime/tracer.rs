//! Shell: traces: where each input stands in one, and the spans of what was done.
//!
//! A span is written down when it is over, whole: until then there is nothing but its [`TraceContext`], which is what is
//! stored and sent.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use saga_core::trace::TraceContext;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::operation::Operation;

/// Where spans go, and which traces are recorded.
pub trait RecordSpans: Send + Sync + 'static {
    /// Whether a trace that begins here is recorded.
    fn samples(&self, trace_id: u128) -> bool;

    /// Whether a trace is recorded that was not to be: something went wrong in it here.
    fn has_kept(&self, trace_id: u128) -> bool;

    /// Whether spans are taken whose traces are not to be recorded.
    fn holds(&self) -> bool;

    /// Something went wrong in this trace: whatever is known of it is recorded, and all that comes.
    fn keep(&self, trace_id: u128);

    /// Takes a span that is over.
    fn take(&self, span: Span);
}

/// What was done, from when to when.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its own place in its trace, and the span that caused it.
    pub begun: OpenSpan,
    /// When it was over.
    pub ended: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// What is to be known of it.
    pub details: SpanDetails,
}

/// What is to be known of a span. Most are never sent: what costs anything is left to those that are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanDetails {
    /// What was done.
    pub operation: Operation,
    /// Why it failed, when it did. Nothing that the business says is a failure.
    pub failed: Option<String>,
    /// Spans that it belongs together with, and is not caused by: all that went in one batch, or a caller's own.
    pub links: Vec<TraceContext>,
}

impl From<Operation> for SpanDetails {
    fn from(operation: Operation) -> Self {
        Self { operation, failed: None, links: Vec::new() }
    }
}

/// What becomes of the trace that a caller says it is in, who may be anybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Callers {
    /// What is asked for goes on in it, and is recorded if that is: for services that only your own callers reach.
    Follow,
    /// What is asked for has a trace of its own, recorded if it falls to it, and linked to the caller's.
    #[default]
    Link,
}

/// Where a service's spans go. Clones are the same.
#[derive(Clone, Default)]
pub struct Tracer {
    spans: Option<Arc<dyn RecordSpans>>,
    callers: Callers,
}

/// A span that is under way: where it stands, and what it is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSpan {
    /// Its own place.
    pub context: TraceContext,
    /// The span that caused it; `None` of the first.
    pub parent: Option<u64>,
}

impl Tracer {
    /// Records what `spans` wants recorded; that of callers as `callers` says.
    #[must_use]
    pub fn new(spans: Arc<dyn RecordSpans>, callers: Callers) -> Self {
        Self { spans: Some(spans), callers }
    }

    /// Records nothing, and hands on no context.
    #[must_use]
    pub const fn off() -> Self {
        Self { spans: None, callers: Callers::Link }
    }

    /// Whether anything is traced.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.spans.is_some()
    }

    /// Whether the trace of a caller who may be anybody is gone on in.
    #[must_use]
    pub const fn follows_anybody(&self) -> bool {
        matches!(self.callers, Callers::Follow)
    }

    /// A place below `parent`; without one, at the beginning of the trace of this saga.
    #[must_use]
    pub fn begin(&self, parent: Option<TraceContext>, saga: Uuid) -> Option<OpenSpan> {
        let spans = self.spans.as_ref()?;
        let trace_id = parent.map_or_else(|| TraceContext::trace_of(saga), |parent| parent.trace_id);
        let is_sampled = match parent {
            Some(parent) => parent.is_sampled || spans.has_kept(trace_id),
            None => spans.samples(trace_id),
        };
        let context = TraceContext { trace_id, span_id: some_id(), is_sampled };
        Some(OpenSpan { context, parent: parent.map(|parent| parent.span_id) })
    }

    /// A batch of which these are parts, when they are several and recorded: a trace of its own, linked to them, and they
    /// to it.
    #[must_use]
    pub fn begin_batch(&self, parts: &[TraceContext]) -> Option<OpenSpan> {
        let is_batch = self.is_on() && parts.len() > 1;
        let context =
            || TraceContext { trace_id: Uuid::now_v7().as_u128(), span_id: some_id(), is_sampled: true };
        is_batch.then(|| OpenSpan { context: context(), parent: None })
    }

    /// Something went wrong in what the request asked for that is being answered.
    pub fn keep_the_answer(&self) {
        if let Some(begun) = of_the_answer() {
            self.keep(begun.context);
        }
    }

    /// Something went wrong in this trace.
    pub fn keep(&self, context: TraceContext) {
        if let Some(spans) = self.spans.as_ref().filter(|_| !context.is_sampled) {
            spans.keep(context.trace_id);
        }
    }

    /// Takes a span that is over now after it `took` so long.
    pub fn end<T: Into<SpanDetails>>(&self, begun: OpenSpan, took: Duration, tell: impl FnOnce() -> T) {
        let wants = |spans: &&Arc<dyn RecordSpans>| begun.context.is_sampled || spans.holds();
        if let Some(spans) = self.spans.as_ref().filter(wants) {
            spans.take(Span { begun, ended: SystemTime::now(), took, details: tell().into() });
        }
    }
}

fn some_id() -> u64 {
    fastrand::u64(1..)
}

tokio::task_local! {
    static REQUEST: Cell<Request>;
}

/// The trace of the HTTP request that is being answered.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// What the caller said, if that is gone on in.
    parent: Option<TraceContext>,
    /// The span of the answer, once something is asked of the engine.
    begun: Option<OpenSpan>,
}

/// Answers a request that stands there in its trace. [`of_the_answer`] is the span of the answer; one that only looks, and
/// whose caller traces nothing, has none.
pub async fn answering<T>(
    tracer: &Tracer,
    parent: Option<TraceContext>,
    answer: impl Future<Output = T>,
) -> T {
    if !tracer.is_on() {
        return answer.await;
    }
    let begun = parent.and_then(|parent| tracer.begin(Some(parent), Uuid::nil()));
    REQUEST.scope(Cell::new(Request { parent, begun }), answer).await
}

/// The span of the answer that is under way, once something was asked of the engine for it: whoever is asked meanwhile
/// goes on from there. Known also while the answer is dropped.
#[must_use]
pub fn of_the_answer() -> Option<OpenSpan> {
    REQUEST.try_with(|request| request.get().begun).ok().flatten()
}

/// Where a command that a request asks for stands: below the answer to the request, which is a part of the saga's trace
/// unless its caller has one.
pub(super) fn of_the_request(tracer: &Tracer, saga: Uuid) -> Option<TraceContext> {
    let place = REQUEST.try_with(|place| {
        let mut request = place.get();
        if request.begun.is_none() {
            request.begun = tracer.begin(request.parent, saga);
            place.set(request);
        }
        request.begun
    });
    place.ok().flatten().map(|begun| begun.context)
}
