//! Shell: asking admin whether stock, money and messages agree: `sagactl reconcile` for its users.

use std::process::ExitCode;
use std::time::Duration;

use admin_api::reconciliation::{FULL_VERIFICATION_TIMEOUT, Verdict};
use clap::Args;
use client::access::Access;
use client::http::Http;
use client::reconciliation::{MAX_WAIT, ask_for};
use serde_json::{Value, json};

use crate::admin::{Admin, Form, show};
use crate::args::duration;
use crate::output::text::one_line;
use crate::output::{self, exit, say, say_json};

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
        Verdict::Unbalanced => exit::REFUSED,
        Verdict::InFlight => exit::NOT_YET,
    }
}

/// `sagactl reconcile`: ends with 2 when the ledgers do not agree, with 6 when that cannot be told yet.
pub async fn run(admin: &str, access: &Access, options: ReconciliationOptions) -> anyhow::Result<ExitCode> {
    let reading = options.whole.then_some(FULL_VERIFICATION_TIMEOUT);
    let reconciliation = ask_for(&Http::by(access)?, admin, options.wait, reading).await?;
    if options.json {
        say_json(&reconciliation.report);
    } else {
        say(&reconciliation.shown(&output::view()));
    }
    Ok(ExitCode::from(code_of(reconciliation.verdict)))
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
