//! Pure: redrives for people.

use std::fmt::Write as _;

use admin_api::dead_letters::Filter;
use admin_api::redrives::{Preview, RedriveStatus, RedriveView};
use cli::table::{Column, left, removable, right, time, truncatable};
use cli::text::{fields, one_line};
use cli::view::View;
use serde_json::json;

use crate::admin::Page;
use crate::operator::dead_letter::group::group_table;
use crate::operator::dead_letter::replay_value::values_text;

/// Explains a round that is not the first; empty for the first.
pub fn round(redrive: &RedriveView) -> String {
    match redrive.round {
        ..=1 => String::new(),
        round => format!(
            "\nround {round} replays what matched at its start, which includes dead letters that are newer than round 1"
        ),
    }
}

/// Summarises status and progress in one line.
pub fn progress(redrive: &RedriveView) -> String {
    let RedriveView { status, sent, resolved, in_vain, failed, in_flight, remaining, .. } = redrive;
    let in_vain = match in_vain {
        0 => String::new(),
        in_vain => format!(" ({in_vain} of them changed nothing: their sagas had ended)"),
    };
    let counts =
        format!("{sent} replayed, {resolved} resolved{in_vain}, {failed} failed, {in_flight} in flight");
    if redrive.round <= 1 {
        return format!("{status}: {counts}, {remaining} remaining");
    }
    let RedriveView { round, round_sent, round_matching, .. } = redrive;
    if *status == RedriveStatus::Stopped && *round_sent == 0 {
        return format!(
            "{status} again: round {round} replayed nothing, {remaining} remaining; all rounds: {counts}"
        );
    }
    format!(
        "{status}: round {round}: {round_sent} of {round_matching} replayed, {remaining} remaining; all rounds: {counts}"
    )
}

fn filter_text(filter: &Filter) -> String {
    one_line(&json!(filter))
}

const COLUMNS: [Column<RedriveView>; 9] = [
    left("redrive", |redrive| redrive.id.to_string()),
    left("status", |redrive| redrive.status.to_string()),
    truncatable(left("filter", |redrive| filter_text(&redrive.filter))),
    removable(2, left("operator", |redrive| redrive.operator.clone())),
    removable(3, right("matching", |redrive| redrive.matching.to_string())),
    right("resolved", |redrive| redrive.resolved.to_string()),
    right("failed", |redrive| redrive.failed.to_string()),
    right("remaining", |redrive| redrive.remaining.to_string()),
    removable(1, time("started", |redrive| Some(redrive.created_at))),
];

pub fn list(page: &Page<RedriveView>, view: &View) -> String {
    page.text("no redrives", &COLUMNS, view)
}

pub fn detail(redrive: &RedriveView, view: &View) -> String {
    let rate = redrive.rate.map_or_else(|| "unlimited rate".to_owned(), |rate| format!("{rate} per second"));
    let force = if redrive.force { ", forced" } else { "" };
    let lines = fields(&[
        ("status", Some(progress(redrive))),
        ("stopped because", redrive.stopped_because.clone()),
        ("filter", Some(filter_text(&redrive.filter))),
        ("matching", Some(format!("{} at the start", redrive.matching))),
        ("pace", Some(format!("canary of {}, then {rate}{force}", redrive.canary))),
        ("round", Some(redrive.round.to_string())),
        ("started by", Some(redrive.operator.clone())),
        ("reason", redrive.reason.clone()),
        ("started", Some(view.full_time(redrive.created_at))),
        ("last change", Some(view.full_time(redrive.updated_at))),
    ]);
    format!("redrive {}\n{lines}", redrive.id)
}

pub fn preview(preview: &Preview, view: &View) -> String {
    let Preview { matching, replayable, over_limit, replay_values, groups, .. } = preview;
    let mut text = format!("{matching} match, {replayable} of them can be replayed");
    if *over_limit > 0 {
        let _ = write!(text, "; three replays of {over_limit} have failed (--force replays them anyway)");
    }
    if *matching > 0 {
        let _ = write!(text, "; {}", values_text(replay_values));
    }
    if !groups.is_empty() {
        let _ = write!(text, "\n{}", group_table(groups, view));
    }
    text
}

#[cfg(test)]
pub mod tests {
    use serde_json::{from_value, json};

    use super::*;

    pub fn redrive(status: RedriveStatus) -> RedriveView {
        let redrive = json!({
            "id": "01890000-0000-7000-8000-0000000000cc", "status": status,
            "stopped_because": (status == RedriveStatus::Stopped).then_some("a canary failed again"),
            "filter": {"fingerprint": "9f86d081884c7d65"}, "canary": 1, "rate": 50, "force": false,
            "operator": "ada", "reason": "bank is back", "round": 1, "matching": 12, "sent": 5, "resolved": 3,
            "failed": 1, "in_flight": 1, "remaining": 7, "created_at": "2026-11-20T14:18:36Z",
            "updated_at": "2026-11-20T14:18:40Z",
        });
        from_value(redrive).expect("a redrive")
    }

    #[test]
    fn round_that_stops_before_its_first_replay_has_the_counts_of_all() {
        let stopped = redrive(RedriveStatus::Stopped);
        let stopped = RedriveView { round: 2, round_sent: 0, round_matching: 7, ..stopped };
        assert_eq!(
            progress(&stopped),
            "STOPPED again: round 2 replayed nothing, 7 remaining; all rounds: 5 replayed, 3 resolved, 1 failed, 1 in flight"
        );
    }

    #[test]
    fn progress_of_a_later_round_has_its_own_numbers() {
        let running = redrive(RedriveStatus::Running);
        let running = RedriveView { round: 2, round_sent: 3, round_matching: 10, ..running };
        assert_eq!(
            progress(&running),
            "RUNNING: round 2: 3 of 10 replayed, 7 remaining; all rounds: 5 replayed, 3 resolved, 1 failed, 1 in flight"
        );
    }

    #[test]
    fn redrives_are_a_table() {
        let page = [RedriveStatus::Running, RedriveStatus::Done].map(redrive).into_iter().collect();
        insta::assert_snapshot!("redrive_list", list(&page, &View::FILE));
    }

    #[test]
    fn detail_of_a_stopped_redrive_names_the_cause() {
        insta::assert_snapshot!("redrive_show", detail(&redrive(RedriveStatus::Stopped), &View::FILE));
    }

    #[test]
    fn preview_counts_what_is_left_out() {
        let few = json!({"preview": true, "matching": 3, "replayable": 2, "over_limit": 1, "awaited": 1, "ended": 2});
        assert_eq!(
            preview(&from_value(few).expect("a preview"), &View::FILE),
            "3 match, 2 of them can be replayed; three replays of 1 have failed (--force replays them anyway); 1 are awaited; \
             a replay of 2 changes nothing, as their sagas no longer wait"
        );
    }
}
