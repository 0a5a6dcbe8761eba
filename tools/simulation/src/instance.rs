//! Shell: one instance of a service: the real loops, started anew whenever it has died.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use parking_lot::Mutex;
use saga_core::admission::TaskBounds;
use saga_core::breaker::{BreakerPolicy, State};
use saga_core::decision::Rules;
use saga_core::fault::FaultKind;
use saga_core::input::{CommandOutcome, Input, Outcome};
use saga_core::retry::RetryPolicy;
use saga_core::service::{Service, steps_of};
use saga_engine::runtime::admission::{BreakerAction, BreakerView, SharedAdmission};
use saga_engine::runtime::clock::SharedClock;
use saga_engine::runtime::consumer::ConsumerBounds;
use saga_engine::runtime::engine::{Bounds, Engine};
use saga_engine::runtime::faults::{FaultSettings, Faults, NewFault};
use saga_engine::runtime::observer::SharedObserver;
use saga_engine::runtime::overrides::Overrides;
use saga_engine::runtime::relay::RelaySettings;
use saga_engine::runtime::tasks::TaskHandler;
use saga_engine::runtime::tracer::Tracer;
use saga_engine::runtime::{Carriage, Means, Running, start, start_messaging};
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bus::{SharedBroker, SimBus};
use crate::clock::SimClock;
use crate::endings::Ending;
use crate::journal::Journal;
use crate::process::Process;
use crate::sabotage::Sabotage;
use crate::sayings::Sayings;
use crate::sim::{Sim, ready};
use crate::spoiler::{Forgotten, Spoiler};
use crate::store::SimStore;
use crate::tampered::{Tamper, Tampered};
use crate::watch;

/// How long a claim on a task lasts.
const TASK_LEASE: SignedDuration = SignedDuration::from_secs(30);
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long anybody waits for the answer to a command.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the instances of one service share: its database, and what nobody forgets of it.
#[derive(Clone)]
pub struct Shared {
    /// The database, which crashes do not touch.
    pub store: Arc<SqliteStore>,
    /// What became of every message.
    pub journal: Arc<Mutex<Journal>>,
    /// What a planted fault makes the service forget.
    pub forgotten: Forgotten,
    pub broker: SharedBroker,
    /// What the instances tell each other.
    pub sayings: Sayings,
}

/// The way into a service from outside: the engine of whoever of its instances lives.
pub struct Doors<S: Service>(Arc<Mutex<BTreeMap<String, Life<S>>>>);

struct Life<S: Service> {
    engine: Engine<Tampered<S>>,
    admission: SharedAdmission,
    overrides: Overrides,
}

impl<S: Service> Clone for Doors<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service> Default for Doors<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: Service> Doors<S> {
    /// The engine of the first instance that lives.
    #[must_use]
    pub fn engine(&self) -> Option<Engine<Tampered<S>>> {
        self.engines().into_iter().next()
    }

    /// The engines of all instances that live.
    #[must_use]
    pub fn engines(&self) -> Vec<Engine<Tampered<S>>> {
        self.0.lock().values().map(|life| life.engine.clone()).collect()
    }

    /// Asks one of the instances that live for a command. `None` when it does not answer in time.
    pub async fn ask(&self, sim: &Sim, input: Input<Tampered<S>>) -> Option<CommandOutcome<Tampered<S>>> {
        let engines = self.engines();
        let engine = engines.get(sim.below(engines.len()))?;
        timeout(PATIENCE, engine.settle(input)).await.ok()?.ok().and_then(Outcome::of_command)
    }

    /// Has one of the instances that live do something with the breakers of this name of all, if any lives.
    pub fn turn_breaker(&self, sim: &Sim, name: &str, action: BreakerAction) {
        let all: Vec<_> = self.0.lock().values().map(|life| life.overrides.clone()).collect();
        if let Some(overrides) = all.get(sim.below(all.len())) {
            // A store in memory that answers at once does not fail.
            let _ = ready(overrides.turn(name, action));
        }
    }

    /// Lets every breaker work by itself again.
    pub fn release_breakers(&self) {
        self.reset_breakers(|view| matches!(view.state, State::ForcedOpen | State::ForcedClosed));
    }

    /// Closes such breakers, which forget what they have seen.
    pub fn reset_breakers(&self, such: impl Fn(&BreakerView) -> bool) {
        for life in self.0.lock().values() {
            for view in life.admission.breakers().iter().filter(|view| such(view)) {
                let _ = life.admission.turn_breaker(&view.name, BreakerAction::Reset);
            }
        }
    }

    /// What there is to see of the breakers of each instance.
    #[must_use]
    pub fn breakers(&self) -> Vec<Vec<BreakerView>> {
        self.0.lock().values().map(|life| life.admission.breakers()).collect()
    }

    /// Calls waiting and under way.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.0.lock().values().map(|life| life.admission.tasks_held()).sum()
    }
}

/// What one life of an instance is to what runs in it beside the engine's loops.
pub struct Inside<S: Service> {
    pub process: Process,
    pub store: Arc<dyn Store>,
    pub engine: Engine<Tampered<S>>,
    pub admission: SharedAdmission,
}

/// What runs in each life beside the engine's loops.
pub type Beside<S> = Arc<dyn Fn(Inside<S>) -> BoxFuture<'static, ()> + Send + Sync>;

/// One instance of a service.
pub struct Instance<S: Service> {
    process: Process,
    shared: Shared,
    doors: Doors<S>,
    service: Arc<Tampered<S>>,
    handler: Arc<dyn TaskHandler>,
    beside: Option<Beside<S>>,
    clock: SharedClock,
    is_clock_off: bool,
    faults: Faults,
    carriage: Carriage,
    observer: SharedObserver,
}

impl<S: Service> Instance<S> {
    /// An instance of `service`, whose calls `handler` makes, with what runs beside it.
    #[must_use]
    pub fn new(
        process: Process,
        shared: Shared,
        doors: Doors<S>,
        service: Tampered<S>,
        handler: Arc<dyn TaskHandler>,
        beside: Option<Beside<S>>,
    ) -> Self {
        let sim = process.sim();
        let weather = sim.weather();
        let skew =
            SignedDuration::from_millis(i64::try_from(sim.below(2 * weather.skew_ms + 1)).unwrap_or(0))
                - SignedDuration::from_millis(i64::try_from(weather.skew_ms).unwrap_or(0));
        let drift = if sim.below(4) == 0 { weather.drift } else { 0 };
        let is_clock_off = skew.abs() >= SignedDuration::from_secs(1);
        let clock = Arc::new(SimClock::new(sim.clone(), skew, drift));
        let steps = steps_of::<S>().into_iter().map(|step| step.name).collect();
        let settings = FaultSettings { enabled: true, seed: sim.below(usize::MAX) as u64 };
        let faults = Faults::new(settings, &FaultKind::OF_A_SERVICE, steps);
        let carriage = carriage(&process);
        let observer = watch::observer(sim.clone());
        let service = Arc::new(service);
        Self {
            process,
            shared,
            doors,
            service,
            handler,
            beside,
            clock,
            is_clock_off,
            faults,
            carriage,
            observer,
        }
    }

    #[must_use]
    pub fn process(&self) -> Process {
        self.process.clone()
    }

    /// Its injected faults, which outlive it.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Lives, dies, and lives again.
    pub async fn run(self) {
        loop {
            let life = self.begin();
            self.process.killed().await;
            self.end(life);
            let sim = self.process.sim();
            sleep(sim.up_to(if sim.chance(10) { 20_000 } else { 1_500 })).await;
        }
    }

    fn begin(&self) -> [JoinSet<()>; 2] {
        let sim = self.process.sim();
        sim.note(|| format!("{} starts", self.process.name()));
        self.process.begin();
        let Shared { store, journal, forgotten, broker, sayings } = self.shared.clone();
        let overridden = ready(store.overrides()).unwrap_or_default();
        let spoiler = Spoiler::new(sim.sabotage(), steps_of::<S>(), forgotten);
        let batch = self.service.batch.clone();
        let (process, is_off) = (self.process(), self.is_clock_off);
        let store =
            SimStore::new(store, process, broker.clone(), journal, batch, spoiler, is_off).heard_by(sayings);
        let means = Means {
            store: Arc::new(store),
            handler: self.handler.clone(),
            clock: self.clock.clone(),
            observer: self.observer.clone(),
            faults: self.faults.clone(),
            tracer: Tracer::off(),
        };
        let Running { engine, admission, steps, overrides, mut loops } =
            start(self.service.clone(), &means, &self.carriage, |_| BreakerPolicy::default(), &overridden);
        let messaging = if S::OPERATOR.is_some() {
            let bus = SimBus::new(self.process(), broker);
            let publisher = Box::new(bus.clone());
            start_messaging(&engine, &steps, &means, &self.carriage, &bus, publisher)
        } else {
            JoinSet::new()
        };
        if let Some(beside) = &self.beside {
            let (process, store) = (self.process(), means.store.clone());
            loops.spawn(beside(Inside {
                process,
                store,
                engine: engine.clone(),
                admission: admission.clone(),
            }));
        }
        self.doors.0.lock().insert(self.process.name().to_owned(), Life { engine, admission, overrides });
        [loops, messaging]
    }

    /// Everything that is not in the database is gone at once.
    fn end(&self, loops: [JoinSet<()>; 2]) {
        let sim = self.process.sim();
        let life = self.doors.0.lock().remove(self.process.name());
        drop(loops);
        sim.note(|| format!("{} is dead", self.process.name()));
        sim.count(Ending::Died);
        if let Some(life) = life {
            let struck = watch::struck(&self.shared.journal.lock(), &self.faults);
            watch::breakers(sim, struck, &life.admission.breakers());
        }
    }
}

/// How an instance is carried; the bounds are small in some worlds, so that they are met.
fn carriage(process: &Process) -> Carriage {
    let sim: &Sim = process.sim();
    let weather = sim.weather();
    let poll = if weather.instances > 1 { Duration::from_secs(1) } else { Duration::from_secs(30) };
    let policy = |max_attempts, cap| RetryPolicy { max_attempts, base: Duration::from_secs(1), cap };
    Carriage {
        rules: Rules {
            retry: policy(6, Duration::from_secs(20)),
            step_retry: BTreeMap::new(),
            task_retry: policy(weather.task_attempts, Duration::from_secs(5)),
            owner: process.name().to_owned(),
            task_lease: TASK_LEASE,
            keep_failed: false,
            use_inbox: weather.has_inbox,
        },
        bounds: Bounds {
            max_batch: sim.one_of(&[2, 5, 256, 256]),
            queue: sim.one_of(&[4, 256]),
            max_batch_delay: Duration::from_millis(15),
        },
        tasks: TaskBounds { backlog: sim.one_of(&[2, 8, 100]), concurrency: sim.one_of(&[1, 2, 8]) },
        call_timeout: CALL_TIMEOUT,
        timer_poll: poll,
        relay: RelaySettings {
            poll,
            lease: Duration::from_secs(10),
            batch: sim.one_of(&[2, 1000]),
            ..RelaySettings::default()
        },
        consumer: ConsumerBounds { pull: sim.one_of(&[2, 16]), under_way: sim.one_of(&[4, 64]) },
    }
}

/// Has tries of the steps fail, or take long, as often as the weather says.
pub fn inject(faults: &Faults, sim: &Sim) {
    let weather = sim.weather();
    let kinds = [
        (FaultKind::FAIL_TRANSIENTLY, weather.step_fails, None),
        (FaultKind::FAIL_PERMANENTLY, weather.step_breaks, None),
        (FaultKind::DELAY, weather.step_delays, Some(700)),
    ];
    for (kind, percent, delay_ms) in kinds {
        if percent > 0 {
            let new = NewFault { probability: Some(percent), delay_ms, ..NewFault::of(kind) };
            if let Err(refusal) = faults.inject(new) {
                panic!("the weather cannot be: {refusal:?}");
            }
        }
    }
}

/// A service as it is watched.
#[must_use]
pub fn watched<S: Service>(inner: S, tamper: Option<Tamper<S>>, sabotage: Sabotage) -> Tampered<S> {
    let wants_all = sabotage == Sabotage::CallWhateverHappened;
    let ignores_record = sabotage == Sabotage::RowsByTheFactAlone;
    Tampered { inner, tamper, wants_all, ignores_record, batch: Arc::default() }
}
