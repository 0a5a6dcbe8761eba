//! Shell: the audit log: who did what, and what became of it.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admin::{Admin, Items, OrList, Page, PageOptions};
use cli::text::{one_line, or_none};
use cli::{Column, View, left, removable, time, truncatable};

/// What to do with the audit log.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// List its entries, newest first; --operator NAME shows only theirs
    List(LogOptions),
}

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
pub async fn run(
    admin: &Admin,
    OrList { command, list }: OrList<LogCommand, LogOptions>,
    operator: Option<String>,
) -> anyhow::Result<ExitCode> {
    let LogCommand::List(options) = command.unwrap_or(LogCommand::List(list));
    let options = LogOptions { operator, ..options };
    admin.list(&["audit"], &options, Items::In("entries"), options.page.form, shown).await
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
    time("when", |entry| Some(entry.at)),
    left("who", |entry| entry.operator.clone()),
    left("what", |entry| entry.action.clone()),
    left("to what", |entry| entry.target.clone()),
    truncatable(left("outcome", |entry| entry.outcome.clone())),
    removable(2, truncatable(left("why", |entry| or_none(entry.reason.as_ref())))),
    removable(1, truncatable(left("detail", |entry| or_none(entry.detail.as_ref().map(one_line))))),
];

fn shown(page: &Page<AuditEntry>, view: &View) -> String {
    page.shown("no entries", &COLUMNS, view)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn who_did_what_is_a_table() {
        let page = from_value(json!({"items": [
            {"id": "1", "at": "2026-11-20T14:18:36Z", "operator": "ada", "action": "dlq.replay",
             "target": "01890000-0000-7000-8000-000000000001", "reason": "bank is back", "outcome": "done"},
            {"id": "2", "at": "2026-11-20T14:18:30Z", "operator": "system", "action": "redrive.stop",
             "target": "01890000-0000-7000-8000-000000000002", "detail": {"failed": 1}, "outcome": "done"},
        ], "next": "abc"}));
        insta::assert_snapshot!("log", shown(&page.expect("a page"), &View::FILE));
    }
}
