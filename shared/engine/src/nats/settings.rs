//! Shell: settings of the broker, and advice on a connection that they do not allow.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ConnectErrorKind;
use serde::{Deserialize, Serialize};

use super::credentials::{RedactedUrl, TlsSettings};

/// Settings of the broker (section `bus`). `Debug` omits secrets, which an address may contain.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BusSettings {
    /// Address: `nats://HOST:PORT` or `tls://HOST:PORT`. Servers of a cluster are separated by commas.
    pub url: String,
    /// File with the credentials of the service's own user: the seed of an nkey, or a `.creds` file. Without it the
    /// broker must accept anonymous clients.
    pub credentials: Option<PathBuf>,
    /// Trusted authorities and the client certificate of this service.
    pub tls: TlsSettings,
    /// Copies of each stream: 1 on one machine, 3 in a cluster.
    pub replicas: usize,
    /// Time that streams keep facts.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    /// Time in which the broker recognises repeated message ids. Short, as it costs memory and the inbox
    /// recognises duplicates anyway.
    #[serde(with = "humantime_serde")]
    pub duplicate_window: Duration,
    /// Time without an acknowledgement after which a message is redelivered.
    #[serde(with = "humantime_serde")]
    pub ack_wait: Duration,
    /// Deliveries of one message after which the broker gives it up. Its step then tries it once more, or dead-letters
    /// it. High, as only a message that kills the process each time should get there.
    pub max_deliveries: u32,
    /// Unacknowledged messages of one consumer after which the broker delivers no more to it.
    pub max_ack_pending: u32,
    /// Messages that one pull request asks for.
    pub pull_batch: usize,
    /// Maximum number of facts of one subject in one message of the broker; 1 sends each fact alone. A pack costs the
    /// broker about as much as a single fact: one store, one sync, one delivery, one acknowledgement.
    pub max_pack: usize,
    /// Maximum time that the broker takes to acknowledge a publish, or to answer a request.
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
            max_deliveries: 50,
            max_ack_pending: 2_000,
            pull_batch: 100,
            max_pack: 100,
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
    /// Address without the user and the password that it may contain.
    #[must_use]
    pub fn shown_url(&self) -> String {
        RedactedUrl(&self.url).to_string()
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }

    /// Advice on a failed connection, if its cause is known.
    pub(super) fn advice(&self, problem: &str) -> Option<String> {
        let is = |kind: ConnectErrorKind| problem.contains(&kind.to_string());
        if is(ConnectErrorKind::AuthorizationViolation) || is(ConnectErrorKind::Authentication) {
            return Some(match &self.credentials {
                Some(file) => format!(
                    "it does not know the user of {}: add that user's key to the broker's configuration, or name another \
                     file in bus.credentials",
                    file.display()
                ),
                None => "it accepts only known users: name the file of one in bus.credentials".to_owned(),
            });
        }
        let trusted = self.tls.ca.as_ref().map(|ca| format!("by an authority of {}", ca.display()));
        let trusted = trusted.unwrap_or_else(|| {
            "by an authority that this system trusts, and bus.tls.ca names none".to_owned()
        });
        // The client does not tell these causes apart.
        let is_tls = self.tls.ca.is_some() || self.servers().any(|server| server.starts_with("tls:"));
        (is(ConnectErrorKind::Tls) || (is_tls && is(ConnectErrorKind::Io))).then(|| {
            format!(
                "it is down, or TLS fails: its certificate is not signed {trusted}, or not for this address, or it \
                 requires a client certificate (bus.tls.cert, bus.tls.key)"
            )
        })
    }
}
