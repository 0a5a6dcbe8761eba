//! Shell: `sagactl log`: the audit log.

use std::process::ExitCode;

use admin_api::audit_log::{Action, LogEntry, LogPage, LogParams, MAX_LISTED_SAGAS};
use admin_api::text::{counted, grouped};
use clap::{Args, Subcommand};
use cli::table::{Column, left, removable, time, truncatable};
use cli::text::{one_line, or_none};
use cli::view::View;
use client::reconciliation::baseline_text;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::admin::{Admin, OrList, Page, PageOptions, show};
use crate::args::{self, past_time};

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
    /// Only changes of this dead letter, redrive, order, service, step, or breaker (SERVICE/NAME). An order is also found in
    /// changes of its dead letters. Not in those by redrives, of more than 1,000 at once, or by older versions.
    #[arg(long)]
    target: Option<String>,
    /// Only changes by operators whose name, or reported name, contains this, whatever its case.
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
    let is_of_an_id = target.as_ref().is_some_and(|target| args::id(target).is_ok());
    let params = LogParams { operator, action, target, since, until, text: sought, limit, cursor };
    let LogPage { entries, unreadable, next } = admin.get(&["audit"], &params).await?;
    let page_of = Page { next, unreadable, ..Page::from_iter(entries) };
    show(&page_of, page.form, |page, view| {
        let text = text(page, limit.unwrap_or(DEFAULT_LIMIT), view);
        if is_of_an_id { format!("{text}\n{}", not_found_by_order()) } else { text }
    })
}

/// Entries of a page, unless another number is given.
const DEFAULT_LIMIT: usize = 50;

/// Names the changes of an order that its id does not find.
fn not_found_by_order() -> String {
    format!(
        "the id of an order does not find replays of redrives, changes of its dead letters by older versions, and changes of \
         more than {} dead letters or orders at once",
        grouped(MAX_LISTED_SAGAS as u64)
    )
}

const COLUMNS: [Column<LogEntry>; 7] = [
    time("time", |change| Some(change.entry.at)),
    left("operator", |change| change.entry.by.operator.clone()),
    left("action", |change| change.entry.action.to_string()),
    left("target", |change| change.entry.target.clone()),
    truncatable(left("outcome", |change| change.entry.outcome.clone())),
    removable(2, truncatable(left("reason", |change| or_none(change.entry.by.reason.as_ref())))),
    removable(
        1,
        truncatable(left("detail", |change| or_none(change.entry.detail.as_ref().map(detail_text)))),
    ),
];

/// Describes a detail in words, without what is missing.
fn detail_text(detail: &Value) -> String {
    let members = detail.as_object().into_iter().flatten();
    members.filter_map(|(name, value)| member_text(name, value)).collect::<Vec<_>>().join(", ")
}

/// Describes a member of a detail; `None` if it says nothing.
fn member_text(name: &str, value: &Value) -> Option<String> {
    let line = one_line(value);
    let count = value.as_array().map_or(0, Vec::len) as u64;
    Some(match (name, value) {
        (_, Value::Null) | ("force", Value::Bool(false)) => return None,
        (_, Value::Array(items)) if items.is_empty() => return None,
        ("quantity", number) if number == 0 => return None,
        ("accepted", Value::Array(items)) => items.iter().map(accepted_text).collect::<Vec<_>>().join(", "),
        ("canary", _) => format!("canary of {line}"),
        ("changes", Value::Array(items)) => items.iter().map(change_text).collect::<Vec<_>>().join(", "),
        ("command", _) => format!("by sagactl {line}"),
        ("delay_ms", _) => format!("delay {line} ms"),
        ("filter", _) => format!("filter {}", line.replace(" · ", " and ")),
        ("force", _) => "forced".to_owned(),
        ("id", _) => format!("fault {line}"),
        ("matching", _) => format!("{line} matched"),
        ("missed", missed) => missed.as_i64().map_or(line, baseline_text),
        ("next", number) if number == 1 => "next occasion".to_owned(),
        ("next", _) => format!("next {line} occasions"),
        ("probability", _) => format!("probability {line} %"),
        ("quantity", _) => format!("{line} units added"),
        ("rate", _) => format!("{line} per second"),
        ("reported_operator", _) => format!("reported by {line}"),
        ("reported_at", _) => format!("reported for {line}"),
        ("saga", _) => format!("of order {line}"),
        ("sagas", _) => format!("of {}", counted(count, "order", "orders")),
        ("sagas_listed", _) => "too many orders to list".to_owned(),
        ("seq", _) => format!("entry {line}"),
        ("stuck_at", _) => format!("waiting for {line}"),
        ("with", _) => format!("together with {line}"),
        (name, _) => format!("{} {line}", name.replace('_', " ")),
    })
}

/// Describes an edited member of a message.
fn change_text(change: &Value) -> String {
    let value = |name: &str| match change.get(name) {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(value) => one_line(value),
    };
    format!("{} changed from {} to {}", value("path"), value("before"), value("after"))
}

/// Describes an accepted discrepancy.
fn accepted_text(accepted: &Value) -> String {
    let member = |name: &str| accepted[name].as_str();
    let difference = member("difference").map(|by| format!(", difference {by}")).unwrap_or_default();
    let [saga, rule, detail] = ["saga", "rule", "detail"].map(|name| member(name).unwrap_or_default());
    format!("accepted discrepancy of order {saga}: {rule} ({detail}{difference})")
}

fn text(page: &Page<LogEntry>, limit: usize, view: &View) -> String {
    let is_partial = page.next.is_some() && page.items.len() + page.unreadable.len() < limit;
    let text = page.text(if is_partial { "no changes found so far" } else { "no changes" }, &COLUMNS, view);
    if is_partial {
        format!("{text}\nolder changes have not been searched yet: the next page goes on with them")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn detail_is_in_words_without_what_is_missing() {
        let saga = "01890000-0000-7000-8000-000000000001";
        let rule = "cancelled = money back";
        for (detail, text) in [
            (json!({"accepted": [], "with": []}), String::new()),
            (
                json!({"accepted": [{"saga": saga, "rule": rule, "detail": "payment OPEN", "difference": null}]}),
                format!("accepted discrepancy of order {saga}: {rule} (payment OPEN)"),
            ),
            (
                json!({"filter": {"service": "payment", "step": "bank-refund"}, "canary": 1, "rate": null, "force": false, "matching": 3}),
                "canary of 1, filter service payment and step bank-refund, 3 matched".to_owned(),
            ),
            (
                json!({"command": "stop", "reported_operator": "eve"}),
                "by sagactl stop, reported by eve".to_owned(),
            ),
            (json!({"matching": 2, "sagas": [saga]}), "2 matched, of 1 order".to_owned()),
            (
                json!({"matching": 2000, "sagas_listed": false}),
                "2000 matched, too many orders to list".to_owned(),
            ),
            (
                json!({"changes": [{"path": "card", "before": "tok_bad", "after": "tok_ok"}]}),
                "card changed from tok_bad to tok_ok".to_owned(),
            ),
            (
                json!({"changes": [{"path": "card", "before": null, "after": "tok_ok"}]}),
                "card changed from nothing to tok_ok".to_owned(),
            ),
            (json!({"next": 1}), "next occasion".to_owned()),
            (json!({"next": 2}), "next 2 occasions".to_owned()),
            (json!({"missed": -2}), "2 messages processed that no producer remembers".to_owned()),
        ] {
            assert_eq!(detail_text(&detail), text);
        }
    }

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
        insta::assert_snapshot!("log", text(&page, 2, &View::FILE));
        let partial = "not been searched yet";
        assert!(text(&page, 3, &View::FILE).contains(partial));
        let empty = Page { next: Some("abc".to_owned()), ..Page::from_iter([]) };
        let empty = text(&empty, 3, &View::FILE);
        assert!(empty.starts_with("no changes found so far") && empty.contains(partial), "{empty}");
    }
}
