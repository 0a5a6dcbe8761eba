//! Shell: the audit log: who did what, and what became of it.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::admin::{Admin, Asked};
use super::{PageOptions, more, show};
use crate::output::plain_table as table;
use crate::output::text::{moment, one_line, or_nothing, short};

/// What is shown of a detail in a table.
const LONGEST_DETAIL: usize = 80;

/// Which entries of the audit log; --operator NAME shows only theirs.
#[derive(Debug, Args)]
pub struct LogOptions {
    /// Only this action, e.g. dlq.replay.
    #[arg(long)]
    action: Option<String>,
    /// Only what was done to this: a dead letter, a redrive, a breaker.
    #[arg(long)]
    target: Option<String>,
    #[command(flatten)]
    page: PageOptions,
}

/// `sagactl log`: of everybody, or of the operator who is named.
pub async fn run(admin: &Admin, options: LogOptions, named: Option<&str>) -> anyhow::Result<ExitCode> {
    let asked = Asked::default()
        .with("operator", named)
        .with("action", options.action)
        .with("target", options.target);
    let page = options.page;
    show(admin.ask(&["audit", "log"], &page.asked(asked)).await?, page.json, list)
}

#[derive(Debug, Deserialize)]
struct Page {
    entries: Vec<Entry>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    at: Timestamp,
    operator: String,
    action: String,
    target: String,
    reason: Option<String>,
    detail: Option<Value>,
    outcome: String,
}

fn list(page: &Page) -> String {
    if page.entries.is_empty() {
        return "no entries".to_owned();
    }
    let row = |entry: &Entry| {
        let detail = entry.detail.as_ref().map(|detail| short(&one_line(detail), LONGEST_DETAIL));
        [
            moment(entry.at),
            entry.operator.clone(),
            entry.action.clone(),
            entry.target.clone(),
            short(&entry.outcome, LONGEST_DETAIL),
            or_nothing(entry.reason.as_ref().map(|reason| short(reason, LONGEST_DETAIL))),
            or_nothing(detail),
        ]
    };
    let header = ["when", "who", "what", "to what", "outcome", "why", "detail"];
    format!("{}{}", table(header, page.entries.iter().map(row), &[]), more(page.next.as_deref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn who_did_what_is_a_table() {
        let page = from_value(json!({"entries": [
            {"id": "1", "at": "2026-11-20T14:18:36Z", "operator": "ada", "action": "dlq.replay",
             "target": "01890000-0000-7000-8000-000000000001", "reason": "bank is back", "outcome": "done"},
            {"id": "2", "at": "2026-11-20T14:18:30Z", "operator": "system", "action": "redrive.stop",
             "target": "01890000-0000-7000-8000-000000000002", "detail": {"failed": 1}, "outcome": "done"},
        ], "next": "abc"}));
        insta::assert_snapshot!("log", list(&page.expect("a page")));
    }
}
