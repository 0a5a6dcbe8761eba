//! Shell: the audit log: who did what, and what became of it.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admin::{Admin, Page, PageOptions};
use crate::output::text::{moment, one_line, or_nothing, short};
use crate::output::{Column, left};

/// What is shown of a detail in a table.
const LONGEST_DETAIL: usize = 80;

/// Which entries of the audit log; --operator NAME shows only theirs.
#[derive(Debug, Args, Serialize)]
pub struct LogOptions {
    #[arg(skip)]
    operator: Option<String>,
    /// Only this action, e.g. dlq.replay.
    #[arg(long)]
    action: Option<String>,
    /// Only what was done to this: a dead letter, a redrive, a breaker.
    #[arg(long)]
    target: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    page: PageOptions,
}

/// `sagactl log`: of everybody, or of the operator who is named.
pub async fn run(admin: &Admin, options: LogOptions, operator: Option<String>) -> anyhow::Result<ExitCode> {
    let options = LogOptions { operator, ..options };
    admin.show(&["audit", "log"], &options, options.page.form, list).await
}

#[derive(Debug, Deserialize)]
struct AuditEntry {
    at: Timestamp,
    operator: String,
    action: String,
    target: String,
    reason: Option<String>,
    detail: Option<Value>,
    outcome: String,
}

const COLUMNS: [Column<AuditEntry>; 7] = [
    left("when", |entry| moment(entry.at)),
    left("who", |entry| entry.operator.clone()),
    left("what", |entry| entry.action.clone()),
    left("to what", |entry| entry.target.clone()),
    left("outcome", |entry| short(&entry.outcome, LONGEST_DETAIL)),
    left("why", |entry| or_nothing(entry.reason.as_ref().map(|reason| short(reason, LONGEST_DETAIL)))),
    left("detail", |entry| {
        or_nothing(entry.detail.as_ref().map(|detail| short(&one_line(detail), LONGEST_DETAIL)))
    }),
];

fn list(page: &Page<AuditEntry>) -> String {
    page.shown("no entries", &COLUMNS)
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
