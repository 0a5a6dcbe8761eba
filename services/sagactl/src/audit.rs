//! Shell: asking admin whether the books balance.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::http::Http;
use crate::member::Member;
use crate::system::System;

/// The books do not balance.
const UNBALANCED: u8 = 2;
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
pub async fn run(system: &System, wait: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let audit = ask(&Http::new()?, system, wait).await?;
    if json {
        println!("{}", audit.report);
    } else {
        print(&audit);
    }
    Ok(if audit.balanced { ExitCode::SUCCESS } else { ExitCode::from(UNBALANCED) })
}

/// Asks; a busy system gets `wait` to become quiet.
pub async fn ask(http: &Http, system: &System, wait: Duration) -> anyhow::Result<Audit> {
    let url = format!("{}/api/admin/audit?wait={}", system.url_of(Member::Admin), wait.as_secs());
    let answer = http.get_within(&url, wait + AUDIT_TAKES).await?;
    if !answer.status.is_success() {
        bail!("admin cannot audit the books: {}", answer.complaint());
    }
    let balanced = answer.body.get("balanced").and_then(Value::as_bool);
    let balanced = balanced.with_context(|| format!("{url} answers without a verdict"))?;
    Ok(Audit { balanced, report: answer.body })
}

fn print(audit: &Audit) {
    println!("{}", if audit.balanced { "the books balance" } else { "THE BOOKS DO NOT BALANCE" });
    let members = audit.report.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| !["balanced", "discrepancies"].contains(&name.as_str())) {
        print_member(1, name, value);
    }
    let discrepancies = audit.report.get("discrepancies").and_then(Value::as_array);
    for discrepancy in discrepancies.into_iter().flatten() {
        println!("  ✗ {}", one_line(discrepancy));
    }
}

fn print_member(depth: usize, name: &str, value: &Value) {
    match value {
        Value::Object(members) => {
            println!("{:indent$}{name}", "", indent = depth * 2);
            for (name, value) in members {
                print_member(depth + 1, name, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let width = 34_usize.saturating_sub(depth * 2);
            println!("{:indent$}{name:<width$} {}", "", one_line(value), indent = depth * 2);
        }
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let shown = members.iter().map(|(name, value)| format!("{name} {}", one_line(value)));
            shown.collect::<Vec<_>>().join(" · ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    }
}
