//! Shell: the task runner: makes the call of each task within limits, a time-out and a breaker, and submits the result.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use saga_core::admission::CallResult;
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind, MAX_RETRY_AFTER, error_links, panic_text};
use saga_core::service::Service;
use saga_core::trace::TraceContext;
use saga_core::waiting::Task;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;

use super::admission::CallPermit;
use super::engine::Engine;
use super::http_exchange::HttpExchange;
use super::observer::SharedObserver;
use super::span_operation::SpanOperation;
use super::task_queue::QueuedTask;
use super::tracer::{self, OpenSpan, SpanDetails, SpanFailure};

/// Makes the calls of tasks. A rejection that the business expects is a result, not a failure.
pub trait TaskHandler: Send + Sync + 'static {
    /// Name of the called dependency, and of its breaker.
    fn dependency(&self) -> &'static str;

    /// Makes the call of a task, and returns its result.
    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>>;
}

/// Call without a usable result.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct CallFailed {
    /// Operation that failed, for logs and dead letters.
    pub context: String,
    /// True if the other side said that this call can never succeed. False if it may or may not have taken effect, and
    /// should be retried.
    pub is_final: bool,
    /// Time in which the other side asked not to be called. No call of this process begins in it, for
    /// [`MAX_RETRY_AFTER`] at most.
    pub retry_after: Option<Duration>,
    /// Underlying error, if there is one.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl CallFailed {
    /// Creates a failure that may pass. The call may have taken effect.
    pub fn transient(context: impl Into<String>) -> Self {
        Self { context: context.into(), is_final: false, retry_after: None, source: None }
    }

    /// Creates a failure that no repetition changes.
    pub fn permanent(context: impl Into<String>) -> Self {
        Self { is_final: true, ..Self::transient(context) }
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn caused_by(self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: Some(error.into()), ..self }
    }
}

/// Dependency name of services without tasks.
pub const NO_DEPENDENCY: &str = "nobody";

/// Handler of services without tasks.
#[derive(Debug, Clone, Copy)]
pub struct NoTasks;

impl TaskHandler for NoTasks {
    fn dependency(&self) -> &'static str {
        NO_DEPENDENCY
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        let context = format!("this service has no handler for tasks of kind {:?}", task.kind);
        Box::pin(std::future::ready(Err(CallFailed::permanent(context))))
    }
}

/// Age up to which a task counts as needed without a check. The check costs a transaction.
const FRESH: Duration = Duration::from_millis(100);
/// Interval of checks of queued tasks. A task that is no longer needed does not wait for a dependency that is down.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Makes calls until the engine stops. Calls in flight are then cut off.
pub async fn run<S: Service>(
    engine: Engine<S>,
    handler: Arc<dyn TaskHandler>,
    mut arriving: mpsc::UnboundedReceiver<QueuedTask>,
    timeout: Duration,
    observer: SharedObserver,
) {
    let mut queue: VecDeque<QueuedTask> = VecDeque::new();
    let mut calls = JoinSet::new();
    let mut checks = tokio::time::interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let attempt = Attempt { engine, handler, observer, timeout };
    loop {
        while calls.try_join_next().is_some() {}
        let admission = attempt.engine.tasks().admission();
        tokio::select! {
            biased;
            arrived = arriving.recv() => match arrived {
                Some(task) => queue.push_back(task),
                None => return,
            },
            permit = admission.acquire_call(), if !queue.is_empty() => {
                let Some(task) = queue.pop_front() else { continue };
                calls.spawn(attempt.clone().run(task, permit));
            }
            _ = checks.tick(), if !queue.is_empty() => {
                let checked = queue.drain(..).map(|task| check(&attempt.engine, task));
                queue = join_all(checked).await.into_iter().flatten().collect();
            }
        }
    }
}

/// Checks whether a task is still needed. `None` if it is not, or if nobody can say: then its lease expires, and the
/// timers bring it again.
async fn check<S: Service>(engine: &Engine<S>, queued: QueuedTask) -> Option<QueuedTask> {
    if queued.needed_at.is_some_and(|at| at.elapsed() < FRESH) {
        return Some(queued);
    }
    let (admission, id) = (engine.tasks().admission(), queued.task.id);
    match engine.process(Input::task_check(queued.task.clone())).await {
        Ok(Outcome::Message(MessageOutcome::TaskNeeded)) => {
            return Some(QueuedTask { needed_at: Some(Instant::now()), ..queued });
        }
        Ok(_) => admission.forget(id),
        Err(_) => {}
    }
    let (_, is_room) = admission.release(id);
    if is_room {
        engine.timer_wake().notify_one();
    }
    None
}

/// Attempt at a task: check, call, and submission of the result.
struct Attempt<S: Service> {
    engine: Engine<S>,
    handler: Arc<dyn TaskHandler>,
    observer: SharedObserver,
    timeout: Duration,
}

impl<S: Service> Clone for Attempt<S> {
    fn clone(&self) -> Self {
        let Self { engine, handler, observer, timeout } = self;
        Self {
            engine: engine.clone(),
            handler: handler.clone(),
            observer: observer.clone(),
            timeout: *timeout,
        }
    }
}

impl<S: Service> Attempt<S> {
    async fn run(self, queued: QueuedTask, permit: CallPermit) {
        let Some(QueuedTask { mut task, .. }) = check(&self.engine, queued).await else {
            return permit.give_back();
        };
        let span = self.engine.tracer().begin(task.trace, task.correlation_id);
        // The dependency and the result continue from this span. Another attempt starts from the task's own context.
        let own_trace = task.trace;
        task.trace = span.map(|span| span.context);
        let began = Instant::now();
        let called = call(self.handler.as_ref(), &task, self.timeout);
        let (called, http) = tracer::calling(task.trace, task.correlation_id, called).await;
        let took = began.elapsed();
        let called = called.map_err(|failed| {
            let failed = failed.redacted(task.payload.as_bytes(), S::SECRETS);
            let (correlation_id, message_id, step) = (task.correlation_id, task.id, task.kind.as_str());
            let attempt = task.attempts + 1;
            warn!(%correlation_id, %message_id, step, attempt, "call failed: {}", failed.reason());
            failed
        });
        let end = match &called {
            Ok(_) => CallResult::Answered,
            Err(failed) if failed.kind == FailureKind::Permanent => CallResult::Rejected,
            Err(_) => CallResult::Failed,
        };
        if let Some(time) = called.as_ref().err().and_then(|failed| failed.retry_after) {
            permit.pause_calls(time.min(MAX_RETRY_AFTER));
        }
        let kind = permit.end(task.id, end);
        let result = called.map_err(|failed| FailedAttempt { kind, ..failed });
        if let Some(span) = span {
            self.record_span(span, &task, (end, took, http), result.as_ref().err());
        }
        self.observer.call_ended(&task.kind, end, took, task.trace);
        let call_trace = std::mem::replace(&mut task.trace, own_trace);
        self.submit(task, result, call_trace).await;
    }

    fn record_span(
        &self,
        span: OpenSpan,
        task: &Task,
        (end, took, http): (CallResult, Duration, Option<HttpExchange>),
        failed: Option<&FailedAttempt>,
    ) {
        if failed.is_some() {
            self.engine.tracer().keep(span.context);
        }
        self.engine.tracer().end(span, took, || SpanDetails {
            failed: failed.map(|failed| SpanFailure {
                error_type: error_type(end, http.as_ref()),
                description: failed.reason(),
            }),
            links: vec![],
            transaction: None,
            operation: SpanOperation::Call {
                kind: task.kind.clone(),
                correlation_id: task.correlation_id,
                message_id: task.id,
                // Unlike the attempts that count, claims grow with each call, also during an outage.
                attempt: u32::try_from(task.claim.max(1)).unwrap_or(u32::MAX),
                outcome: end.as_str(),
                http,
            },
        });
    }

    /// Submits the result of a call as an input of the engine.
    async fn submit(
        &self,
        mut task: Task,
        result: Result<Value, FailedAttempt>,
        trace: Option<TraceContext>,
    ) {
        let (engine, admission, id) = (&self.engine, self.engine.tasks().admission(), task.id);
        // Released before the outcome is durable: from then on the timers may bring the task again.
        let (claim, is_room) = admission.release(id);
        task.claim = claim.unwrap_or(task.claim);
        // If the engine stops, the task stays open: its lease expires, and the call is repeated.
        let outcome =
            engine.process(Input::task_result(task, result, fastrand::u32(..)).with_trace(trace)).await;
        if !matches!(outcome, Ok(Outcome::Message(MessageOutcome::Retried(_)))) {
            admission.forget(id);
        }
        if is_room {
            engine.timer_wake().notify_one();
        }
    }
}

/// Class of the error of a failed call: that of its request, or the name of the result.
fn error_type(end: CallResult, http: Option<&HttpExchange>) -> Cow<'static, str> {
    http.and_then(HttpExchange::error_type).unwrap_or_else(|| end.as_str().into())
}

async fn call(handler: &dyn TaskHandler, task: &Task, timeout: Duration) -> Result<Value, FailedAttempt> {
    let calling = AssertUnwindSafe(async { handler.call(task).await }).catch_unwind();
    let failed = match tokio::time::timeout(timeout, calling).await {
        Ok(Ok(Ok(result))) => return Ok(result),
        Ok(Ok(Err(failed))) => FailedAttempt {
            kind: if failed.is_final { FailureKind::Permanent } else { FailureKind::Transient },
            chain: error_links(&failed),
            retry_after: failed.retry_after,
        },
        Ok(Err(panic)) => {
            let text = format!("the call panicked: {}", panic_text(panic.as_ref()));
            FailedAttempt::new(FailureKind::Transient, text)
        }
        Err(_) => FailedAttempt::new(FailureKind::Transient, format!("no answer within {timeout:?}")),
    };
    Err(failed)
}
