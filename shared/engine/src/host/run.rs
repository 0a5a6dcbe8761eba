//! Shell: the life of a service, in phases: open, start the engine, start background work, serve, wait, stop.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use saga_core::service::{Service, steps_of};
use serde::Serialize;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::app::{App, AppParts, Controls, Health, Program};
use super::archive::Archive;
use super::check_history::CheckHistory;
use super::http::{Authorization, HttpClient, HttpSettings, LateRouter, Problem};
use super::in_flight::InFlight;
use super::log::DroppedLines;
use super::messaging::Messaging;
use super::messaging_loops::MessagingLoops;
use super::metrics::Metrics;
use super::retention_loop::RetentionLoop;
use super::settings::Settings;
use super::startup_check::{OnOutage, read_patiently};
use super::stop::{End, stop, wait_for_end};
use super::trace::{self, Tracing};
use super::{clock_sync, http, internal_api, readiness};
use crate::nats::{BusFault, NatsBus};
use crate::runtime::clock::{BrokerClock, SystemClock};
use crate::runtime::injected_faults::InjectedFaults;
use crate::runtime::overrides::record_start;
use crate::runtime::startup_backlog::StartupBacklog;
use crate::runtime::task_runner::TaskHandler;
use crate::runtime::{self, Runtime, RuntimeDeps, spawn};
use crate::store::{DatabasePosition, Store, StoreFault, StoredOverrides};

/// Runs a service until it is told to stop. `dropped` counts the lines that its log drops.
pub(super) async fn run<S: Service, X: Serialize + Send + Sync + 'static>(
    program: Program<S, X>,
    settings: Settings<X>,
    dropped: DroppedLines,
) -> anyhow::Result<()> {
    let Resources { archive, authorization, server, backend } = Resources::open(&program, &settings).await?;
    let Started { app, mut loops, messaging, tracing } =
        start_engine(&program, settings, backend, server.stop.clone()).await?;
    start_background(&mut loops, &app, &program, archive, dropped);
    let messaging = AbortOnDropHandle::new(tokio::spawn(messaging.run(app.clone())));
    let serving = serve(&app, &program, server, authorization, &tracing);
    let (messaging, end) = wait_for_end(&mut loops, messaging).await;
    let stopped = stop(&app, loops, messaging, serving, tracing, &end).await;
    match end {
        End::Signal => stopped,
        End::Rejected(error) | End::Panicked(error) => Err(error),
    }
}

/// Everything that a service opens before it starts. Opening it reports bad settings while nothing runs yet.
struct Resources {
    archive: Option<Archive>,
    authorization: Authorization,
    server: EarlyServer,
    backend: Backend,
}

/// HTTP server that answers probes while the database is opened, which may take minutes.
struct EarlyServer {
    late: LateRouter,
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl EarlyServer {
    async fn start(settings: &HttpSettings) -> anyhow::Result<Self> {
        let unbound = |error| anyhow::anyhow!("http.bind {}: {error}{}", settings.bind, bind_advice(&error));
        let listener = http::bind(settings).await.map_err(unbound)?;
        let (address, late, stop) = (listener.local_addr()?, LateRouter::new(), CancellationToken::new());
        let serving = http::spawn(listener, late.router(), settings.clone(), stop.clone());
        Ok(Self { late, address, stop, serving })
    }
}

/// Resources of the engine and its loops.
struct Backend {
    handler: Arc<dyn TaskHandler>,
    http_client: HttpClient,
    store: Arc<dyn Store>,
    /// Position of the database before anything was decided.
    opened_at: DatabasePosition,
    /// Time of the last accepted loss of data.
    lost_before: Option<Timestamp>,
    overridden: StoredOverrides,
    bus: Option<NatsBus>,
}

impl Resources {
    async fn open<S: Service, X>(program: &Program<S, X>, settings: &Settings<X>) -> anyhow::Result<Self> {
        let handler = task_handler(program, settings)?;
        let authorization = Authorization::new(&settings.http, program.access)?;
        let http_client = HttpClient::new(&settings.http)?;
        let archive = settings.open_archive(S::NAME)?;
        let server = EarlyServer::start(&settings.http).await?;
        let store = settings.open_store(S::NAME, S::rows()).await?;
        let (db, accept_loss) = (store.as_ref(), &settings.store.accept_loss);
        let on_outage = OnOutage::of(db);
        let opened_at = read_patiently(on_outage, || db.position()).await?;
        let lost_before = read_patiently(on_outage, || lost_before(db, accept_loss)).await?;
        let bus = match program.producers.is_empty() {
            true => None,
            false => Some(connect(S::NAME, settings, store.as_ref()).await?),
        };
        // Only now: a start that is rejected is no crash.
        let overridden =
            read_patiently(on_outage, || record_start(db, &settings.instance, Timestamp::now())).await?;
        let backend = Backend { handler, http_client, store, opened_at, lost_before, overridden, bus };
        Ok(Self { archive, authorization, server, backend })
    }
}

/// Creates the handler of tasks. Checks the settings that depend on it and on the steps.
pub(super) fn task_handler<S: Service, X>(
    program: &Program<S, X>,
    settings: &Settings<X>,
) -> anyhow::Result<Arc<dyn TaskHandler>> {
    let handler = (program.handler)(settings)?;
    settings.check_resilience(&step_names::<S>(), handler.dependency())?;
    Ok(handler)
}

/// Returns the time of the last accepted loss of data. Records the one that the settings accept before anything is decided:
/// whether data is lost is known for certain only once the broker answers.
async fn lost_before(store: &dyn Store, accept_loss: &str) -> Result<Option<Timestamp>, StoreFault> {
    if !accept_loss.is_empty() {
        store.accept_loss(accept_loss.to_owned(), Timestamp::now()).await?;
    }
    store.lost_before().await
}

fn step_names<S: Service>() -> Vec<&'static str> {
    steps_of::<S>().into_iter().map(|step| step.name).collect()
}

async fn connect<X>(service: &str, settings: &Settings<X>, store: &dyn Store) -> Result<NatsBus, BusFault> {
    let bus = NatsBus::connect_as(settings.bus.clone(), service, &settings.instance).await?;
    Ok(bus.of_replica(store.leadership(), settings.engine.max_batch))
}

/// Advice for an address that cannot be bound.
fn bind_advice(error: &std::io::Error) -> &'static str {
    let known = BIND_ADVICE.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or(": name another address in http.bind", |(_, advice)| advice)
}

const BIND_ADVICE: [(ErrorKind, &str); 3] = [
    (
        ErrorKind::AddrInUse,
        ": another process listens there, perhaps this service itself, started twice: stop that, or name another port in \
         http.bind",
    ),
    (ErrorKind::PermissionDenied, ": this user may not listen there: name a port above 1023 in http.bind"),
    (
        ErrorKind::AddrNotAvailable,
        ": this machine has no such address: name one that it has in http.bind, such as 127.0.0.1",
    ),
];

/// Service whose engine runs, and whose messaging is ready to run.
struct Started<S: Service, X> {
    app: App<S, X>,
    loops: JoinSet<()>,
    messaging: MessagingLoops,
    tracing: Tracing,
}

/// Starts the engine with its timers and tasks.
async fn start_engine<S: Service, X>(
    program: &Program<S, X>,
    settings: Settings<X>,
    backend: Backend,
    stop: CancellationToken,
) -> anyhow::Result<Started<S, X>> {
    let Backend { handler, http_client, store, opened_at, lost_before, overridden, bus } = backend;
    let steps = step_names::<S>();
    let metrics = Metrics::new(S::NAME, program.metrics);
    metrics.declare(&steps, program.tasks);
    let in_flight = match &program.in_flight_limit {
        Some(limit) => {
            let db = store.as_ref();
            Some(
                read_patiently(OnOutage::of(db), || InFlight::new(limit, &settings.service, db, &metrics))
                    .await?,
            )
        }
        None => None,
    };
    let (instance, database) = (settings.instance.as_str(), settings.store.url.as_str());
    let process = trace::Process { service: S::NAME, instance, database };
    let tracing = Tracing::new(&settings.trace, process, &metrics)?;
    let faults = InjectedFaults::new(settings.faults.clone(), program.faults, steps);
    let clock = Arc::new(BrokerClock::new(Arc::new(SystemClock)));
    if bus.is_none() {
        // Nothing else ever sets it.
        clock.follow_machine(None);
    }
    let mut runtime_config = settings.runtime_config(handler.dependency());
    runtime_config.decision.lost_before = lost_before;
    let deps = RuntimeDeps {
        store: store.clone(),
        handler,
        clock: clock.clone(),
        observer: Arc::new(metrics.clone()),
        faults: faults.clone(),
        tracer: tracing.tracer.clone(),
        startup_backlog: if bus.is_some() { StartupBacklog::unknown() } else { StartupBacklog::none() },
    };
    let service = Arc::new((program.service)(&settings));
    let Runtime { engine, admission, steps, overrides, loops } =
        runtime::start(service, &deps, &runtime_config, |name| settings.breaker_of(name), &overridden);
    let app = App::from(AppParts {
        engine,
        store,
        settings: Arc::new(settings),
        clock,
        metrics,
        messaging: Messaging::new(bus),
        controls: Controls { admission, overrides, faults },
        health: Health { history: CheckHistory::default(), overload: program.overload },
        http_client: http_client.traced(tracing.tracer.clone()),
        in_flight,
        stop,
    });
    let producers = program.producers.clone();
    let messaging = MessagingLoops { producers, steps, deps, runtime_config, opened_at };
    Ok(Started { app, loops, messaging, tracing })
}

/// Starts health checks, retention, and the service's own background work.
fn start_background<S: Service, X: Send + Sync + 'static>(
    loops: &mut JoinSet<()>,
    app: &App<S, X>,
    program: &Program<S, X>,
    archive: Option<Archive>,
    dropped: DroppedLines,
) {
    if let Some(in_flight) = app.in_flight.clone().filter(|_| app.store.is_shared()) {
        spawn(loops, in_flight.recount(app.store.clone()));
    }
    if app.messaging.bus.is_none() {
        let app = app.clone();
        spawn(
            loops,
            Box::pin(async move {
                clock_sync::follow_machine(&app.clock, app.store.as_ref(), &app.settings.clock).await;
            }),
        );
    }
    spawn(loops, Box::pin(readiness::run(app.clone())));
    spawn(loops, Box::pin(readiness::probe_writes(app.clone())));
    let retention = RetentionLoop {
        store: app.store.clone(),
        clock: app.clock.clone(),
        settings: app.settings.retention.clone(),
        rows: S::rows(),
        delivered: app.settings.bus.retention,
        archive: archive.map(|archive| archive.for_store(app.store.as_ref(), &app.settings.instance)),
    };
    spawn(loops, Box::pin(retention.run()));
    spawn(loops, Box::pin(dropped.report(app.metrics.clone())));
    for work in (program.background)(app.clone()) {
        spawn(loops, work);
    }
}

fn serve<S: Service, X: Serialize + Send + Sync + 'static>(
    app: &App<S, X>,
    program: &Program<S, X>,
    server: EarlyServer,
    authorization: Authorization,
    tracing: &Tracing,
) -> JoinHandle<()> {
    let settings = &app.settings.http;
    let startup_guard = middleware::from_fn_with_state(app.clone(), reject_before_startup_check);
    let routes =
        (program.routes)(app.clone()).layer(startup_guard).merge(internal_api::routes(app.clone()).into());
    if let Some(remark) = settings.remark() {
        warn!("{remark}");
    }
    let (health, metrics) = (readiness::health(app.clone()), app.metrics.clone());
    let (pages, tracer) = ((program.pages)(), tracing.tracer.clone());
    let router = http::router(routes, pages, settings, authorization, health, metrics, tracer)
        // Problems quote no secret of a body.
        .layer(Extension(S::SECRETS));
    server.late.open(router);
    info!(service = S::NAME, instance = app.settings.instance, bind = %server.address, "started");
    server.serving
}

/// Rejects changes until database and clock are checked against the broker. Reads are served.
async fn reject_before_startup_check<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    request: Request,
    next: Next,
) -> Response {
    match app.messaging.startup_pending() {
        Some(why) if !request.method().is_safe() => Problem::unavailable(why, 5).into_response(),
        Some(_) | None => next.run(request).await,
    }
}
