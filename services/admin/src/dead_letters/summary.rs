//! Shell: counts of open dead letters, with the largest groups.

use std::collections::BTreeMap;

use admin_api::dead_letters::{DeadLetterGroup, Filter};
use admin_api::overview::{DeadLetterSummary, GroupSummary, OverdueReplays};
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decider::Decider as _;
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;

use super::events::Replay;
use super::filter::Selection;
use super::view::DeadLetterView;
use super::{grouping, reading};

/// Time in which a replay ends: its request and then its message are retried, each for five minutes at most.
const MAX_REPLAY_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Replays that are checked for their age, those with the oldest failures.
const MAX_REPLAYS_CHECKED: usize = 200;

/// Overdue replays of a service that are named.
const MAX_REPLAYS_NAMED: usize = 10;

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
    let replaying = of(DeadLetterStatus::Replaying);
    Ok(DeadLetterSummary {
        pending: of(DeadLetterStatus::Pending),
        replaying,
        overdue_replays: if replaying == 0 { vec![] } else { overdue_replays(store, now).await? },
        groups: groups.into_iter().map(group_summary).collect(),
    })
}

async fn overdue_replays(store: &dyn Queries, now: Timestamp) -> Result<Vec<OverdueReplays>, StoreFault> {
    let before = now.saturating_sub(MAX_REPLAY_AGE).unwrap_or(now);
    let statuses = vec![DeadLetterStatus::Replaying];
    // Each failed before it was replayed.
    let replaying = Selection { statuses, before: Some(before), ..Selection::default() };
    let found = reading::find_readable(store, &replaying, false, MAX_REPLAYS_CHECKED).await?;
    let mut by_service = BTreeMap::new();
    let forced = Replay { force: true, ..Replay::default() };
    for (id, dead_letter) in &found {
        let requested_at = dead_letter.requested_at();
        let Some(report) = dead_letter.report().filter(|_| requested_at < before) else { continue };
        let service = report.service.clone();
        let overdue = by_service.entry(service.clone()).or_insert(OverdueReplays {
            service,
            count: 0,
            since: requested_at,
            repeatable: vec![],
            edited: None,
        });
        overdue.count += 1;
        overdue.since = overdue.since.min(requested_at);
        if !dead_letter.may_be_replayed(&forced) {
            overdue.edited = Some(*id);
        } else if overdue.repeatable.len() < MAX_REPLAYS_NAMED {
            overdue.repeatable.push(*id);
        }
    }
    Ok(by_service.into_values().collect())
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
        oldest_at: group.first_failed_at,
        awaited: group.replay_values.awaited,
        ended: group.replay_values.ended,
        cancelled: group.replay_values.cancelled,
        confirmed: group.replay_values.confirmed,
        first_until: group.replay_values.first_until,
        last_until: group.replay_values.last_until,
    }
}
