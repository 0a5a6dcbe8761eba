//! Shell: asking admin whether stock, money and messages agree: `sagactl audit` for its users.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::args::duration;
use crate::http::Http;
use crate::output::text::one_line;
use crate::output::{exit, say};

/// The longest that admin waits for a busy system to become quiet.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Beyond the wait it was asked for, admin reads the entries of all services.
const RECONCILING_TAKES: Duration = Duration::from_mins(1);

#[derive(Debug, Args)]
pub struct ReconciliationOptions {
    /// Gives a busy system this long to become quiet.
    #[arg(long, default_value = "30s", value_parser = wait)]
    wait: Duration,
    /// The audit's own JSON.
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

/// What admin answered; its members have the names that load reports had from the first.
#[derive(Debug, Serialize)]
pub struct Reconciliation {
    #[serde(rename = "books_balanced")]
    pub balanced: bool,
    #[serde(rename = "audit")]
    pub report: Value,
}

/// `sagactl audit`: ends with 2 when the ledgers do not agree.
pub async fn run(admin: &str, options: ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let reconciliation = ask(&Http::new()?, admin, options.wait).await?;
    say(&if options.json { reconciliation.report.to_string() } else { shown(&reconciliation) });
    Ok(if reconciliation.balanced { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

/// `sagactl audit --accept STEP`: what admin wrote down of it.
pub async fn accept(admin: &Admin, options: &ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let body = json!({ "step": options.accept, "reason": options.reason });
    let accepted = admin.post(&["audit", "baselines"], &body).await?;
    let step = options.accept.as_deref().unwrap_or_default();
    let missed = accepted.get("missed").map(one_line).unwrap_or_default();
    say(&if options.json { accepted.to_string() } else { format!("{step}: {missed} accepted as missed") });
    Ok(ExitCode::SUCCESS)
}

/// Asks; a busy system gets `wait` to become quiet.
pub async fn ask(http: &Http, admin: &str, wait: Duration) -> anyhow::Result<Reconciliation> {
    let url = format!("{}/api/admin/audit?wait={}", admin.trim_end_matches('/'), wait.as_secs());
    let answer = http.get_within(&url, wait + RECONCILING_TAKES).await?;
    if !answer.status.is_success() {
        bail!("admin cannot audit the books: {}", answer.complaint());
    }
    let balanced = answer.body.get("balanced").and_then(Value::as_bool);
    let balanced = balanced.with_context(|| format!("{url} answers without a verdict"))?;
    Ok(Reconciliation { balanced, report: answer.body })
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait > LONGEST_WAIT { Err(format!("at most {}s", LONGEST_WAIT.as_secs())) } else { Ok(wait) }
}

fn shown(reconciliation: &Reconciliation) -> String {
    let verdict = if reconciliation.balanced { "the books balance" } else { "THE BOOKS DO NOT BALANCE" };
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
