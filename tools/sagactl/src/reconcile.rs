//! Shell: asking admin whether stock, money and messages agree: `sagactl reconcile` for its users.

use std::process::ExitCode;
use std::time::Duration;

use admin_api::reconciliation::Verdict;
use clap::Args;
use client::access::Access;
use client::http::Http;
use client::reconciliation::{Extent, MAX_WAIT, reconcile, report_text};
use serde_json::{Value, json};

use crate::admin::{Admin, Form, show};
use crate::args::duration;
use cli::text::one_line;
use cli::{self, exit, print, print_json};

#[derive(Debug, Args)]
pub struct ReconciliationOptions {
    /// Answers within this time, whatever is down, unless everything is to be read. A busy system gets half of it to become
    /// quiet.
    #[arg(long, default_value = "30s", value_parser = wait)]
    wait: Duration,
    /// Full verification: read everything, and not only changes since the last checkpoint. Only this finds rows that were
    /// changed without an event. Takes ten minutes at most.
    #[arg(long, conflicts_with = "accept")]
    full: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
    /// Accepts what this step never came to, because it, or its database, was not there yet: from now on the reconciliation
    /// counts that as its baseline. Only while nothing is under way.
    #[arg(long, value_name = "STEP", requires = "reason", conflicts_with = "wait")]
    pub accept: Option<String>,
    /// Why, for the audit log.
    #[arg(long, requires = "accept")]
    reason: Option<String>,
}

/// How the program ends that was to find out.
const fn code_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Balanced => 0,
        Verdict::Unbalanced => exit::REJECTED,
        Verdict::InFlight => exit::NO_VERDICT,
    }
}

/// `sagactl reconcile`: ends with 2 when the ledgers do not agree, with 6 when that cannot be told yet.
pub async fn run(admin: &str, access: &Access, options: ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let extent = if options.full { Extent::Full } else { Extent::Incremental };
    let reconciliation = reconcile(&Http::with_access(access)?, admin, options.wait, extent).await?;
    if options.json {
        print_json(&serde_json::to_value(&reconciliation.report)?);
    } else {
        print(&report_text(&reconciliation.report, &cli::view()));
    }
    Ok(ExitCode::from(code_of(reconciliation.report.verdict)))
}

/// `sagactl reconcile --accept STEP`: what admin wrote down of it.
pub async fn accept(admin: &Admin, options: &ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let body = json!({ "step": options.accept, "reason": options.reason });
    let accepted = admin.post(&["reconciliation", "baselines"], &body).await?;
    let step = options.accept.as_deref().unwrap_or_default();
    show(accepted, Form { json: options.json }, |accepted: &Value, _| {
        let missed = accepted.get("missed").map(one_line).unwrap_or_default();
        format!("{step}: {missed} accepted as missed")
    })
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait > MAX_WAIT { Err(format!("at most {}s", MAX_WAIT.as_secs())) } else { Ok(wait) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_has_an_exit_code_of_its_own() {
        assert_eq!([Verdict::Balanced, Verdict::Unbalanced, Verdict::InFlight].map(code_of), [0, 2, 6]);
    }
}
