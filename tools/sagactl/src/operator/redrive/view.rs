//! Pure: redrives for people.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::operator::dlq::{Group, group_table};
use crate::operator::more;
use crate::output::plain_table as table;
use crate::output::text::{listed, moment, one_line};

/// A redrive.
#[derive(Debug, Clone, Deserialize)]
pub struct Redrive {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub status: String,
    /// Why it stopped by itself.
    pub stopped_because: Option<String>,
    filter: Value,
    canary: u64,
    rate: Option<u64>,
    #[serde(default)]
    force: bool,
    operator: String,
    reason: String,
    round: u64,
    /// Letters that it was started for.
    pub matching: u64,
    sent: u64,
    resolved: u64,
    failed: u64,
    in_flight: u64,
    remaining: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// How a redrive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All was handed back.
    Done,
    /// By itself; it may be resumed.
    Stopped,
    /// By an operator.
    Cancelled,
}

impl Redrive {
    /// How it ended, if it did.
    pub fn ending(&self) -> Option<Ending> {
        match self.status.as_str() {
            "DONE" => Some(Ending::Done),
            "STOPPED" => Some(Ending::Stopped),
            "CANCELLED" => Some(Ending::Cancelled),
            _ => None,
        }
    }

    /// Letters of which it is known what became of them.
    pub fn settled(&self) -> u64 {
        self.resolved + self.failed
    }

    /// Where it stands, in one line.
    pub fn progress(&self) -> String {
        let Self { status, sent, resolved, failed, in_flight, remaining, .. } = self;
        format!(
            "{status}: {sent} sent, {resolved} resolved, {failed} failed, {in_flight} in flight, {remaining} to come"
        )
    }
}

/// A page of redrives.
#[derive(Debug, Deserialize)]
pub struct Page {
    redrives: Vec<Redrive>,
    next: Option<String>,
}

/// A page as a table.
pub fn list(page: &Page) -> String {
    if page.redrives.is_empty() {
        return "no redrives".to_owned();
    }
    let row = |redrive: &Redrive| {
        [
            redrive.id.clone(),
            redrive.status.clone(),
            one_line(&redrive.filter),
            redrive.operator.clone(),
            redrive.matching.to_string(),
            redrive.resolved.to_string(),
            redrive.failed.to_string(),
            redrive.remaining.to_string(),
            moment(redrive.created_at),
        ]
    };
    let header =
        ["redrive", "status", "filter", "who", "matching", "resolved", "failed", "to come", "started"];
    format!("{}{}", table(header, page.redrives.iter().map(row), &[4, 5, 6, 7]), more(page.next.as_deref()))
}

/// All of one.
pub fn detail(redrive: &Redrive) -> String {
    let rate =
        redrive.rate.map_or_else(|| "as fast as it goes".to_owned(), |rate| format!("{rate} a second"));
    let force = if redrive.force { ", forced" } else { "" };
    let lines = listed(&[
        ("status", Some(redrive.progress())),
        ("stopped because", redrive.stopped_because.clone()),
        ("filter", Some(one_line(&redrive.filter))),
        ("matching", Some(redrive.matching.to_string())),
        ("how", Some(format!("canary of {}, then {rate}{force}", redrive.canary))),
        ("round", Some(redrive.round.to_string())),
        ("who", Some(redrive.operator.clone())),
        ("why", Some(redrive.reason.clone())),
        ("started", Some(moment(redrive.created_at))),
        ("last change", Some(moment(redrive.updated_at))),
    ]);
    format!("redrive {}\n{lines}", redrive.id)
}

/// What a redrive would do.
#[derive(Debug, Deserialize)]
pub struct Preview {
    /// Letters that match the filter.
    pub matching: u64,
    /// Those of them that may be replayed.
    pub replayable: u64,
    over_limit: u64,
    #[serde(default)]
    groups: Vec<Group>,
}

/// The preview.
pub fn preview(preview: &Preview) -> String {
    let Preview { matching, replayable, over_limit, groups } = preview;
    let mut text = format!("{matching} match, {replayable} of them can be replayed");
    if *over_limit > 0 {
        text.push_str(&format!("; {over_limit} were replayed too often (--force takes them all the same)"));
    }
    if !groups.is_empty() {
        text.push_str(&format!("\n{}", group_table(groups)));
    }
    text
}

#[cfg(test)]
pub mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// A redrive in this status.
    pub fn redrive(status: &str) -> Value {
        json!({
            "id": "01890000-0000-7000-8000-0000000000cc", "status": status,
            "stopped_because": (status == "STOPPED").then_some("a canary failed again"),
            "filter": {"fingerprint": "9f86d081884c7d65"}, "canary": 1, "rate": 50, "force": false,
            "operator": "ada", "reason": "bank is back", "round": 1, "matching": 12, "sent": 5, "resolved": 3,
            "failed": 1, "in_flight": 1, "remaining": 7, "created_at": "2026-11-20T14:18:36Z",
            "updated_at": "2026-11-20T14:18:40Z",
        })
    }

    #[test]
    fn redrives_are_a_table() {
        let page = json!({"redrives": [redrive("RUNNING"), redrive("DONE")], "next": null});
        insta::assert_snapshot!("redrive_list", list(&from_value(page).expect("a page")));
        assert_eq!(list(&Page { redrives: vec![], next: None }), "no redrives");
    }

    #[test]
    fn a_redrive_says_why_it_stopped() {
        insta::assert_snapshot!("redrive_show", detail(&from_value(redrive("STOPPED")).expect("a redrive")));
    }

    #[test]
    fn only_what_is_over_has_an_ending() {
        let ending = |status| from_value::<Redrive>(redrive(status)).expect("a redrive").ending();
        assert_eq!(["CANARY", "RUNNING", "PAUSED"].map(ending), [None; 3]);
        let wanted = [Ending::Done, Ending::Stopped, Ending::Cancelled].map(Some);
        assert_eq!(["DONE", "STOPPED", "CANCELLED"].map(ending), wanted);
    }

    #[test]
    fn a_preview_says_what_is_left_out() {
        let few = json!({"preview": true, "matching": 3, "replayable": 2, "over_limit": 1, "groups": []});
        assert_eq!(
            preview(&from_value(few).expect("a preview")),
            "3 match, 2 of them can be replayed; 1 were replayed too often (--force takes them all the same)"
        );
    }
}
