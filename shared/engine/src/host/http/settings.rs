//! Shell: settings of a service's HTTP server (section `http`).

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Authority;
use serde::{Deserialize, Deserializer, Serialize};

use super::tls::HttpTlsSettings;

/// Settings of the HTTP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Address to listen on. Loopback by default.
    pub bind: String,
    /// Names of this server (`Host`), beside `localhost`, the name in `bind`, and addresses: loopback addresses, or all
    /// when the server listens beyond loopback. `*` accepts any name.
    #[serde(deserialize_with = "listed")]
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may send requests (`https://shop.example`), beside this server's own, such as that of a
    /// proxy.
    #[serde(deserialize_with = "listed")]
    pub allowed_origins: Vec<String>,
    /// File with the tokens that routes require, except those of customers. Without it authorization is off, which is
    /// meant for one machine only.
    pub tokens: Option<PathBuf>,
    /// Allows listening beyond loopback without tokens: anybody who reaches the service may change it. For networks
    /// that are protected otherwise, such as ports published on loopback alone.
    pub allow_unauthenticated: bool,
    /// File with the token that this service sends to other services.
    pub token: Option<PathBuf>,
    /// Proxy of requests to programs outside this system (the bank, the receiver of notifications), such as
    /// `http://proxy:3128`. Requests between services use none, and `HTTP_PROXY` in the environment has no effect.
    pub proxy: Option<String>,
    /// Certificate and authorities. With a certificate the server speaks only TLS.
    pub tls: HttpTlsSettings,
    /// Requests per second of one token, unless the token has a rate of its own.
    pub rate: NonZeroU32,
    /// Burst of requests of one token that was idle.
    pub burst: NonZeroU32,
    /// Maximum number of connections; lower where the process may not open that many files. When all are occupied, the
    /// longest idle one is evicted.
    pub max_connections: usize,
    /// Time after which an idle connection is closed. Must be longer than the idle time-out of a proxy in front, which is
    /// often 60s. Otherwise a proxy sends requests on connections that are just being closed, and answers 502.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// Time-out of a request's head, from its first byte on.
    #[serde(with = "humantime_serde")]
    pub header_timeout: Duration,
    /// Time-out of a request's body.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    /// Time-out of a write while the client does not read its answer.
    #[serde(with = "humantime_serde")]
    pub write_timeout: Duration,
    /// Time after a stop signal in which connections are still accepted, each for one request. The service is not ready
    /// then, so that load balancers choose others.
    #[serde(with = "humantime_serde")]
    pub drain: Duration,
    /// Maximum size of a body in bytes.
    pub body_limit_bytes: usize,
    /// Maximum number of in-flight requests; more are answered 503. Probes and metrics do not count.
    pub max_requests: usize,
    /// Time-out of a complete request; longer than the longest `Prefer: wait`. Slow routes extend it
    /// ([`TimeLimit`](super::TimeLimit)).
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            bind: String::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tokens: None,
            allow_unauthenticated: false,
            token: None,
            proxy: None,
            tls: HttpTlsSettings::default(),
            // Enough for a console that shows everything, and a script beside it.
            rate: NonZeroU32::new(50).unwrap_or(NonZeroU32::MIN),
            burst: NonZeroU32::new(200).unwrap_or(NonZeroU32::MIN),
            // Above max_requests, so that a request beyond it is answered with 503.
            max_connections: 10_000,
            idle_timeout: IDLE_TIMEOUT,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            drain: DRAIN,
            body_limit_bytes: 64 * 1024,
            max_requests: 8_192,
            timeout: Duration::from_secs(40),
        }
    }
}

impl HttpSettings {
    /// True if the server listens beyond loopback.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.bind.parse::<SocketAddr>() {
            Ok(address) => !address.ip().is_loopback(),
            // Empty, or a name.
            Err(_) => !self.bind.is_empty() && !self.bound_name().eq_ignore_ascii_case("localhost"),
        }
    }

    /// Returns a warning while authorization is off.
    #[must_use]
    pub fn remark(&self) -> Option<&'static str> {
        match (&self.tokens, self.is_open()) {
            (Some(_), _) => None,
            (None, false) => Some(AUTHORIZATION_OFF),
            (None, true) => Some(OPEN_TO_NETWORK),
        }
    }

    /// Returns `bind` without its port.
    pub(super) fn bound_name(&self) -> &str {
        self.bind.rsplit_once(':').map_or(self.bind.as_str(), |(name, _)| name)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When a setting is impossible; the sentence names the key below `http`.
    pub fn check(&self) -> Result<(), &'static str> {
        let hosts_are_names = self.allowed_hosts.iter().all(|host| is_host(host));
        let origins_are_some = self.allowed_origins.iter().all(|origin| is_origin(origin));
        let rules = [
            (self.bind.is_empty() || is_address(&self.bind), INVALID_BIND),
            (!self.allow_unauthenticated || self.tokens.is_none(), CONTRADICTING_TOKENS),
            (!self.is_open() || self.tokens.is_some() || self.allow_unauthenticated, UNAUTHENTICATED_BIND),
            (hosts_are_names, "allowed_hosts must be names or addresses without scheme and port, or *"),
            (origins_are_some, "allowed_origins must be of the form https://shop.example, without a path"),
            (
                self.tls.is_complete(),
                "tls.cert and http.tls.key belong together: name both files, or neither",
            ),
            (self.proxy.as_deref().is_none_or(is_proxy), INVALID_PROXY),
            (self.max_connections >= 1, "max_connections must be at least 1"),
            (!self.idle_timeout.is_zero(), "idle_timeout must be longer than 0s"),
            (!self.header_timeout.is_zero(), "header_timeout must be longer than 0s"),
            (!self.body_timeout.is_zero(), "body_timeout must be longer than 0s"),
            (!self.write_timeout.is_zero(), "write_timeout must be longer than 0s"),
            (self.drain <= LONGEST_DRAIN, "drain must not be longer than 60s: a stop waits for it"),
            (self.max_requests >= 1, "max_requests must be at least 1"),
            (!self.timeout.is_zero(), "timeout must be longer than 0s"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(sentence),
            None => Ok(()),
        }
    }
}

/// Default of `http.idle_timeout`: longer than the usual 60 s of a balancer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// Time for which a client of this system keeps an idle connection, by the same rule as a balancer.
pub(super) const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(CLIENT_IDLE_TIMEOUT.as_secs() < 60 && IDLE_TIMEOUT.as_secs() > 60);
/// Default of `http.drain`: longer than the proxy of `sagactl up --replicas` needs to notice.
pub const DRAIN: Duration = Duration::from_millis(600);
/// Longest time that a stop may wait for load balancers.
const LONGEST_DRAIN: Duration = Duration::from_secs(60);

/// Warning for a service on loopback.
const AUTHORIZATION_OFF: &str =
    "authorization is off (http.tokens is not set): anybody who reaches this service may change it";
/// Warning for a service that others reach.
const OPEN_TO_NETWORK: &str = "authorization is off (http.allow_unauthenticated): anybody who reaches this service, also from another \
    machine, may change it";

/// Complaint about an impossible address.
const INVALID_BIND: &str = "bind must be an address or a name with a port, such as 127.0.0.1:8081, \
    [::1]:8081 or localhost:8081";

/// Complaint about a service that anybody on the network could change.
const UNAUTHENTICATED_BIND: &str = "bind is not loopback, and without http.tokens anybody on the network could change this \
    service: `sagactl token create NAME --role admin --file FILE` makes a file of tokens; \
    or bind to 127.0.0.1; or set http.allow_unauthenticated=true where the network is protected otherwise";

const CONTRADICTING_TOKENS: &str =
    "allow_unauthenticated and http.tokens contradict each other: remove one of them";

/// Complaint about an impossible proxy. Settings are shown, and a password would be too.
const INVALID_PROXY: &str = "proxy must be of the form http://proxy:3128, without user, password and path";

/// Reads a list, or one text with commas, because the environment and flags have no lists.
fn listed<'de, D: Deserializer<'de>>(given: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Text(String),
        List(Vec<String>),
    }
    Ok(match Given::deserialize(given)? {
        Given::Text(text) => {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        }
        Given::List(list) => list,
    })
}

/// True for an address with a port, or a name with one.
fn is_address(text: &str) -> bool {
    let is_named = text.rsplit_once(':').is_some_and(|(name, port)| {
        port.parse::<u16>().is_ok() && is_host(name) && name != "*" && !name.contains(':')
    });
    text.parse::<SocketAddr>().is_ok() || is_named
}

/// True for an origin: a scheme and a host, optionally with a port.
fn is_origin(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.authority().is_some())
        && text.matches('/').count() == 2
}

/// True for the address of a proxy: an origin of HTTP or HTTPS, without credentials.
fn is_proxy(text: &str) -> bool {
    is_origin(text) && text.starts_with("http") && !text.contains('@')
}

/// True for the name of a host, or `*` for any.
fn is_host(text: &str) -> bool {
    text == "*"
        || text.parse::<Authority>().is_ok_and(|authority| authority.host() == text && !text.contains('@'))
}
