//! The loops around the depot: the real engine, timers and tasks over a real store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::SignedDuration;
use saga_core::admission::TaskBounds;
use saga_core::breaker::BreakerPolicy;
use saga_core::dead_letter::DeadLettered;
use saga_core::decision::DecisionConfig;
use saga_core::fault::FaultKind;
use saga_core::input::{CommandOutcome, Input, Outcome, RequestKey};
use saga_core::retry::RetryPolicy;
use saga_core::service::{Service as _, Step, steps_of};
use saga_core::service_stats::StoreStats;
use saga_engine::host::metrics::Metrics;
use saga_engine::nats::NatsBus;
use saga_engine::runtime::admission::{BreakerAction, BreakerView, SharedAdmission, StepAdmission};
use saga_engine::runtime::bus::Durable;
use saga_engine::runtime::clock::{SharedClock, SystemClock};
use saga_engine::runtime::consumer::{Consumer, ConsumerBounds};
use saga_engine::runtime::engine::{Bounds, Engine};
use saga_engine::runtime::faults::{FaultSettings, Faults, NewFault};
use saga_engine::runtime::overrides::Overrides;
use saga_engine::runtime::relay::RelaySettings;
use saga_engine::runtime::tracer::Tracer;
use saga_engine::runtime::{Carriage, Means, Running, given_up, start};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Store, StoredOverrides};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::depot::{Depot, DepotCommand, SUPPLIER};
use super::shelf::Shelf;
use super::supplier::Supplier;
use super::writes::{parked, state};
use super::{in_time, wait_until};

/// This instance's name.
pub const OWNER: &str = "depot-1";

/// How patient the loops are.
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
    /// Calls under way at once.
    pub concurrency: usize,
    /// How far apart two batches may begin.
    pub max_batch_delay: Duration,
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
            max_batch_delay: Duration::from_millis(15),
        }
    }
}

/// A running depot. Dropping it is its crash: nothing is finished or said goodbye to.
pub struct EngineHarness {
    pub engine: Engine<Depot>,
    pub store: Arc<dyn Store>,
    pub supplier: Arc<Supplier>,
    pub metrics: Metrics,
    pub admission: SharedAdmission,
    pub faults: Faults,
    pub overrides: Overrides,
    steps: Vec<StepAdmission>,
    loops: JoinSet<()>,
}

impl EngineHarness {
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
        let harness = Self::just_started(store, pace, supplier, policy);
        // The loops get to their first wait.
        tokio::task::yield_now().await;
        harness
    }

    /// With a clock of the test's own.
    pub async fn on_clock(store: Arc<dyn Store>, pace: Pace, clock: SharedClock) -> Self {
        let policy = BreakerPolicy::default();
        let (off, nothing) = (Tracer::off(), StoredOverrides::default());
        let harness = Self::started(store, pace, Arc::default(), policy, clock, off, &nothing);
        tokio::task::yield_now().await;
        harness
    }

    /// With a tracer of the test's own.
    pub async fn traced(tracer: Tracer) -> Self {
        let (policy, clock, nothing) =
            (BreakerPolicy::default(), Arc::new(SystemClock), StoredOverrides::default());
        let pace = Pace::default();
        let harness = Self::started(in_memory(), pace, Arc::default(), policy, clock, tracer, &nothing);
        tokio::task::yield_now().await;
        harness
    }

    /// With what operators have overridden in its database.
    pub async fn overridden(store: Arc<dyn Store>) -> Self {
        let (policy, clock) = (BreakerPolicy::default(), Arc::new(SystemClock));
        let overridden = store.overrides().await.expect("the store works");
        let (pace, off) = (Pace::default(), Tracer::off());
        Self::started(store, pace, Arc::default(), policy, clock, off, &overridden)
    }

    /// With loops that have not yet begun.
    pub fn just_started(
        store: Arc<dyn Store>,
        pace: Pace,
        supplier: Arc<Supplier>,
        policy: BreakerPolicy,
    ) -> Self {
        let (off, nothing) = (Tracer::off(), StoredOverrides::default());
        Self::started(store, pace, supplier, policy, Arc::new(SystemClock), off, &nothing)
    }

    fn started(
        store: Arc<dyn Store>,
        pace: Pace,
        supplier: Arc<Supplier>,
        policy: BreakerPolicy,
        clock: SharedClock,
        tracer: Tracer,
        overridden: &StoredOverrides,
    ) -> Self {
        let metrics = Metrics::default();
        let faults = faults(true, steps_of::<Depot>().into_iter().map(|step| step.name).collect());
        let means = Means {
            tracer,
            store: store.clone(),
            handler: supplier.clone(),
            clock,
            observer: Arc::new(metrics.clone()),
            faults: faults.clone(),
        };
        let Running { engine, admission, steps, overrides, loops } =
            start(Arc::new(Depot), &means, &carriage(pace), |_| policy.clone(), overridden);
        Self { engine, store, supplier, metrics, admission, faults, overrides, steps, loops }
    }

    /// Lets a step listen to the broker.
    pub fn listens(&mut self, bus: &NatsBus, step: &'static Step) {
        for durable in Durable::all(Depot::NAME, &[step]) {
            let (engine, admission) = (self.engine.clone(), self.step(step).clone());
            let bounds = carriage(Pace::default()).consumer;
            self.loops.spawn(Consumer::new(bus.clone(), engine, admission, durable, bounds).run());
        }
    }

    /// Lets it hear what the broker gives up on.
    pub fn hears_advisories(&mut self, bus: &NatsBus) {
        let of_step = |admission: &StepAdmission| {
            let durables = Durable::all(Depot::NAME, &[admission.step()]);
            durables.into_iter().map(|durable| (durable, admission.clone())).collect::<Vec<_>>()
        };
        let durables = self.steps.iter().flat_map(of_step).collect();
        self.loops.spawn(given_up::run(bus.clone(), self.engine.clone(), durables));
    }

    /// Lets something more run beside the loops.
    pub fn runs(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.loops.spawn(work);
    }

    /// What stands before a step.
    pub fn step(&self, step: &'static Step) -> &StepAdmission {
        let is_its = |admission: &&StepAdmission| admission.step().name == step.name;
        self.steps.iter().find(is_its).expect("a step of the depot")
    }

    /// The breaker of a step or of the supplier.
    pub fn breaker(&self, name: &str) -> BreakerView {
        let mut all = self.admission.breakers().into_iter();
        all.find(|breaker| breaker.name == name).expect("a breaker of the depot")
    }

    /// Does to a breaker what an operator does.
    pub fn turn(&self, name: &str, action: BreakerAction) {
        self.admission.turn_breaker(name, action).expect("a breaker of the depot");
    }

    /// Lets tries of a step, or calls of the supplier, fail until its breaker opens.
    pub fn fail_until_open(&self, name: &str) {
        if name == SUPPLIER {
            while let Some(permit) = self.admission.permit_call().now_or_never() {
                drop(permit);
            }
        } else {
            let step = steps_of::<Depot>().into_iter().find(|step| step.name == name);
            // Not the one that the loops have: what is cut off here is no delivery of theirs.
            let step = self.admission.of_step(step.expect("a step of the depot"));
            while let Some(mut permit) = step.permit() {
                let _ = permit.begin();
            }
        }
        assert_eq!(self.breaker(name).state, saga_core::breaker::State::Open);
    }

    /// Asks and expects an answer.
    pub async fn ask(&self, command: DepotCommand) -> CommandOutcome<Depot> {
        let asked = self.engine.ask(Uuid::now_v7(), command, None);
        in_time("an answer", asked).await.expect("the store works")
    }

    /// Asks under an idempotency key.
    pub async fn ask_under(
        &self,
        key: &str,
        fingerprint: &str,
        command: DepotCommand,
    ) -> CommandOutcome<Depot> {
        let key = RequestKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() };
        let asked = self.engine.ask(Uuid::now_v7(), command, Some(key));
        in_time("an answer", asked).await.expect("the store works")
    }

    /// Hands inputs in so that they are one batch, and answers their outcomes.
    ///
    /// Needs a runtime of one thread and a store in memory: the engine gets to run when all have gathered.
    pub async fn settle_together(&self, inputs: Vec<Input<Depot>>) -> Vec<Outcome<Depot>> {
        let settled = futures::future::join_all(inputs.into_iter().map(|input| self.engine.settle(input)));
        let outcomes = in_time("the outcomes of a batch", settled).await;
        outcomes.into_iter().map(|outcome| outcome.expect("the store works")).collect()
    }

    /// Hands one input in, and answers the name of its outcome.
    pub async fn settle(&self, input: Input<Depot>) -> &'static str {
        self.settle_together(vec![input]).await[0].name()
    }

    /// What waits and is parked.
    pub async fn stats(&self) -> StoreStats {
        self.store.stats().await.expect("the store works")
    }

    /// Messages that a step has handled.
    pub async fn handled(&self, step: &Step) -> u64 {
        let tallies = self.store.message_counts().await.expect("the store works");
        tallies.handled.get(step.name).copied().unwrap_or(0)
    }

    /// Waits until a step has handled so many messages.
    pub async fn has_handled(&self, step: &Step, count: u64) {
        let what = format!("{} has handled {count}", step.name);
        wait_until(&what, async || self.handled(step).await == count).await;
    }

    pub async fn no_task_is_open(&self) {
        wait_until("no task is open", async || self.stats().await.tasks == 0).await;
    }

    /// Waits for the one dead letter.
    pub async fn the_dead_letter(&self) -> DeadLettered {
        wait_until("a dead letter", async || self.stats().await.dead_letters > 0).await;
        let mut found = parked(self.store.as_ref(), 9).await.expect("the store works");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The shelf for tea.
    pub async fn tea(&self) -> Shelf {
        state(self.store.as_ref(), "tea").await.expect("the store works").unwrap_or_default()
    }
}

pub fn in_memory() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory(Depot::rows()).expect("a database in memory"))
}

fn carriage(pace: Pace) -> Carriage {
    Carriage {
        rules: rules(pace),
        bounds: Bounds { max_batch: pace.due_limit, queue: 1024, max_batch_delay: pace.max_batch_delay },
        tasks: TaskBounds { backlog: pace.backlog, concurrency: pace.concurrency },
        call_timeout: pace.call_timeout,
        timer_poll: pace.poll,
        relay: RelaySettings::default(),
        consumer: ConsumerBounds { pull: 500, under_way: 2_000 },
    }
}

pub fn rules(pace: Pace) -> DecisionConfig {
    let retry = RetryPolicy {
        max_attempts: pace.attempts,
        base: pace.first_delay,
        cap: pace.first_delay.saturating_mul(4),
    };
    DecisionConfig {
        retry,
        step_retry: BTreeMap::new(),
        task_retry: retry,
        owner: OWNER.to_owned(),
        task_lease: pace.task_lease,
        keep_failed: false,
        use_inbox: true,
    }
}

/// A fault of this kind, always and everywhere.
pub fn fault(kind: FaultKind) -> NewFault {
    NewFault::of(kind)
}

/// The same in one step.
pub fn fault_of(step: &Step, kind: FaultKind) -> NewFault {
    NewFault { step: Some(step.name.to_owned()), ..fault(kind) }
}

/// Faults of a service with these steps, and whether any may be injected.
pub fn faults(enabled: bool, steps: Vec<&'static str>) -> Faults {
    Faults::new(FaultSettings { enabled, seed: 7 }, &FaultKind::OF_A_SERVICE, steps)
}

/// No faults at all.
pub fn no_faults() -> Faults {
    faults(false, vec![])
}
