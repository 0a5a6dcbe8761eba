//! Shell: calls to the outside: bounded, timed, behind a breaker, each fed back as an input that settles its
//! task.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use super::input::{Input, Outcome};
use super::{Engine, error_links, panic_text};
use crate::metrics::Metrics;
use crate::resilience::{Answers, Guard, Pass};
use crate::retry::{FailedTry, Severity};
use crate::service::Service;
use crate::store::Task;

/// Makes the call that a task asks for. A refusal that the business knows is an answer, not a failure.
pub trait Caller: Send + Sync + 'static {
    /// What it calls: the name of the breaker.
    fn dependency(&self) -> &'static str;

    /// The answer, or why there is none.
    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<serde_json::Value, CallFailed>>;
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

/// The calls' bounds.
#[derive(Debug, Clone, Copy)]
pub struct CallBounds {
    /// Calls in flight at once: the bulkhead.
    pub concurrency: usize,
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
    /// Tasks waiting and in flight, each with its newest claim.
    held: Mutex<HashMap<Uuid, i64>>,
    /// Inputs that may yet bring a task.
    promised: AtomicUsize,
    fewer: Notify,
    backlog: usize,
    guard: Guard,
    origin: Instant,
    answers: Mutex<Answers>,
    /// Whether the timers left tasks where they are for want of room.
    is_wanted: AtomicBool,
}

/// Room for the task that an input may bring, kept until the input is settled.
#[must_use]
pub struct Place {
    inner: Arc<Inner>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.promised.fetch_sub(1, Ordering::AcqRel);
        self.inner.fewer.notify_waiters();
    }
}

impl Calls {
    /// A handle, and the tasks that [`run`] will take up. `backlog` bounds what waits and is in flight; `guard`
    /// is the breaker of what is called.
    #[must_use]
    pub fn new(backlog: usize, guard: Guard) -> (Self, mpsc::UnboundedReceiver<Task>) {
        // Unbounded, but for [`Calls::place`]: consumers wait there, so the engine, which must never wait for
        // calls that wait for the engine, finds room here always.
        let (tasks, waiting) = mpsc::unbounded_channel();
        let inner = Inner {
            tasks,
            held: Mutex::default(),
            promised: AtomicUsize::new(0),
            fewer: Notify::new(),
            backlog,
            guard,
            origin: Instant::now(),
            answers: Mutex::default(),
            is_wanted: AtomicBool::new(false),
        };
        (Self { inner: Arc::new(inner) }, waiting)
    }

    /// Takes up tasks that this process has claimed. One that it holds already, because its lease lapsed
    /// meanwhile, goes on under the newer claim.
    pub fn start(&self, tasks: Vec<Task>) {
        for task in tasks {
            let id = task.id;
            if self.inner.held().insert(id, task.claim).is_none() && self.inner.tasks.send(task).is_err() {
                // Nobody makes calls any more: the lease lapses and the next life takes the task up.
                self.inner.held().remove(&id);
            }
        }
    }

    /// Waits for room for one more; `None` when the breaker is open: then nothing is to be pulled.
    pub async fn place(&self) -> Option<Place> {
        loop {
            let (fewer, changed) = (self.inner.fewer.notified(), self.inner.guard.changed());
            if self.inner.guard.is_open() {
                return None;
            }
            if self.inner.open() < self.inner.limit() {
                self.inner.promised.fetch_add(1, Ordering::AcqRel);
                return Some(Place { inner: self.inner.clone() });
            }
            tokio::select! {
                () = fewer => {}
                () = changed => {}
            }
        }
    }

    /// How many more may be started now.
    pub(super) fn room(&self) -> usize {
        if self.inner.guard.is_open() { 0 } else { self.inner.limit().saturating_sub(self.inner.open()) }
    }

    /// Asks [`run`] to wake the timers when there is room again.
    pub(super) fn want_room(&self) {
        self.inner.is_wanted.store(true, Ordering::Release);
    }

    /// Calls waiting and in flight.
    #[must_use]
    pub fn open(&self) -> usize {
        self.inner.held().len()
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, HashMap<Uuid, i64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> usize {
        self.held().len() + self.promised.load(Ordering::Acquire)
    }

    /// A dependency that has just come back gets a few calls first, and with each answer more.
    fn limit(&self) -> usize {
        self.guard.ramp().map_or(self.backlog, |ramp| self.backlog.min(ramp as usize))
    }

    /// Leave for one more call beside those in flight.
    async fn admitted(&self, in_flight: impl Fn() -> usize) -> Pass {
        loop {
            self.guard.admits().await;
            let (fewer, changed) = (self.fewer.notified(), self.guard.changed());
            let is_room = self.guard.ramp().is_none_or(|ramp| in_flight() < ramp as usize);
            if is_room && let Some(pass) = self.guard.acquire() {
                return pass;
            }
            tokio::select! {
                () = fewer => {}
                () = changed => {}
            }
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the breaker, and finds out what a failure means: it consumes an attempt when the dependency is there
    /// for others.
    fn judged(
        &self,
        task: Uuid,
        answer: Result<serde_json::Value, FailedTry>,
        pass: Pass,
    ) -> Result<serde_json::Value, FailedTry> {
        let failed = match answer {
            Ok(answer) => {
                self.answers().answered(self.origin.elapsed());
                pass.succeed();
                return Ok(answer);
            }
            Err(failed) => failed,
        };
        if failed.severity == Severity::Permanent {
            // It was there to say no.
            self.answers().answered(self.origin.elapsed());
            pass.ignore();
            return Err(failed);
        }
        pass.fail();
        let severity = match self.answers().failed(task, self.origin.elapsed()) {
            true => self.guard.state().severity(),
            false => Severity::Outage,
        };
        Err(FailedTry { severity, ..failed })
    }

    /// The newest claim on the task, and whether the timers should look for more.
    fn finished(&self, id: Uuid) -> (Option<i64>, bool) {
        let claim = self.held().remove(&id);
        self.fewer.notify_waiters();
        // Not for each: a look is a transaction.
        let is_room = self.open() <= self.limit() / 2 && self.is_wanted.swap(false, Ordering::AcqRel);
        (claim, is_room)
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
    let inner = engine.calls().inner.clone();
    while let Some(task) = waiting.recv().await {
        let Ok(permit) = bulkhead.clone().acquire_owned().await else {
            return;
        };
        let in_flight = || (bounds.concurrency - bulkhead.available_permits()).saturating_sub(1);
        let pass = inner.admitted(in_flight).await;
        let (engine, caller, metrics, inner) =
            (engine.clone(), caller.clone(), metrics.clone(), inner.clone());
        tokio::spawn(async move {
            let mut task = task;
            let answer = call(caller.as_ref(), &task, bounds.timeout).await;
            let answer = inner.judged(task.id, answer, pass);
            drop(permit);
            metrics.count_call(&task.kind, if answer.is_ok() { "answered" } else { "failed" });
            // Before its outcome is durable: from then on the timers may bring the task again.
            let (claim, is_room) = inner.finished(task.id);
            task.claim = claim.unwrap_or(task.claim);
            // When the engine is gone the task stays open: its lease lapses and the call is repeated.
            let id = task.id;
            let settled = engine.settle(Input::called(task, answer, fastrand::u32(..))).await;
            if !matches!(settled, Ok(Outcome::Retried(_))) {
                inner.answers().settled(id);
            }
            if is_room {
                engine.timer_wake().notify_one();
            }
        });
    }
}

async fn call(caller: &dyn Caller, task: &Task, timeout: Duration) -> Result<serde_json::Value, FailedTry> {
    let calling = AssertUnwindSafe(async { caller.call(task).await }).catch_unwind();
    let failed = match tokio::time::timeout(timeout, calling).await {
        Ok(Ok(Ok(answer))) => return Ok(answer),
        Ok(Ok(Err(failed))) => FailedTry {
            severity: if failed.is_final { Severity::Permanent } else { Severity::Transient },
            chain: error_links(&failed),
        },
        Ok(Err(panic)) => {
            let text = format!("the call panicked: {}", panic_text(panic.as_ref()));
            FailedTry::new(Severity::Transient, text)
        }
        Err(_) => FailedTry::new(Severity::Transient, format!("no answer within {timeout:?}")),
    };
    warn!(task_id = %task.id, kind = task.kind, attempt = task.attempts + 1, "call failed: {}", failed.reason());
    Err(failed)
}
