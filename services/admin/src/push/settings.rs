//! Pure: where notices go, and how often (section `service.push` of admin's settings).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::signing::Secret;
use super::told::Pace;

/// Notices to people.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushSettings {
    /// How often it is looked whether somebody must be told.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    /// The least time between two notices, but for one in between of what is worse; what is away for so long is over.
    #[serde(with = "humantime_serde")]
    pub quiet: Duration,
    /// After so long somebody is told again of what is still so.
    #[serde(with = "humantime_serde")]
    pub remind: Duration,
    /// What may be over in a moment, such as a service that is started anew, is told once it has lasted so long.
    #[serde(with = "humantime_serde")]
    pub patience: Duration,
    /// So many dead letters are a reason of their own.
    pub threshold: u64,
    /// Who is told.
    pub webhook: WebhookSettings,
}

impl Default for PushSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            quiet: Duration::from_mins(5),
            remind: Duration::from_hours(4),
            patience: Duration::from_secs(30),
            threshold: 100,
            webhook: WebhookSettings::default(),
        }
    }
}

/// Who is told (section `service.push.webhook`).
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// Where notices are sent; standard output when it is empty.
    #[serde(serialize_with = "blanked")]
    pub url: String,
    /// What they are signed with: one or more `whsec_…`, with spaces or commas between them.
    #[serde(serialize_with = "blanked")]
    pub secret: String,
    /// File that holds the same, in place of `secret`: where what the environment holds is shown to others.
    pub secret_file: Option<PathBuf>,
}

/// The path of an address is often all that keeps others from it.
impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSettings(***)")
    }
}

impl WebhookSettings {
    /// By what it is known which receiver was told: nothing of its address; absent for standard output.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        let digest =
            || Sha256::digest(self.url.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        (!self.url.is_empty()).then(digest)
    }
}

fn blanked<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if text.is_empty() { "" } else { saga_core::secrets::BLANK })
}

impl PushSettings {
    /// How often people are told.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let of = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        Pace { quiet: of(self.quiet), remind: of(self.remind), patience: of(self.patience) }
    }

    /// What notices are signed with; `in_file` is what the file of the secret holds, where one is named.
    ///
    /// # Errors
    /// The sentence names the key, and says nothing of what it is set to.
    pub fn checked(&self, in_file: Option<&str>) -> Result<Vec<Secret>, String> {
        if self.every.is_zero() {
            return Err("service.push.every must be longer than 0s".to_owned());
        }
        if self.threshold == 0 {
            return Err("service.push.threshold must be 1 or more".to_owned());
        }
        let (key, text) = match in_file {
            Some(_) if !self.webhook.secret.is_empty() => {
                return Err(
                    "service.push.webhook.secret and .secret_file both say it: leave one of them out"
                        .to_owned(),
                );
            }
            Some(text) => ("service.push.webhook.secret_file", text.trim()),
            None => ("service.push.webhook.secret", self.webhook.secret.as_str()),
        };
        let secrets = Secret::all_in(text).map_err(|why| format!("{key} cannot be used: {why}"))?;
        if secrets.is_empty() && !self.webhook.url.is_empty() {
            let why = "notices are signed: it has to hold whsec_ and 24 random bytes in base64";
            return Err(format!("{key} is missing: {why}"));
        }
        Ok(secrets)
    }
}
