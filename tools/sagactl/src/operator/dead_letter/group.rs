//! Pure: dead letters that failed in the same way, for people.

use jiff::Timestamp;
use serde::Deserialize;

use super::view::NONE;
use super::worth::WorthOfMany;
use crate::admin::Page;
use cli::text::or_none;
use cli::{Column, View, left, removable, right, table, time, truncatable};

/// Dead letters with one fingerprint.
#[derive(Debug, Deserialize)]
pub struct DeadLetterGroup {
    fingerprint: String,
    count: u64,
    service: String,
    step: String,
    message_type: Option<String>,
    reason: String,
    first_failed_at: Timestamp,
    last_failed_at: Timestamp,
    sample: String,
    #[serde(flatten)]
    worth: WorthOfMany,
}

const COLUMNS: [Column<DeadLetterGroup>; 12] = [
    left("fingerprint", |group| group.fingerprint.clone()),
    right("count", |group| group.count.to_string()),
    right("waited for", |group| group.worth.awaited.to_string()),
    removable(6, time("first until", |group| group.worth.first_until)),
    removable(1, time("last until", |group| group.worth.last_until)),
    removable(4, left("service", |group| group.service.clone())),
    left("step", |group| group.step.clone()),
    removable(3, left("type", |group| or_none(group.message_type.as_ref()))),
    removable(1, time("first failed", |group| Some(group.first_failed_at))),
    removable(5, time("last failed", |group| Some(group.last_failed_at))),
    removable(2, left("sample", |group| group.sample.clone())),
    truncatable(left("reason", |group| group.reason.clone())),
];

pub fn list(page: &Page<DeadLetterGroup>, view: &View) -> String {
    page.shown(NONE, &COLUMNS, view)
}

/// Groups as a table.
pub fn group_table(groups: &[DeadLetterGroup], view: &View) -> String {
    table(&COLUMNS, groups, view)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn groups_are_a_table() {
        let group = json!({
            "fingerprint": "9f86d081884c7d65", "count": 2, "service": "payment", "step": "payment-processing",
            "message_type": "StockReserved", "reason": "injected", "first_failed_at": "2026-11-20T14:18:36Z",
            "awaited": 1, "ended": 1, "first_until": "2026-11-20T14:19:36Z", "last_until": "2026-11-20T14:23:36Z",
            "last_failed_at": "2026-11-20T14:18:37Z", "sample": "01890000-0000-7000-8000-000000000001",
        });
        let groups = from_value(json!({"items": [group]}));
        insta::assert_snapshot!("dlq_groups", list(&groups.expect("groups"), &View::FILE));
        let none = list(&Page::of(vec![]), &View::FILE);
        assert_eq!(none, "no dead letters in these statuses (--status ALL shows all)");
    }
}
