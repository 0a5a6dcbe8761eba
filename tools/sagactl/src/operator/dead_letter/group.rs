//! Pure: groups of dead letters for people.

use admin_api::dead_letters::DeadLetterGroup;
use cli::table::{Column, left, removable, right, table, time, truncatable};
use cli::text::or_none;
use cli::view::View;

use super::view::EMPTY;
use crate::admin::Page;

const COLUMNS: [Column<DeadLetterGroup>; 12] = [
    left("fingerprint", |group| group.fingerprint.clone()),
    right("count", |group| group.count.to_string()),
    right("awaited", |group| group.replay_values.awaited.to_string()),
    time("first until", |group| group.replay_values.first_until),
    removable(1, time("last until", |group| group.replay_values.last_until)),
    removable(4, left("service", |group| group.service.clone())),
    left("step", |group| group.step.clone()),
    removable(3, left("type", |group| or_none(group.message_type.as_ref()))),
    removable(1, time("first failed", |group| Some(group.first_failed_at))),
    removable(5, time("last failed", |group| Some(group.last_failed_at))),
    removable(2, left("sample", |group| group.sample.to_string())),
    removable(6, truncatable(left("reason", |group| group.reason.clone()))),
];

pub fn list(page: &Page<DeadLetterGroup>, view: &View) -> String {
    page.text(EMPTY, &COLUMNS, view)
}

pub fn group_table(groups: &[DeadLetterGroup], view: &View) -> String {
    table(&COLUMNS, groups, view)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn group() -> DeadLetterGroup {
        from_value(json!({
            "fingerprint": "9f86d081884c7d65", "count": 2, "service": "payment", "step": "payment-processing",
            "origin": "message", "message_type": "StockReserved", "reason": "injected",
            "awaited": 1, "ended": 1, "first_until": "2026-11-20T14:19:36Z", "last_until": "2026-11-20T14:23:36Z",
            "first_failed_at": "2026-11-20T14:18:36Z", "last_failed_at": "2026-11-20T14:18:37Z",
            "sample": "01890000-0000-7000-8000-000000000001",
        }))
        .expect("a group")
    }

    #[test]
    fn groups_are_a_table() {
        insta::assert_snapshot!("dlq_groups", list(&Page::from_iter([group()]), &View::FILE));
    }

    #[test]
    fn narrow_terminal_shows_until_when_a_replay_helps() {
        let text = list(&Page::from_iter([group()]), &View { width: Some(80), now: None });
        assert!(text.contains("first until") && text.contains("awaited"), "{text}");
    }
}
