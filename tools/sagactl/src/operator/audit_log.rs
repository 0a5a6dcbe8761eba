//! Shell: `sagactl log`: the audit log.

use std::process::ExitCode;

use admin_api::audit_log::{Action, LogEntry, LogPage, LogParams};
use clap::{Args, Subcommand};
use cli::table::{Column, left, removable, time, truncatable};
use cli::text::{one_line, or_none};
use cli::view::View;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::admin::{Admin, OrList, Page, PageOptions, show};
use crate::args::past_time;

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// List changes, newest first
    List(LogOptions),
}

#[derive(Debug, Args)]
pub struct LogOptions {
    /// Only this kind of change, e.g. dlq.replay.
    #[arg(long, value_parser = action)]
    action: Option<Action>,
    /// Only changes of this dead letter, redrive, order, service, step, or breaker (SERVICE/NAME).
    #[arg(long)]
    target: Option<String>,
    /// Only changes by operators whose name contains this, whatever its case.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only changes from this time on, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    since: Option<Timestamp>,
    /// Only changes before this time.
    #[arg(long, value_name = "TIME", value_parser = past_time)]
    until: Option<Timestamp>,
    /// Only with this text, e.g. in the reason.
    #[arg(long)]
    text: Option<String>,
    #[command(flatten)]
    page: PageOptions,
}

fn action(text: &str) -> Result<Action, String> {
    Action::deserialize(Value::from(text)).map_err(|error| error.to_string())
}

pub async fn run(
    admin: &Admin,
    OrList { command, list }: OrList<LogCommand, LogOptions>,
) -> anyhow::Result<ExitCode> {
    let LogCommand::List(options) = command.unwrap_or(LogCommand::List(list));
    let LogOptions { action, target, by: operator, since, until, text: sought, page } = options;
    let (limit, cursor) = (page.limit, page.cursor_id()?);
    let params = LogParams { operator, action, target, since, until, text: sought, limit, cursor };
    let LogPage { entries, unreadable, next } = admin.get(&["audit"], &params).await?;
    show(&Page { next, unreadable, ..Page::from_iter(entries) }, page.form, text)
}

const COLUMNS: [Column<LogEntry>; 7] = [
    time("time", |change| Some(change.entry.at)),
    left("operator", |change| change.entry.by.operator.clone()),
    left("action", |change| change.entry.action.to_string()),
    left("target", |change| change.entry.target.clone()),
    truncatable(left("outcome", |change| change.entry.outcome.clone())),
    removable(2, truncatable(left("reason", |change| or_none(change.entry.by.reason.as_ref())))),
    removable(1, truncatable(left("detail", |change| or_none(change.entry.detail.as_ref().map(one_line))))),
];

fn text(page: &Page<LogEntry>, view: &View) -> String {
    page.text("no changes", &COLUMNS, view)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn audit_log_is_a_table() {
        let entries: Vec<LogEntry> = from_value(json!([
            {"id": "1", "at": "2026-11-20T14:18:36Z", "operator": "ada", "action": "dlq.replay",
             "target": "01890000-0000-7000-8000-000000000001", "reason": "bank is back", "outcome": "done"},
            {"id": "2", "at": "2026-11-20T14:18:30Z", "operator": "system", "action": "redrive.stop",
             "target": "01890000-0000-7000-8000-000000000002", "detail": {"failed": 1}, "outcome": "done"},
        ]))
        .expect("entries");
        let page = Page { next: Some("abc".to_owned()), ..Page::from_iter(entries) };
        insta::assert_snapshot!("log", text(&page, &View::FILE));
    }
}
