//! Shell: how a service is put together and run: `main` parses, `run` does the rest.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;
use utoipa_axum::router::OpenApiRouter;

use crate::bus::consumer::Consumer;
use crate::bus::{Bus, Publisher, advisories};
use crate::engine::calls::{self, CallBounds, Caller, Calls};
use crate::engine::{self, Bounds, Engine, Rules, error_chain, timers};
use crate::faults::{FaultKind, Faults};
use crate::gate::{Breakers, Gate};
use crate::http::{self, Health, Readiness};
use crate::metrics::Metrics;
use crate::relay::{self, Relay};
use crate::resilience::Guard;
use crate::service::Service;
use crate::settings::{self, LogFormat, Settings, Sources};
use crate::store::sqlite::SqliteStore;
use crate::store::{Cutoffs, Store};

/// What every service can be told on its command line.
#[derive(Debug, Parser)]
#[command(
    version,
    about = "One service of the order saga. Without a command it runs until SIGTERM or Ctrl-C."
)]
struct Arguments {
    /// TOML file with settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, e.g. --set http.bind=127.0.0.1:9000 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(subcommand)]
    operation: Option<Operation>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Operation {
    /// Delete the rows of a kind and fold them anew from the events; the service must be stopped.
    Rebuild {
        /// Kind of rows, e.g. "saga".
        kind: String,
    },
    /// Check every row against the fold of its events; the service must be stopped.
    Verify,
}

/// A running service, as its routes and background work see it. Cheap to clone.
pub struct App<S: Service, X> {
    /// The engine.
    pub engine: Engine<S>,
    /// The store, for reading.
    pub store: Arc<dyn Store>,
    /// The broker; `None` for a program that speaks to nobody.
    pub bus: Option<Bus>,
    /// Counters.
    pub metrics: Metrics,
    /// Breakers of its steps and of what it calls.
    pub breakers: Breakers,
    /// Faults made on purpose.
    pub faults: Faults,
    /// All settings.
    pub settings: Arc<Settings<X>>,
    /// Resolves when the service stops.
    pub stop: CancellationToken,
}

impl<S: Service, X> Clone for App<S, X> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            store: self.store.clone(),
            bus: self.bus.clone(),
            metrics: self.metrics.clone(),
            breakers: self.breakers.clone(),
            faults: self.faults.clone(),
            settings: self.settings.clone(),
            stop: self.stop.clone(),
        }
    }
}

/// Work that runs beside the rest until the service stops.
pub type Background = BoxFuture<'static, ()>;

/// What makes a service the one it is.
pub struct Program<S: Service, X> {
    /// Its own defaults, as TOML.
    pub defaults: &'static str,
    /// Whether it meets the others on the broker.
    pub on_bus: bool,
    /// Faults that it can be told to make.
    pub faults: &'static [FaultKind],
    /// Makes the service.
    pub service: fn(&Settings<X>) -> S,
    /// Makes what calls the outside.
    pub caller: fn(&Settings<X>) -> anyhow::Result<Arc<dyn Caller>>,
    /// Its routes.
    pub routes: fn(App<S, X>) -> OpenApiRouter,
    /// What runs beside.
    pub background: fn(App<S, X>) -> Vec<Background>,
}

/// What services that call nobody depend on.
const NOBODY: &str = "nobody";

/// For services that call nobody.
///
/// # Errors
/// Never.
pub fn no_calls<X>(_: &Settings<X>) -> anyhow::Result<Arc<dyn Caller>> {
    struct Nobody;
    impl Caller for Nobody {
        fn dependency(&self) -> &'static str {
            NOBODY
        }

        fn call<'a>(
            &'a self,
            task: &'a crate::store::Task,
        ) -> BoxFuture<'a, Result<serde_json::Value, calls::CallFailed>> {
            let context = format!("nobody makes calls of kind {:?} here", task.kind);
            let failed = calls::CallFailed { context, is_final: true, source: None };
            Box::pin(std::future::ready(Err(failed)))
        }
    }
    Ok(Arc::new(Nobody))
}

/// Runs a service from its command line to its end. Errors are one line on standard error and exit code 1.
pub fn main<S: Service, X>(program: Program<S, X>) -> ExitCode
where
    X: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let arguments = Arguments::parse();
    let sources = Sources { file: arguments.config, flags: arguments.set };
    let outcome = settings::load::<X>(S::NAME, program.defaults, &sources)
        .map_err(anyhow::Error::from)
        .and_then(|settings| {
            start_log(&settings)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(async {
                match arguments.operation {
                    None => run(program, settings).await,
                    Some(operation) => operate::<S, X>(&operation, &settings).await,
                }
            })
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", S::NAME);
            ExitCode::FAILURE
        }
    }
}

fn start_log<X>(settings: &Settings<X>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.log.filter)
        .map_err(|error| anyhow::anyhow!("settings: log.filter is {:?}: {error}", settings.log.filter))?;
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
    match settings.log.format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.with_ansi(false).init(),
    }
    Ok(())
}

async fn operate<S: Service, X>(operation: &Operation, settings: &Settings<X>) -> anyhow::Result<()> {
    let store = SqliteStore::open(&settings.sqlite_path()?, S::rows())?;
    match operation {
        Operation::Rebuild { kind } => {
            let names: Vec<_> = S::rows().iter().map(|declared| declared.name).collect();
            let Some(kind) = names.iter().find(|name| *name == kind) else {
                anyhow::bail!("{} has no rows of kind {kind:?}; it has {}", S::NAME, names.join(", "));
            };
            let before = store.verify().await?;
            let rows = store.rebuild(kind).await?;
            let after = store.verify().await?;
            let report = serde_json::json!({
                "kind": kind, "rows": rows, "digest_before": before.digest, "digest_after": after.digest,
                "identical": before.digest == after.digest, "differing": after.differing,
            });
            println!("{report}");
        }
        Operation::Verify => println!("{}", serde_json::to_string(&store.verify().await?)?),
    }
    Ok(())
}

/// Runs a service until it is told to stop.
async fn run<S: Service, X: Serialize + Send + Sync + 'static>(
    program: Program<S, X>,
    settings: Settings<X>,
) -> anyhow::Result<()> {
    let caller = (program.caller)(&settings)?;
    let dependency = caller.dependency();
    let steps: Vec<_> = S::steps().iter().map(|step| step.name).collect();
    settings.check_resilience(&steps, dependency)?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&settings.sqlite_path()?, S::rows())?);
    let listener = http::bind(&settings.http)
        .await
        .map_err(|error| anyhow::anyhow!("http.bind {}: {error}", settings.http.bind))?;
    let bus = match program.on_bus {
        true => Some(Bus::connect(settings.bus.clone(), &settings.instance).await?),
        false => None,
    };
    let metrics = Metrics::default();
    let guard = Guard::new(dependency, settings.breaker_of(dependency));
    let (calls, tasks) = Calls::new(settings.task.backlog, guard.clone());
    let mut breakers = Breakers::new(&steps, |name| settings.breaker_of(name));
    if dependency != NOBODY {
        breakers = breakers.with(guard);
    }
    let faults = Faults::new(settings.faults.clone(), program.faults, steps);
    let service = Arc::new((program.service)(&settings));
    let bounds = Bounds { batch_max: settings.engine.batch_max, queue: settings.engine.queue };
    let (engine, looping) =
        Engine::new(service, store.clone(), rules(&settings, dependency), bounds, metrics.clone(), calls);
    let stop = CancellationToken::new();
    let settings = Arc::new(settings);
    let app = App { engine, store, bus, metrics, breakers, faults, settings, stop };

    let gates: Vec<_> = S::steps().iter().map(|step| app.breakers.gate(step, &app.faults)).collect();
    let mut background = JoinSet::new();
    background.spawn(engine::run(looping));
    background.spawn(calls::run(
        app.engine.clone(),
        caller,
        tasks,
        call_bounds(&app.settings, dependency),
        app.metrics.clone(),
    ));
    background.spawn(timers::run(app.engine.clone(), app.store.clone(), timer_settings(&app, &gates)));
    background.spawn(watch_stats(app.clone()));
    background.spawn(trim(app.clone()));
    let (failed, failure) = tokio::sync::oneshot::channel();
    if let Some(bus) = app.bus.clone() {
        background.spawn(meet_the_others(app.clone(), bus, gates, failed));
    }
    for work in (program.background)(app.clone()) {
        background.spawn(work);
    }
    let routes = (program.routes)(app.clone()).merge(crate::operator::routes(app.clone()).into());
    let router = http::router(routes, &app.settings.http, health(app.clone()), app.metrics.clone());
    info!(service = S::NAME, instance = app.settings.instance, bind = %listener.local_addr()?, "started");
    let serving = tokio::spawn(http::serve(listener, router, app.stop.clone()));
    let outcome = tokio::select! {
        () = told_to_stop() => Ok(()),
        Ok(fault) = failure => Err(fault),
        // None of the loops ever ends: one that does has panicked, and a half-dead service must not look alive.
        Some(ended) = background.join_next() => Err(anyhow::anyhow!("a background loop ended: {ended:?}")),
    };
    app.stop.cancel();
    info!(service = S::NAME, "stopping");
    serving.await??;
    outcome
}

/// Streams, relay and consumers, once the broker is there.
async fn meet_the_others<S: Service, X: Send + Sync + 'static>(
    app: App<S, X>,
    bus: Bus,
    gates: Vec<Gate>,
    failed: tokio::sync::oneshot::Sender<anyhow::Error>,
) {
    if !bus.is_connected() {
        info!("waiting for the broker at {}", app.settings.bus.url);
    }
    if let Err(fault) = bus.reached().await {
        let _ = failed.send(fault.into());
        return std::future::pending().await;
    }
    let mut has_complained = false;
    while let Err(fault) = bus.ensure_streams().await {
        // Once: a broker that has just started takes a moment, one that refuses refuses for ever.
        if !std::mem::replace(&mut has_complained, true) {
            warn!("streams cannot be made yet, trying on: {}", error_chain(&fault));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut loops = JoinSet::new();
    let relay = Relay::new(app.store.clone(), app.settings.instance.clone(), app.settings.relay.clone());
    let publisher = Publisher::new(bus.clone(), S::NAME, app.faults.clone());
    loops.spawn(relay::run(relay, publisher, app.engine.relay_wake(), app.metrics.clone()));
    for gate in &gates {
        for subscription in gate.step().hears {
            let (bus, engine, gate) = (bus.clone(), app.engine.clone(), gate.clone());
            loops.spawn(Consumer::new(bus, engine, gate, subscription).run());
        }
    }
    loops.spawn(advisories::run(bus, app.engine.clone(), gates));
    if let Some(ended) = loops.join_next().await {
        let _ = failed.send(anyhow::anyhow!("a loop on the broker ended: {ended:?}"));
    }
    std::future::pending().await
}

/// Resolves on SIGTERM and on Ctrl-C.
async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(error) => {
            error!("no SIGTERM handler: {error}");
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn watch_stats<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    loop {
        match app.store.stats().await {
            Ok(stats) => app.metrics.take_stats(stats, Timestamp::now()),
            Err(fault) => error!("the store cannot be asked: {}", error_chain(&fault)),
        }
        app.breakers.all().for_each(|guard| app.metrics.take_breaker(&guard.view()));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn trim<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    loop {
        tokio::time::sleep(app.settings.retention.every).await;
        let before = |age: Duration| {
            let now = Timestamp::now();
            SignedDuration::try_from(age)
                .ok()
                .and_then(|age| now.checked_sub(age).ok())
                .unwrap_or(Timestamp::MIN)
        };
        let retention = &app.settings.retention;
        let cutoffs = Cutoffs { inbox: before(retention.inbox), keys: before(retention.idempotency_key) };
        loop {
            match app.store.trim(cutoffs, retention.chunk).await {
                // Small chunks with a breath between them: the engine's batches go first.
                Ok(gone) if gone as usize >= retention.chunk => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Ok(_) => break,
                Err(fault) => {
                    error!("finished entries cannot be trimmed: {}", error_chain(&fault));
                    break;
                }
            }
        }
    }
}

fn health<S: Service, X: Send + Sync + 'static>(app: App<S, X>) -> Health {
    Arc::new(move || {
        let app = app.clone();
        Box::pin(async move {
            let mut checks = std::collections::BTreeMap::new();
            let mut ready = true;
            let mut check = |name: &str, problem: Option<String>| {
                ready &= problem.is_none();
                checks.insert(name.to_owned(), problem.unwrap_or_else(|| "ok".to_owned()));
            };
            let stats = app.store.stats().await;
            let now = Timestamp::now();
            match stats {
                Ok(stats) => {
                    let age =
                        stats.outbox_oldest.map_or(SignedDuration::ZERO, |oldest| now.duration_since(oldest));
                    let limit = SignedDuration::try_from(app.settings.engine.ready_lag)
                        .unwrap_or(SignedDuration::MAX);
                    check("store", None);
                    check(
                        "outbox",
                        (age > limit).then(|| format!("oldest entry has waited {}s", age.as_secs())),
                    );
                }
                Err(fault) => check("store", Some(error_chain(&fault))),
            }
            if let Some(bus) = &app.bus {
                check("broker", (!bus.is_connected()).then(|| "not connected".to_owned()));
            }
            Readiness { ready, checks }
        })
    })
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn rules<X>(settings: &Settings<X>, dependency: &str) -> Rules {
    Rules {
        retry: settings.retry,
        step_retry: settings.step_retries(),
        task_retry: settings.calls_to(dependency).retry,
        owner: settings.instance.clone(),
        task_lease: signed(settings.task.lease),
        use_inbox: true,
    }
}

fn call_bounds<X>(settings: &Settings<X>, dependency: &str) -> CallBounds {
    let task = settings.calls_to(dependency);
    CallBounds { concurrency: task.concurrency, timeout: task.timeout }
}

fn timer_settings<S: Service, X>(app: &App<S, X>, gates: &[Gate]) -> timers::TimerSettings {
    let settings = &app.settings;
    timers::TimerSettings {
        owner: settings.instance.clone(),
        task_lease: signed(settings.task.lease),
        limit: settings.engine.batch_max,
        poll: settings.engine.timer_poll,
        gates: gates.to_vec(),
    }
}
