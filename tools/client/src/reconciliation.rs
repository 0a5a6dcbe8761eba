//! Shell: asking admin whether stock, money and messages agree.

mod view;

use std::time::Duration;

use admin_api::reconciliation::{FULL_VERIFICATION_TIMEOUT, Verdict};
use anyhow::{Context as _, bail};
use cli::View;
use serde::ser::SerializeMap as _;
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;

use crate::http::Http;

/// Longest time that admin waits for a busy system to become quiet.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Transfer time of the answer, in addition to the wait.
const TRANSFER_TIME: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Reconciliation {
    pub verdict: Verdict,
    pub report: Value,
}

impl Reconciliation {
    pub fn is_balanced(&self) -> bool {
        self.verdict == Verdict::Balanced
    }

    /// True if there is no verdict because a service has not answered completely.
    pub fn lacks_answers(&self) -> bool {
        let unanswered = self.report.get("unanswered").and_then(Value::as_array);
        self.verdict == Verdict::InFlight && unanswered.is_some_and(|services| !services.is_empty())
    }

    pub fn shown(&self, view: &View) -> String {
        view::shown(self, view)
    }
}

impl Serialize for Reconciliation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(2))?;
        members.serialize_entry("balanced", &self.is_balanced())?;
        members.serialize_entry("reconciliation", &self.report)?;
        members.end()
    }
}

/// Reconciles what has changed since the last checkpoint. A busy system gets `wait` to become quiet.
pub async fn ask(http: &Http, admin: &str, wait: Duration) -> anyhow::Result<Reconciliation> {
    ask_for(http, admin, wait, None).await
}

/// Reconciles everything, which takes [`FULL_VERIFICATION_TIMEOUT`] at most.
pub async fn ask_for_all(http: &Http, admin: &str, wait: Duration) -> anyhow::Result<Reconciliation> {
    ask_for(http, admin, wait, Some(FULL_VERIFICATION_TIMEOUT)).await
}

/// Reconciles everything if `reading` limits the time for that, else what has changed since the last checkpoint.
pub async fn ask_for(
    http: &Http,
    admin: &str,
    wait: Duration,
    reading: Option<Duration>,
) -> anyhow::Result<Reconciliation> {
    let which = if reading.is_some() { "&whole=true" } else { "" };
    let url =
        format!("{}/api/admin/reconciliation?wait={}{which}", admin.trim_end_matches('/'), wait.as_secs());
    let answer = http.get_within(&url, wait + reading.unwrap_or_default() + TRANSFER_TIME).await?;
    if !answer.status.is_success() {
        bail!("admin cannot reconcile: {}", answer.complaint());
    }
    let verdict = answer.body.get("verdict").and_then(|verdict| Verdict::deserialize(verdict).ok());
    let verdict = verdict.with_context(|| format!("{url} answers without a verdict"))?;
    Ok(Reconciliation { verdict, report: answer.body })
}
