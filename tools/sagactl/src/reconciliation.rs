//! Shell: asking admin whether stock, money and messages agree: `sagactl audit` for its users.

mod view;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use contract::overview::Verdict;
use contract::reconciliation::WHOLE_WITHIN;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::admin::{Admin, Form, show};
use crate::args::duration;
use crate::entry::Entry;
use crate::http::Http;
use crate::output::text::one_line;
use crate::output::{self, View, exit, say, say_json};

/// The longest that admin waits for a busy system to become quiet.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Beyond the wait that admin was asked to keep to: its answer has to come.
const COMING_TAKES: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub struct ReconciliationOptions {
    /// Answers within this time, whatever is down, unless everything is to be read. A busy system gets half of it to become
    /// quiet.
    #[arg(long, default_value = "30s", value_parser = wait)]
    wait: Duration,
    /// Reads everything, also what has not changed since the books were closed: what was changed by hand is found by that
    /// alone. That takes as long as it takes, ten minutes at most.
    #[arg(long, conflicts_with = "accept")]
    whole: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    /// Accepts what this step never came to, because it, or its database, was not there yet: from now on the audit
    /// counts that as its baseline. Only while nothing is under way.
    #[arg(long, value_name = "STEP", requires = "reason", conflicts_with = "wait")]
    pub accept: Option<String>,
    /// Why, for the audit log.
    #[arg(long, requires = "accept")]
    reason: Option<String>,
}

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

    /// How the program ends that was to find out.
    const fn code(&self) -> u8 {
        match self.verdict {
            Verdict::Balanced => 0,
            Verdict::Unbalanced => exit::REFUSED,
            Verdict::InFlight => exit::NOT_YET,
        }
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

/// `sagactl audit`: ends with 2 when the ledgers do not agree, with 6 when that cannot be told yet.
pub async fn run(admin: &str, entry: &Entry, options: ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let reading = options.whole.then_some(WHOLE_WITHIN);
    let reconciliation = ask_for(&Http::by(entry)?, admin, options.wait, reading).await?;
    if options.json {
        say_json(&reconciliation.report);
    } else {
        say(&reconciliation.shown(&output::view()));
    }
    Ok(ExitCode::from(reconciliation.code()))
}

/// `sagactl audit --accept STEP`: what admin wrote down of it.
pub async fn accept(admin: &Admin, options: &ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let body = json!({ "step": options.accept, "reason": options.reason });
    let accepted = admin.post(&["audit", "baselines"], &body).await?;
    let step = options.accept.as_deref().unwrap_or_default();
    show(accepted, Form { json: options.json }, |accepted: &Value, _| {
        let missed = accepted.get("missed").map(one_line).unwrap_or_default();
        format!("{step}: {missed} accepted as missed")
    })
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
async fn ask_for(
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

fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait > LONGEST_WAIT { Err(format!("at most {}s", LONGEST_WAIT.as_secs())) } else { Ok(wait) }
}
