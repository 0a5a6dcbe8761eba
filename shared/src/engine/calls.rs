//! Shell: calls to the outside: bounded, timed, each fed back as an input that settles its task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore, mpsc};
use tracing::warn;

use super::input::Input;
use super::{Engine, error_chain, panic_text};
use crate::metrics::Metrics;
use crate::service::Service;
use crate::store::Task;

/// Makes the call that a task asks for. A refusal by the outside is an answer, not a failure.
pub trait Caller: Send + Sync + 'static {
    /// The answer, or why there is none.
    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<serde_json::Value, CallFailed>>;
}

/// A call without a clear answer; it may or may not have had its effect.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct CallFailed {
    /// What was being done.
    pub context: String,
    /// What went wrong.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The calls' bounds.
#[derive(Debug, Clone, Copy)]
pub struct CallBounds {
    /// Calls in flight at once: the bulkhead.
    pub concurrency: usize,
    /// Calls waiting and in flight, over which consumers stop pulling.
    pub backlog: usize,
    /// How long one call may take.
    pub timeout: Duration,
}

/// The handle through which tasks reach the outside. Cheap to clone.
#[derive(Clone)]
pub struct Calls {
    inner: Arc<Inner>,
}

struct Inner {
    tasks: mpsc::UnboundedSender<Task>,
    open: AtomicUsize,
    fewer: Notify,
    backlog: usize,
}

impl Calls {
    /// A handle, and the tasks that [`run`] will take up.
    #[must_use]
    pub fn new(backlog: usize) -> (Self, mpsc::UnboundedReceiver<Task>) {
        // Unbounded, but for [`Calls::room`]: consumers wait there, so the engine, which must never wait for
        // calls that wait for the engine, finds room here always.
        let (tasks, waiting) = mpsc::unbounded_channel();
        let inner = Inner { tasks, open: AtomicUsize::new(0), fewer: Notify::new(), backlog };
        (Self { inner: Arc::new(inner) }, waiting)
    }

    /// Takes up tasks that this process has claimed.
    pub fn start(&self, tasks: Vec<Task>) {
        for task in tasks {
            self.inner.open.fetch_add(1, Ordering::Relaxed);
            if self.inner.tasks.send(task).is_err() {
                // Nobody makes calls any more: the lease lapses and the next life takes the task up.
                self.inner.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Resolves once there is room for more calls.
    pub async fn room(&self) {
        loop {
            let fewer = self.inner.fewer.notified();
            if self.inner.open.load(Ordering::Relaxed) < self.inner.backlog {
                return;
            }
            fewer.await;
        }
    }

    /// Calls waiting and in flight.
    #[must_use]
    pub fn open(&self) -> usize {
        self.inner.open.load(Ordering::Relaxed)
    }

    fn finished(&self) {
        self.inner.open.fetch_sub(1, Ordering::Relaxed);
        self.inner.fewer.notify_waiters();
    }
}

/// Makes calls until the handle is gone.
pub async fn run<S: Service>(
    engine: Engine<S>,
    caller: Arc<dyn Caller>,
    mut waiting: mpsc::UnboundedReceiver<Task>,
    bounds: CallBounds,
    metrics: Metrics,
) {
    let bulkhead = Arc::new(Semaphore::new(bounds.concurrency));
    while let Some(task) = waiting.recv().await {
        let Ok(permit) = bulkhead.clone().acquire_owned().await else {
            return;
        };
        let (engine, caller, metrics) = (engine.clone(), caller.clone(), metrics.clone());
        tokio::spawn(async move {
            let answer = call(caller.as_ref(), &task, bounds.timeout).await;
            drop(permit);
            metrics.count_call(&task.kind, if answer.is_ok() { "answered" } else { "failed" });
            // When the engine is gone the task stays open: its lease lapses and the call is repeated.
            let _ = engine.settle(Input::called(task, answer, fastrand::u32(..))).await;
            engine.calls().finished();
        });
    }
}

async fn call(caller: &dyn Caller, task: &Task, timeout: Duration) -> Result<serde_json::Value, String> {
    let calling = AssertUnwindSafe(async { caller.call(task).await }).catch_unwind();
    let failure = match tokio::time::timeout(timeout, calling).await {
        Ok(Ok(Ok(answer))) => return Ok(answer),
        Ok(Ok(Err(failed))) => error_chain(&failed),
        Ok(Err(panic)) => format!("the call panicked: {}", panic_text(panic.as_ref())),
        Err(_) => format!("no answer within {timeout:?}"),
    };
    warn!(task_id = %task.id, kind = task.kind, attempt = task.attempts + 1, "call failed: {failure}");
    Err(failure)
}
