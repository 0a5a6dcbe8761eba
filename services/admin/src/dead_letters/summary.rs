//! Shell: counts of open dead letters, with the largest groups.

use std::collections::BTreeMap;

use admin_api::dead_letters::{DeadLetterGroup, Filter};
use admin_api::overview::{DeadLetterSummary, GroupSummary};
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decider::Decider as _;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;

use super::filter::Selection;
use super::grouping;
use super::view::DeadLetterView;

pub(crate) async fn summary(
    store: &dyn Queries,
    max_groups: usize,
    now: Timestamp,
) -> Result<DeadLetterSummary, StoreFault> {
    let statuses = vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying];
    let open = Selection { statuses, ..Selection::default() };
    let pending = Selection::pending(Filter::default());
    let counts = store.counts(DeadLetterView::KIND, "status", open.query());
    let groups = grouping::groups(store, &pending, max_groups, now);
    let (counts, groups): (Result<BTreeMap<_, _>, _>, _) = tokio::join!(counts, groups);
    let (counts, groups) = (counts?, groups?);
    let of = |status: DeadLetterStatus| counts.get(status.as_str()).copied().unwrap_or(0);
    Ok(DeadLetterSummary {
        pending: of(DeadLetterStatus::Pending),
        replaying: of(DeadLetterStatus::Replaying),
        groups: groups.into_iter().map(group_summary).collect(),
    })
}

fn group_summary(group: DeadLetterGroup) -> GroupSummary {
    GroupSummary {
        fingerprint: group.fingerprint,
        count: group.count,
        service: group.service,
        step: group.step,
        reason: group.reason,
        foreign: group.origin == DeadLetterOrigin::Foreign,
        newest: group.sample,
        newest_at: group.last_failed_at,
        awaited: group.replay_values.awaited,
        ended: group.replay_values.ended,
        cancelled: group.replay_values.cancelled,
        confirmed: group.replay_values.confirmed,
        first_until: group.replay_values.first_until,
        last_until: group.replay_values.last_until,
    }
}
