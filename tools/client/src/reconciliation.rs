//! Shell: asking admin whether stock, money and messages agree.

mod view;

use std::time::Duration;

use anyhow::{Context as _, bail};
use cli::View;
use contract::overview::Verdict;
use contract::reconciliation::WHOLE_WITHIN;
use serde::ser::SerializeMap as _;
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;

use crate::http::Http;

/// The longest that admin waits for a busy system to become quiet.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Beyond the wait that admin was asked to keep to: its answer has to come.
const COMING_TAKES: Duration = Duration::from_secs(3);

/// What admin answered.
#[derive(Debug)]
pub struct Reconciliation {
    pub verdict: Verdict,
    pub report: Value,
}

impl Reconciliation {
    pub fn is_balanced(&self) -> bool {
        self.verdict == Verdict::Balanced
    }

    /// Whether it cannot be told because somebody has not answered, or not all that there is.
    pub fn lacks_answers(&self) -> bool {
        let unanswered = self.report.get("unanswered").and_then(Value::as_array);
        self.verdict == Verdict::InFlight && unanswered.is_some_and(|services| !services.is_empty())
    }

    /// What it says, for people.
    pub fn shown(&self, view: &View) -> String {
        view::shown(self, view)
    }
}

/// Its members have the names that load reports had from the first.
impl Serialize for Reconciliation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(2))?;
        members.serialize_entry("books_balanced", &self.is_balanced())?;
        members.serialize_entry("audit", &self.report)?;
        members.end()
    }
}

/// Asks; a busy system gets `wait` to become quiet.
pub async fn ask(http: &Http, admin: &str, wait: Duration) -> anyhow::Result<Reconciliation> {
    ask_for(http, admin, wait, None).await
}

/// The same of everything, however long that takes to read, but for [`WHOLE_WITHIN`] at most.
pub async fn ask_for_all(http: &Http, admin: &str, wait: Duration) -> anyhow::Result<Reconciliation> {
    ask_for(http, admin, wait, Some(WHOLE_WITHIN)).await
}

/// Asks; for everything, where that may be read for so long.
pub async fn ask_for(
    http: &Http,
    admin: &str,
    wait: Duration,
    reading: Option<Duration>,
) -> anyhow::Result<Reconciliation> {
    let which = if reading.is_some() { "&whole=true" } else { "" };
    let url = format!("{}/api/admin/audit?wait={}{which}", admin.trim_end_matches('/'), wait.as_secs());
    let answer = http.get_within(&url, wait + reading.unwrap_or_default() + COMING_TAKES).await?;
    if !answer.status.is_success() {
        bail!("admin cannot audit the books: {}", answer.complaint());
    }
    let verdict = answer.body.get("verdict").and_then(|verdict| Verdict::deserialize(verdict).ok());
    let verdict = verdict.with_context(|| format!("{url} answers without a verdict"))?;
    Ok(Reconciliation { verdict, report: answer.body })
}
