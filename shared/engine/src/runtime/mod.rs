//! Shell: the loops of a service: they take inputs in, commit them, publish outbox entries and make the calls of tasks.
//!
//! The loops know time, store, broker and the outside only as the traits [`clock::Clock`], [`Store`], [`bus::Bus`],
//! [`bus::Publish`] and [`task_runner::TaskHandler`]. The simulation drives the same loops with its own. In reading order:
//! - Given to the loops: [`clock`], [`bus`], [`observer`], [`tracer`], [`injected_faults`].
//! - Parts of the tracer: `span_operation`, `span_attribute`, `http_exchange`, `trace_queue`.
//! - [`admission`]: breakers and permits of steps and calls; [`overrides`]: what operators force in every process.
//! - The path of a message: [`consumer`] (with [`in_progress`], `progress_reports`) pulls it, [`engine`] decides it in a batch (`batch_delay`) and
//!   commits it. `after_commit` lists what follows: log line (`log_line`, `log_throttle`), spans (`batch_spans`), tasks,
//!   outbox entries, acknowledgement. [`advisories`]: messages that the broker gave up.
//! - The path of an outbox entry: [`relay_queue`], [`relay`], `relay_lease`, `background_settle`; `stuck_subjects`:
//!   entries that the broker does not accept although it accepts others.
//! - The path of a task: [`task_queue`], [`task_runner`]. [`timers`]: due rows, retries and expired claims.
//!   Due rows wait for the [`startup_backlog`].
//! - Health: [`consumer_stall`], [`publish_stall`], [`outbox_progress`], `error_throttle`.

pub mod admission;
pub mod advisories;
mod after_commit;
mod background_settle;
mod batch_delay;
mod batch_spans;
pub mod bus;
pub mod clock;
pub mod consumer;
pub mod consumer_stall;
pub mod engine;
pub(crate) mod error_throttle;
pub mod http_exchange;
pub mod in_progress;
pub mod injected_faults;
pub mod log_line;
mod log_throttle;
pub mod observer;
pub mod outbox_progress;
pub mod overrides;
pub mod progress_reports;
pub mod publish_stall;
pub mod relay;
mod relay_lease;
pub mod relay_queue;
pub mod span_attribute;
pub mod span_operation;
pub mod startup_backlog;
mod stuck_subjects;
pub mod task_queue;
pub mod task_runner;
pub mod timers;
pub mod trace_queue;
pub mod tracer;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use saga_core::admission::{Admission, TaskBounds};
use saga_core::breaker::BreakerPolicy;
use saga_core::decision::DecisionConfig;
use saga_core::retry::MAX_RETRY_AFTER;
use saga_core::service::{Service, steps_of};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use self::admission::{SharedAdmission, StepAdmission};
use self::bus::{Bus, Durable, Publish};
use self::clock::SharedClock;
use self::consumer::{Consumer, ConsumerLimits};
use self::engine::{Engine, EngineSettings, Parts};
use self::injected_faults::InjectedFaults;
use self::observer::SharedObserver;
use self::overrides::Overrides;
use self::relay::{Relay, RelaySettings};
use self::startup_backlog::StartupBacklog;
use self::task_queue::TaskQueue;
use self::task_runner::{NO_DEPENDENCY, TaskHandler};
use self::timers::TimerSettings;
use self::tracer::Tracer;
use crate::store::{ReplicaSignal, Store, StoredOverrides};

/// Dependencies of the loops, which they share.
#[derive(Clone)]
pub struct RuntimeDeps {
    /// Database of the service, shared by all loops.
    pub store: Arc<dyn Store>,
    /// Handler of the service's tasks.
    pub handler: Arc<dyn TaskHandler>,
    /// Clock for deadlines, retries and leases.
    pub clock: SharedClock,
    /// Observer of all loops, for metrics.
    pub observer: SharedObserver,
    /// Faults that can be injected into this process.
    pub faults: InjectedFaults,
    /// Tracer that records spans of all loops.
    pub tracer: Tracer,
    /// Messages that wait at the broker when the process starts. Deadlines wait for them.
    pub startup_backlog: StartupBacklog,
}

/// Configuration of the loops, from the settings.
#[derive(Clone)]
pub struct RuntimeConfig {
    /// Settings that decisions depend on. Their owner names this instance among its replicas.
    pub decision: DecisionConfig,
    /// Batching of the engine, and its timers.
    pub engine: EngineSettings,
    /// Limits of queued tasks and concurrent calls.
    pub tasks: TaskBounds,
    /// Maximum duration of one call.
    pub call_timeout: Duration,
    /// Poll interval, lease and batch of the relay.
    pub relay: RelaySettings,
    /// Limits of each durable consumer.
    pub consumer: ConsumerLimits,
}

/// Running loops of a service that need no broker, and the handles that others need.
pub struct Runtime<S: Service> {
    /// Engine that takes every input.
    pub engine: Engine<S>,
    /// Admission of steps and calls.
    pub admission: SharedAdmission,
    /// Admissions of all steps, in the order of their declaration.
    pub steps: Vec<StepAdmission>,
    /// Forced breakers and injected faults, shared by all processes.
    pub overrides: Overrides,
    /// Loops, none of which ever returns. Dropping the set cuts them off.
    pub loops: JoinSet<()>,
}

/// Starts engine, task runner and timers of a service. `policy_of` returns the policy of a breaker by name, `overridden` are
/// the stored overrides. Claims of this instance that are older than this call count as those of a dead process.
///
/// # Panics
/// If a step needs a dependency that `deps.handler` does not call: nothing would close its breaker.
pub fn start<S: Service>(
    service: Arc<S>,
    deps: &RuntimeDeps,
    config: &RuntimeConfig,
    policy_of: impl Fn(&str) -> BreakerPolicy,
    overridden: &StoredOverrides,
) -> Runtime<S> {
    let RuntimeDeps { store, handler, clock, observer, tracer, .. } = deps.clone();
    let admission = admission_of::<S>(deps, config, policy_of);
    // Applied before the first attempt of any step.
    let overrides = Overrides::begin(store.clone(), admission.clone(), overridden, &config.decision.owner);
    let steps: Vec<_> = steps_of::<S>().into_iter().map(|step| admission.for_step(step)).collect();
    let (tasks, queued_tasks) = TaskQueue::new(admission.clone());
    let (engine, batch_loop) = Engine::new(Parts {
        service,
        store: store.clone(),
        decision: config.decision.clone(),
        settings: config.engine.clone(),
        clock: clock.clone(),
        observer: observer.clone(),
        tasks,
        tracer,
    });
    let mut loops = JoinSet::new();
    if let Some(notifications) = store.signals() {
        let listening = process_notifications(notifications, engine.clone(), overrides.clone());
        spawn(&mut loops, Box::pin(listening));
    }
    // Called before the engine accepts inputs.
    let timers = timers::run(engine.clone(), store, timer_settings(config, &steps, deps));
    spawn(&mut loops, Box::pin(engine::run(batch_loop.with_trials(overrides.clone()))));
    let calls = task_runner::run(engine.clone(), handler, queued_tasks, config.call_timeout, observer);
    spawn(&mut loops, Box::pin(calls));
    spawn(&mut loops, Box::pin(timers));
    spawn(&mut loops, Box::pin(overrides::run(overrides.clone())));
    Runtime { engine, admission, steps, overrides, loops }
}

/// Creates the admission with a breaker for each step and for the dependency.
fn admission_of<S: Service>(
    deps: &RuntimeDeps,
    config: &RuntimeConfig,
    policy_of: impl Fn(&str) -> BreakerPolicy,
) -> SharedAdmission {
    let dependency = deps.handler.dependency();
    let steps = steps_of::<S>();
    if let Some(step) = steps.iter().find(|step| step.needs.iter().any(|need| *need != dependency)) {
        panic!("{} needs {:?}, and {} calls {dependency:?}", step.name, step.needs, S::NAME);
    }
    let names = steps.iter().map(|step| step.name).chain((dependency != NO_DEPENDENCY).then_some(dependency));
    let admission = names.fold(Admission::new(dependency, config.tasks), |admission, name| {
        admission.with_breaker(name, policy_of(name))
    });
    SharedAdmission::new(admission, deps.faults.clone(), &config.decision.owner, deps.clock.as_ref())
}

fn timer_settings(config: &RuntimeConfig, steps: &[StepAdmission], deps: &RuntimeDeps) -> TimerSettings {
    TimerSettings {
        owner: config.decision.owner.clone(),
        task_lease: config.decision.task_lease,
        longest_delay: longest_delay(&config.decision),
        limit: config.engine.max_batch,
        poll: config.engine.timer_poll,
        admissions: steps.to_vec(),
        clock: deps.clock.clone(),
        startup_backlog: deps.startup_backlog.clone(),
    }
}

/// Wakes loops after commits of other processes. Lost notifications do no harm: the loops poll as well.
async fn process_notifications<S: Service>(
    mut notifications: mpsc::Receiver<ReplicaSignal>,
    engine: Engine<S>,
    overrides: Overrides,
) {
    while let Some(notification) = notifications.recv().await {
        if matches!(notification, ReplicaSignal::OverridesChanged | ReplicaSignal::Missed) {
            overrides.refresh();
        }
        engine.on_notification(notification);
    }
    // No loop may return.
    std::future::pending().await
}

/// Starts relay and consumers of a service. Call it once the broker is connected.
pub fn start_messaging<S: Service, B: Bus>(
    engine: &Engine<S>,
    steps: &[StepAdmission],
    deps: &RuntimeDeps,
    config: &RuntimeConfig,
    bus: &B,
    publisher: Box<dyn Publish>,
) -> JoinSet<()> {
    let RuntimeDeps { store, clock, observer, tracer, .. } = deps.clone();
    let relay = Relay::new(store, config.decision.owner.clone(), config.relay.clone());
    let relay = relay.with_tracer(tracer).with_queue(engine.relay_queue());
    let mut loops = JoinSet::new();
    spawn(&mut loops, relay::run(relay, publisher, engine.relay_queue(), clock, observer.clone()));
    let mut durables = Vec::new();
    for admission in steps {
        for durable in Durable::all(S::NAME, &[admission.step()]) {
            durables.push((durable, admission.clone()));
            let (bus, engine, admission) = (bus.clone(), engine.clone(), admission.clone());
            let consumer = Consumer::new(bus, engine, admission, durable, config.consumer);
            spawn(&mut loops, Box::pin(consumer.observed(observer.clone()).run()));
        }
    }
    spawn(&mut loops, Box::pin(deps.startup_backlog.clone().process(bus.clone(), durables.clone())));
    // Without a consumer the broker would send the advisories of all services.
    if !durables.is_empty() {
        spawn(&mut loops, Box::pin(advisories::run(bus.clone(), engine.clone(), durables)));
    }
    loops
}

/// Maximum delay of any retry. A dependency may ask for a longer one than the backoff.
fn longest_delay(config: &DecisionConfig) -> SignedDuration {
    let policies = config.step_retry.values().chain([&config.retry, &config.task_retry]);
    let backoff = policies.map(|retry| retry.cap).max().unwrap_or_default();
    signed(backoff.saturating_add(MAX_RETRY_AFTER))
}

/// Spawns one of the loops.
pub(crate) fn spawn(loops: &mut JoinSet<()>, work: BoxFuture<'static, ()>) {
    loops.spawn(work);
}

/// Waits for a loop to end, which only a panic causes.
pub(crate) fn ended(loops: &mut JoinSet<()>) -> BoxFuture<'_, Option<Result<(), JoinError>>> {
    Box::pin(loops.join_next())
}

/// Converts a duration for arithmetic with timestamps. Durations that do not fit become the maximum.
#[must_use]
pub fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
