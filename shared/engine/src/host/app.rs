//! Shell: a service's declaration ([`Program`]), and its running parts ([`App`]) as routes and background work see them.

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::access::Access;
use saga_core::fault::FaultKind;
use saga_core::metric::Metric;
pub use saga_core::outbox::Republished;
use saga_core::service::Service;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use super::check_history::CheckHistory;
use super::disk_check;
use super::http::HttpClient;
use super::in_flight::{InFlight, InFlightLimit};
use super::messaging::Messaging;
use super::metrics::Metrics;
use super::settings::Settings;
use crate::runtime::admission::SharedAdmission;
use crate::runtime::clock::{BrokerClock, Clock as _};
use crate::runtime::engine::Engine;
use crate::runtime::injected_faults::InjectedFaults;
use crate::runtime::overrides::Overrides;
use crate::runtime::relay_queue::RelayQueue;
use crate::runtime::task_runner::{NoTasks, TaskHandler};
use crate::store::{Store, StoreFault};

/// Declaration of a service, from which [`main`](super::main) makes a program.
pub struct Program<S: Service, X> {
    /// Default settings of this service, as TOML.
    pub defaults: &'static str,
    /// Every service that has a stream. Empty for a program without messaging.
    pub producers: Vec<&'static str>,
    /// Faults that operators may inject.
    pub faults: &'static [FaultKind],
    /// Constructor of the service from its settings.
    pub service: fn(&Settings<X>) -> S,
    /// Constructor of the task handler, which calls external systems.
    pub handler: fn(&Settings<X>) -> anyhow::Result<Arc<dyn TaskHandler>>,
    /// Routes of this service; those of the internal API are added.
    pub routes: fn(App<S, X>) -> OpenApiRouter,
    /// Static pages, which need no token.
    pub pages: fn() -> Router,
    /// Roles that the routes of this service require.
    pub access: &'static Access,
    /// Kinds of tasks that the service schedules.
    pub tasks: &'static [&'static str],
    /// Metrics of this service beside those of the engine.
    pub metrics: &'static [&'static Metric],
    /// Futures that run beside the engine until the service stops.
    pub background: fn(App<S, X>) -> Vec<Background>,
    /// Returns the reason for which the service rejects new work. A reason degrades the service.
    pub overload: fn(&App<S, X>) -> Option<String>,
    /// Optional limit on in-flight sagas.
    pub in_flight_limit: Option<InFlightLimit<X>>,
}

impl<S: Service, X> Program<S, X> {
    /// Declares a program without messaging, tasks, metrics, background work and limits of its own.
    #[must_use]
    pub fn new(
        defaults: &'static str,
        service: fn(&Settings<X>) -> S,
        routes: fn(App<S, X>) -> OpenApiRouter,
        access: &'static Access,
    ) -> Self {
        Self {
            defaults,
            producers: Vec::new(),
            faults: &FaultKind::OF_A_SERVICE,
            service,
            handler: |_| Ok(Arc::new(NoTasks)),
            routes,
            pages: Router::new,
            access,
            tasks: &[],
            metrics: &[],
            background: |_| Vec::new(),
            overload: |_| None,
            in_flight_limit: None,
        }
    }
}

/// Future that runs beside the engine until the service stops.
pub type Background = BoxFuture<'static, ()>;

/// Running service, as its routes and background work see it. Clones are cheap and share everything.
pub struct App<S: Service, X>(Arc<AppParts<S, X>>);

/// Parts of a running service.
pub struct AppParts<S: Service, X> {
    /// Runs commands and announces changed rows.
    pub engine: Engine<S>,
    /// Database of the service, for reading.
    pub store: Arc<dyn Store>,
    /// Settings as read at the start.
    pub settings: Arc<Settings<X>>,
    /// Time of day by the broker's clock, once that is known.
    pub clock: Arc<BrokerClock>,
    /// Metrics of this process, which `/metrics` exposes.
    pub metrics: Metrics,
    /// Connection to the broker, and what stalls on it.
    pub messaging: Messaging,
    /// Breakers, permits and injected faults, with the operators' overrides.
    pub controls: Controls,
    /// Health checks with their history.
    pub health: Health<S, X>,
    /// Credentials for requests to other services.
    pub http_client: HttpClient,
    /// In-flight sagas, when [`Program::in_flight_limit`] bounds them.
    pub in_flight: Option<InFlight>,
    /// Cancelled when the service stops.
    pub stop: CancellationToken,
}

/// Controls that operators have over steps and tasks.
pub struct Controls {
    /// Circuit breakers and permits of steps and tasks.
    pub admission: SharedAdmission,
    /// Operators' overrides of breakers and faults, shared by all replicas.
    pub overrides: Overrides,
    /// Faults injected into this process; none while `faults.enabled` is false.
    pub faults: InjectedFaults,
}

/// Health checks of a running service.
pub struct Health<S: Service, X> {
    /// State of each check, and since when.
    pub history: CheckHistory,
    /// Check for overload by the service itself, see [`Program::overload`].
    pub overload: fn(&App<S, X>) -> Option<String>,
}

impl<S: Service, X> Clone for App<S, X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Service, X> Deref for App<S, X> {
    type Target = AppParts<S, X>;

    fn deref(&self) -> &AppParts<S, X> {
        &self.0
    }
}

impl<S: Service, X> From<AppParts<S, X>> for App<S, X> {
    fn from(parts: AppParts<S, X>) -> Self {
        Self(Arc::new(parts))
    }
}

impl<S: Service, X> App<S, X> {
    /// Reason to begin no new work: the disk of the database is nearly full.
    #[must_use]
    pub fn disk_shortage(&self) -> Option<String> {
        disk_check::shortage(&self.metrics.stats(), &self.settings.store)
    }

    /// Publishes again all retained messages that were published since `since`.
    ///
    /// Runs to its end even when the caller goes away, because it may take longer than a request may.
    ///
    /// # Errors
    /// When the store fails. Entries marked until then are published all the same; repeating the call is safe.
    pub async fn republish(&self, since: Timestamp) -> Result<Republished, StoreFault> {
        let kept_since = self.settings.retention.cutoffs(self.clock.now()).published;
        let republishing = tokio::spawn(mark_all(self.store.clone(), self.engine.relay_queue(), since));
        let republished = republishing.await.unwrap_or(Err(StoreFault::Closed))?;
        Ok(Republished { republished, kept_since })
    }
}

async fn mark_all(
    store: Arc<dyn Store>,
    relay: Arc<RelayQueue>,
    since: Timestamp,
) -> Result<u64, StoreFault> {
    /// Occupies the writer for some tens of milliseconds.
    const CHUNK: usize = 5_000;
    let (mut count, mut after) = (0, 0);
    loop {
        let marked = store.republish(since, after, CHUNK).await?;
        relay.request_scan();
        count += marked.count as u64;
        match marked.last {
            Some(last) if marked.count == CHUNK => after = last,
            _ => return Ok(count),
        }
    }
}
