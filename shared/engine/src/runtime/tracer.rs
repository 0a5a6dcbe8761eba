//! Shell: tracing: trace contexts of inputs, and the spans of operations.
//!
//! A span is recorded as a whole when it ends. Until then only its [`TraceContext`] exists, which is stored and sent.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use saga_core::trace::TraceContext;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::http_exchange::HttpExchange;
use super::span_operation::SpanOperation;
use super::trace_queue::TraceQueue;

/// Recorder of spans, which also decides which traces are recorded.
pub trait RecordSpans: Send + Sync + 'static {
    /// True if a trace that begins here is sampled.
    fn samples(&self, trace_id: u128) -> bool;

    /// True if an unsampled trace is recorded after all, as an operation of it failed here.
    fn has_kept(&self, trace_id: u128) -> bool;

    /// True if the recorder takes spans of unsampled traces, which [`keep`](Self::keep) may need later.
    fn buffers_unsampled(&self) -> bool;

    /// Records an unsampled trace after a failure: the spans taken so far, and all later ones.
    fn keep(&self, trace_id: u128);

    /// Takes a span that has ended.
    fn take(&self, span: Span);

    /// Records a trace that another process keeps.
    fn keep_announced(&self, trace_id: u128) {
        self.keep(trace_id);
    }

    /// Traces that are kept here, and of which other processes must learn. `None` if no unsampled trace is kept.
    fn announcements(&self) -> Option<&TraceQueue> {
        None
    }

    /// All traces that are kept, for programs without the broker.
    fn forwards(&self) -> Option<&TraceQueue> {
        None
    }
}

/// Ended span, ready to be exported.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Trace context and parent of the span.
    pub opened: OpenSpan,
    /// End of the span in wall-clock time.
    pub ended: SystemTime,
    /// Duration of the span, measured monotonically.
    pub took: Duration,
    /// Operation, failure and links of the span.
    pub details: SpanDetails,
}

/// Details of a span. Most spans are never sent, so formatting is left to those that are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanDetails {
    /// Operation that the span measures.
    pub operation: SpanOperation,
    /// Technical failure. A rejection by the business is none.
    pub failed: Option<SpanFailure>,
    /// Related spans that are not the parent, such as the caller's own.
    pub links: Vec<TraceContext>,
    /// Transaction that ended with the span.
    pub transaction: Option<Transaction>,
}

impl From<SpanOperation> for SpanDetails {
    fn from(operation: SpanOperation) -> Self {
        Self { operation, failed: None, links: Vec::new(), transaction: None }
    }
}

/// Technical failure of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanFailure {
    /// Class of the error, of low cardinality: the attribute `error.type`.
    pub error_type: Cow<'static, str>,
    /// Description for people; empty if the class says all.
    pub description: String,
}

/// Database transaction of a batch. It is exported as a span of its own below the span of each input, so that each trace
/// is whole and none consists of a transaction alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction {
    /// Number of inputs in the transaction.
    pub inputs: usize,
    /// Duration of the transaction, commit included.
    pub took: Duration,
}

/// Treatment of a caller's trace context (setting `trace.callers`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Callers {
    /// Continue the caller's trace, with its sampling decision. For services that only trusted callers reach.
    Follow,
    /// Start a new trace, sampled by the service, and link it to the caller's.
    #[default]
    Link,
}

/// Tracer of a service. Clones share one recorder.
#[derive(Clone, Default)]
pub struct Tracer {
    spans: Option<Arc<dyn RecordSpans>>,
    callers: Callers,
}

/// Span that has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSpan {
    /// Trace context of the span.
    pub context: TraceContext,
    /// Id of the parent span; `None` for the root.
    pub parent: Option<u64>,
}

impl Tracer {
    /// Creates a tracer that records to `spans`, and treats callers' traces as `callers` says.
    #[must_use]
    pub fn new(spans: Arc<dyn RecordSpans>, callers: Callers) -> Self {
        Self { spans: Some(spans), callers }
    }

    /// Creates a tracer that records nothing and passes no context on.
    #[must_use]
    pub const fn off() -> Self {
        Self { spans: None, callers: Callers::Link }
    }

    /// True if tracing is on.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.spans.is_some()
    }

    /// True if callers' traces are continued.
    #[must_use]
    pub const fn follows_callers(&self) -> bool {
        matches!(self.callers, Callers::Follow)
    }

    /// Begins a span below `parent`, or without one at the root of the saga's trace. `None` if tracing is off.
    #[must_use]
    pub fn begin(&self, parent: Option<TraceContext>, saga: Uuid) -> Option<OpenSpan> {
        let spans = self.spans.as_ref()?;
        let trace_id = parent.map_or_else(|| TraceContext::trace_of(saga), |parent| parent.trace_id);
        let is_sampled = match parent {
            Some(parent) => parent.is_sampled || spans.has_kept(trace_id),
            None => spans.samples(trace_id),
        };
        let context = TraceContext { trace_id, span_id: new_id(), is_sampled };
        Some(OpenSpan { context, parent: parent.map(|parent| parent.span_id) })
    }

    /// Begins the span of the publish of a message below `cause`. Its context was sent with the message.
    #[must_use]
    pub fn begin_publish(&self, cause: TraceContext, message_id: Uuid) -> Option<OpenSpan> {
        let spans = self.spans.as_ref()?;
        let is_sampled = cause.is_sampled || spans.has_kept(cause.trace_id);
        let context = TraceContext { is_sampled, ..cause.of_publish(message_id) };
        Some(OpenSpan { context, parent: Some(cause.span_id) })
    }

    /// Records the trace of the HTTP request that is being answered, after a failure.
    pub fn keep_request(&self) {
        if let Some(opened) = request_span() {
            self.keep(opened.context);
        }
    }

    /// Records an unsampled trace after a failure.
    pub fn keep(&self, context: TraceContext) {
        if let Some(spans) = self.spans.as_ref().filter(|_| !context.is_sampled) {
            spans.keep(context.trace_id);
        }
    }

    /// Records a trace that another process keeps.
    pub fn keep_announced(&self, trace_id: u128) {
        if let Some(spans) = &self.spans {
            spans.keep_announced(trace_id);
        }
    }

    /// Traces that are kept here, and of which other processes must learn. `None` if no unsampled trace is kept.
    #[must_use]
    pub fn announcements(&self) -> Option<&TraceQueue> {
        self.spans.as_ref()?.announcements()
    }

    /// All traces that are kept, for programs without the broker.
    #[must_use]
    pub fn forwards(&self) -> Option<&TraceQueue> {
        self.spans.as_ref()?.forwards()
    }

    /// Ends a span now. `details` runs only if the span is recorded.
    pub fn end<T: Into<SpanDetails>>(&self, opened: OpenSpan, took: Duration, details: impl FnOnce() -> T) {
        let wants = |spans: &&Arc<dyn RecordSpans>| opened.context.is_sampled || spans.buffers_unsampled();
        if let Some(spans) = self.spans.as_ref().filter(wants) {
            spans.take(Span { opened, ended: SystemTime::now(), took, details: details().into() });
        }
    }
}

fn new_id() -> u64 {
    fastrand::u64(1..)
}

tokio::task_local! {
    static REQUEST: Cell<Request>;
    static CALL: RefCell<Call>;
}

/// Trace of the HTTP request that is being answered.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// Caller's trace context, if it is continued.
    caller: Option<RequestCaller>,
    /// Span of the response, begun when the request first uses the engine.
    opened: Option<OpenSpan>,
    /// Correlation id of the first command.
    correlation_id: Option<Uuid>,
}

/// Caller of a request whose trace is continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCaller {
    /// Trace context of the caller.
    pub context: TraceContext,
    /// Correlation id of the saga for which the caller asks.
    pub correlation_id: Option<Uuid>,
}

/// Call of a task in progress.
struct Call {
    context: TraceContext,
    correlation_id: Uuid,
    /// Newest request of the call.
    http: Option<HttpExchange>,
}

/// Runs `answer` with the trace of a request. [`request_span`] returns its span, which a read-only request of an untraced
/// caller does not have.
pub async fn answering<T>(
    tracer: &Tracer,
    caller: Option<RequestCaller>,
    answer: impl Future<Output = T>,
) -> T {
    if !tracer.is_on() {
        return answer.await;
    }
    let opened = caller.and_then(|caller| tracer.begin(Some(caller.context), Uuid::nil()));
    let request = Request { caller, opened, correlation_id: None };
    REQUEST.scope(Cell::new(request), answer).await
}

/// Span of the request that is being answered, once it has used the engine. Outgoing requests continue from it. Available
/// also while the answer is dropped.
#[must_use]
pub fn request_span() -> Option<OpenSpan> {
    REQUEST.try_with(|request| request.get().opened).ok().flatten()
}

/// Correlation id of the request that is being answered: the caller's, or that of its first command.
#[must_use]
pub fn request_correlation_id() -> Option<Uuid> {
    let of = |request: Request| caller_correlation_id().or(request.correlation_id);
    REQUEST.try_with(|request| of(request.get())).ok().flatten()
}

/// Correlation id that the caller of the request sent, if its trace is continued.
pub(super) fn caller_correlation_id() -> Option<Uuid> {
    let of = |request: Request| request.caller.and_then(|caller| caller.correlation_id);
    REQUEST.try_with(|request| of(request.get())).ok().flatten()
}

/// Parent context for a command of the request that is being answered: its span, which belongs to the saga's trace unless
/// the caller has one.
pub(super) fn context_of_request(tracer: &Tracer, saga: Uuid) -> Option<TraceContext> {
    let span = REQUEST.try_with(|cell| {
        let mut request = cell.get();
        if request.opened.is_none() {
            request.opened = tracer.begin(request.caller.map(|caller| caller.context), saga);
        }
        request.correlation_id.get_or_insert(saga);
        cell.set(request);
        request.opened
    });
    span.ok().flatten().map(|opened| opened.context)
}

/// Makes the call of a task in its span, and returns its newest request over HTTP as well.
pub(super) async fn calling<T>(
    context: Option<TraceContext>,
    correlation_id: Uuid,
    call: impl Future<Output = T>,
) -> (T, Option<HttpExchange>) {
    let Some(context) = context else { return (call.await, None) };
    let scope = RefCell::new(Call { context, correlation_id, http: None });
    let made = async {
        let result = call.await;
        (result, CALL.with(|call| call.borrow_mut().http.take()))
    };
    CALL.scope(scope, made).await
}

/// Trace context of the task whose call is being made, with its correlation id.
#[must_use]
pub fn call_context() -> Option<(TraceContext, Uuid)> {
    CALL.try_with(|call| (call.borrow().context, call.borrow().correlation_id)).ok()
}

/// Records a request of the call that is being made. The newest one describes the call's span.
pub fn record_exchange(http: HttpExchange) {
    let _ = CALL.try_with(|call| call.borrow_mut().http = Some(http));
}
