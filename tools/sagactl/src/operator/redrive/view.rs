//! Pure: redrives for people.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use strum::EnumString;

use crate::admin::Page;
use crate::operator::dead_letter::group::{DeadLetterGroup, group_table};
use crate::operator::dead_letter::worth::WorthOfMany;
use cli::text::{fields, one_line};
use cli::{Column, View, left, removable, right, time, truncatable};

/// A redrive as admin tells it.
#[derive(Debug, Clone, Deserialize)]
pub struct Redrive {
    pub id: String,
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
    /// Dead letters that it was started for.
    pub matching: u64,
    sent: u64,
    resolved: u64,
    #[serde(default)]
    in_vain: u64,
    failed: u64,
    in_flight: u64,
    remaining: u64,
    /// Sent in this round; the counts above are of all rounds.
    #[serde(default)]
    round_sent: u64,
    /// What matches in this round: those and the remaining ones.
    #[serde(default)]
    round_matching: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// How a redrive ended. Every other status is that of one that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Ending {
    /// All was handed back.
    Done,
    /// By itself; it may be resumed.
    Stopped,
    /// By an operator, for good.
    Cancelled,
}

impl Redrive {
    /// How it ended, if it did.
    pub fn ending(&self) -> Option<Ending> {
        self.status.parse().ok()
    }

    /// Dead letters of which it is known what became of them.
    pub fn settled(&self) -> u64 {
        self.resolved + self.failed
    }

    /// What an operator must know of a round that is not the first.
    pub fn told_of_round(&self) -> String {
        match self.round {
            ..=1 => String::new(),
            round => format!(
                "\nround {round} sends what matched when it began, also what was parked after round 1 began"
            ),
        }
    }

    /// Where it stands, in one line.
    pub fn progress(&self) -> String {
        let Self { status, sent, resolved, in_vain, failed, in_flight, remaining, .. } = self;
        let vain = match in_vain {
            0 => String::new(),
            in_vain => format!(" ({in_vain} of them changed nothing: their sagas had ended)"),
        };
        let became =
            format!("{sent} sent, {resolved} resolved{vain}, {failed} failed, {in_flight} in flight");
        if self.round <= 1 {
            return format!("{status}: {became}, {remaining} to come");
        }
        let Self { round, round_sent, round_matching, .. } = self;
        format!(
            "{status}: round {round}: {round_sent} of {round_matching} sent, {remaining} to come; in all rounds: {became}"
        )
    }
}

const COLUMNS: [Column<Redrive>; 9] = [
    left("redrive", |redrive| redrive.id.clone()),
    left("status", |redrive| redrive.status.clone()),
    truncatable(left("filter", |redrive| one_line(&redrive.filter))),
    removable(2, left("who", |redrive| redrive.operator.clone())),
    removable(3, right("matching", |redrive| redrive.matching.to_string())),
    right("resolved", |redrive| redrive.resolved.to_string()),
    right("failed", |redrive| redrive.failed.to_string()),
    right("to come", |redrive| redrive.remaining.to_string()),
    removable(1, time("started", |redrive| Some(redrive.created_at))),
];

pub fn list(page: &Page<Redrive>, view: &View) -> String {
    page.shown("no redrives", &COLUMNS, view)
}

pub fn detail(redrive: &Redrive, view: &View) -> String {
    let rate =
        redrive.rate.map_or_else(|| "as fast as it goes".to_owned(), |rate| format!("{rate} a second"));
    let force = if redrive.force { ", forced" } else { "" };
    let lines = fields(&[
        ("status", Some(redrive.progress())),
        ("stopped because", redrive.stopped_because.clone()),
        ("filter", Some(one_line(&redrive.filter))),
        ("matching", Some(format!("{} at the start", redrive.matching))),
        ("how", Some(format!("canary of {}, then {rate}{force}", redrive.canary))),
        ("round", Some(redrive.round.to_string())),
        ("started by", Some(redrive.operator.clone())),
        ("why then", Some(redrive.reason.clone())),
        ("started", Some(view.full_time(redrive.created_at))),
        ("last change", Some(view.full_time(redrive.updated_at))),
    ]);
    format!("redrive {}\n{lines}", redrive.id)
}

/// What a redrive would do.
#[derive(Debug, Deserialize)]
pub struct Preview {
    /// Dead letters that match the filter.
    pub matching: u64,
    /// Those of them that may be replayed.
    pub replayable: u64,
    over_limit: u64,
    #[serde(flatten)]
    worth: WorthOfMany,
    #[serde(default)]
    groups: Vec<DeadLetterGroup>,
}

pub fn preview(preview: &Preview, view: &View) -> String {
    let Preview { matching, replayable, over_limit, worth, groups } = preview;
    let mut text = format!("{matching} match, {replayable} of them can be replayed");
    if *over_limit > 0 {
        text.push_str(&format!("; {over_limit} were replayed too often (--force takes them all the same)"));
    }
    if *matching > 0 {
        text.push_str(&format!("; {}", worth.told()));
    }
    if !groups.is_empty() {
        text.push_str(&format!("\n{}", group_table(groups, view)));
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
    fn a_later_round_has_numbers_of_its_own_that_add_up() {
        let mut again = redrive("RUNNING");
        for (name, count) in [("round", 2), ("round_sent", 3), ("round_matching", 10)] {
            again[name] = count.into();
        }
        assert_eq!(
            from_value::<Redrive>(again).expect("a redrive").progress(),
            "RUNNING: round 2: 3 of 10 sent, 7 to come; in all rounds: 5 sent, 3 resolved, 1 failed, 1 in flight"
        );
    }

    #[test]
    fn redrives_are_a_table() {
        let page = json!({"items": [redrive("RUNNING"), redrive("DONE")], "next": null});
        insta::assert_snapshot!("redrive_list", list(&from_value(page).expect("a page"), &View::FILE));
        assert_eq!(list(&Page::of(vec![]), &View::FILE), "no redrives");
    }

    #[test]
    fn a_redrive_says_why_it_stopped() {
        insta::assert_snapshot!(
            "redrive_show",
            detail(&from_value(redrive("STOPPED")).expect("a redrive"), &View::FILE)
        );
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
        let few = json!({"preview": true, "matching": 3, "replayable": 2, "over_limit": 1, "awaited": 1, "ended": 2, "groups": []});
        assert_eq!(
            preview(&from_value(few).expect("a preview"), &View::FILE),
            "3 match, 2 of them can be replayed; 1 were replayed too often (--force takes them all the same); 1 are still \
             waited for; 2 are over, and a replay of them changes nothing"
        );
    }
}
