//! Shell: a service inside another program: with its store, relay and consumers, without a command line or HTTP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures::future::BoxFuture;
use saga_core::dead_letter::{DeadLetterStatus, DeadLettered, StoredDeadLetter};
use saga_core::decider::Decider;
use saga_core::row::RowKey;
use saga_core::service::{Service, steps_of};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::settings::{self, NoSettings, Sources};
use super::{clock_sync, startup_check};
use crate::nats::{BusSettings, NatsBus, Publisher};
use crate::runtime::clock::{BrokerClock, SystemClock};
use crate::runtime::engine::Engine;
use crate::runtime::injected_faults::InjectedFaults;
use crate::runtime::startup_backlog::StartupBacklog;
use crate::runtime::task_runner::TaskHandler;
use crate::runtime::tracer::Tracer;
use crate::runtime::{self, Runtime, RuntimeDeps, ended};
use crate::store::Store;

/// Service that runs inside this program until it is dropped.
pub struct Embedded<S: Service> {
    /// Runs commands and announces changed rows.
    pub engine: Engine<S>,
    /// Database of the service, for reading.
    pub store: Arc<dyn Store>,
    /// Cancelled when a loop has ended. A loop ends only by a panic.
    broken: CancellationToken,
    _loops: AbortOnDropHandle<()>,
}

/// Folder of a service's database, and whether the broker must know it.
#[derive(Debug, Clone, Copy)]
pub enum Database<'a> {
    /// Database that the service has used on this broker. A database that is behind its published messages is rejected.
    Existing(&'a Path),
    /// New database on purpose, as in a test or an example.
    New(&'a Path),
}

/// Starts a service on a broker that has the streams of all its producers (see [`connect`]).
///
/// Settings come from the environment and the defaults. The broker's settings are those of `bus`. No metrics are
/// collected, and nothing is purged.
///
/// # Errors
/// When a setting is impossible, or the database cannot be opened or has lost events.
pub async fn start<S: Service>(
    service: S,
    handler: Arc<dyn TaskHandler>,
    database: Database<'_>,
    bus: &NatsBus,
) -> anyhow::Result<Embedded<S>> {
    let (Database::Existing(folder) | Database::New(folder)) = database;
    let is_existing = matches!(database, Database::Existing(_));
    let file = folder.join(S::NAME).with_extension("db");
    let sources =
        Sources { flags: vec![format!("store.url=sqlite:{}", file.display())], ..Sources::default() };
    let settings = settings::load::<NoSettings>(S::NAME, "", &sources)?;
    let dependency = handler.dependency();
    let steps: Vec<_> = steps_of::<S>().into_iter().map(|step| step.name).collect();
    settings.check_resilience(&steps, dependency)?;
    let store: Arc<dyn Store> = settings.open_store(S::NAME, S::rows()).await.context(S::NAME)?;
    if is_existing {
        let opened_at = store.position().await?;
        startup_check::check_database(bus, S::NAME, &settings.store, store.as_ref(), opened_at).await?;
    }
    let faults = InjectedFaults::new(settings.faults.clone(), &[], steps);
    let publisher =
        Box::new(Publisher::new(bus.clone(), S::NAME, faults.clone()).with_position_header(store.clone()));
    let (clock, observer) = (Arc::new(BrokerClock::new(Arc::new(SystemClock))), Arc::new(()));
    clock_sync::first_sync(&clock, bus, store.as_ref()).await;
    let tracer = Tracer::off();
    let deps = RuntimeDeps {
        store: store.clone(),
        handler,
        clock,
        observer,
        faults,
        tracer,
        startup_backlog: StartupBacklog::unknown(),
    };
    let runtime_config = settings.runtime_config(dependency);
    let overridden = store.overrides().await?;
    let breaker_of = |name: &str| settings.breaker_of(name);
    let Runtime { engine, steps, mut loops, .. } =
        runtime::start(Arc::new(service), &deps, &runtime_config, breaker_of, &overridden);
    let broken = CancellationToken::new();
    let mut messaging = runtime::start_messaging(&engine, &steps, &deps, &runtime_config, bus, publisher);
    let breaks = broken.clone();
    let watching = async move {
        tokio::select! {
            _ = ended(&mut loops) => {}
            _ = ended(&mut messaging) => {}
        }
        breaks.cancel();
    };
    Ok(Embedded { engine, store, broken, _loops: AbortOnDropHandle::new(tokio::spawn(watching)) })
}

/// Connects to the broker at `url`, and creates the stream of each producer.
///
/// # Errors
/// When no broker answers within five seconds, or it is too old, or rejects the connection.
pub fn connect<'a>(url: &'a str, producers: &'a [&'static str]) -> BoxFuture<'a, anyhow::Result<NatsBus>> {
    /// Limit on each step. A running broker answers in milliseconds.
    const PATIENCE: Duration = Duration::from_secs(5);
    Box::pin(async move {
        let settings = BusSettings { url: url.to_owned(), ..BusSettings::default() };
        let bus = NatsBus::connect(settings, "embedded").await?;
        let no_broker = |_| anyhow!("no broker answers at {url}: start one with `nats-server --jetstream`");
        timeout(PATIENCE, bus.wait_until_connected()).await.map_err(no_broker)??;
        timeout(PATIENCE, bus.ensure_streams(producers)).await.map_err(no_broker)??;
        Ok(bus)
    })
}

impl<S: Service> Embedded<S> {
    /// Waits until a row satisfies `is_so`, and returns it. A row that does not exist has its default state.
    ///
    /// # Errors
    /// When the row cannot be read, or a loop of the service has panicked.
    pub async fn wait_for_row<D: Decider>(
        &self,
        id: impl ToString,
        is_so: impl Fn(&D) -> bool,
    ) -> anyhow::Result<D> {
        let key = RowKey::of::<D>(id);
        loop {
            // Armed before the read: a change after the read then finds the wake-up already waiting.
            let changed = self.engine.changed(key.clone());
            let row = self.store.row(key.clone()).await?;
            let row = row.map_or(Ok(D::default()), |row| serde_json::from_str(&row.state))?;
            if is_so(&row) {
                return Ok(row);
            }
            tokio::select! {
                () = changed => {}
                () = self.broken.cancelled() => bail!("{} does not run any more", S::NAME),
            }
        }
    }

    /// Waits until `count` dead letters of a saga have `status`. Returns them, among the thousand newest.
    ///
    /// # Errors
    /// When dead letters cannot be read, or a loop of the service has panicked.
    pub async fn wait_for_dead_letters(
        &self,
        saga: Uuid,
        status: DeadLetterStatus,
        count: usize,
    ) -> anyhow::Result<Vec<DeadLettered>> {
        /// Poll interval. Dead letters have no notification.
        const PAUSE: Duration = Duration::from_millis(20);
        loop {
            let all = self.store.dead_letters(1000).await?.readable;
            let is_match =
                |stored: &StoredDeadLetter| stored.status == status && stored.dead_letter.saga == Some(saga);
            let found: Vec<_> = all.into_iter().filter(is_match).map(|stored| stored.dead_letter).collect();
            if found.len() >= count {
                return Ok(found);
            }
            if timeout(PAUSE, self.broken.cancelled()).await.is_ok() {
                bail!("{} does not run any more", S::NAME);
            }
        }
    }
}
