//! Shell: tasks: each calls the outside, bounded, timed, behind a breaker, and is settled by what comes back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use saga_core::admission::CallEnd;
use saga_core::input::{Input, MessageOutcome, Outcome};
use saga_core::retry::{FailedTry, FailureKind, error_links, panic_text};
use saga_core::service::Service;
use saga_core::waiting::Task;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use super::engine::Engine;
use super::observer::SharedObserver;

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

/// Makes calls until the engine is gone; what is under way then is cut off.
pub async fn run<S: Service>(
    engine: Engine<S>,
    handler: Arc<dyn TaskHandler>,
    mut waiting: mpsc::UnboundedReceiver<Task>,
    timeout: Duration,
    observer: SharedObserver,
) {
    let mut calls = JoinSet::new();
    while let Some(task) = waiting.recv().await {
        while calls.try_join_next().is_some() {}
        let permit = engine.tasks().admission().permit_call().await;
        let (engine, handler, observer) = (engine.clone(), handler.clone(), observer.clone());
        calls.spawn(async move {
            let mut task = task;
            let called = call(handler.as_ref(), &task, timeout).await;
            let end = match &called {
                Ok(_) => CallEnd::Answered,
                Err(failed) if failed.kind == FailureKind::Permanent => CallEnd::Refused,
                Err(_) => CallEnd::Failed,
            };
            let kind = permit.end(task.id, end);
            let answer = called.map_err(|failed| FailedTry { kind, ..failed });
            observer.call_ended(&task.kind, if answer.is_ok() { "answered" } else { "failed" });
            let (admission, id) = (engine.tasks().admission(), task.id);
            // Before its outcome is durable: from then on the timers may bring the task again.
            let (claim, is_room) = admission.release(id);
            task.claim = claim.unwrap_or(task.claim);
            // When the engine is gone the task stays open: its lease lapses and the call is repeated.
            let settled = engine.settle(Input::called(task, answer, fastrand::u32(..))).await;
            if !matches!(settled, Ok(Outcome::Message(MessageOutcome::Retried(_)))) {
                admission.forget(id);
            }
            if is_room {
                engine.timer_wake().notify_one();
            }
        });
    }
}

async fn call(handler: &dyn TaskHandler, task: &Task, timeout: Duration) -> Result<Value, FailedTry> {
    let calling = AssertUnwindSafe(async { handler.call(task).await }).catch_unwind();
    let failed = match tokio::time::timeout(timeout, calling).await {
        Ok(Ok(Ok(answer))) => return Ok(answer),
        Ok(Ok(Err(failed))) => FailedTry {
            kind: if failed.is_final { FailureKind::Permanent } else { FailureKind::Transient },
            chain: error_links(&failed),
        },
        Ok(Err(panic)) => {
            let text = format!("the call panicked: {}", panic_text(panic.as_ref()));
            FailedTry::new(FailureKind::Transient, text)
        }
        Err(_) => FailedTry::new(FailureKind::Transient, format!("no answer within {timeout:?}")),
    };
    warn!(task_id = %task.id, kind = task.kind, attempt = task.attempts + 1, "call failed: {}", failed.reason());
    Err(failed)
}
