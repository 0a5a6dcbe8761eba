//! Shell: settings: defaults, then a TOML file, then the environment, then flags; parsed whole before
//! anything binds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::bus::BusSettings;
use crate::faults::FaultSettings;
use crate::http::HttpSettings;
use crate::relay::RelaySettings;
use crate::resilience::{BreakerPolicy, Window};
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
    /// Breakers that have no policy of their own.
    #[serde(default)]
    pub breaker: BreakerPolicy,
    /// What single steps and dependencies have of their own, by name.
    #[serde(default)]
    pub resilience: BTreeMap<String, Resilience>,
    /// Faults made on purpose.
    #[serde(default)]
    pub faults: FaultSettings,
    /// How long finished things are kept.
    #[serde(default)]
    pub retention: RetentionSettings,
    /// Log.
    #[serde(default)]
    pub log: LogSettings,
    /// The service's own.
    pub service: X,
}

/// What one step or one dependency has of its own; what it leaves out it has like the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resilience {
    /// Its breaker.
    pub breaker: BreakerOverride,
    /// Its retries.
    pub retry: RetryOverride,
    /// Calls at once; of a dependency.
    pub concurrency: Option<usize>,
    /// How long one call may take; of a dependency.
    #[serde(with = "humantime_serde")]
    pub timeout: Option<Duration>,
}

/// A [`BreakerPolicy`] in part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "each member is documented at the policy")]
pub struct BreakerOverride {
    pub failure_rate: Option<u8>,
    pub slow_rate: Option<u8>,
    #[serde(with = "humantime_serde")]
    pub slow_after: Option<Duration>,
    pub window: Option<Window>,
    pub minimum_calls: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub open_for: Option<Duration>,
    pub half_open_calls: Option<u32>,
}

/// A [`RetryPolicy`] in part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "each member is documented at the policy")]
pub struct RetryOverride {
    pub max_attempts: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub base: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub cap: Option<Duration>,
}

impl BreakerOverride {
    fn over(&self, policy: &BreakerPolicy) -> BreakerPolicy {
        BreakerPolicy {
            failure_rate: self.failure_rate.unwrap_or(policy.failure_rate),
            slow_rate: self.slow_rate.unwrap_or(policy.slow_rate),
            slow_after: self.slow_after.unwrap_or(policy.slow_after),
            window: self.window.unwrap_or(policy.window),
            minimum_calls: self.minimum_calls.unwrap_or(policy.minimum_calls),
            open_for: self.open_for.unwrap_or(policy.open_for),
            half_open_calls: self.half_open_calls.unwrap_or(policy.half_open_calls),
        }
    }
}

impl RetryOverride {
    fn over(&self, policy: RetryPolicy) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.max_attempts.unwrap_or(policy.max_attempts),
            base: self.base.unwrap_or(policy.base),
            cap: self.cap.unwrap_or(policy.cap),
        }
    }
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
            (self.bus.max_deliver >= 2, "bus.max_deliver must be at least 2"),
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

    /// Refuses overrides that are of nothing here, or impossible. `steps` have a breaker and retries of their own,
    /// `dependency` everything.
    ///
    /// # Errors
    /// The sentence names the key.
    pub fn check_resilience(&self, steps: &[&str], dependency: &str) -> Result<(), BadSettings> {
        self.breaker.check().map_err(|why| BadSettings(format!("breaker.{why}")))?;
        for (name, own) in &self.resilience {
            let bad = |why: String| Err(BadSettings(format!("resilience.{name}{why}")));
            let is_step = steps.contains(&name.as_str());
            if !is_step && name != dependency {
                let names = steps.iter().copied().chain([dependency]).collect::<Vec<_>>().join(", ");
                return bad(format!(" is of nothing here; there are {names}"));
            }
            if let Err(why) = own.breaker.over(&self.breaker).check() {
                return bad(format!(".breaker.{why}"));
            }
            if own.retry.max_attempts == Some(0) {
                return bad(".retry.max_attempts must be at least 1".to_owned());
            }
            if is_step && (own.concurrency.is_some() || own.timeout.is_some()) {
                return bad(": concurrency and timeout are of dependencies, and this is a step".to_owned());
            }
            if own.concurrency == Some(0) {
                return bad(".concurrency must be at least 1".to_owned());
            }
            if own.timeout.is_some_and(|timeout| timeout.is_zero() || timeout >= self.task.lease) {
                return bad(".timeout must be longer than 0s and shorter than task.lease".to_owned());
            }
        }
        Ok(())
    }

    /// The breaker of a step or a dependency.
    #[must_use]
    pub fn breaker_of(&self, name: &str) -> BreakerPolicy {
        self.resilience.get(name).map_or_else(|| self.breaker.clone(), |own| own.breaker.over(&self.breaker))
    }

    /// The retries of steps that have a policy of their own.
    #[must_use]
    pub fn step_retries(&self) -> BTreeMap<String, RetryPolicy> {
        self.resilience.iter().map(|(name, own)| (name.clone(), own.retry.over(self.retry))).collect()
    }

    /// Calls to a dependency, with what it has of its own.
    #[must_use]
    pub fn calls_to(&self, dependency: &str) -> TaskSettings {
        let mut task = self.task.clone();
        if let Some(own) = self.resilience.get(dependency) {
            task.retry = own.retry.over(task.retry);
            task.concurrency = own.concurrency.unwrap_or(task.concurrency);
            task.timeout = own.timeout.unwrap_or(task.timeout);
        }
        task
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
    fn what_one_instance_has_of_its_own_applies_to_it_alone() {
        let settings = with(&[
            "breaker.minimum_calls=7",
            "resilience.bank.breaker.open_for=3s",
            "resilience.bank.retry.max_attempts=2",
            "resilience.bank.timeout=250ms",
            "resilience.order-confirmation.retry.cap=5s",
        ])
        .expect("valid settings");
        assert_eq!(settings.breaker_of("bank").open_for, Duration::from_secs(3));
        assert_eq!(settings.breaker_of("bank").minimum_calls, 7);
        assert_eq!(settings.breaker_of("order-confirmation").open_for, Duration::from_secs(10));
        assert_eq!(settings.calls_to("bank").retry.max_attempts, 2);
        assert_eq!(settings.calls_to("bank").timeout, Duration::from_millis(250));
        assert_eq!(settings.calls_to("else").timeout, Duration::from_secs(5));
        let own = settings.step_retries()["order-confirmation"];
        assert_eq!((own.cap, own.max_attempts), (Duration::from_secs(5), settings.retry.max_attempts));
        settings.check_resilience(&["order-confirmation"], "bank").expect("both are here");
    }

    #[test]
    fn what_is_of_nothing_here_or_cannot_be_is_refused_by_name() {
        for (flag, named) in [
            ("resilience.bnak.timeout=1s", "resilience.bnak"),
            ("resilience.bank.breaker.failure_rate=0", "resilience.bank.breaker.failure_rate"),
            ("resilience.bank.breaker.window.calls=0", "resilience.bank.breaker.window"),
            ("resilience.bank.retry.max_attempts=0", "resilience.bank.retry.max_attempts"),
            ("resilience.bank.timeout=10m", "resilience.bank.timeout"),
            ("resilience.a-step.timeout=1s", "resilience.a-step"),
            ("breaker.slow_rate=101", "breaker.slow_rate"),
        ] {
            let settings = with(&[flag]).expect("only the service knows what it has");
            let refusal = settings.check_resilience(&["a-step"], "bank").expect_err(flag).to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
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
            ("resilience.bank.breaker.opens=3s", "opens"),
            ("faults.enable=true", "enable"),
        ] {
            let refusal = with(&[flag]).expect_err(flag).to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
    }
}
