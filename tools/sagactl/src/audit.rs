//! Shell: asking admin whether the books balance.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::exit;
use crate::http::Http;
use crate::say::say;
use crate::text::one_line;

/// Beyond the wait it was asked for, the audit reads all books.
const AUDIT_TAKES: Duration = Duration::from_mins(1);

/// What the audit answered.
pub struct Audit {
    /// Its verdict.
    pub balanced: bool,
    /// All of it.
    pub report: Value,
}

/// `sagactl audit`.
pub async fn run(admin: &str, wait: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let audit = ask(&Http::new()?, admin, wait).await?;
    say(&if json { audit.report.to_string() } else { shown(&audit) });
    Ok(if audit.balanced { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

/// Asks; a busy system gets `wait` to become quiet.
pub async fn ask(http: &Http, admin: &str, wait: Duration) -> anyhow::Result<Audit> {
    let url = format!("{}/api/admin/audit?wait={}", admin.trim_end_matches('/'), wait.as_secs());
    let answer = http.get_within(&url, wait + AUDIT_TAKES).await?;
    if !answer.status.is_success() {
        bail!("admin cannot audit the books: {}", answer.complaint());
    }
    let balanced = answer.body.get("balanced").and_then(Value::as_bool);
    let balanced = balanced.with_context(|| format!("{url} answers without a verdict"))?;
    Ok(Audit { balanced, report: answer.body })
}

fn shown(audit: &Audit) -> String {
    let verdict = if audit.balanced { "the books balance" } else { "THE BOOKS DO NOT BALANCE" };
    let mut text = format!("{verdict}\n");
    let members = audit.report.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| !["balanced", "discrepancies"].contains(&name.as_str())) {
        add_member(&mut text, 1, name, value);
    }
    let discrepancies = audit.report.get("discrepancies").and_then(Value::as_array);
    for discrepancy in discrepancies.into_iter().flatten() {
        let _ = writeln!(text, "  ✗ {}", one_line(discrepancy));
    }
    text
}

fn add_member(text: &mut String, depth: usize, name: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            let _ = writeln!(text, "{:indent$}{name}", "", indent = depth * 2);
            for (name, value) in members {
                add_member(text, depth + 1, name, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let width = 34_usize.saturating_sub(depth * 2);
            let _ = writeln!(text, "{:indent$}{name:<width$} {}", "", one_line(value), indent = depth * 2);
        }
    }
}
