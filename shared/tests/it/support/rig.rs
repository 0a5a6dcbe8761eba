//! The machinery around the shop: the real engine, timers and calls over a real store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde_json::Value;
use shared::bus::{Bus, consumer};
use shared::engine::calls::{self, CallBounds, CallFailed, Caller, Calls};
use shared::engine::timers::{self, TimerSettings};
use shared::engine::{self, Bounds, Engine, Outcome, RequestKey, Rules};
use shared::metrics::Metrics;
use shared::retry::RetryPolicy;
use shared::service::{Service, Step};
use shared::store::sqlite::SqliteStore;
use shared::store::{Store, Task};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::in_time;
use super::shop::{Shop, ShopCommand};

/// This instance's name.
pub const OWNER: &str = "shop-1";

/// How patient the machinery is.
#[derive(Clone, Copy)]
pub struct Pace {
    pub attempts: u32,
    pub first_delay: Duration,
    pub call_timeout: Duration,
    pub task_lease: SignedDuration,
    /// Things of each sort that one look at the timers takes up.
    pub due_limit: usize,
    /// The timers look this often without being woken. Long, so that it is the wake-ups that tests see.
    pub poll: Duration,
    pub backlog: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            attempts: 3,
            first_delay: Duration::from_millis(1),
            call_timeout: Duration::from_secs(10),
            task_lease: SignedDuration::from_hours(1),
            due_limit: 256,
            poll: Duration::from_hours(1),
            backlog: 100,
        }
    }
}

/// A running shop. Dropping it is its crash: nothing is finished or said goodbye to.
pub struct Rig {
    pub engine: Engine<Shop>,
    pub store: Arc<dyn Store>,
    pub supplier: Arc<Supplier>,
    pub metrics: Metrics,
    background: JoinSet<()>,
}

impl Rig {
    /// Over an empty database in memory.
    pub async fn new() -> Self {
        Self::over(in_memory(), Pace::default()).await
    }

    pub async fn over(store: Arc<dyn Store>, pace: Pace) -> Self {
        Self::with_supplier(store, pace, Arc::default()).await
    }

    pub async fn with_supplier(store: Arc<dyn Store>, pace: Pace, supplier: Arc<Supplier>) -> Self {
        let rig = Self::just_started(store, pace, supplier);
        // The loops get to their first wait.
        tokio::task::yield_now().await;
        rig
    }

    /// With loops that have not yet begun.
    pub fn just_started(store: Arc<dyn Store>, pace: Pace, supplier: Arc<Supplier>) -> Self {
        let metrics = Metrics::default();
        let (calls, tasks) = Calls::new(pace.backlog);
        let bounds = Bounds { batch_max: 256, queue: 1024 };
        let (engine, looping) =
            Engine::new(Arc::new(Shop), store.clone(), rules(pace), bounds, metrics.clone(), calls);
        let call_bounds = CallBounds { concurrency: 8, backlog: pace.backlog, timeout: pace.call_timeout };
        let timers = TimerSettings {
            owner: OWNER.to_owned(),
            task_lease: pace.task_lease,
            limit: pace.due_limit,
            poll: pace.poll,
        };
        let mut background = JoinSet::new();
        background.spawn(engine::run(looping));
        background.spawn(calls::run(engine.clone(), supplier.clone(), tasks, call_bounds, metrics.clone()));
        background.spawn(timers::run(engine.clone(), store.clone(), timers));
        Self { engine, store, supplier, metrics, background }
    }

    /// Lets a step listen to the broker.
    pub fn listens(&mut self, bus: &Bus, step: &'static Step) {
        for subscription in step.hears {
            self.background.spawn(consumer::run(bus.clone(), self.engine.clone(), step, subscription));
        }
    }

    /// Asks and expects an answer.
    pub async fn ask(&self, command: ShopCommand) -> Outcome<Shop> {
        let asked = self.engine.ask(Uuid::now_v7(), command, None);
        in_time("an answer", asked).await.expect("the store works")
    }

    /// Asks under an idempotency key.
    pub async fn ask_under(&self, key: &str, fingerprint: &str, command: ShopCommand) -> Outcome<Shop> {
        let key = RequestKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() };
        let asked = self.engine.ask(Uuid::now_v7(), command, Some(key));
        in_time("an answer", asked).await.expect("the store works")
    }

    /// Hands inputs in so that they are one batch, and answers their outcomes.
    ///
    /// Needs a runtime of one thread and a store in memory: the engine gets to run when all have gathered.
    pub async fn settle_together(&self, inputs: Vec<engine::Input<Shop>>) -> Vec<Outcome<Shop>> {
        let settled = futures::future::join_all(inputs.into_iter().map(|input| self.engine.settle(input)));
        let outcomes = in_time("the outcomes of a batch", settled).await;
        outcomes.into_iter().map(|outcome| outcome.expect("the store works")).collect()
    }
}

pub fn in_memory() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory(Shop::rows()).expect("a database in memory"))
}

pub fn rules(pace: Pace) -> Rules {
    let retry = RetryPolicy {
        max_attempts: pace.attempts,
        base: pace.first_delay,
        cap: pace.first_delay.saturating_mul(4),
    };
    Rules { retry, task_retry: retry, owner: OWNER.to_owned(), task_lease: pace.task_lease, use_inbox: true }
}

/// What the supplier does with one call.
pub enum Deed {
    Answer(u64),
    Fail,
    Hang,
    Panic,
}

/// The outside world: does what it is told, then goes on answering one piece each time.
#[derive(Default)]
pub struct Supplier {
    script: Mutex<VecDeque<Deed>>,
    called: Mutex<Vec<Uuid>>,
    released: Notify,
}

impl Supplier {
    pub fn will(deeds: impl IntoIterator<Item = Deed>) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(deeds.into_iter().collect()), ..Self::default() })
    }

    /// The tasks it was called for, in order.
    pub fn called(&self) -> Vec<Uuid> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends what hangs, with a failure.
    pub fn release(&self) {
        self.released.notify_waiters();
    }
}

impl Caller for Supplier {
    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).push(task.id);
        let deed = self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let failed = || Err(CallFailed { context: "the supplier is closed".to_owned(), source: None });
        Box::pin(async move {
            match deed.unwrap_or(Deed::Answer(1)) {
                Deed::Answer(pieces) => Ok(Value::from(pieces)),
                Deed::Fail => failed(),
                Deed::Hang => {
                    self.released.notified().await;
                    failed()
                }
                Deed::Panic => panic!("the supplier's client has a bug"),
            }
        })
    }
}
