//! Shell: settings of a service, merged from defaults, a TOML file, the environment and flags. Parsed whole before
//! anything binds.

mod check;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use saga_core::admission::TaskBounds;
use saga_core::breaker::BreakerPolicy;
use saga_core::decision::DecisionConfig;
use saga_core::retry::RetryPolicy;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

pub use self::store::{DbLocation, StoreSettings};
use super::archive::Archive;
use super::clock_sync::ClockSettings;
use super::http::HttpSettings;
use super::log::LogSettings;
use super::resilience::{Resilience, RetryOverride};
pub use super::retention::RetentionSettings;
use super::trace::TraceSettings;
use crate::nats::BusSettings;
use crate::runtime::consumer::ConsumerLimits;
pub use crate::runtime::engine::EngineSettings;
use crate::runtime::injected_faults::FaultSettings;
use crate::runtime::relay::RelaySettings;
use crate::runtime::{RuntimeConfig, signed};

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

/// Limits above which the service reports itself degraded or not ready (section `readiness`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadinessSettings {
    /// Maximum age of the oldest unpublished outbox entry. Above it, the check `outbox` is degraded.
    #[serde(with = "humantime_serde")]
    pub max_outbox_age: Duration,
    /// Maximum time for which a connected broker may take no messages. Above it, the check `publish_stall` is degraded.
    #[serde(with = "humantime_serde")]
    pub max_publish_stall: Duration,
    /// Maximum time for which a step may process none of its waiting messages. Above it, the check `consumer_stall` fails.
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
    pub fn runtime_config(&self, dependency: &str) -> RuntimeConfig {
        let task = self.task_settings(dependency);
        RuntimeConfig {
            decision: DecisionConfig {
                retry: self.retry,
                step_retry: self.step_retries(),
                task_retry: task.retry,
                owner: self.instance.clone(),
                task_lease: signed(self.task.lease),
                keep_failed: self.trace.is_on() && self.trace.keep_failed,
                lost_before: None,
                use_inbox: true,
            },
            engine: self.engine.clone(),
            tasks: TaskBounds { backlog: self.task.backlog, concurrency: task.concurrency },
            call_timeout: task.timeout,
            relay: self.relay.clone(),
            consumer: ConsumerLimits {
                pull_batch: self.bus.pull_batch,
                max_in_flight: self.bus.max_ack_pending as usize,
            },
        }
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
}
