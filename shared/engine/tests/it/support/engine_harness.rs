//! The loops around the depot: real engine, timers and task runner over a real store.

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
use saga_engine::runtime::consumer::{Consumer, ConsumerLimits};
use saga_engine::runtime::engine::{Engine, EngineSettings};
use saga_engine::runtime::injected_faults::{FaultSettings, InjectedFaults, NewFault};
use saga_engine::runtime::overrides::Overrides;
use saga_engine::runtime::relay::RelaySettings;
use saga_engine::runtime::startup_backlog::StartupBacklog;
use saga_engine::runtime::tracer::Tracer;
use saga_engine::runtime::{Runtime, RuntimeConfig, RuntimeDeps, advisories, start};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Store, StoredOverrides};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::depot::{Depot, DepotCommand, SUPPLIER};
use super::shelf::Shelf;
use super::supplier::Supplier;
use super::writes::{newest_dead_letters, state};
use super::{in_time, wait_until};

/// Name of this instance.
pub const OWNER: &str = "depot-1";

/// Limits and delays of the loops.
#[derive(Clone, Copy)]
pub struct Pace {
    pub attempts: u32,
    pub first_delay: Duration,
    pub call_timeout: Duration,
    pub task_lease: SignedDuration,
    /// Maximum number of rows, and of retries, in one scan.
    pub due_limit: usize,
    /// Poll interval of the timers. Long, so that tests see the wake-ups.
    pub poll: Duration,
    pub backlog: usize,
    /// Maximum number of calls in flight.
    pub concurrency: usize,
    /// Maximum delay between two batches.
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

/// Parts of a depot before its start.
pub struct Setup {
    pub store: Arc<dyn Store>,
    pub pace: Pace,
    pub supplier: Arc<Supplier>,
    pub policy: BreakerPolicy,
    pub clock: SharedClock,
    pub tracer: Tracer,
    pub overridden: StoredOverrides,
    pub startup_backlog: StartupBacklog,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            store: in_memory(),
            pace: Pace::default(),
            supplier: Arc::default(),
            policy: BreakerPolicy::default(),
            clock: Arc::new(SystemClock),
            tracer: Tracer::off(),
            overridden: StoredOverrides::default(),
            startup_backlog: StartupBacklog::none(),
        }
    }
}

/// Running depot. Dropping it is a crash.
pub struct EngineHarness {
    pub engine: Engine<Depot>,
    pub store: Arc<dyn Store>,
    pub supplier: Arc<Supplier>,
    pub metrics: Metrics,
    pub admission: SharedAdmission,
    pub faults: InjectedFaults,
    pub overrides: Overrides,
    steps: Vec<StepAdmission>,
    loops: JoinSet<()>,
}

impl EngineHarness {
    /// Runs over an empty database in memory.
    pub async fn new() -> Self {
        Self::running(Setup::default()).await
    }

    pub async fn over(store: Arc<dyn Store>, pace: Pace) -> Self {
        Self::running(Setup { store, pace, ..Setup::default() }).await
    }

    pub async fn with_supplier(store: Arc<dyn Store>, pace: Pace, supplier: Arc<Supplier>) -> Self {
        Self::running(Setup { store, pace, supplier, ..Setup::default() }).await
    }

    /// Runs with breakers of this policy.
    pub async fn guarded(
        store: Arc<dyn Store>,
        pace: Pace,
        supplier: Arc<Supplier>,
        policy: BreakerPolicy,
    ) -> Self {
        Self::running(Setup { store, pace, supplier, policy, ..Setup::default() }).await
    }

    /// Runs with this clock.
    pub async fn on_clock(store: Arc<dyn Store>, pace: Pace, clock: SharedClock) -> Self {
        Self::running(Setup { store, pace, clock, ..Setup::default() }).await
    }

    /// Runs with this tracer.
    pub async fn traced(tracer: Tracer) -> Self {
        Self::running(Setup { tracer, ..Setup::default() }).await
    }

    /// Runs with the overrides in its database.
    pub async fn overridden(store: Arc<dyn Store>) -> Self {
        let overridden = store.overrides().await.expect("the store works");
        Self::just_started(Setup { store, overridden, ..Setup::default() })
    }

    async fn running(setup: Setup) -> Self {
        let harness = Self::just_started(setup);
        // The loops get to their first wait.
        tokio::task::yield_now().await;
        harness
    }

    /// Runs with loops that have not begun yet.
    pub fn just_started(setup: Setup) -> Self {
        let Setup { store, pace, supplier, policy, clock, tracer, overridden, startup_backlog } = setup;
        let metrics = Metrics::default();
        let faults = faults(true, steps_of::<Depot>().into_iter().map(|step| step.name).collect());
        let deps = RuntimeDeps {
            startup_backlog,
            tracer,
            store: store.clone(),
            handler: supplier.clone(),
            clock,
            observer: Arc::new(metrics.clone()),
            faults: faults.clone(),
        };
        let Runtime { engine, admission, steps, overrides, loops } =
            start(Arc::new(Depot), &deps, &runtime_config(pace), |_| policy.clone(), &overridden);
        Self { engine, store, supplier, metrics, admission, faults, overrides, steps, loops }
    }

    /// Starts the consumers of a step.
    pub fn listens(&mut self, bus: &NatsBus, step: &'static Step) {
        for durable in Durable::all(Depot::NAME, &[step]) {
            let (engine, admission) = (self.engine.clone(), self.step(step).clone());
            let bounds = runtime_config(Pace::default()).consumer;
            self.loops.spawn(Consumer::new(bus.clone(), engine, admission, durable, bounds).run());
        }
    }

    /// Runs over a store whose deadlines wait for the messages that `bus` has for a step.
    pub async fn catches_up(store: Arc<dyn Store>, bus: &NatsBus, step: &'static Step) -> Self {
        let startup_backlog = StartupBacklog::unknown();
        let setup = Setup { store, startup_backlog: startup_backlog.clone(), ..Setup::default() };
        let mut harness = Self::running(setup).await;
        let durables = Durable::all(Depot::NAME, &[step]).into_iter();
        let consumers = durables.map(|durable| (durable, harness.step(step).clone())).collect();
        harness.loops.spawn(startup_backlog.process(bus.clone(), consumers));
        harness.listens(bus, step);
        harness
    }

    /// Starts processing of the broker's advisories.
    pub fn processes_advisories(&mut self, bus: &NatsBus) {
        let of_step = |admission: &StepAdmission| {
            let durables = Durable::all(Depot::NAME, &[admission.step()]);
            durables.into_iter().map(|durable| (durable, admission.clone())).collect::<Vec<_>>()
        };
        let durables = self.steps.iter().flat_map(of_step).collect();
        self.loops.spawn(advisories::run(bus.clone(), self.engine.clone(), durables));
    }

    /// Runs `work` beside the loops.
    pub fn runs(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.loops.spawn(work);
    }

    /// Admission of a step.
    pub fn step(&self, step: &'static Step) -> &StepAdmission {
        let is_its = |admission: &&StepAdmission| admission.step().name == step.name;
        self.steps.iter().find(is_its).expect("a step of the depot")
    }

    /// Breaker of a step or of the supplier.
    pub fn breaker(&self, name: &str) -> BreakerView {
        let mut all = self.admission.breakers().into_iter();
        all.find(|breaker| breaker.name == name).expect("a breaker of the depot")
    }

    /// Applies an operator's action to a breaker.
    pub fn change_breaker(&self, name: &str, action: BreakerAction) {
        self.admission.set_breaker(name, action).expect("a breaker of the depot");
    }

    /// Fails attempts of a step, or calls of the supplier, until the breaker opens.
    pub fn fail_until_open(&self, name: &str) {
        if name == SUPPLIER {
            while let Some(permit) = self.admission.acquire_call().now_or_never() {
                drop(permit);
            }
        } else {
            let step = steps_of::<Depot>().into_iter().find(|step| step.name == name);
            // Not the one that the loops have: what is cut off here is no delivery of theirs.
            let step = self.admission.for_step(step.expect("a step of the depot"));
            while let Some(mut permit) = step.try_acquire() {
                let _ = permit.begin();
            }
        }
        assert_eq!(self.breaker(name).state, saga_core::breaker::State::Open);
    }

    /// Executes a command.
    pub async fn execute(&self, command: DepotCommand) -> CommandOutcome<Depot> {
        let executed = self.engine.execute(Uuid::now_v7(), command, None);
        in_time("an answer", executed).await.expect("the store works")
    }

    /// Executes a command with an idempotency key.
    pub async fn execute_with_key(
        &self,
        key: &str,
        fingerprint: &str,
        command: DepotCommand,
    ) -> CommandOutcome<Depot> {
        let key = RequestKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() };
        let executed = self.engine.execute(Uuid::now_v7(), command, Some(key));
        in_time("an answer", executed).await.expect("the store works")
    }

    /// Hands inputs in so that they are one batch, and answers their outcomes.
    ///
    /// Needs a runtime of one thread and a store in memory: the engine gets to run when all have gathered.
    pub async fn process_together(&self, inputs: Vec<Input<Depot>>) -> Vec<Outcome<Depot>> {
        let settled = futures::future::join_all(inputs.into_iter().map(|input| self.engine.process(input)));
        let outcomes = in_time("the outcomes of a batch", settled).await;
        outcomes.into_iter().map(|outcome| outcome.expect("the store works")).collect()
    }

    /// Processes one input, and returns the name of its outcome.
    pub async fn settle(&self, input: Input<Depot>) -> &'static str {
        self.process_together(vec![input]).await[0].name()
    }

    /// Statistics of the store.
    pub async fn stats(&self) -> StoreStats {
        self.store.stats().await.expect("the store works")
    }

    /// Number of messages that a step has processed.
    pub async fn handled(&self, step: &Step) -> u64 {
        let counts = self.store.message_counts().await.expect("the store works");
        counts.handled.get(step.name).copied().unwrap_or(0)
    }

    /// Waits until a step has processed so many messages.
    pub async fn has_handled(&self, step: &Step, count: u64) {
        let what = format!("{} has handled {count}", step.name);
        wait_until(&what, async || self.handled(step).await == count).await;
    }

    pub async fn no_task_is_open(&self) {
        wait_until("no task is open", async || self.stats().await.tasks == 0).await;
    }

    /// Waits for the only dead letter.
    pub async fn the_dead_letter(&self) -> DeadLettered {
        wait_until("a dead letter", async || self.stats().await.dead_letters > 0).await;
        let mut found = newest_dead_letters(self.store.as_ref(), 9).await.expect("the store works");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// Shelf for tea.
    pub async fn tea(&self) -> Shelf {
        state(self.store.as_ref(), "tea").await.expect("the store works").unwrap_or_default()
    }
}

pub fn in_memory() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory(Depot::rows()).expect("a database in memory"))
}

fn runtime_config(pace: Pace) -> RuntimeConfig {
    RuntimeConfig {
        decision: decision_config(pace),
        engine: EngineSettings {
            max_batch: pace.due_limit,
            queue: 1024,
            max_batch_delay: pace.max_batch_delay,
            timer_poll: pace.poll,
        },
        tasks: TaskBounds { backlog: pace.backlog, concurrency: pace.concurrency },
        call_timeout: pace.call_timeout,
        relay: RelaySettings::default(),
        consumer: ConsumerLimits { pull_batch: 500, max_in_flight: 2_000 },
    }
}

pub fn decision_config(pace: Pace) -> DecisionConfig {
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
        lost_before: None,
        use_inbox: true,
    }
}

/// Fault of this kind, in all steps and at all attempts.
pub fn fault(kind: FaultKind) -> NewFault {
    NewFault::of(kind)
}

/// Fault of this kind in one step.
pub fn fault_of(step: &Step, kind: FaultKind) -> NewFault {
    NewFault { step: Some(step.name.to_owned()), ..fault(kind) }
}

/// Injected faults of a service with these steps.
pub fn faults(enabled: bool, steps: Vec<&'static str>) -> InjectedFaults {
    InjectedFaults::new(FaultSettings { enabled, seed: 7 }, &FaultKind::OF_A_SERVICE, steps)
}

/// Injected faults that are disabled.
pub fn no_faults() -> InjectedFaults {
    faults(false, vec![])
}
