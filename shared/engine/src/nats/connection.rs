//! Shell: the connection to NATS and the streams of the system.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode, stream};
use async_nats::{ConnectErrorKind, ConnectOptions, Event};
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::service::stream_of;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use super::entry::{BadFile, Shown, TlsSettings, by_credentials};
use super::permissions::{ADVISORY_STREAM, inbox_of};

/// What the stream of the broker's advisories keeps.
pub(super) const ADVISORY_KINDS: [&str; 2] = ["MAX_DELIVERIES", "MSG_TERMINATED"];
/// The oldest broker that is trusted: since 2.15 an atomic batch costs one fsync, and 2.12 brought them.
const MINIMUM_VERSION: (u64, u64) = (2, 15);

/// Settings of the broker. `Debug` shows no secret: an address may hold one.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSettings {
    /// Where it is, `nats://HOST:PORT`, or `tls://HOST:PORT`; of a cluster, several with commas between them.
    pub url: String,
    /// File with the credentials of the service's own user: the seed of an nkey, or a `.creds` file. Without one the
    /// broker must let anyone in.
    pub credentials: Option<PathBuf>,
    /// Whom to trust there, and how the broker knows this client.
    pub tls: TlsSettings,
    /// Copies of each stream: 1 on one machine, 3 in a cluster.
    pub replicas: usize,
    /// How long facts are kept.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    /// How long the broker itself knows message ids. Short: it costs memory, and the inbox is the guard.
    #[serde(with = "humantime_serde")]
    pub duplicate_window: Duration,
    /// Redelivery after this long without an acknowledgement.
    #[serde(with = "humantime_serde")]
    pub ack_wait: Duration,
    /// Deliveries of one message, after which the broker gives it up: then its step tries it once more, or it becomes a
    /// dead letter. Many, as only what kills the process each time should get there.
    pub max_deliver: u32,
    /// Messages under way to one consumer.
    pub max_ack_pending: u32,
    /// Messages asked for at once.
    pub pull: usize,
    /// Facts of one subject that may travel in one message of the broker, when so many wait; 1: each travels alone.
    /// Together they cost the broker a tenth: it stores, syncs, delivers and is told one message, in place of so many.
    /// Whoever hears them must know packs, as every build does that has this setting: 1 until all run such a build.
    pub pack: usize,
    /// Of the replicas of a service the one that publishes is given messages first, and the others what it does not ask for:
    /// so many small batches, each of which waits for the others, become few. All replicas must have the same, or each makes the
    /// durables anew for itself, and what the others had asked for comes to them ten seconds later (`ack_wait`): `false` while
    /// any runs a build that does not know this setting.
    pub lead_first: bool,
    /// How long the broker may take to acknowledge a publish.
    #[serde(with = "humantime_serde")]
    pub publish_timeout: Duration,
}

impl Default for BusSettings {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".to_owned(),
            credentials: None,
            tls: TlsSettings::default(),
            replicas: 1,
            retention: Duration::from_hours(24 * 7),
            duplicate_window: Duration::from_secs(20),
            ack_wait: Duration::from_secs(10),
            max_deliver: 50,
            max_ack_pending: 2_000,
            pull: 100,
            pack: 100,
            lead_first: true,
            publish_timeout: Duration::from_secs(3),
        }
    }
}

impl fmt::Debug for BusSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, Self { credentials, tls, .. }) = (self.shown_url(), self);
        let mut shown = f.debug_struct("BusSettings");
        shown.field("url", &url).field("credentials", credentials).field("tls", tls).finish_non_exhaustive()
    }
}

impl BusSettings {
    /// Where the broker is, without the user and the password that the address may hold.
    #[must_use]
    pub fn shown_url(&self) -> String {
        Shown(&self.url).to_string()
    }

    fn servers(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// What to do about a connection that cannot be made, when that is known.
    fn advice(&self, problem: &str) -> Option<String> {
        let is = |kind: ConnectErrorKind| problem.contains(&kind.to_string());
        if is(ConnectErrorKind::AuthorizationViolation) || is(ConnectErrorKind::Authentication) {
            return Some(match &self.credentials {
                Some(file) => format!(
                    "it does not know the user of {}: its configuration must name that user's key, or bus.credentials \
                     another file",
                    file.display()
                ),
                None => {
                    "it lets in only users that it knows: bus.credentials names the file of one".to_owned()
                }
            });
        }
        let trusted = self.tls.ca.as_ref().map(|ca| format!("by whom {} names", ca.display()));
        let trusted =
            trusted.unwrap_or_else(|| "by whom this system trusts, and bus.tls.ca names nobody".to_owned());
        // The client does not say which of these it is.
        let is_tls = self.tls.ca.is_some() || self.servers().any(|server| server.starts_with("tls:"));
        (is(ConnectErrorKind::Tls) || (is_tls && is(ConnectErrorKind::Io))).then(|| {
            format!(
                "it is not there, or TLS cannot be agreed on: its certificate is not signed {trusted}, or not for this \
                 address, or it wants one of this client (bus.tls.cert, bus.tls.key)"
            )
        })
    }
}

/// Why the broker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BusFault {
    /// The address or the options make no sense.
    #[error("broker {url}: cannot connect")]
    Connect {
        /// As the settings have it ([`BusSettings::shown_url`]).
        url: String,
        /// What the client said.
        source: async_nats::ConnectError,
    },
    /// What lets the service in cannot be read.
    #[error("broker {url}: cannot connect")]
    File {
        /// As the settings have it ([`BusSettings::shown_url`]).
        url: String,
        /// Which file, of which setting.
        source: BadFile,
    },
    /// The broker is too old.
    #[error(
        "broker {url} is nats-server {found}; this system needs 2.15 or newer: run scripts/setup.sh, or upgrade it"
    )]
    TooOld {
        /// As the settings have it ([`BusSettings::shown_url`]).
        url: String,
        /// The version that the server says it has.
        found: String,
    },
    /// A stream could not be made.
    #[error("stream {stream}")]
    Stream {
        /// The stream's name at the broker, e.g. `ORDER`.
        stream: String,
        /// What the broker said.
        source: BoxedError,
    },
}

/// Whatever went wrong at the broker, or on the way.
pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// A connection that keeps itself up.
#[derive(Clone)]
pub struct NatsBus {
    pub(super) client: async_nats::Client,
    pub(super) jetstream: Context,
    pub(super) settings: BusSettings,
    /// Who it is at the broker.
    user: String,
    told: Arc<Told>,
    /// Whether it asks for messages before the other replicas of its service.
    pub(super) leads: Option<watch::Receiver<bool>>,
    /// Facts of one durable that may be under way here.
    pub(super) room: usize,
}

/// What was told of the connection, so that it is told once.
struct Told {
    settings: BusSettings,
    /// The last problem, until there is a connection.
    problem: Mutex<Option<Problem>>,
}

/// Why there is no connection.
struct Problem {
    /// In the client's words.
    text: String,
    /// What to do about it, when that is known.
    advice: Option<String>,
}

impl Told {
    fn new(settings: BusSettings) -> Arc<Self> {
        Arc::new(Self { settings, problem: Mutex::default() })
    }

    fn tell(&self, event: &Event) {
        match event {
            Event::Connected => {
                *self.problem.lock() = None;
                info!("broker connected");
            }
            Event::Disconnected => warn!("broker disconnected, trying to reconnect"),
            Event::ServerError(error) => warn!("broker says: {error}"),
            Event::ClientError(error) => self.complain(error.to_string()),
            Event::LameDuckMode | Event::Draining | Event::Closed | Event::SlowConsumer(_) => {
                warn!("broker: {event}");
            }
        }
    }

    /// An attempt follows the other, and fails for the same reason.
    fn complain(&self, problem: String) {
        let mut last = self.problem.lock();
        if last.as_ref().is_some_and(|last| last.text == problem) {
            return;
        }
        let advice = self.settings.advice(&problem);
        let what_to_do = advice.as_ref().map_or_else(String::new, |advice| format!(": {advice}"));
        warn!("broker connection: {}: {problem}{what_to_do}", self.settings.shown_url());
        *last = Some(Problem { text: problem, advice });
    }

    /// Why the broker refuses, and what to do; `None` of one that is merely away.
    fn refusal(&self) -> Option<String> {
        let problem = self.problem.lock();
        let Problem { text, advice } = problem.as_ref()?;
        Some(format!("{text}: {}", advice.as_ref()?))
    }
}

impl NatsBus {
    /// Connects. When the broker is not there the connection goes on trying; [`NatsBus::is_connected`] tells.
    ///
    /// # Errors
    /// When the address is none, or a file cannot be used that lets this client in.
    pub fn connect(settings: BusSettings, name: &str) -> BoxFuture<'_, Result<Self, BusFault>> {
        Self::connect_as(settings, name, name)
    }

    /// The same, as a user of the broker: answers come to where nobody else hears them. `name` tells connections of one
    /// user apart.
    ///
    /// # Errors
    /// As [`NatsBus::connect`].
    pub fn connect_as<'a>(
        settings: BusSettings,
        user: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Self, BusFault>> {
        Box::pin(Self::connecting(settings, user, name))
    }

    async fn connecting(settings: BusSettings, user: &str, name: &str) -> Result<Self, BusFault> {
        let url = settings.shown_url();
        let bad_file = |source| BusFault::File { url: url.clone(), source };
        let options = settings.tls.apply(ConnectOptions::new()).map_err(bad_file)?;
        let options = match &settings.credentials {
            Some(file) => by_credentials(options, file).map_err(bad_file)?,
            None => options,
        };
        let told = Told::new(settings.clone());
        let telling = told.clone();
        let client = options
            .name(name)
            .custom_inbox_prefix(inbox_of(user))
            .retry_on_initial_connect()
            .max_reconnects(None)
            .connection_timeout(Duration::from_secs(2))
            .ping_interval(Duration::from_secs(5))
            // Quick at first, never hammering: half a second is what an operator does not notice.
            .reconnect_delay_callback(|attempts| Duration::from_millis((attempts as u64 * 50).min(500)))
            .event_callback(move |event| {
                telling.tell(&event);
                std::future::ready(())
            })
            .connect(settings.servers().collect::<Vec<_>>())
            .await
            .map_err(|source| BusFault::Connect { url, source })?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(settings.publish_timeout);
        let room = settings.max_ack_pending as usize;
        Ok(Self { client, jetstream, settings, user: user.to_owned(), told, leads: None, room })
    }

    /// The same, of one of several replicas, which asks for messages first as long as it leads (unless `lead_first` is off).
    /// With two batches of facts of one durable under way it has its hands full, and the others are there.
    #[must_use]
    pub fn of_replica(self, leads: Option<watch::Receiver<bool>>, max_batch: usize) -> Self {
        match leads.filter(|_| self.settings.lead_first) {
            Some(leads) => Self { leads: Some(leads), room: self.room.min(2 * max_batch), ..self },
            None => self,
        }
    }

    /// Whether it is given messages before other replicas.
    pub(crate) fn leads(&self) -> bool {
        self.leads.as_ref().is_some_and(|leads| *leads.borrow())
    }

    /// Whether another replica is given messages first, as far as is known.
    pub(crate) fn follows(&self) -> bool {
        self.leads.as_ref().is_some_and(|leads| !*leads.borrow())
    }

    /// Says so when the broker lets in whoever reaches it: then any of them can say anything.
    pub fn warn_if_open(&self) {
        if !self.client.server_info().auth_required {
            warn!(
                "broker {} lets anyone in, and whoever reaches it can say what a service says: give it users, and each \
                 service its own (bus.credentials)",
                self.settings.shown_url()
            );
        }
    }

    /// Whether this connection makes the stream of a service: its own, and any where anyone may make any.
    pub(super) fn makes_stream_of(&self, service: &str) -> bool {
        self.settings.credentials.is_none() || service == self.user
    }

    /// Whether the broker is there right now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Why there is no connection, in a sentence; `None` while there is one.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let refusal = self.told.refusal().map_or_else(String::new, |refusal| format!(": {refusal}"));
        (!self.is_connected()).then(|| format!("not connected{refusal}"))
    }

    /// What the broker answers, or that it does not in time. The client's own limits begin only when it has room for
    /// the question, which it never has while it holds all it can for a broker that is away; and some have none.
    pub(super) async fn in_time<T, E: Into<BoxedError>>(
        &self,
        answer: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, BoxedError> {
        let limit = self.settings.publish_timeout;
        match timeout(limit, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(format!("no answer from the broker within {limit:?}").into()),
        }
    }

    /// Waits until the broker is there, and refuses one that is too old.
    ///
    /// # Errors
    /// [`BusFault::TooOld`].
    pub async fn reached(&self) -> Result<(), BusFault> {
        let found = loop {
            // The client is connected a moment before it knows to what.
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

    /// Makes every stream of these producers that is not there, and brings the others up to these settings. Where the
    /// broker knows its users, each makes its own.
    ///
    /// # Errors
    /// When the broker refuses or does not answer.
    pub fn ensure_streams<'a>(
        &'a self,
        producers: &'a [&'static str],
    ) -> BoxFuture<'a, Result<(), BusFault>> {
        Box::pin(async move {
            for service in producers.iter().filter(|service| self.makes_stream_of(service)) {
                self.ensure_stream(service).await?;
            }
            self.ensure_advisory_stream().await
        })
    }

    /// Makes the stream of one service.
    ///
    /// # Errors
    /// As [`NatsBus::ensure_streams`].
    pub async fn ensure_stream(&self, service: &str) -> Result<(), BusFault> {
        let config = stream::Config {
            name: stream_of(service),
            subjects: vec![format!("{service}.>")],
            retention: stream::RetentionPolicy::Limits,
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_age: self.settings.retention,
            duplicate_window: self.settings.duplicate_window,
            allow_direct: true,
            allow_atomic_publish: true,
            ..stream::Config::default()
        };
        self.keep_stream(config).await
    }

    /// Makes the stream of advisories.
    ///
    /// # Errors
    /// As [`NatsBus::ensure_streams`].
    pub(super) async fn ensure_advisory_stream(&self) -> Result<(), BusFault> {
        let config = stream::Config {
            name: ADVISORY_STREAM.to_owned(),
            subjects: ADVISORY_KINDS.map(|kind| format!("$JS.EVENT.ADVISORY.CONSUMER.{kind}.>")).to_vec(),
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_age: self.settings.retention,
            ..stream::Config::default()
        };
        match self.settings.credentials {
            None => self.keep_stream(config).await,
            Some(_) => self.make_stream(config).await,
        }
    }

    /// Makes a stream that is everybody's, and nobody's to change: as it is, it will do.
    async fn make_stream(&self, config: stream::Config) -> Result<(), BusFault> {
        let stream = config.name.clone();
        let making = async {
            match self.jetstream.create_stream(config).await {
                Ok(_) => Ok(()),
                Err(error) if is_there(&error.kind()) => Ok(()),
                Err(error) => Err(error),
            }
        };
        self.in_time(making).await.map_err(|source| BusFault::Stream { stream, source })
    }

    /// Makes a stream that is not there, and brings one that is up to this.
    async fn keep_stream(&self, config: stream::Config) -> Result<(), BusFault> {
        let stream = config.name.clone();
        match self.in_time(self.jetstream.create_or_update_stream(config)).await {
            Ok(_) => Ok(()),
            Err(source) => Err(BusFault::Stream { stream, source }),
        }
    }

    /// How many messages each subject of a service's stream holds.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn subject_counts(
        &self,
        service: &str,
    ) -> Result<std::collections::BTreeMap<String, u64>, BusFault> {
        let name = stream_of(service);
        let counts = async {
            let info = self.jetstream.get_stream_no_info(&name).await?.info_with_subjects(">").await?;
            let counts = info.map_ok(|(subject, count)| (subject, count as u64));
            counts.try_collect().await.map_err(BoxedError::from)
        };
        self.in_time(counts).await.map_err(|source| BusFault::Stream { stream: name.clone(), source })
    }

    /// The JetStream context, for readers that are no step (a load generator, a test).
    #[must_use]
    pub const fn jetstream(&self) -> &Context {
        &self.jetstream
    }
}

fn is_there(why: &CreateStreamErrorKind) -> bool {
    matches!(why, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}
