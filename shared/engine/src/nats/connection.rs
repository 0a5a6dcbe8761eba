//! Shell: the connection to NATS.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use super::connection_log::ConnectionLog;
use super::credentials::with_credentials;
use super::pack_sizes::PackSizes;
use super::permissions::inbox_of;
use super::settings::BusSettings;
use crate::protected_file::BadFile;

/// Oldest supported broker, major and minor version. `scripts/lib.sh` names it too.
pub const MINIMUM_VERSION: (u64, u64) = (2, 15);

/// Time-out of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum interval of reconnects for one raised limit.
const SAME_LIMIT_PAUSE: Duration = Duration::from_secs(10);

/// Reason why the broker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BusFault {
    /// The address or an option is invalid.
    #[error("broker {url}: cannot connect")]
    Connect {
        /// Address without user and password ([`BusSettings::shown_url`]).
        url: String,
        /// Error that the client library reports.
        source: async_nats::ConnectError,
    },
    /// A credentials or certificate file cannot be used.
    #[error("broker {url}: cannot connect")]
    File {
        /// Address without user and password ([`BusSettings::shown_url`]).
        url: String,
        /// File, and the setting that names it.
        source: BadFile,
    },
    /// The broker is too old.
    #[error(
        "broker {url} is nats-server {found}; this system needs {}.{} or newer: run scripts/setup.sh, or upgrade it",
        MINIMUM_VERSION.0, MINIMUM_VERSION.1
    )]
    TooOld {
        /// Address without user and password ([`BusSettings::shown_url`]).
        url: String,
        /// Version that the server reports.
        found: String,
    },
    /// A stream could not be created or read.
    #[error("stream {stream}")]
    Stream {
        /// Name of the stream at the broker, e.g. `ORDER`.
        stream: String,
        /// Error of the broker or the client.
        source: BoxedError,
    },
}

/// Any error of the broker or the connection.
pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Connection to the broker that reconnects by itself.
#[derive(Clone)]
pub struct NatsBus {
    pub(super) client: async_nats::Client,
    pub(super) jetstream: Context,
    pub(super) settings: BusSettings,
    /// User name at the broker.
    user: String,
    log: Arc<ConnectionLog>,
    /// True while this replica leads; `None` for a service with a single process.
    pub(super) leads: Option<watch::Receiver<bool>>,
    /// Maximum number of facts of one durable consumer that are in flight here.
    pub(super) max_in_flight: usize,
    pub(super) pack_sizes: PackSizes,
    /// Last raised `max_payload` for which this reconnected, and the time.
    raised_limit: Arc<Mutex<Option<(usize, Instant)>>>,
}

impl NatsBus {
    /// Connects as the user `name`. If the broker is down, the connection keeps trying ([`NatsBus::is_connected`]).
    ///
    /// # Errors
    /// If the address is invalid, or a credentials or certificate file cannot be used.
    pub fn connect(settings: BusSettings, name: &str) -> BoxFuture<'_, Result<Self, BusFault>> {
        Self::connect_as(settings, name, name)
    }

    /// Connects as `user`, whose answers only that user receives. `name` distinguishes connections of one user.
    ///
    /// # Errors
    /// As [`NatsBus::connect`].
    pub fn connect_as<'a>(
        settings: BusSettings,
        user: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Self, BusFault>> {
        Box::pin(Self::open(settings, user, name))
    }

    async fn open(settings: BusSettings, user: &str, name: &str) -> Result<Self, BusFault> {
        let log = ConnectionLog::new(settings.clone());
        let event_log = log.clone();
        let client = options_of(&settings, user, name)?
            .retry_on_initial_connect()
            .max_reconnects(None)
            .ping_interval(Duration::from_secs(5))
            // Quick at first, then every half second, which no operator notices and no broker minds.
            .reconnect_delay_callback(|attempts| Duration::from_millis((attempts as u64 * 50).min(500)))
            .event_callback(move |event| {
                event_log.log(&event);
                std::future::ready(())
            })
            .connect(settings.servers().collect::<Vec<_>>())
            .await
            .map_err(|source| BusFault::Connect { url: settings.shown_url(), source })?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(settings.publish_timeout);
        let max_in_flight = settings.max_ack_pending as usize;
        let (user, pack_sizes) = (user.to_owned(), PackSizes::default());
        let raised_limit = Arc::default();
        Ok(Self {
            client,
            jetstream,
            settings,
            user,
            log,
            leads: None,
            max_in_flight,
            pack_sizes,
            raised_limit,
        })
    }

    /// Makes this the connection of one of several replicas, whose leader is served first. A replica has at most two
    /// batches of facts of one consumer in flight; the broker gives the rest to others.
    #[must_use]
    pub fn of_replica(self, leads: Option<watch::Receiver<bool>>, max_batch: usize) -> Self {
        match leads {
            Some(leads) => {
                Self { leads: Some(leads), max_in_flight: self.max_in_flight.min(2 * max_batch), ..self }
            }
            None => self,
        }
    }

    /// True if this replica is served before the others.
    pub(crate) fn is_leader(&self) -> bool {
        self.leads.as_ref().is_some_and(|leads| *leads.borrow())
    }

    /// True if another replica may be served first.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.leads.as_ref().is_some_and(|leads| !*leads.borrow())
    }

    /// Logs a warning if the broker accepts anonymous clients, which may publish anything.
    pub fn warn_if_open(&self) {
        if !self.client.server_info().auth_required {
            warn!(
                "broker {} accepts anonymous clients, and each may publish as any service: configure users, one for \
                 each service (bus.credentials)",
                self.settings.shown_url()
            );
        }
    }

    /// True if this connection creates the stream of `service`: its own, or any at a broker without users.
    pub(super) fn owns_stream_of(&self, service: &str) -> bool {
        self.settings.credentials.is_none() || service == self.user
    }

    /// Number of connections so far, which changes with each reconnect.
    pub(super) fn connections(&self) -> watch::Receiver<u64> {
        self.log.connections.subscribe()
    }

    /// True if the connection is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Describes why there is no connection; `None` while there is one.
    #[must_use]
    pub fn disconnected(&self) -> Option<String> {
        let rejection = self.log.rejection().map_or_else(String::new, |rejection| format!(": {rejection}"));
        (!self.is_connected()).then(|| format!("not connected{rejection}"))
    }

    /// Limits an answer of the broker to `publish_timeout`. The client's own limits start only once it has buffer space
    /// for the request, which it may lack while the broker is down. Some of its requests have no limit.
    pub(super) async fn in_time<T, E: Into<BoxedError>>(
        &self,
        answer: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, BoxedError> {
        let (limit, began) = (self.settings.publish_timeout, Instant::now());
        match timeout(limit, answer).await {
            // An error after that time is the client's own time-out.
            Ok(answer) if answer.is_ok() || began.elapsed() < limit => answer.map_err(Into::into),
            // The broker answers no request that is not permitted, but reports that to the connection.
            Ok(_) | Err(_) => Err(match self.log.reported_since(began) {
                Some(reported) => format!("no answer from the broker, which reports: {reported}").into(),
                None => format!("no answer from the broker within {limit:?}").into(),
            }),
        }
    }

    /// Reconnects if the broker accepts larger messages than it did when this connected. Returns true if it does.
    ///
    /// A reload of the broker changes `max_payload` without a word to connected clients, and the client library reads it
    /// only when it connects. A second connection shows the current limit, so that a message that is just too large
    /// interrupts nothing.
    pub(super) async fn adopt_raised_limit(&self) -> bool {
        let name = format!("{}-limit", self.user);
        let Ok(options) = options_of(&self.settings, &self.user, &name) else { return false };
        let probe = options.connect(self.settings.servers().collect::<Vec<_>>());
        let Ok(Ok(probe)) = timeout(CONNECT_TIMEOUT, probe).await else { return false };
        let limit = probe.max_payload();
        if limit <= self.client.max_payload() || !self.may_reconnect_for(limit) {
            return false;
        }
        info!(max_payload = limit, "the broker accepts larger messages than before, reconnecting");
        if self.client.force_reconnect().await.is_err() {
            return false;
        }
        let began = Instant::now();
        while self.client.max_payload() < limit && began.elapsed() < CONNECT_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// False shortly after a reconnect for the same limit: servers of a cluster may have different ones for a while.
    fn may_reconnect_for(&self, limit: usize) -> bool {
        let mut last = self.raised_limit.lock();
        let may = last.is_none_or(|(before, at)| before != limit || at.elapsed() >= SAME_LIMIT_PAUSE);
        if may {
            *last = Some((limit, Instant::now()));
        }
        may
    }

    /// Waits until the connection is up, and checks the version of the broker.
    ///
    /// # Errors
    /// [`BusFault::TooOld`].
    pub async fn wait_until_connected(&self) -> Result<(), BusFault> {
        let found = loop {
            // The client is connected a moment before it has the server's information.
            match self.client.try_server_info() {
                Some(server) if self.is_connected() => break server.version,
                Some(_) | None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let mut parts = found.split(['.', '-']).map(|part| part.parse::<u64>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version < MINIMUM_VERSION {
            return Err(BusFault::TooOld { url: self.settings.shown_url(), found });
        }
        Ok(())
    }

    /// JetStream context, for readers that are no step, such as a load generator or a test.
    #[must_use]
    pub const fn jetstream(&self) -> &Context {
        &self.jetstream
    }
}

/// Options of each connection with these settings.
fn options_of(settings: &BusSettings, user: &str, name: &str) -> Result<ConnectOptions, BusFault> {
    let bad_file = |source| BusFault::File { url: settings.shown_url(), source };
    let options = match &settings.credentials {
        Some(file) => with_credentials(file).map_err(bad_file)?,
        None => ConnectOptions::new(),
    };
    let options = settings.tls.apply(options).map_err(bad_file)?;
    Ok(options.name(name).custom_inbox_prefix(inbox_of(user)).connection_timeout(CONNECT_TIMEOUT))
}
