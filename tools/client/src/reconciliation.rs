//! Shell: reconciliation by admin: whether stock, money and messages agree.

mod text;

use std::time::Duration;

use admin_api::reconciliation::{FULL_VERIFICATION_TIMEOUT, ReconcileParams, Report, Verdict};
use anyhow::{Context as _, bail};
use reqwest::Method;
use serde::{Deserialize as _, Serialize};

use crate::http::{self, Http};

pub use self::text::{baseline_text, report_text};

/// Maximum time that admin waits for a busy system to become quiet.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Transfer time of the answer, in addition to the wait.
const TRANSFER_TIME: Duration = Duration::from_secs(3);

/// Extent of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Changes since the last checkpoint.
    Incremental,
    /// Everything, which takes [`FULL_VERIFICATION_TIMEOUT`] at most.
    Full,
}

/// Result of a reconciliation, as the reports of `load` and `chaos` contain it.
#[derive(Debug, Clone, Serialize)]
pub struct Reconciliation {
    pub balanced: bool,
    #[serde(rename = "reconciliation")]
    pub report: Report,
}

impl From<Report> for Reconciliation {
    fn from(report: Report) -> Self {
        Self { balanced: report.verdict == Verdict::Balanced, report }
    }
}

impl Reconciliation {
    /// True if there is no verdict because a service has not answered completely.
    pub fn lacks_answers(&self) -> bool {
        self.report.verdict == Verdict::InFlight && !self.report.unanswered.is_empty()
    }
}

/// Reconciles. A busy system gets `wait` to become quiet.
pub async fn reconcile(
    http: &Http,
    admin: &str,
    wait: Duration,
    extent: Extent,
) -> anyhow::Result<Reconciliation> {
    let full = extent == Extent::Full;
    let url = format!("{}/api/admin/reconciliation", admin.trim_end_matches('/'));
    let reading = if full { FULL_VERIFICATION_TIMEOUT } else { Duration::ZERO };
    let params = ReconcileParams { wait: Some(wait.as_secs()), full };
    let request = http.request(Method::GET, &url).query(&params).timeout(wait + reading + TRANSFER_TIME);
    let answer = http::fetch(request, &url).await?;
    if !answer.status.is_success() {
        bail!("admin cannot reconcile: {}", answer.error_text());
    }
    let report = Report::deserialize(answer.body).with_context(|| format!("{url} answered no report"))?;
    Ok(report.into())
}
