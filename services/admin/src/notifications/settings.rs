//! Pure: receiver and intervals of notifications (section `service.notifications`).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::signing::Secret;
use super::state::Intervals;

/// Name of the dependency that delivers notifications, and of its breaker.
pub const RECEIVER: &str = "webhook";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotificationSettings {
    /// Time between two checks for findings.
    #[serde(with = "humantime_serde")]
    pub check_every: Duration,
    /// Minimum time between two notifications. An urgent finding does not wait for it. A finding that is missing for as long
    /// is gone.
    #[serde(with = "humantime_serde")]
    pub min_interval: Duration,
    /// Time after which an open finding is reported again.
    #[serde(with = "humantime_serde")]
    pub remind_after: Duration,
    /// Time that a finding must last which a restart causes too.
    #[serde(with = "humantime_serde")]
    pub grace_period: Duration,
    /// The same for an urgent finding.
    #[serde(with = "humantime_serde")]
    pub urgent_grace_period: Duration,
    /// Number of dead letters that is a finding of its own.
    pub dead_letter_threshold: u64,
    /// Name of this system in notifications, for people who look after several.
    pub system: String,
    pub webhook: WebhookSettings,
}

impl Default for NotificationSettings {
    fn default() -> Self {
        Self {
            check_every: Duration::from_secs(2),
            min_interval: Duration::from_mins(5),
            remind_after: Duration::from_hours(4),
            grace_period: Duration::from_secs(30),
            urgent_grace_period: Duration::from_secs(3),
            dead_letter_threshold: 100,
            system: "order-saga".to_owned(),
            webhook: WebhookSettings::default(),
        }
    }
}

/// Receiver of notifications (section `service.notifications.webhook`).
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// Address of the receiver. Standard output when it is empty.
    #[serde(serialize_with = "blanked")]
    pub url: String,
    /// Keys that sign notifications: one or more `whsec_…`, separated by spaces or commas.
    #[serde(serialize_with = "blanked")]
    pub secret: String,
    /// File with the keys, in place of `secret`, where environment variables are shown to others. Read again when it changes.
    pub secret_file: Option<PathBuf>,
}

/// Hides the address too: its path is often the only secret.
impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSettings(***)")
    }
}

impl WebhookSettings {
    /// Identifies a receiver without showing its address; `None` for standard output.
    pub fn digest(&self) -> Option<String> {
        let digest =
            || Sha256::digest(self.url.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        (!self.url.is_empty()).then(digest)
    }

    /// Parses the keys that sign notifications. A receiver needs at least one.
    ///
    /// # Errors
    /// Returns the problem with the keys, without their values.
    pub fn secrets_in(&self, text: &str) -> Result<Vec<Secret>, String> {
        let secrets = Secret::all_in(text).map_err(|why| format!("is invalid: {why}"))?;
        if secrets.is_empty() && !self.url.is_empty() {
            return Err("is missing: it must be whsec_ and 24 random bytes in base64".to_owned());
        }
        Ok(secrets)
    }
}

fn blanked<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if text.is_empty() { "" } else { saga_core::secrets::BLANK })
}

impl NotificationSettings {
    pub fn intervals(&self) -> Intervals {
        let of = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        Intervals {
            min_interval: of(self.min_interval),
            remind_after: of(self.remind_after),
            grace_period: of(self.grace_period),
            urgent_grace_period: of(self.urgent_grace_period),
        }
    }

    /// Checks the settings, except the keys.
    ///
    /// # Errors
    /// Returns a sentence that names the setting without its value.
    pub fn check(&self) -> Result<(), String> {
        if self.check_every.is_zero() {
            return Err("service.notifications.check_every must be longer than 0s".to_owned());
        }
        if self.dead_letter_threshold == 0 {
            return Err("service.notifications.dead_letter_threshold must be 1 or more".to_owned());
        }
        if self.webhook.secret_file.is_some() && !self.webhook.secret.is_empty() {
            let both = "service.notifications.webhook.secret and .secret_file are both set: remove one";
            return Err(both.to_owned());
        }
        Ok(())
    }
}
