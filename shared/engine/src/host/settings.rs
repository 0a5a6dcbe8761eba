//! Shell: settings of a service, merged from defaults, a TOML file, the environment and flags. Parsed whole before
//! anything binds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saga_core::admission::TaskBounds;
use saga_core::breaker::BreakerPolicy;
use saga_core::decision::Rules;
use saga_core::retry::RetryPolicy;
use saga_core::row::RowKind;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use super::archive::Archive;
use super::clock_sync::ClockSettings;
use super::http::HttpSettings;
use super::log::LogSettings;
use super::resilience::{Resilience, RetryOverride};
pub use super::retention::RetentionSettings;
use super::trace::TraceSettings;
use crate::nats::BusSettings;
use crate::runtime::consumer::ConsumerBounds;
use crate::runtime::engine::Bounds;
use crate::runtime::faults::FaultSettings;
use crate::runtime::relay::RelaySettings;
use crate::runtime::{Carriage, signed};
use crate::store::postgres::{self, PostgresStore};
use crate::store::sqlite::SqliteStore;
use crate::store::{Opening, Store, StoreFault};

/// All settings of a service. `X` are its own (section `service`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings<X> {
    /// Name of this instance among its replicas. Must stay the same after a restart.
    pub instance: String,
    /// HTTP server and its limits.
    #[serde(default)]
    pub http: HttpSettings,
    /// Database of the service, and its checks.
    #[serde(default)]
    pub store: StoreSettings,
    /// Connection to the broker, streams and consumers.
    #[serde(default)]
    pub bus: BusSettings,
    /// Batching of the engine, and its timers.
    #[serde(default)]
    pub engine: EngineSettings,
    /// Limits above which the service is degraded or not ready.
    #[serde(default)]
    pub readiness: ReadinessSettings,
    /// Synchronisation with the broker's clock.
    #[serde(default)]
    pub clock: ClockSettings,
    /// Publication of outbox entries by the relay.
    #[serde(default)]
    pub relay: RelaySettings,
    /// Retry policy of messages whose step fails.
    #[serde(default = "message_retry", deserialize_with = "over_message_retry")]
    pub retry: RetryPolicy,
    /// Calls of tasks to external systems.
    #[serde(default)]
    pub task: TaskSettings,
    /// Policy of circuit breakers without overrides.
    #[serde(default)]
    pub breaker: BreakerPolicy,
    /// Overrides for single steps and dependencies, by name.
    #[serde(default)]
    pub resilience: BTreeMap<String, Resilience>,
    /// Fault injection, and the seed of its randomness.
    #[serde(default)]
    pub faults: FaultSettings,
    /// Retention of finished rows and bookkeeping.
    #[serde(default)]
    pub retention: RetentionSettings,
    /// Level, format and file of the log.
    #[serde(default)]
    pub log: LogSettings,
    /// Sampling and export of traces.
    #[serde(default)]
    pub trace: TraceSettings,
    /// Settings of this service alone.
    pub service: X,
}

/// Empty section `service`, for services without settings of their own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// Location and checks of the database (section `store`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// `sqlite:PATH` for a file, or `postgres://USER@HOST[:PORT]/DATABASE`, which replicas share.
    #[serde(serialize_with = "without_password")]
    pub url: String,
    /// File with the password of the database's user, in place of one in the URL.
    pub password_file: Option<PathBuf>,
    /// Maximum time of the integrity check at a start. `verify` checks all pages.
    #[serde(with = "humantime_serde")]
    pub check_within: Duration,
    /// Maximum time that a start waits for a PostgreSQL server to accept connections.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// Name of an accepted loss of data, as printed by the rejected start.
    pub accept_loss: String,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            password_file: None,
            check_within: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(30),
            accept_loss: String::new(),
        }
    }
}

/// Minimum of `bus.retention`. A service that is down for longer misses messages.
const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// Callers give up on a service that answers later.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);

/// Batching of the engine, and its timers (section `engine`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Maximum number of inputs in one transaction.
    pub max_batch: usize,
    /// Capacity of the queue of inputs that wait for a transaction.
    pub queue: usize,
    /// Maximum batching delay. Grows with commit latency up to this limit; an idle engine commits at once, and so does a
    /// full batch.
    #[serde(with = "humantime_serde")]
    pub max_batch_delay: Duration,
    /// Maximum time between two polls for due rows and retries.
    #[serde(with = "humantime_serde")]
    pub timer_poll: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_batch: 256,
            queue: 4096,
            max_batch_delay: Duration::from_millis(20),
            timer_poll: Duration::from_secs(1),
        }
    }
}

/// Limits above which the service reports itself degraded or not ready (section `readiness`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadinessSettings {
    /// Maximum age of the oldest unpublished outbox entry. Above it, the check `outbox` is degraded.
    #[serde(with = "humantime_serde")]
    pub max_outbox_age: Duration,
    /// Maximum time for which a connected broker may take no messages. Above it, the check `publishing` is degraded.
    #[serde(with = "humantime_serde")]
    pub max_publish_stall: Duration,
    /// Maximum time for which a step may process none of its waiting messages. Above it, the check `steps` fails.
    #[serde(with = "humantime_serde")]
    pub max_consumer_stall: Duration,
}

impl Default for ReadinessSettings {
    fn default() -> Self {
        Self {
            max_outbox_age: Duration::from_secs(60),
            max_publish_stall: Duration::from_secs(5),
            max_consumer_stall: Duration::from_secs(15),
        }
    }
}

fn message_retry() -> RetryPolicy {
    RetryPolicy { max_attempts: 8, base: Duration::from_millis(100), cap: Duration::from_secs(30) }
}

fn task_retry() -> RetryPolicy {
    RetryPolicy { max_attempts: 6, base: Duration::from_millis(200), cap: Duration::from_secs(10) }
}

/// Overrides single members of the default policy.
fn over_message_retry<'de, D: Deserializer<'de>>(of: D) -> Result<RetryPolicy, D::Error> {
    RetryOverride::deserialize(of).map(|own| own.over(message_retry()))
}

fn over_task_retry<'de, D: Deserializer<'de>>(of: D) -> Result<RetryPolicy, D::Error> {
    RetryOverride::deserialize(of).map(|own| own.over(task_retry()))
}

/// Calls of tasks to external systems.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSettings {
    /// Retry policy of failed calls.
    #[serde(deserialize_with = "over_task_retry")]
    pub retry: RetryPolicy,
    /// Maximum number of concurrent calls.
    pub concurrency: usize,
    /// Number of waiting and running calls above which no more messages are pulled.
    pub backlog: usize,
    /// Time-out of one call to an external system.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Lease of a claimed task, after which another process may claim it. Longer than a call; a call that waits longer
    /// is claimed again.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
}

impl Default for TaskSettings {
    fn default() -> Self {
        Self {
            retry: task_retry(),
            concurrency: 256,
            backlog: 512,
            timeout: Duration::from_secs(5),
            lease: Duration::from_secs(10),
        }
    }
}

/// Impossible settings. The message names the key.
#[derive(Debug, thiserror::Error)]
#[error("settings: {0}")]
pub struct BadSettings(pub String);

/// Sources of settings beside the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// TOML file that overrides the defaults.
    pub file: Option<PathBuf>,
    /// Flags of the form `key=value`.
    pub flags: Vec<String>,
}

/// Reads the settings of `service`, whose defaults are given as TOML.
///
/// # Errors
/// When a source cannot be read, a key is unknown, or a value is impossible.
pub fn load<X: DeserializeOwned>(
    service: &str,
    defaults: &str,
    sources: &Sources,
) -> Result<Settings<X>, BadSettings> {
    let settings: Settings<X> = read_sources(service, defaults, sources)?
        .try_deserialize()
        .map_err(|error| BadSettings(error.to_string()))?;
    settings.check()?;
    Ok(settings)
}

fn read_sources(service: &str, defaults: &str, sources: &Sources) -> Result<config::Config, BadSettings> {
    let bad = |error: config::ConfigError| BadSettings(error.to_string());
    let environment =
        config::Environment::with_prefix(&service.to_uppercase()).prefix_separator("__").separator("__");
    let mut builder = config::Config::builder()
        .set_default("instance", service)
        .and_then(|builder| builder.set_default("store.url", format!("sqlite:.saga/{service}.db")))
        .and_then(|builder| builder.set_default("service", config::Map::<String, String>::new()))
        .map_err(bad)?
        .add_source(config::File::from_str(defaults, config::FileFormat::Toml));
    if let Some(file) = &sources.file {
        builder = builder.add_source(config::File::from(file.clone()).format(config::FileFormat::Toml));
    }
    builder = builder.add_source(environment);
    for flag in &sources.flags {
        let Some((key, value)) = flag.split_once('=') else {
            return Err(BadSettings(format!("{flag:?} is not of the form key=value")));
        };
        builder = builder.set_override(key, value).map_err(bad)?;
    }
    builder.build().map_err(bad)
}

impl<X> Settings<X> {
    fn check(&self) -> Result<(), BadSettings> {
        self.http.check().map_err(|why| BadSettings(format!("http.{why}")))?;
        self.trace.check().map_err(BadSettings)?;
        let rules = [
            (self.engine.max_batch >= 1, "engine.max_batch must be at least 1"),
            (self.engine.queue >= 1, "engine.queue must be at least 1"),
            (self.engine.max_batch_delay <= MAX_BATCH_DELAY, "engine.max_batch_delay must be at most 1s"),
            (!self.instance.is_empty(), "instance must not be empty"),
            (!self.engine.timer_poll.is_zero(), "engine.timer_poll must be longer than 0s"),
            (!self.relay.poll.is_zero(), "relay.poll must be longer than 0s"),
            (self.relay.batch >= 1, "relay.batch must be at least 1"),
            (!self.clock.every.is_zero(), "clock.every must be longer than 0s"),
            (self.retry.max_attempts >= 1, "retry.max_attempts must be at least 1"),
            (self.task.retry.max_attempts >= 1, "task.retry.max_attempts must be at least 1"),
            (self.task.concurrency >= 1, "task.concurrency must be at least 1"),
            (self.task.backlog >= 1, "task.backlog must be at least 1"),
            (self.bus.retention >= SHORTEST_RETENTION, "bus.retention must be at least 1s"),
            (self.bus.pull >= 1, "bus.pull must be at least 1"),
            (self.bus.max_ack_pending >= 1, "bus.max_ack_pending must be at least 1"),
            ((1..=1_000).contains(&self.bus.pack), "bus.pack must be from 1 to 1000"),
            (self.bus.max_deliver >= 2, "bus.max_deliver must be at least 2"),
            (!self.bus.publish_timeout.is_zero(), "bus.publish_timeout must be longer than 0s"),
            (!self.bus.ack_wait.is_zero(), "bus.ack_wait must be longer than 0s"),
            (self.bus.replicas >= 1, "bus.replicas must be at least 1"),
            (!self.task.timeout.is_zero(), "task.timeout must be longer than 0s"),
            (self.relay.lease >= Duration::from_secs(1), "relay.lease must be at least 1s"),
            (self.log.max_bytes >= 4096, "log.max_bytes must be at least 4096"),
            (self.task.lease > self.task.timeout, "task.lease must be longer than task.timeout"),
        ];
        self.retention.check(self.bus.retention).map_err(|why| BadSettings(format!("retention.{why}")))?;
        if let Some(complaint) = self.bus.tls.complaint() {
            return Err(BadSettings(complaint.to_owned()));
        }
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(BadSettings((*sentence).to_owned())),
            None => Ok(()),
        }
    }

    /// Rejects impossible overrides, and overrides of unknown names. `steps` have a breaker and retries, `dependency`
    /// has all overrides.
    ///
    /// # Errors
    /// When an override is unknown or impossible; the message names the key.
    pub fn check_resilience(&self, steps: &[&str], dependency: &str) -> Result<(), BadSettings> {
        self.breaker.check().map_err(|why| BadSettings(format!("breaker.{why}")))?;
        for (name, own) in &self.resilience {
            let is_step = steps.contains(&name.as_str());
            if !is_step && name != dependency {
                let names = steps.iter().copied().chain([dependency]).collect::<Vec<_>>().join(", ");
                return Err(BadSettings(format!("resilience.{name} is of nothing here; there are {names}")));
            }
            own.check(is_step, &self.breaker, self.task.lease)
                .map_err(|why| BadSettings(format!("resilience.{name}{why}")))?;
        }
        Ok(())
    }

    /// Returns the breaker policy of a step or dependency.
    #[must_use]
    pub fn breaker_of(&self, name: &str) -> BreakerPolicy {
        self.resilience.get(name).map_or_else(|| self.breaker.clone(), |own| own.breaker.over(&self.breaker))
    }

    /// Returns the retry policies of steps with overrides.
    #[must_use]
    pub fn step_retries(&self) -> BTreeMap<String, RetryPolicy> {
        self.resilience.iter().map(|(name, own)| (name.clone(), own.retry.over(self.retry))).collect()
    }

    /// Returns the task settings of a dependency, with its overrides.
    #[must_use]
    pub fn task_settings(&self, dependency: &str) -> TaskSettings {
        let mut task = self.task.clone();
        if let Some(own) = self.resilience.get(dependency) {
            task.retry = own.retry.over(task.retry);
            task.concurrency = own.concurrency.unwrap_or(task.concurrency);
            task.timeout = own.timeout.unwrap_or(task.timeout);
        }
        task
    }

    /// Makes the configuration of the runtime for a service whose tasks call `dependency`.
    pub fn runtime_config(&self, dependency: &str) -> Carriage {
        let task = self.task_settings(dependency);
        Carriage {
            rules: Rules {
                retry: self.retry,
                step_retry: self.step_retries(),
                task_retry: task.retry,
                owner: self.instance.clone(),
                task_lease: signed(self.task.lease),
                keep_failed: self.trace.is_on() && self.trace.keep_failed,
                use_inbox: true,
            },
            bounds: Bounds {
                max_batch: self.engine.max_batch,
                queue: self.engine.queue,
                max_batch_delay: self.engine.max_batch_delay,
            },
            tasks: TaskBounds { backlog: self.task.backlog, concurrency: task.concurrency },
            call_timeout: task.timeout,
            timer_poll: self.engine.timer_poll,
            relay: self.relay.clone(),
            consumer: ConsumerBounds { pull: self.bus.pull, under_way: self.bus.max_ack_pending as usize },
        }
    }

    /// Opens the database of `service`. Creates a missing file, and missing tables.
    ///
    /// # Errors
    /// When the URL is of another kind, or the database cannot be used.
    pub async fn open_store(&self, service: &str, rows: Vec<RowKind>) -> anyhow::Result<Arc<dyn Store>> {
        Ok(self.store.location()?.open(rows, &self.open_options(service)).await?)
    }

    /// Opens the archive of `service`, if one is set.
    ///
    /// # Errors
    /// When its folder cannot be used.
    pub fn open_archive(&self, service: &'static str) -> Result<Option<Archive>, BadSettings> {
        let RetentionSettings { archive, archive_period, .. } = &self.retention;
        let open = |folder: &PathBuf| {
            Archive::open(folder, service, *archive_period)
                .map_err(|error| BadSettings(format!("retention.archive {}: {error}", folder.display())))
        };
        archive.as_ref().map(open).transpose()
    }

    /// Returns the options with which the database of `service` is opened.
    #[must_use]
    pub fn open_options<'a>(&'a self, service: &'a str) -> Opening<'a> {
        let StoreSettings { check_within, connect_timeout, accept_loss, .. } = &self.store;
        let (check_within, wait, instance) = (*check_within, *connect_timeout, self.instance.as_str());
        Opening { service, check_within, accept_loss, instance, wait, ..Opening::default() }
    }
}

/// Kind and location of a service's database.
#[derive(Debug, Clone)]
pub enum DbLocation {
    /// SQLite file, which one process owns.
    File(PathBuf),
    /// PostgreSQL database, which replicas share.
    Server(Box<postgres::Place>),
}

impl DbLocation {
    /// Opens it.
    ///
    /// # Errors
    /// As [`SqliteStore::open_as`] and [`PostgresStore::open`].
    pub async fn open(
        &self,
        rows: Vec<RowKind>,
        opening: &Opening<'_>,
    ) -> Result<Arc<dyn Store>, StoreFault> {
        Ok(match self {
            Self::File(path) => Arc::new(SqliteStore::open_as(path, rows, opening)?),
            Self::Server(place) => Arc::new(PostgresStore::open(place, rows, opening).await?),
        })
    }
}

impl StoreSettings {
    /// Returns the URL without its password.
    #[must_use]
    pub fn shown_url(&self) -> String {
        shown(&self.url)
    }

    /// Parses `store.url`.
    ///
    /// # Errors
    /// When the URL is invalid, or the password file cannot be read.
    pub fn location(&self) -> Result<DbLocation, BadSettings> {
        let Self { url, password_file, .. } = self;
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            let place = postgres::Place::of(url, password_file.as_deref());
            return place
                .map(|place| DbLocation::Server(Box::new(place)))
                .map_err(|why| BadSettings(format!("store.url: {why}")));
        }
        match url.strip_prefix("sqlite:").map(|path| path.trim_start_matches("//")) {
            Some(path) if !path.is_empty() => Ok(DbLocation::File(PathBuf::from(path))),
            _ => Err(BadSettings(format!(
                "store.url is {url:?}, expected sqlite:PATH or postgres://USER@HOST/DATABASE"
            ))),
        }
    }
}

fn without_password<S: serde::Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(url))
}

/// Removes the password from a URL. It may contain an `@`, or be among the options.
fn shown(url: &str) -> String {
    let hidden = url.split_once("://").and_then(|(scheme, rest)| {
        let (user, rest) = rest.split('?').next()?.rsplit_once('@')?;
        let name = user.split_once(':').map_or_else(|| user.to_owned(), |(name, _)| format!("{name}:***"));
        Some(format!("{scheme}://{name}@{rest}"))
    });
    hidden.unwrap_or_else(|| url.to_owned())
}
