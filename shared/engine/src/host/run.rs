//! Shell: how a service is put together, runs, and stops.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::retry::error_chain;
use saga_core::service::{Service, steps_of};
use serde::Serialize;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::app::{App, AppParts, Program};
use super::asking::AskingAgain;
use super::http::{Gate, Outgoing, Problem};
use super::log::LostLines;
use super::metrics::{Metrics, names};
use super::readiness;
use super::settings::Settings;
use super::shedding::SharedShedding;
use super::standing::Standing;
use super::trace::{self, Tracing};
use super::{http, internal_api, meeting, timekeeping, upkeep};
use crate::nats::{BusFault, NatsBus, Publisher, anew};
use crate::runtime::admission::StepAdmission;
use crate::runtime::bus::Durable;
use crate::runtime::clock::{BrokerClock, SharedClock, SystemClock};
use crate::runtime::faults::Faults;
use crate::runtime::held_up::HeldUp;
use crate::runtime::standstill::{self, Share, Standstills};
use crate::runtime::{self, Carriage, Means, Running, ended, spawn};
use crate::store::{Mark, RELAY, Store};

/// A service that is told to stop has ended by then: whoever told it may kill it.
const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// First the requests under way, then the last spans.
const _: () = assert!(http::STOP_WITHIN.as_secs() + trace::LAST.as_secs() < STOPS_WITHIN.as_secs());

/// What to do about an address that cannot be listened at.
fn mending(error: &std::io::Error) -> &'static str {
    let known = MENDING.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or(": name another address in http.bind", |(_, what_to_do)| what_to_do)
}

const MENDING: [(ErrorKind, &str); 3] = [
    (
        ErrorKind::AddrInUse,
        ": somebody listens there already, perhaps this service itself, started twice: stop that, or name another port \
         in http.bind",
    ),
    (ErrorKind::PermissionDenied, ": this user may not listen there: name a port above 1023 in http.bind"),
    (
        ErrorKind::AddrNotAvailable,
        ": this machine has no such address: name one that it has in http.bind, such as 127.0.0.1",
    ),
];

/// Whoever stops does not wait for a database that is away.
const LEASE_GIVEN_BACK_WITHIN: Duration = Duration::from_secs(2);

/// Runs a service until it is told to stop; `lost` are the lines that its log loses.
pub(super) async fn run<S: Service, X: Serialize + Send + Sync + 'static>(
    program: Program<S, X>,
    settings: Settings<X>,
    lost: LostLines,
) -> anyhow::Result<()> {
    let handler = (program.handler)(&settings)?;
    let dependency = handler.dependency();
    let steps: Vec<_> = steps_of::<S>().into_iter().map(|step| step.name).collect();
    settings.check_resilience(&steps, dependency)?;
    let (gate, outgoing) = (Gate::new(&settings.http, program.access)?, Outgoing::of(&settings.http)?);
    let archive = settings.open_archive(S::NAME)?;
    let store = settings.open_store(S::NAME, S::rows()).await?;
    // Before anything is decided: how far it had come by itself.
    let came_to = store.mark().await?;
    let overridden = store.overrides().await?;
    let unbound = |error| anyhow::anyhow!("http.bind {}: {error}{}", settings.http.bind, mending(&error));
    let listener = http::bind(&settings.http).await.map_err(unbound)?;
    let bus = match program.producers.is_empty() {
        true => None,
        false => Some(bus_of(S::NAME, &settings, store.as_ref()).await?),
    };
    let metrics = Metrics::new(S::NAME, program.metrics);
    metrics.expect(&steps, program.tasks);
    let shedding = match &program.under_way {
        Some(under_way) => {
            Some(SharedShedding::of(under_way, &settings.service, store.as_ref(), &metrics).await?)
        }
        None => None,
    };
    let tracing = Tracing::of(&settings.trace, S::NAME, &settings.instance, &metrics)?;
    let faults = Faults::new(settings.faults.clone(), program.faults, steps);
    let service = Arc::new((program.service)(&settings));
    let clock = Arc::new(BrokerClock::new(Arc::new(SystemClock)));
    let carried_by: SharedClock = if bus.is_some() { clock.clone() } else { Arc::new(SystemClock) };
    let observer = Arc::new(metrics.clone());
    let means = Means {
        store: store.clone(),
        handler,
        clock: carried_by,
        observer,
        faults: faults.clone(),
        tracer: tracing.tracer.clone(),
    };
    let carriage = settings.carriage(dependency);
    let Running { engine, admission, steps, overrides, mut loops } =
        runtime::start(service, &means, &carriage, |name| settings.breaker_of(name), &overridden);
    let (stop, met, settings) = (CancellationToken::new(), CancellationToken::new(), Arc::new(settings));
    let (publishing, standstills) = (HeldUp::default(), Standstills::default());
    let app = App::from(AppParts {
        engine,
        store,
        bus,
        clock,
        metrics,
        admission,
        overrides,
        publishing,
        standstills,
        standing: Standing::default(),
        faults,
        outgoing,
        settings,
        met,
        refuses: program.refuses,
        shedding,
        stop,
    });

    if let Some(shedding) = app.shedding.clone().filter(|_| app.store.is_shared()) {
        spawn(&mut loops, shedding.recount(app.store.clone()));
    }
    spawn(&mut loops, Box::pin(readiness::watch(app.clone())));
    spawn(&mut loops, Box::pin(upkeep::trim(app.clone(), archive)));
    spawn(&mut loops, Box::pin(lost.tell(app.metrics.clone())));
    let (failed, failure) = tokio::sync::oneshot::channel();
    if app.bus.is_some() {
        let meeting =
            meet_the_broker(app.clone(), program.producers, steps, means, carriage, came_to, failed);
        spawn(&mut loops, Box::pin(meeting));
    }
    for work in (program.background)(app.clone()) {
        spawn(&mut loops, work);
    }
    let meeting = middleware::from_fn_with_state(app.clone(), refuse_before_the_meeting);
    let routes = (program.routes)(app.clone()).layer(meeting).merge(internal_api::routes(app.clone()).into());
    let health = readiness::health(app.clone());
    if let Some(remark) = app.settings.http.remark() {
        warn!("{remark}");
    }
    let router =
        http::router(routes, &app.settings.http, gate, health, app.metrics.clone(), tracing.tracer.clone());
    info!(service = S::NAME, instance = app.settings.instance, bind = %listener.local_addr()?, "started");
    let serving = http::spawn(listener, router, app.settings.http.clone(), app.stop.clone());
    let outcome = tokio::select! {
        () = shutdown_signal() => Ok(()),
        Ok(fault) = failure => Err(fault),
        // None of the loops ever ends: one that does has panicked, and a half-dead service must not look alive.
        Some(ended) = ended(&mut loops) => Err(anyhow::anyhow!("a background loop ended: {}", how(ended))),
    };
    app.stop.cancel();
    info!(service = S::NAME, "stopping");
    let served = serving.await;
    // Its relay is over: others need not wait until its lease lapses.
    loops.shutdown().await;
    give_back_lease(app.store.as_ref(), &app.settings.instance).await;
    // Whatever has happened: what is still to be sent may tell of it.
    tracing.finish().await;
    outcome.and(served.map_err(Into::into))
}

async fn bus_of<X>(service: &str, settings: &Settings<X>, store: &dyn Store) -> Result<NatsBus, BusFault> {
    let bus = NatsBus::connect_as(settings.bus.clone(), service, &settings.instance).await?;
    Ok(bus.of_replica(store.leads(), settings.engine.max_batch))
}

async fn give_back_lease(store: &dyn Store, owner: &str) {
    let given_back = tokio::time::timeout(LEASE_GIVEN_BACK_WITHIN, store.give_back_lease(RELAY, owner)).await;
    if let Ok(Err(fault)) = given_back {
        warn!("the relay's lease was not given back, it lapses: {}", error_chain(&fault));
    }
}

/// Streams, relay and consumers, once the broker is there.
async fn meet_the_broker<S: Service, X: Send + Sync + 'static>(
    app: App<S, X>,
    producers: Vec<&'static str>,
    steps: Vec<StepAdmission>,
    means: Means,
    carriage: Carriage,
    came_to: Mark,
    failed: tokio::sync::oneshot::Sender<anyhow::Error>,
) {
    let Some(bus) = app.bus.clone() else { return std::future::pending().await };
    if !bus.is_connected() {
        info!("waiting for the broker at {}", app.settings.bus.shown_url());
    }
    if let Err(fault) = bus.reached().await {
        let _ = failed.send(fault.into());
        return std::future::pending().await;
    }
    bus.warn_if_open();
    let mut asking = AskingAgain::default();
    while let Err(fault) = bus.ensure_streams(&producers).await {
        app.publishing.hold(&error_chain(&fault), Timestamp::now());
        asking.after(&format!("streams cannot be made yet, trying on: {}", error_chain(&fault))).await;
    }
    let (settings, store) = (&app.settings.store, app.store.as_ref());
    if let Err(fault) = meeting::hold_against(&bus, S::NAME, settings, store, came_to).await {
        let _ = failed.send(fault);
        return std::future::pending().await;
    }
    app.publishing.clear();
    timekeeping::meet(&app.clock, &bus).await;
    app.met.cancel();
    let publisher = Publisher::new(bus.clone(), S::NAME, app.faults.clone());
    let publisher = Box::new(publisher.marking(app.store.clone()).telling(app.publishing.clone()));
    for admission in &steps {
        for durable in Durable::all(S::NAME, &[admission.step()]) {
            app.metrics.show(&names::REDELIVERIES, &[&durable.name()]);
            app.metrics.show(&names::CONSUMER_LAG, &[&durable.name()]);
        }
    }
    let mut loops: JoinSet<()> =
        runtime::start_messaging(&app.engine, &steps, &means, &carriage, &bus, publisher);
    let (standstills, limit) = (app.standstills.clone(), app.settings.readiness.max_consumer_stall);
    let (clock, observer, is_shared, asking_bus) =
        (means.clock, means.observer, app.store.is_shared(), bus.clone());
    let share = move || match is_shared {
        false => Share::Whole,
        true if asking_bus.follows() => Share::Rest,
        true => Share::Equal,
    };
    let watching = standstill::run::<S, _>(bus.clone(), steps, share, standstills, limit, clock, observer);
    spawn(&mut loops, Box::pin(watching));
    let timekeeping = timekeeping::keep(&app.clock, &bus, &app.settings.clock, &app.metrics);
    let ended = tokio::select! {
        ended = ended(&mut loops) => ended,
        () = timekeeping => None,
        () = anew::watch(&bus, S::NAME, app.store.clone()) => None,
    };
    if let Some(ended) = ended {
        let _ = failed.send(anyhow::anyhow!("a loop on the broker ended: {}", how(ended)));
    }
    std::future::pending().await
}

/// How a loop ended that never should.
fn how(ended: Result<(), JoinError>) -> String {
    ended.map_or_else(|error| error.to_string(), |()| "it has returned".to_owned())
}

/// Answers whoever would change something that nothing new may be begun yet. What is there may be read.
async fn refuse_before_the_meeting<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    request: Request,
    next: Next,
) -> Response {
    match app.not_met() {
        Some(why) if !request.method().is_safe() => Problem::unavailable(why, 5).into_response(),
        Some(_) | None => next.run(request).await,
    }
}

/// Resolves on SIGTERM and on Ctrl-C.
fn shutdown_signal() -> BoxFuture<'static, ()> {
    use tokio::signal::unix::{SignalKind, signal};
    Box::pin(async {
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
    })
}
