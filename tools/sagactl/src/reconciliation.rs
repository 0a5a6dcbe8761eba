//! Shell: asking admin whether stock, money and messages agree: `sagactl audit` for its users.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::admin::{Admin, Form, show};
use crate::args::duration;
use crate::http::Http;
use crate::output::text::one_line;
use crate::output::{exit, say, say_json};

/// The longest that admin waits for a busy system to become quiet.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Beyond the wait it was asked for, admin reads the entries of all services.
const RECONCILING_TAKES: Duration = Duration::from_mins(1);

#[derive(Debug, Args)]
pub struct ReconciliationOptions {
    /// Gives a busy system this long to become quiet.
    #[arg(long, default_value = "30s", value_parser = wait)]
    wait: Duration,
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

/// Whether everything agrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Nothing is under way, and everything agrees.
    Balanced,
    /// Something is under way, and may mend what does not agree.
    InFlight,
    /// Nothing will mend it.
    Unbalanced,
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

/// `sagactl audit`: ends with 2 when the ledgers do not agree.
pub async fn run(admin: &str, options: ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let reconciliation = ask(&Http::new()?, admin, options.wait).await?;
    if options.json {
        say_json(&reconciliation.report);
    } else {
        say(&shown(&reconciliation));
    }
    Ok(if reconciliation.is_balanced() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
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
    let url = format!("{}/api/admin/audit?wait={}", admin.trim_end_matches('/'), wait.as_secs());
    let answer = http.get_within(&url, wait + RECONCILING_TAKES).await?;
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

fn shown(reconciliation: &Reconciliation) -> String {
    let verdict = match reconciliation.verdict {
        Verdict::Balanced => "the books balance",
        Verdict::InFlight => "it cannot be told yet whether the books balance: something is under way",
        Verdict::Unbalanced => "THE BOOKS DO NOT BALANCE",
    };
    let mut text = format!("{verdict}\n");
    let members = reconciliation.report.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| !["balanced", "discrepancies"].contains(&name.as_str())) {
        add_member(&mut text, 1, name, value);
    }
    let discrepancies = reconciliation.report.get("discrepancies").and_then(Value::as_array);
    for discrepancy in discrepancies.into_iter().flatten() {
        let _ = writeln!(text, "  ✗ {}", one_line(discrepancy));
    }
    text
}

fn add_member(text: &mut String, depth: usize, name: &str, value: &Value) {
    let indent = depth * 2;
    if let Value::Object(members) = value {
        let _ = writeln!(text, "{:indent$}{name}", "");
        members.iter().for_each(|(name, value)| add_member(text, depth + 1, name, value));
    } else {
        let width = 34_usize.saturating_sub(indent);
        let _ = writeln!(text, "{:indent$}{name:<width$} {}", "", one_line(value));
    }
}
