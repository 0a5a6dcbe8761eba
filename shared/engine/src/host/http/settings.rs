//! Shell: what can be set of a service's HTTP (section `http`).

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
    /// Address to listen on. Loopback unless told otherwise.
    pub bind: String,
    /// Names that this server goes by (`Host`), beside `localhost`, the name in `bind` and addresses: those of this
    /// machine's own loopback, or all when it listens elsewhere. `*` is any name.
    #[serde(deserialize_with = "listed")]
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may ask here (`https://shop.example`), beside this server's own: that of a proxy in front.
    #[serde(deserialize_with = "listed")]
    pub allowed_origins: Vec<String>,
    /// File with the tokens that open what is guarded: admin's API, and `/internal/`. Without it, nothing is: that is
    /// for this machine alone.
    pub tokens: Option<PathBuf>,
    /// Whether it listens beyond this machine without tokens: then anybody there may ask for anything. For where
    /// something else keeps others out, as ports that are published on loopback alone do.
    pub allow_unauthenticated: bool,
    /// File with the token by which this service asks others.
    pub token: Option<PathBuf>,
    /// TLS, where a certificate is named.
    pub tls: HttpTlsSettings,
    /// Requests in a second that the holder of a token may ask, unless the token says otherwise.
    pub rate: NonZeroU32,
    /// Requests at once, by who has not asked for a while.
    pub burst: NonZeroU32,
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
    /// How long a request may take once it is there; longer than the longest `Prefer: wait`. A route that is known to take
    /// longer says so ([`TimeLimit`](super::TimeLimit)).
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
            tls: HttpTlsSettings::default(),
            // A console that shows everything, and a script beside it.
            rate: NonZeroU32::new(50).unwrap_or(NonZeroU32::MIN),
            burst: NonZeroU32::new(200).unwrap_or(NonZeroU32::MIN),
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
    /// Whether others than this machine reach it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self.bind.parse::<SocketAddr>() {
            Ok(address) => !address.ip().is_loopback(),
            // Nothing is bound, or a name is.
            Err(_) => !self.bind.is_empty() && !self.bound_name().eq_ignore_ascii_case("localhost"),
        }
    }

    /// What is to be known where no token is asked for; `None` where one is.
    #[must_use]
    pub fn remark(&self) -> Option<&'static str> {
        match (&self.tokens, self.is_open()) {
            (Some(_), _) => None,
            (None, false) => Some(OFF),
            (None, true) => Some(OPEN),
        }
    }

    /// What stands before the port.
    pub(super) fn bound_name(&self) -> &str {
        self.bind.rsplit_once(':').map_or(self.bind.as_str(), |(name, _)| name)
    }

    /// Whether they can be used.
    ///
    /// # Errors
    /// The sentence names the key, below `http`.
    pub fn check(&self) -> Result<(), &'static str> {
        let hosts_are_names = self.allowed_hosts.iter().all(|host| is_host(host));
        let origins_are_some = self.allowed_origins.iter().all(|origin| is_origin(origin));
        let rules = [
            (self.bind.is_empty() || is_place(&self.bind), NO_PLACE),
            (!self.allow_unauthenticated || self.tokens.is_none(), OPEN_AND_CLOSED),
            (!self.is_open() || self.tokens.is_some() || self.allow_unauthenticated, OPEN_WITHOUT_TOKENS),
            (hosts_are_names, "allowed_hosts must be names or addresses without scheme and port, or *"),
            (origins_are_some, "allowed_origins must be of the form https://shop.example, without a path"),
            (self.tls.is_whole(), "tls.cert and http.tls.key belong together: name both files, or neither"),
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

/// Of a service that only this machine reaches.
const OFF: &str =
    "tokens are off (http.tokens is not set): whoever reaches this service may ask for anything";
/// Of one that others reach as well.
const OPEN: &str = "tokens are off and the doors stand open (http.allow_unauthenticated): whoever reaches this service, also from \
    another machine, may ask for anything";

/// Said of what nobody can listen at.
const NO_PLACE: &str = "bind is no address: it has to be an address or a name and a port, such as 127.0.0.1:8081, \
    [::1]:8081 or localhost:8081";

/// Said of a service that anybody on the network could tell what to do.
const OPEN_WITHOUT_TOKENS: &str = "bind reaches beyond this machine, and without http.tokens anybody there could tell \
    this service what to do: `sagactl token create NAME --role admin --file FILE` makes a file of tokens to name there; \
    or bind to 127.0.0.1; or, where something else keeps others out, say http.allow_unauthenticated=true";

/// Said of who names tokens, and that none is asked for.
const OPEN_AND_CLOSED: &str =
    "allow_unauthenticated lets in anybody, and http.tokens only who has a token: leave one of them out";

/// A list, or one text with commas: the environment and flags know no lists.
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

/// Whether one can listen there, as far as that shows: an address with a port, or a name with one.
fn is_place(text: &str) -> bool {
    let is_named = text.rsplit_once(':').is_some_and(|(name, port)| {
        port.parse::<u16>().is_ok() && is_host(name) && name != "*" && !name.contains(':')
    });
    text.parse::<SocketAddr>().is_ok() || is_named
}

/// Whether a setting can be an origin: a scheme and a host, with a port or without.
fn is_origin(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.authority().is_some())
        && text.matches('/').count() == 2
}

/// Whether a setting can be the name of a host, or `*` for any.
fn is_host(text: &str) -> bool {
    text == "*"
        || text.parse::<Authority>().is_ok_and(|authority| authority.host() == text && !text.contains('@'))
}
