//! The machinery around the shop: the real engine, timers and calls over a real store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde_json::Value;
use shared::bus::Bus;
use shared::bus::consumer::Consumer;
use shared::engine::calls::{self, CallBounds, CallFailed, Caller, Calls};
use shared::engine::timers::{self, TimerSettings};
use shared::engine::{self, Bounds, Engine, Outcome, RequestKey, Rules};
use shared::faults::{FaultKind, FaultSettings, Faults};
use shared::gate::{Breakers, Gate};
use shared::metrics::Metrics;
use shared::resilience::{BreakerPolicy, Guard};
use shared::retry::RetryPolicy;
use shared::service::{Service, Step};
use shared::store::sqlite::SqliteStore;
use shared::store::{Store, Task};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::in_time;
use super::shop::{SUPPLIER, Shop, ShopCommand};

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
    /// Calls in flight at once.
    pub concurrency: usize,
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
            concurrency: 8,
        }
    }
}

/// A running shop. Dropping it is its crash: nothing is finished or said goodbye to.
pub struct Rig {
    pub engine: Engine<Shop>,
    pub store: Arc<dyn Store>,
    pub supplier: Arc<Supplier>,
    pub metrics: Metrics,
    pub breakers: Breakers,
    pub faults: Faults,
    gates: Vec<Gate>,
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
        Self::guarded(store, pace, supplier, BreakerPolicy::default()).await
    }

    /// With breakers of this policy.
    pub async fn guarded(
        store: Arc<dyn Store>,
        pace: Pace,
        supplier: Arc<Supplier>,
        policy: BreakerPolicy,
    ) -> Self {
        let rig = Self::just_started(store, pace, supplier, policy);
        // The loops get to their first wait.
        tokio::task::yield_now().await;
        rig
    }

    /// With loops that have not yet begun.
    pub fn just_started(
        store: Arc<dyn Store>,
        pace: Pace,
        supplier: Arc<Supplier>,
        policy: BreakerPolicy,
    ) -> Self {
        let metrics = Metrics::default();
        let guard = Guard::new(SUPPLIER, policy.clone());
        let (calls, tasks) = Calls::new(pace.backlog, guard.clone());
        let steps: Vec<_> = Shop::steps().iter().map(|step| step.name).collect();
        let breakers = Breakers::new(&steps, |_| policy.clone()).with(guard);
        let faults = faults(true, steps);
        let gates: Vec<_> = Shop::steps().iter().map(|step| breakers.gate(step, &faults)).collect();
        let bounds = Bounds { batch_max: 256, queue: 1024 };
        let (engine, looping) =
            Engine::new(Arc::new(Shop), store.clone(), rules(pace), bounds, metrics.clone(), calls);
        let call_bounds = CallBounds { concurrency: pace.concurrency, timeout: pace.call_timeout };
        let timers = TimerSettings {
            owner: OWNER.to_owned(),
            task_lease: pace.task_lease,
            limit: pace.due_limit,
            poll: pace.poll,
            gates: gates.clone(),
        };
        let mut background = JoinSet::new();
        background.spawn(engine::run(looping));
        background.spawn(calls::run(engine.clone(), supplier.clone(), tasks, call_bounds, metrics.clone()));
        background.spawn(timers::run(engine.clone(), store.clone(), timers));
        Self { engine, store, supplier, metrics, breakers, faults, gates, background }
    }

    /// Lets a step listen to the broker.
    pub fn listens(&mut self, bus: &Bus, step: &'static Step) {
        for subscription in step.hears {
            let consumer = Consumer::new(bus.clone(), self.engine.clone(), self.gate(step), subscription);
            self.background.spawn(consumer.run());
        }
    }

    /// Lets it hear what the broker gives up on.
    pub fn hears_advisories(&mut self, bus: &Bus) {
        let advisories = shared::bus::advisories::run(bus.clone(), self.engine.clone(), self.gates.clone());
        self.background.spawn(advisories);
    }

    /// What stands before a step.
    pub fn gate(&self, step: &'static Step) -> Gate {
        self.gates.iter().find(|gate| gate.step().name == step.name).expect("a step of the shop").clone()
    }

    /// The breaker of a step or of the supplier.
    pub fn guard(&self, name: &str) -> &Guard {
        self.breakers.get(name).expect("a breaker of the shop")
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
    Rules {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner: OWNER.to_owned(),
        task_lease: pace.task_lease,
        use_inbox: true,
    }
}

/// Faults of a service with these steps, and whether any may be injected.
pub fn faults(enabled: bool, steps: Vec<&'static str>) -> Faults {
    Faults::new(FaultSettings { enabled, seed: 7 }, &FaultKind::OF_A_SERVICE, steps)
}

/// No faults at all.
pub fn no_faults() -> Faults {
    faults(false, vec![])
}

/// What the supplier does with one call.
pub enum Deed {
    Answer(u64),
    Fail,
    /// Says that this can never work.
    Refuse,
    Hang,
    Panic,
}

/// The outside world: does what it is told, then goes on answering one piece each time.
#[derive(Default)]
pub struct Supplier {
    script: Mutex<VecDeque<Deed>>,
    called: Mutex<Vec<Uuid>>,
    released: Notify,
    is_closed: AtomicBool,
    never_has: Option<&'static str>,
    under_way: Mutex<BTreeSet<Uuid>>,
    /// Calls that were made while one under the same key was under way.
    overlaps: AtomicUsize,
}

impl Supplier {
    pub fn will(deeds: impl IntoIterator<Item = Deed>) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(deeds.into_iter().collect()), ..Self::default() })
    }

    /// One that answers nobody until it opens.
    pub fn closed() -> Arc<Self> {
        let supplier = Self::default();
        supplier.is_closed.store(true, Ordering::Release);
        Arc::new(supplier)
    }

    /// One that fails whenever it is asked for this sku, and answers whatever else it is asked for.
    pub fn without(sku: &'static str) -> Arc<Self> {
        Arc::new(Self { never_has: Some(sku), ..Self::default() })
    }

    pub fn opens(&self) {
        self.is_closed.store(false, Ordering::Release);
    }

    pub fn overlaps(&self) -> usize {
        self.overlaps.load(Ordering::Acquire)
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

/// A call until it ends.
struct UnderWay<'a> {
    supplier: &'a Supplier,
    id: Uuid,
}

impl<'a> UnderWay<'a> {
    fn of(supplier: &'a Supplier, id: Uuid) -> Self {
        if !supplier.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
            supplier.overlaps.fetch_add(1, Ordering::AcqRel);
        }
        Self { supplier, id }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.supplier.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Caller for Supplier {
    fn dependency(&self) -> &'static str {
        SUPPLIER
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).push(task.id);
        let deed = self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let fails = self.is_closed.load(Ordering::Acquire)
            || self.never_has.is_some_and(|sku| task.payload.contains(sku));
        let deed = deed.unwrap_or(if fails { Deed::Fail } else { Deed::Answer(1) });
        let call = UnderWay::of(self, task.id);
        let failed = |is_final| {
            let context = if is_final { "the supplier says no" } else { "the supplier is closed" };
            Err(CallFailed { context: context.to_owned(), is_final, source: None })
        };
        Box::pin(async move {
            let _call = call;
            match deed {
                Deed::Answer(pieces) => Ok(Value::from(pieces)),
                Deed::Fail => failed(false),
                Deed::Refuse => failed(true),
                Deed::Hang => {
                    self.released.notified().await;
                    failed(false)
                }
                Deed::Panic => panic!("the supplier's client has a bug"),
            }
        })
    }
}
