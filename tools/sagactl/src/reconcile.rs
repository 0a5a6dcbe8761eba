//! Shell: `sagactl reconcile`: whether stock, money and messages agree.

use std::process::ExitCode;
use std::time::Duration;

use admin_api::reconciliation::{AcceptBaseline, Baseline, Verdict};
use clap::Args;
use cli::exit;
use client::access::Access;
use client::http::Http;
use client::reconciliation::{Extent, MAX_WAIT, baseline_text, reconcile, report_text};

use crate::admin::{Admin, Form, show};
use crate::args::{self, duration};

#[derive(Debug, Args)]
pub struct ReconcileOptions {
    /// Time limit of the answer, except with --full. A busy system gets half of it to come to rest.
    #[arg(long, default_value = "30s", value_parser = wait)]
    wait: Duration,
    /// Full verification: read everything, and not only changes since the last checkpoint. Only this finds rows that were
    /// changed without an event. Takes ten minutes at most.
    #[arg(long, conflicts_with = "accept")]
    full: bool,
    #[command(flatten)]
    form: Form,
    /// Accept the messages that this step never processed, because it or its database did not exist yet, as its baseline.
    /// Rejected while orders are in flight.
    #[arg(long, value_name = "STEP", requires = "reason", conflicts_with = "wait")]
    pub accept: Option<String>,
    /// Reason, for the audit log.
    #[arg(long, requires = "accept", value_parser = args::reason)]
    reason: Option<String>,
}

const fn exit_code_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Balanced => 0,
        Verdict::Unbalanced => exit::REJECTED,
        Verdict::InFlight => exit::NO_VERDICT,
    }
}

pub async fn run(admin: &str, access: &Access, options: ReconcileOptions) -> anyhow::Result<ExitCode> {
    let extent = if options.full { Extent::Full } else { Extent::Incremental };
    let reconciled = reconcile(&Http::with_access(access)?, admin, options.wait, extent).await?;
    show(&reconciled.report, options.form, report_text)?;
    Ok(ExitCode::from(exit_code_of(reconciled.report.verdict)))
}

/// `sagactl reconcile --accept STEP`.
pub async fn accept(admin: &Admin, options: ReconcileOptions) -> anyhow::Result<ExitCode> {
    let request = AcceptBaseline { step: options.accept.unwrap_or_default(), reason: options.reason };
    let accepted: Baseline = admin.post(&["reconciliation", "baselines"], &request).await?;
    show(&accepted, options.form, |accepted, _| {
        format!("{}: accepted {}", request.step, baseline_text(accepted.missed))
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
    fn each_verdict_has_its_own_exit_code() {
        let all = [Verdict::Balanced, Verdict::Unbalanced, Verdict::InFlight];
        assert_eq!(all.map(exit_code_of), [0, 2, 6]);
    }
}
