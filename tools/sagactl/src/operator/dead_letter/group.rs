//! Pure: dead letters that failed in the same way, for people.

use jiff::Timestamp;
use serde::Deserialize;

use crate::output::text::{moment, or_nothing, short};
use crate::output::{Column, left, right, table};

/// What is shown of a reason in a table.
const LONGEST_REASON: usize = 60;

/// Groups, the largest first.
#[derive(Debug, Deserialize)]
pub struct Groups {
    groups: Vec<DeadLetterGroup>,
}

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
}

const COLUMNS: [Column<DeadLetterGroup>; 9] = [
    left("fingerprint", |group| group.fingerprint.clone()),
    right("count", |group| group.count.to_string()),
    left("service", |group| group.service.clone()),
    left("step", |group| group.step.clone()),
    left("type", |group| or_nothing(group.message_type.as_ref())),
    left("first failed", |group| moment(group.first_failed_at)),
    left("last failed", |group| moment(group.last_failed_at)),
    left("sample", |group| group.sample.clone()),
    left("reason", |group| short(&group.reason, LONGEST_REASON)),
];

pub fn list(Groups { groups }: &Groups) -> String {
    if groups.is_empty() { "no dead letters".to_owned() } else { group_table(groups) }
}

/// Groups as a table.
pub fn group_table(groups: &[DeadLetterGroup]) -> String {
    table(&COLUMNS, groups)
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
            "last_failed_at": "2026-11-20T14:18:37Z", "sample": "01890000-0000-7000-8000-000000000001",
        });
        let groups = from_value(json!({"groups": [group]}));
        insta::assert_snapshot!("dlq_groups", list(&groups.expect("groups")));
        assert_eq!(list(&Groups { groups: vec![] }), "no dead letters");
    }
}
