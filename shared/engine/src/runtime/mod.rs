//! Shell: what carries a service: the loops that bring inputs, commit them, publish what they promise and call what they
//! ask for.
//!
//! The loops know time, store, broker and outside only as the traits [`clock::Clock`], [`Store`], [`bus::Bus`],
//! [`bus::Publish`] and [`tasks::TaskHandler`]; the simulation drives the same loops with its own. In reading order:
//! - [`clock`], [`bus`], [`observer`], [`tracer`], [`faults`]: what the loops are given, beside the store
//! - [`admission`]: what stands before steps and calls, shared by all loops
//! - [`overrides`]: what operators have breakers and faults do, in every process of the service
//! - [`task_runner`]: the way of tasks to their calls
//! - [`engine`]: the one loop through which every input goes, in batches that begin when `gathering` says; `settlement`:
//!   what is done once one is durable, [`log_line`]: what the log says of each input, unless it is a `rush`; `spans`:
//!   what a trace does; [`operation`]: what a span tells
//! - [`tasks`]: calls; [`timers`]: what comes due; [`consumer`]: messages, of which `held` tells the broker that they
//!   are in progress; [`given_up`]: what the broker gives up; [`relay`]: the outbox, whose newest entries the engine hands
//!   over in memory ([`handover`]), with `refusal`: what the broker does not take though it takes the rest
//! - [`standstill`]: how much waits at the broker, and whether a step makes no progress although messages wait for it;
//!   [`held_up`]: whether the broker takes nothing although it is there

pub mod admission;
pub mod bus;
pub mod clock;
pub mod consumer;
pub mod engine;
pub mod faults;
mod gathering;
pub mod given_up;
pub mod handover;
mod held;
pub mod held_up;
pub mod log_line;
pub mod observer;
pub mod operation;
pub mod overrides;
mod refusal;
pub mod relay;
mod rush;
mod settlement;
mod settling;
mod spans;
pub mod standstill;
pub mod task_runner;
pub mod tasks;
pub mod timers;
pub mod tracer;
pub(crate) mod trouble;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use saga_core::admission::{Admission, TaskBounds};
use saga_core::breaker::BreakerPolicy;
use saga_core::decision::DecisionConfig;
use saga_core::service::{Service, steps_of};
use tokio::task::{JoinError, JoinSet};

use self::admission::{SharedAdmission, StepAdmission};
use self::bus::{Bus, Durable, Publish};
use self::clock::SharedClock;
use self::consumer::{Consumer, ConsumerBounds};
use self::engine::{Bounds, Engine, Parts};
use self::faults::Faults;
use self::observer::SharedObserver;
use self::overrides::Overrides;
use self::relay::{Relay, RelaySettings};
use self::task_runner::TaskRunner;
use self::tasks::{NOBODY, TaskHandler};
use self::timers::TimerSettings;
use self::tracer::Tracer;
use crate::store::{ReplicaSignal, Store, StoredOverrides};

/// What a service is carried by.
#[derive(Clone)]
pub struct Means {
    /// The service's own database, which all its loops share.
    pub store: Arc<dyn Store>,
    /// What makes its calls.
    pub handler: Arc<dyn TaskHandler>,
    /// The time of day.
    pub clock: SharedClock,
    /// Hears what every loop does, for metrics.
    pub observer: SharedObserver,
    /// The faults that can be injected into this process.
    pub faults: Faults,
    /// Where spans go.
    pub tracer: Tracer,
}

/// How a service is carried.
#[derive(Clone)]
pub struct Carriage {
    /// What every decision needs to know; its owner names this instance among its replicas.
    pub rules: DecisionConfig,
    /// The engine's bounds.
    pub bounds: Bounds,
    /// The tasks' bounds.
    pub tasks: TaskBounds,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// The timers look at least this often.
    pub timer_poll: Duration,
    /// How often the relay looks, how much it takes at once, and how long its lease lasts.
    pub relay: RelaySettings,
    /// The consumers' bounds.
    pub consumer: ConsumerBounds,
}

/// The loops of a service that need no broker, and what the others hang on.
pub struct Running<S: Service> {
    /// The way in: every input, of whatever kind, is handed to it.
    pub engine: Engine<S>,
    /// The admission of steps and calls.
    pub admission: SharedAdmission,
    /// What stands before each step.
    pub steps: Vec<StepAdmission>,
    /// What operators have breakers and faults do.
    pub overrides: Overrides,
    /// The loops. None of them ever ends; dropped, they are cut off wherever they are.
    pub loops: JoinSet<()>,
}

/// Starts engine, tasks and timers of a service. `policy_of` names the policy of each breaker; `overridden` is what its store
/// says that operators have them do.
///
/// What is older than this call belongs to an earlier life of the same owner.
///
/// # Panics
/// When a step needs something else than what `means.handler` calls: nothing would tell when it is back.
pub fn start<S: Service>(
    service: Arc<S>,
    means: &Means,
    carriage: &Carriage,
    policy_of: impl Fn(&str) -> BreakerPolicy,
    overridden: &StoredOverrides,
) -> Running<S> {
    let Means { store, handler, clock, observer, faults, tracer } = means.clone();
    let dependency = handler.dependency();
    let steps = steps_of::<S>();
    if let Some(step) = steps.iter().find(|step| step.needs.iter().any(|need| *need != dependency)) {
        panic!("{} needs {:?}, and {} calls {dependency:?}", step.name, step.needs, S::NAME);
    }
    let names = steps.iter().map(|step| step.name).chain((dependency != NOBODY).then_some(dependency));
    let admission = names.fold(Admission::new(dependency, carriage.tasks), |admission, name| {
        admission.with_breaker(name, policy_of(name))
    });
    let admission = SharedAdmission::new(admission, faults, &carriage.rules.owner, clock.as_ref());
    // Before anything is tried.
    let overrides = Overrides::begin(store.clone(), admission.clone(), overridden);
    let steps: Vec<_> = steps.into_iter().map(|step| admission.of_step(step)).collect();
    let (tasks, waiting) = TaskRunner::new(admission.clone());
    let (engine, looping) = Engine::new(Parts {
        service,
        store: store.clone(),
        rules: carriage.rules.clone(),
        bounds: carriage.bounds,
        clock: clock.clone(),
        observer: observer.clone(),
        tasks,
        tracer,
    });
    let timers = TimerSettings {
        owner: carriage.rules.owner.clone(),
        task_lease: carriage.rules.task_lease,
        longest_delay: longest_delay(&carriage.rules),
        limit: carriage.bounds.max_batch,
        poll: carriage.timer_poll,
        admissions: steps.clone(),
        clock,
    };
    let mut loops = JoinSet::new();
    if let Some(mut heard) = store.signals() {
        let (engine, overrides) = (engine.clone(), overrides.clone());
        let hearing = async move {
            while let Some(heard) = heard.recv().await {
                if matches!(heard, ReplicaSignal::OverridesChanged | ReplicaSignal::Missed) {
                    overrides.look_again();
                }
                engine.hears_of(heard);
            }
            // None of the loops ends: what is not heard is found by looking.
            std::future::pending().await
        };
        spawn(&mut loops, Box::pin(hearing));
    }
    // Called before the engine takes anything in.
    let timers = timers::run(engine.clone(), store, timers);
    spawn(&mut loops, Box::pin(engine::run(looping)));
    let calls = tasks::run(engine.clone(), handler, waiting, carriage.call_timeout, observer);
    spawn(&mut loops, Box::pin(calls));
    spawn(&mut loops, Box::pin(timers));
    spawn(&mut loops, Box::pin(overrides::run(overrides.clone())));
    Running { engine, admission, steps, overrides, loops }
}

/// Starts relay and consumers of a service, once its broker is there.
pub fn start_messaging<S: Service, B: Bus>(
    engine: &Engine<S>,
    steps: &[StepAdmission],
    means: &Means,
    carriage: &Carriage,
    bus: &B,
    publisher: Box<dyn Publish>,
) -> JoinSet<()> {
    let Means { store, clock, observer, tracer, .. } = means.clone();
    let relay = Relay::new(store, carriage.rules.owner.clone(), carriage.relay.clone());
    let relay = relay.traced(tracer).fed_by(engine.relay());
    let mut loops = JoinSet::new();
    spawn(&mut loops, relay::run(relay, publisher, engine.relay(), clock, observer.clone()));
    let mut durables = Vec::new();
    for admission in steps {
        for durable in Durable::all(S::NAME, &[admission.step()]) {
            durables.push((durable, admission.clone()));
            let (bus, engine, admission) = (bus.clone(), engine.clone(), admission.clone());
            let consumer =
                Consumer::new(bus, engine, admission, durable, carriage.consumer).observed(observer.clone());
            spawn(&mut loops, Box::pin(consumer.run()));
        }
    }
    // A broker that is asked about none of them answers about everybody's.
    if !durables.is_empty() {
        spawn(&mut loops, Box::pin(given_up::run(bus.clone(), engine.clone(), durables)));
    }
    loops
}

/// The longest that anything waits for its next try.
fn longest_delay(rules: &DecisionConfig) -> SignedDuration {
    let policies = rules.step_retry.values().chain([&rules.retry, &rules.task_retry]);
    signed(policies.map(|retry| retry.cap).max().unwrap_or_default())
}

/// Spawns one of the loops.
pub(crate) fn spawn(loops: &mut JoinSet<()>, work: BoxFuture<'static, ()>) {
    loops.spawn(work);
}

/// The next loop that ended, which none should.
pub(crate) fn ended(loops: &mut JoinSet<()>) -> BoxFuture<'_, Option<Result<(), JoinError>>> {
    Box::pin(loops.join_next())
}

/// A duration of the settings as those who count time of day want it.
#[must_use]
pub fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
