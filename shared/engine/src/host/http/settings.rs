//! Shell: what can be set of a service's HTTP (section `http`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of the HTTP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Address to listen on. Loopback unless told otherwise.
    pub bind: String,
    /// Connections at once; fewer where the process may not hold that many files open. When all are taken, the one
    /// that has asked for nothing for longest gives way.
    pub max_connections: usize,
    /// How long a connection that asks for nothing is kept.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// How long the head of a request may take from its first byte on.
    #[serde(with = "humantime_serde")]
    pub header_timeout: Duration,
    /// How long the body of a request may take.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    /// How long a client may leave an answer unread.
    #[serde(with = "humantime_serde")]
    pub write_timeout: Duration,
    /// Largest body taken, in bytes.
    pub body_limit_bytes: usize,
    /// Requests under way at once; more are answered 503. Probes and metrics are not counted.
    pub max_requests: usize,
    /// How long a request may take once it is there; longer than the longest `Prefer: wait`.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            bind: String::new(),
            // Above max_requests: whoever is one too many hears so.
            max_connections: 10_000,
            idle_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            body_limit_bytes: 64 * 1024,
            max_requests: 8_192,
            timeout: Duration::from_secs(40),
        }
    }
}

impl HttpSettings {
    /// Whether they can be used.
    ///
    /// # Errors
    /// The sentence names the key, below `http`.
    pub fn check(&self) -> Result<(), &'static str> {
        let rules = [
            (self.max_connections >= 1, "max_connections must be at least 1"),
            (!self.idle_timeout.is_zero(), "idle_timeout must be longer than 0s"),
            (!self.header_timeout.is_zero(), "header_timeout must be longer than 0s"),
            (!self.body_timeout.is_zero(), "body_timeout must be longer than 0s"),
            (!self.write_timeout.is_zero(), "write_timeout must be longer than 0s"),
            (self.max_requests >= 1, "max_requests must be at least 1"),
            (!self.timeout.is_zero(), "timeout must be longer than 0s"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(sentence),
            None => Ok(()),
        }
    }
}
