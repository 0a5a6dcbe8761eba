//! Shell: an instance of a service with the real loops, restarted whenever it has crashed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use parking_lot::{Mutex, MutexGuard};
use saga_core::admission::TaskBounds;
use saga_core::breaker::BreakerPolicy;
use saga_core::decision::DecisionConfig;
use saga_core::fault::FaultKind;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::retry::RetryPolicy;
use saga_core::service::{Service, steps_of};
use saga_engine::host::retention::{RetentionPeriod, RetentionSettings};
use saga_engine::host::retention_loop::RetentionLoop;
use saga_engine::runtime::admission::SharedAdmission;
use saga_engine::runtime::clock::{BrokerClock, Clock as _, SharedClock};
use saga_engine::runtime::consumer::ConsumerLimits;
use saga_engine::runtime::engine::{Engine, EngineSettings};
use saga_engine::runtime::injected_faults::{FaultSettings, InjectedFaults, NewFault};
use saga_engine::runtime::observer::SharedObserver;
use saga_engine::runtime::overrides::Overrides;
use saga_engine::runtime::relay::RelaySettings;
use saga_engine::runtime::startup_backlog::StartupBacklog;
use saga_engine::runtime::task_runner::TaskHandler;
use saga_engine::runtime::tracer::Tracer;
use saga_engine::runtime::{Runtime, RuntimeConfig, RuntimeDeps, start, start_messaging};
use saga_engine::store::Store;
use saga_engine::store::roles::Overrides as _;
use saga_engine::store::sqlite::SqliteStore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bus::{SharedBroker, SimBus};
use crate::clock::{self, SimClock};
use crate::coverage::CoveragePoint;
use crate::instrumented::{HandlerOverride, Instrumented};
use crate::invariants;
use crate::journal::Journal;
use crate::notifications::Notifications;
use crate::planted_fault::PlantedFault;
use crate::process::Process;
use crate::sim::{Sim, ready};
use crate::store::SimStore;
use crate::store_faults::{Forgotten, StoreFaults};

const TASK_LEASE: SignedDuration = SignedDuration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Retention of inbox marks, idempotency keys and published entries by the loops of instances.
pub const RETENTION: Duration = Duration::from_mins(4);
/// Maximum age of a message that is redelivered where these loops run.
pub const MAX_REDELIVERY_TIME: Duration = Duration::from_mins(2);

const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// State that the instances of one service share, and that survives crashes.
#[derive(Clone)]
pub struct Shared {
    pub store: Arc<SqliteStore>,
    pub journal: Arc<Mutex<Journal>>,
    /// Messages that a planted fault makes the service forget.
    pub forgotten: Forgotten,
    pub broker: SharedBroker,
    pub notifications: Notifications,
}

/// The running instances of a service, through which clients reach it.
pub struct LiveInstances<S: Service>(Arc<Mutex<BTreeMap<String, LiveInstance<S>>>>);

pub struct LiveInstance<S: Service> {
    pub engine: Engine<Instrumented<S>>,
    pub admission: SharedAdmission,
    pub overrides: Overrides,
}

impl<S: Service> Clone for LiveInstances<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service> Default for LiveInstances<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: Service> LiveInstances<S> {
    /// Running instances, by name of their process.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<String, LiveInstance<S>>> {
        self.0.lock()
    }

    /// Engine of the first running instance.
    pub fn engine(&self) -> Option<Engine<Instrumented<S>>> {
        self.engines().into_iter().next()
    }

    /// Engines of all running instances.
    pub fn engines(&self) -> Vec<Engine<Instrumented<S>>> {
        self.lock().values().map(|instance| instance.engine.clone()).collect()
    }

    /// Runs a command on one of the running instances; `None` after a time-out.
    pub async fn ask(
        &self,
        sim: &Sim,
        input: Input<Instrumented<S>>,
    ) -> Option<CommandOutcome<Instrumented<S>>> {
        let engines = self.engines();
        let engine = engines.get(sim.below(engines.len()))?;
        timeout(COMMAND_TIMEOUT, engine.process(input)).await.ok()?.ok().and_then(Outcome::of_command)
    }
}

/// Parts of one running instance, for its background loop.
pub struct InstanceParts<S: Service> {
    pub process: Process,
    pub store: Arc<dyn Store>,
    pub engine: Engine<Instrumented<S>>,
    pub admission: SharedAdmission,
}

/// Loop that runs beside the engine's own.
pub type Background<S> = Arc<dyn Fn(InstanceParts<S>) -> BoxFuture<'static, ()> + Send + Sync>;

pub struct Instance<S: Service> {
    pub process: Process,
    shared: Shared,
    live: LiveInstances<S>,
    service: Arc<Instrumented<S>>,
    handler: Arc<dyn TaskHandler>,
    background: Option<Background<S>>,
    clock: SimClock,
    is_clock_off: bool,
    /// Injected faults, which survive a restart.
    pub faults: InjectedFaults,
    runtime_config: RuntimeConfig,
    observer: SharedObserver,
}

impl<S: Service> Instance<S> {
    /// Creates an instance of `service`, whose calls are made by `handler`.
    pub fn new(
        process: Process,
        shared: Shared,
        live: LiveInstances<S>,
        service: Instrumented<S>,
        handler: Arc<dyn TaskHandler>,
        background: Option<Background<S>>,
    ) -> Self {
        let sim = process.sim();
        let profile = sim.profile();
        let skew =
            SignedDuration::from_millis(i64::try_from(sim.below(2 * profile.skew_ms + 1)).unwrap_or(0))
                - SignedDuration::from_millis(i64::try_from(profile.skew_ms).unwrap_or(0));
        let drift = if sim.below(4) == 0 { profile.drift } else { 0 };
        let is_clock_off = skew.abs() >= SignedDuration::from_secs(1);
        let clock = SimClock::new(process.clone(), skew, drift);
        let steps = steps_of::<S>().into_iter().map(|step| step.name).collect();
        let settings = FaultSettings { enabled: true, seed: sim.below(usize::MAX) as u64 };
        let faults = InjectedFaults::new(settings, &FaultKind::OF_A_SERVICE, steps);
        let runtime_config = runtime_config(&process);
        let observer = invariants::observer(sim.clone());
        let service = Arc::new(service);
        Self {
            process,
            shared,
            live,
            service,
            handler,
            background,
            clock,
            is_clock_off,
            faults,
            runtime_config,
            observer,
        }
    }

    /// Runs, crashes and restarts until dropped.
    pub async fn run(self) {
        loop {
            let loops = self.begin();
            self.process.killed().await;
            self.end(loops);
            let sim = self.process.sim();
            sleep(sim.up_to(if sim.chance(10) { 20_000 } else { 1_500 })).await;
        }
    }

    fn begin(&self) -> [JoinSet<()>; 2] {
        let sim = self.process.sim();
        sim.note(|| format!("{} starts", self.process.name()));
        self.process.begin();
        let Shared { store, journal, forgotten, broker, notifications } = self.shared.clone();
        let overridden = ready(store.overrides()).unwrap_or_default();
        let store_faults = StoreFaults::new(sim.planted_fault(), steps_of::<S>(), forgotten);
        let batch = self.service.batch.clone();
        let store = Arc::new(SimStore {
            inner: store,
            process: self.process.clone(),
            broker: broker.clone(),
            journal,
            batch,
            store_faults,
            notifications: (sim.profile().instances > 1).then_some(notifications),
            is_clock_off: self.is_clock_off,
        });
        let followed = Arc::new(BrokerClock::new(Arc::new(self.clock.clone())));
        let follows_broker = S::OPERATOR.is_some() && sim.profile().clock_jumps > 0;
        let clock: SharedClock =
            if follows_broker { clock::shown(&self.clock, &followed) } else { Arc::new(self.clock.clone()) };
        let deps = RuntimeDeps {
            store,
            handler: self.handler.clone(),
            clock,
            observer: self.observer.clone(),
            faults: self.faults.clone(),
            tracer: Tracer::off(),
            startup_backlog: match S::OPERATOR {
                Some(_) => StartupBacklog::unknown(),
                None => StartupBacklog::none(),
            },
        };
        let Runtime { engine, admission, steps, overrides, mut loops } = start(
            self.service.clone(),
            &deps,
            &self.runtime_config,
            |_| BreakerPolicy::default(),
            &overridden,
        );
        let max_in_flight = self.runtime_config.consumer.max_in_flight;
        let bus = SimBus::new(self.process.clone(), broker, max_in_flight);
        if let Some(background) = &self.background {
            let (process, store) = (self.process.clone(), deps.store.clone());
            let (engine, admission) = (engine.clone(), admission.clone());
            loops.spawn(background(InstanceParts { process, store, engine, admission }));
        }
        let instance = LiveInstance { engine: engine.clone(), admission, overrides };
        let mut messaging = JoinSet::new();
        if follows_broker {
            let retention = RetentionLoop {
                store: deps.store.clone(),
                clock: clock::for_retention(&self.clock, followed.clone()),
                settings: retention_settings(),
                rows: S::rows(),
                delivered: MAX_REDELIVERY_TIME,
                archive: None,
            };
            loops.spawn(retention.run());
            loops.spawn(clock::follow(followed.clone(), bus.clone()));
            let (live, name) = (self.live.clone(), self.process.name().to_owned());
            let (config, trusted) = (self.runtime_config.clone(), followed.trusted());
            messaging.spawn(async move {
                if let Some(trusted) = trusted {
                    trusted.await;
                }
                live.lock().insert(name, instance);
                let publisher = Box::new(bus.clone());
                let mut messaging = start_messaging(&engine, &steps, &deps, &config, &bus, publisher);
                messaging.join_next().await;
            });
            return [loops, messaging];
        }
        self.live.lock().insert(self.process.name().to_owned(), instance);
        if S::OPERATOR.is_some() {
            let publisher = Box::new(bus.clone());
            messaging = start_messaging(&engine, &steps, &deps, &self.runtime_config, &bus, publisher);
        }
        [loops, messaging]
    }

    /// Drops all that is not in the database.
    fn end(&self, loops: [JoinSet<()>; 2]) {
        let sim = self.process.sim();
        let instance = self.live.lock().remove(self.process.name());
        drop(loops);
        sim.note(|| format!("{} has crashed", self.process.name()));
        sim.count(CoveragePoint::Crashed);
        if let Some(instance) = instance {
            let injected = invariants::injected_failures(&self.shared.journal.lock(), &self.faults);
            invariants::check_breakers(sim, injected, &instance.admission.breakers());
        }
    }
}

/// Retention that is shorter than a world and longer than any redelivery, repetition and deadline in it.
/// Histories and dead letters stay, because the laws read them.
fn retention_settings() -> RetentionSettings {
    RetentionSettings {
        inbox: RETENTION,
        idempotency_key: RETENTION,
        published: RETENTION,
        dead_letter: RetentionPeriod::Forever,
        history: RetentionPeriod::Forever,
        chunk: 100,
        every: Duration::from_secs(10),
        ..RetentionSettings::default()
    }
}

/// Selects the limits of an instance. They are small in some worlds, so that they are reached.
fn runtime_config(process: &Process) -> RuntimeConfig {
    let sim: &Sim = process.sim();
    let profile = sim.profile();
    let poll = if profile.instances > 1 { Duration::from_secs(1) } else { Duration::from_secs(30) };
    let policy = |max_attempts, cap| RetryPolicy { max_attempts, base: Duration::from_secs(1), cap };
    RuntimeConfig {
        decision: DecisionConfig {
            retry: policy(6, Duration::from_secs(20)),
            step_retry: BTreeMap::new(),
            task_retry: policy(profile.task_attempts, Duration::from_secs(5)),
            owner: process.name().to_owned(),
            task_lease: TASK_LEASE,
            keep_failed: false,
            lost_before: None,
            use_inbox: profile.has_inbox,
        },
        engine: EngineSettings {
            max_batch: sim.one_of(&[2, 5, 256, 256]),
            queue: sim.one_of(&[4, 256]),
            max_batch_delay: Duration::from_millis(15),
            timer_poll: poll,
        },
        tasks: TaskBounds { backlog: sim.one_of(&[2, 8, 100]), concurrency: sim.one_of(&[1, 2, 8]) },
        call_timeout: CALL_TIMEOUT,
        relay: RelaySettings {
            poll,
            lease: Duration::from_secs(10),
            max_batch: sim.one_of(&[2, 1000]),
            ..RelaySettings::default()
        },
        consumer: ConsumerLimits { pull_batch: sim.one_of(&[2, 16]), max_in_flight: sim.one_of(&[4, 64]) },
    }
}

/// Injects transient, permanent and slow failures as the profile says.
pub fn inject(faults: &InjectedFaults, sim: &Sim) {
    let profile = sim.profile();
    let kinds = [
        (FaultKind::FAIL_TRANSIENTLY, profile.step_fails, None),
        (FaultKind::FAIL_PERMANENTLY, profile.step_breaks, None),
        (FaultKind::DELAY, profile.step_delays, Some(700)),
    ];
    for (kind, percent, delay_ms) in kinds {
        if percent > 0 {
            let new = NewFault { probability: Some(percent), delay_ms, ..NewFault::of(kind) };
            if let Err(rejection) = faults.inject(new) {
                panic!("impossible fault profile: {rejection:?}");
            }
        }
    }
}

/// Wraps a service for observation.
pub fn instrumented<S: Service>(
    inner: S,
    handler_override: Option<HandlerOverride<S>>,
    planted_fault: PlantedFault,
) -> Instrumented<S> {
    let needs_all_tasks = planted_fault == PlantedFault::UnneededCallMade;
    let ignores_additional_rows = planted_fault == PlantedFault::AdditionalRowsIgnored;
    Instrumented { inner, handler_override, needs_all_tasks, ignores_additional_rows, batch: Arc::default() }
}
