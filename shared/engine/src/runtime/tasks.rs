//! Shell: tasks: each calls the outside, bounded, timed, behind a breaker, and is settled by what comes back.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use saga_core::admission::CallResult;
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::retry::{FailedAttempt, FailureKind, error_links, panic_text};
use saga_core::service::Service;
use saga_core::waiting::Task;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;

use super::admission::CallPermit;
use super::engine::Engine;
use super::observer::SharedObserver;
use super::operation::Operation;
use super::task_runner::Waiting;
use super::tracer::SpanDetails;

/// Makes the calls that tasks ask for. A refusal that the business knows is an answer, not a failure.
pub trait TaskHandler: Send + Sync + 'static {
    /// What it calls: the name of the breaker.
    fn dependency(&self) -> &'static str;

    /// The answer, or why there is none.
    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>>;
}

/// A call without a useful answer.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct CallFailed {
    /// What was being done.
    pub context: String,
    /// Whether the other side said that this very call can never work. Otherwise it may or may not have had its
    /// effect, and is worth another try.
    pub is_final: bool,
    /// What went wrong.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What services that call nobody depend on.
pub const NOBODY: &str = "nobody";

/// For services that call nobody.
#[derive(Debug, Clone, Copy)]
pub struct NoCalls;

impl TaskHandler for NoCalls {
    fn dependency(&self) -> &'static str {
        NOBODY
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        let context = format!("nobody makes calls of kind {:?} here", task.kind);
        Box::pin(std::future::ready(Err(CallFailed { context, is_final: true, source: None })))
    }
}

/// A call that begins so soon after its commit is not asked about: that costs a transaction, and what was decided a
/// moment ago still holds.
const JUST_NOW: Duration = Duration::from_millis(100);
/// Tasks that wait are asked about so often. What is not wanted any more does not wait for what is away.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Makes calls until the engine is gone; what is under way then is cut off.
pub async fn run<S: Service>(
    engine: Engine<S>,
    handler: Arc<dyn TaskHandler>,
    mut arriving: mpsc::UnboundedReceiver<Waiting>,
    timeout: Duration,
    observer: SharedObserver,
) {
    let mut queue: VecDeque<Waiting> = VecDeque::new();
    let mut calls = JoinSet::new();
    let mut asking = tokio::time::interval(ASK_EVERY);
    asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while calls.try_join_next().is_some() {}
        let admission = engine.tasks().admission();
        tokio::select! {
            biased;
            arrived = arriving.recv() => match arrived {
                Some(waiting) => queue.push_back(waiting),
                None => return,
            },
            permit = admission.permit_call(), if !queue.is_empty() => {
                let Some(waiting) = queue.pop_front() else { continue };
                let one = One { engine: engine.clone(), observer: observer.clone() };
                calls.spawn(one.take(handler.clone(), waiting, permit, timeout));
            }
            _ = asking.tick(), if !queue.is_empty() => {
                let asked = queue.drain(..).map(|waiting| One::ask(&engine, waiting));
                queue = join_all(asked).await.into_iter().flatten().collect();
            }
        }
    }
}

/// What takes one task to its end, or to its next try.
struct One<S: Service> {
    engine: Engine<S>,
    observer: SharedObserver,
}

impl<S: Service> One<S> {
    /// Asks whether a call is still to be made, unless that is known. `None` when it is not, or when nobody can say:
    /// then the lease of the task lapses, and it comes again.
    async fn ask(engine: &Engine<S>, waiting: Waiting) -> Option<Waiting> {
        if waiting.wanted_at.is_some_and(|at| at.elapsed() < JUST_NOW) {
            return Some(waiting);
        }
        let (admission, id) = (engine.tasks().admission(), waiting.task.id);
        match engine.settle(Input::task_check(waiting.task.clone())).await {
            Ok(Outcome::Message(MessageOutcome::TaskNeeded)) => {
                return Some(Waiting { wanted_at: Some(Instant::now()), ..waiting });
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

    async fn take(
        self,
        handler: Arc<dyn TaskHandler>,
        waiting: Waiting,
        permit: CallPermit,
        timeout: Duration,
    ) {
        let Self { engine, observer } = self;
        let Some(Waiting { mut task, .. }) = Self::ask(&engine, waiting).await else {
            return permit.give_back();
        };
        let begun = engine.tracer().begin(task.trace, task.correlation_id);
        // Whoever is called goes on from here, and so does its answer; another try from where this one did.
        let asked = task.trace;
        task.trace = begun.map(|begun| begun.context);
        let began = Instant::now();
        let called = call(handler.as_ref(), &task, timeout).await;
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
        let kind = permit.end(task.id, end);
        let answer = called.map_err(|failed| FailedAttempt { kind, ..failed });
        if let Some(begun) = begun {
            let failed = answer.as_ref().err().map(FailedAttempt::reason);
            if failed.is_some() {
                engine.tracer().keep(begun.context);
            }
            let operation = || Operation::Call {
                kind: task.kind.clone(),
                correlation_id: task.correlation_id,
                message_id: task.id,
                attempt: task.attempts + 1,
                outcome: end.as_str(),
            };
            engine.tracer().end(begun, took, || SpanDetails {
                operation: operation(),
                failed,
                links: vec![],
            });
        }
        observer.call_ended(&task.kind, end, took, task.trace);
        let (admission, id) = (engine.tasks().admission(), task.id);
        // Before its outcome is durable: from then on the timers may bring the task again.
        let (claim, is_room) = admission.release(id);
        task.claim = claim.unwrap_or(task.claim);
        let called = std::mem::replace(&mut task.trace, asked);
        // When the engine is gone the task stays open: its lease lapses and the call is repeated.
        let settled =
            engine.settle(Input::task_result(task, answer, fastrand::u32(..)).with_trace(called)).await;
        if !matches!(settled, Ok(Outcome::Message(MessageOutcome::Retried(_)))) {
            admission.forget(id);
        }
        if is_room {
            engine.timer_wake().notify_one();
        }
    }
}

async fn call(handler: &dyn TaskHandler, task: &Task, timeout: Duration) -> Result<Value, FailedAttempt> {
    let calling = AssertUnwindSafe(async { handler.call(task).await }).catch_unwind();
    let failed = match tokio::time::timeout(timeout, calling).await {
        Ok(Ok(Ok(answer))) => return Ok(answer),
        Ok(Ok(Err(failed))) => FailedAttempt {
            kind: if failed.is_final { FailureKind::Permanent } else { FailureKind::Transient },
            chain: error_links(&failed),
        },
        Ok(Err(panic)) => {
            let text = format!("the call panicked: {}", panic_text(panic.as_ref()));
            FailedAttempt::new(FailureKind::Transient, text)
        }
        Err(_) => FailedAttempt::new(FailureKind::Transient, format!("no answer within {timeout:?}")),
    };
    Err(failed)
}
