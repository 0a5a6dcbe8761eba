//! Shell: settings: defaults, then a TOML file, then the environment, then flags; parsed whole before
//! anything binds.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::bus::BusSettings;
use crate::http::HttpSettings;
use crate::relay::RelaySettings;
use crate::retry::RetryPolicy;

/// Everything that can be set of a service. `X` is what only this service knows (section `service`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings<X> {
    /// Names this instance among its replicas. A restart must use the same name.
    pub instance: String,
    /// HTTP server.
    #[serde(default)]
    pub http: HttpSettings,
    /// Database.
    #[serde(default)]
    pub store: StoreSettings,
    /// Broker.
    #[serde(default)]
    pub bus: BusSettings,
    /// Engine.
    #[serde(default)]
    pub engine: EngineSettings,
    /// Relay.
    #[serde(default)]
    pub relay: RelaySettings,
    /// Retries of messages.
    #[serde(default = "message_retry")]
    pub retry: RetryPolicy,
    /// Calls to the outside.
    #[serde(default)]
    pub task: TaskSettings,
    /// How long finished things are kept.
    #[serde(default)]
    pub retention: RetentionSettings,
    /// Log.
    #[serde(default)]
    pub log: LogSettings,
    /// The service's own.
    pub service: X,
}

/// The database.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// `sqlite:PATH`.
    pub url: String,
}

/// The engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Inputs in one transaction.
    pub batch_max: usize,
    /// Inputs that may wait for it.
    pub queue: usize,
    /// Looks for due rows and retries at least this often.
    #[serde(with = "humantime_serde")]
    pub timer_poll: Duration,
    /// Readiness ends when the oldest unpublished entry is older than this.
    #[serde(with = "humantime_serde")]
    pub ready_lag: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            batch_max: 256,
            queue: 4096,
            timer_poll: Duration::from_secs(1),
            ready_lag: Duration::from_secs(60),
        }
    }
}

fn message_retry() -> RetryPolicy {
    RetryPolicy { max_attempts: 8, base: Duration::from_millis(100), cap: Duration::from_secs(30) }
}

/// Calls to the outside.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskSettings {
    /// Retries.
    pub retry: RetryPolicy,
    /// Calls at once.
    pub concurrency: usize,
    /// Calls waiting and under way, over which no more messages are pulled.
    pub backlog: usize,
    /// How long one call may take.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// How long a claim lasts; longer than a call with its wait for a free place.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
}

impl Default for TaskSettings {
    fn default() -> Self {
        Self {
            retry: RetryPolicy {
                max_attempts: 6,
                base: Duration::from_millis(200),
                cap: Duration::from_secs(10),
            },
            concurrency: 128,
            backlog: 1024,
            timeout: Duration::from_secs(5),
            lease: Duration::from_mins(2),
        }
    }
}

/// How long finished things are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSettings {
    /// Inbox marks. At least as long as the broker keeps facts, or an old one would be handled twice.
    #[serde(with = "humantime_serde")]
    pub inbox: Duration,
    /// Answers under idempotency keys.
    #[serde(with = "humantime_serde")]
    pub idempotency_key: Duration,
    /// Entries that go in one small transaction.
    pub chunk: usize,
    /// Pause between looks.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            inbox: Duration::from_hours(24 * 8),
            idempotency_key: Duration::from_hours(24),
            chunk: 500,
            every: Duration::from_mins(1),
        }
    }
}

/// The log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Levels, in the syntax of `tracing_subscriber::EnvFilter`.
    pub filter: String,
    /// `json` for machines, `text` for people.
    pub format: LogFormat,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Text }
    }
}

/// Settings that cannot be used; the sentence names the key.
#[derive(Debug, thiserror::Error)]
#[error("settings: {0}")]
pub struct BadSettings(pub String);

/// Where settings come from, beside the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// `key=value` from flags.
    pub flags: Vec<String>,
}

/// Reads the settings of `service`. `defaults` are its own, as TOML.
///
/// # Errors
/// When a source cannot be read, a key is unknown, or a value is impossible.
pub fn load<X: DeserializeOwned>(
    service: &str,
    defaults: &str,
    sources: &Sources,
) -> Result<Settings<X>, BadSettings> {
    let bad = |error: config::ConfigError| BadSettings(error.to_string());
    let environment =
        config::Environment::with_prefix(&service.to_uppercase()).prefix_separator("__").separator("__");
    let mut builder = config::Config::builder()
        .set_default("instance", service)
        .and_then(|builder| builder.set_default("store.url", format!("sqlite:.saga/{service}.db")))
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
    let settings: Settings<X> = builder.build().and_then(config::Config::try_deserialize).map_err(bad)?;
    settings.check()?;
    Ok(settings)
}

impl<X> Settings<X> {
    fn check(&self) -> Result<(), BadSettings> {
        let rules = [
            (self.engine.batch_max >= 1, "engine.batch_max must be at least 1"),
            (self.engine.queue >= 1, "engine.queue must be at least 1"),
            (self.http.max_requests >= 1, "http.max_requests must be at least 1"),
            (!self.instance.is_empty(), "instance must not be empty"),
            (!self.engine.timer_poll.is_zero(), "engine.timer_poll must be longer than 0s"),
            (!self.relay.poll.is_zero(), "relay.poll must be longer than 0s"),
            (self.relay.batch >= 1, "relay.batch must be at least 1"),
            (self.retry.max_attempts >= 1, "retry.max_attempts must be at least 1"),
            (self.task.retry.max_attempts >= 1, "task.retry.max_attempts must be at least 1"),
            (self.task.concurrency >= 1, "task.concurrency must be at least 1"),
            (self.task.backlog >= 1, "task.backlog must be at least 1"),
            (self.bus.pull >= 1, "bus.pull must be at least 1"),
            (self.bus.max_ack_pending >= 1, "bus.max_ack_pending must be at least 1"),
            (self.relay.lease >= Duration::from_secs(1), "relay.lease must be at least 1s"),
            (self.task.lease > self.task.timeout, "task.lease must be longer than task.timeout"),
            (
                self.retention.inbox >= self.bus.retention,
                "retention.inbox must not be shorter than bus.retention: a fact delivered late would be handled twice",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(BadSettings((*sentence).to_owned())),
            None => Ok(()),
        }
    }

    /// The file of a `sqlite:` URL.
    ///
    /// # Errors
    /// When it is another kind of URL.
    pub fn sqlite_path(&self) -> Result<PathBuf, BadSettings> {
        let url = &self.store.url;
        match url.strip_prefix("sqlite:").map(|path| path.trim_start_matches("//")) {
            Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
            _ => Err(BadSettings(format!("store.url is {url:?}, expected sqlite:PATH"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        #[serde(with = "humantime_serde")]
        deadline: Duration,
    }

    const DEFAULTS: &str = "[http]\nbind = \"127.0.0.1:8081\"\n[service]\ndeadline = \"60s\"\n";

    fn with(flags: &[&str]) -> Result<Settings<Own>, BadSettings> {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        load("unnamed", DEFAULTS, &Sources { file: None, flags })
    }

    #[test]
    fn flags_override_defaults() {
        let settings = with(&["service.deadline=5s", "engine.batch_max=8"]).expect("valid settings");
        assert_eq!(settings.service.deadline, Duration::from_secs(5));
        assert_eq!(settings.engine.batch_max, 8);
        assert_eq!(settings.http.bind, "127.0.0.1:8081");
    }

    #[test]
    fn unknown_and_impossible_settings_are_refused_by_name() {
        for (flag, named) in [
            ("engine.btach_max=8", "btach_max"),
            ("service.dedline=5s", "dedline"),
            ("service.deadline=soon", "deadline"),
            ("engine.batch_max=0", "engine.batch_max"),
            ("retention.inbox=1h", "retention.inbox"),
            ("nonsense", "nonsense"),
        ] {
            let refusal = with(&[flag]).expect_err(flag).to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
    }
}
