//! Shell: where sagas and dead letters stand, at a glance: counted by what is indexed, and what has ended only if that is
//! soon done.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::overview::{DeadLettersLook, GRACE, GroupLook, OldestSaga, SagasLook};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decider::Decider as _;
use saga_core::query::{FoundRow, Query};
use saga_engine::store::{Store, StoreFault};
use tokio::time::timeout;

use crate::dead_letter::filter::{Filter, Wanted};
use crate::dead_letter::grouping::{self, DeadLetterGroup};
use crate::dead_letter::view::DeadLetterView;
use crate::rows::parsed;

/// A count that nobody needs takes no longer. What is no longer waited for is interrupted.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);

/// What is open is worth what so many of the oldest are: each look reads all of them.
const MOST_WEIGHED: usize = 1_000;

/// Money in minor units, by currency.
pub(crate) type OpenAmounts = BTreeMap<&'static str, i64>;

/// How many rows a query finds; `None` when that cannot be told soon: then nobody waits for it.
pub(crate) async fn counted(
    store: &dyn Store,
    kind: &'static str,
    by: &'static str,
    query: Query,
) -> Option<u64> {
    let counts = timeout(COUNTED_WITHIN, store.counts(kind, by, query)).await.ok()?.ok()?;
    Some(counts.values().sum())
}

/// Where the sagas stand.
///
/// # Errors
/// When the store fails.
pub(crate) async fn sagas(store: &dyn Store, now: Timestamp) -> Result<SagasLook, StoreFault> {
    let all = timeout(COUNTED_WITHIN, store.counts(SagaView::KIND, "status", Query::default()));
    let oldest = store.find(SagaView::KIND, Query { limit: 1, ..under_way() });
    let (all, oldest, overdue) = tokio::join!(all, oldest, overdue(store, now));
    let (by_status, ended_counted) = match all {
        Ok(all) => (all?, true),
        Err(_) => (store.counts(SagaView::KIND, "status", under_way()).await?, false),
    };
    Ok(SagasLook { by_status, ended_counted, overdue: overdue?, oldest: oldest?.first().map(oldest_saga) })
}

/// What has not ended.
fn under_way() -> Query {
    Query { equals: vec![("finished", 0.into())], ..Query::default() }
}

/// What the sagas that have not ended are worth. One that cannot be read, or whose order was not heard of yet, is left out.
///
/// # Errors
/// When the store fails.
pub(crate) async fn open_amounts(store: &dyn Store) -> Result<OpenAmounts, StoreFault> {
    let oldest = store.find(SagaView::KIND, Query { limit: MOST_WEIGHED, ..under_way() }).await?;
    let mut amounts = OpenAmounts::new();
    for total in oldest.iter().filter_map(|row| parsed::<SagaView>(row).ok()?.total) {
        let amount = amounts.entry(total.currency.code()).or_default();
        *amount = amount.saturating_add(total.amount_minor);
    }
    Ok(amounts)
}

/// How many are overdue.
async fn overdue(store: &dyn Store, now: Timestamp) -> Result<u64, StoreFault> {
    let mut query = Query::default();
    only_overdue(&mut query, now);
    Ok(store.counts(SagaView::KIND, "status", query).await?.values().sum())
}

/// Leaves of the sagas that a query finds those that should have ended a while ago. What has failed is told apart.
pub fn only_overdue(query: &mut Query, now: Timestamp) {
    let can_be = SagaStatus::ALL.iter().filter(|status| status.can_be_overdue());
    query.one_of.push(("status", can_be.map(|status| status.as_str().into()).collect()));
    query.equals.push(("finished", 0.into()));
    query.below.push(("deadline", late(now).as_microsecond().into()));
}

/// Whose deadline was before this is overdue.
pub fn late(now: Timestamp) -> Timestamp {
    now.saturating_sub(GRACE).unwrap_or(now)
}

/// One that cannot be read is known by its id alone.
fn oldest_saga(row: &FoundRow) -> OldestSaga {
    let view = parsed::<SagaView>(row).ok();
    let waits = view.as_ref().map(WaitsOf::of).unwrap_or_default();
    OldestSaga {
        id: row.id.clone(),
        status: view
            .as_ref()
            .map_or_else(|| "(damaged)".to_owned(), |view| view.status().as_str().to_owned()),
        waits_for: view.and_then(|view| Some(view.remaining().into_iter().next()?.step)),
        waits_since: waits.since,
        waits_until: waits.until,
    }
}

/// Since when a saga waits, and for how long it may.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaitsOf {
    /// When its last fact was said; `None` once it has ended.
    pub(crate) since: Option<Timestamp>,
    /// When its order gives up; `None` when nothing ends the waiting.
    pub(crate) until: Option<Timestamp>,
}

impl WaitsOf {
    /// How this saga waits.
    pub(crate) fn of(view: &SagaView) -> Self {
        let status = view.status();
        let has_deadline = match status {
            SagaStatus::Started | SagaStatus::InProgress | SagaStatus::DeadLettered => true,
            SagaStatus::Unknown
            | SagaStatus::Completed
            | SagaStatus::TimedOut
            | SagaStatus::Compensating
            | SagaStatus::Compensated
            | SagaStatus::Failed
            | SagaStatus::ResolvedManually => false,
        };
        Self {
            since: view.last_fact_at().filter(|_| !status.is_terminal()),
            until: view.deadline.filter(|_| has_deadline),
        }
    }
}

/// What is parked, with so many groups, the largest.
///
/// # Errors
/// When the store fails.
pub(crate) async fn dead_letters(
    store: &dyn Store,
    most_groups: usize,
    now: Timestamp,
) -> Result<DeadLettersLook, StoreFault> {
    let statuses = vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying];
    let open = Wanted { statuses, ..Wanted::default() };
    let pending = Wanted::pending(Filter::default());
    let counts = store.counts(DeadLetterView::KIND, "status", open.query());
    let groups = grouping::groups(store, &pending, most_groups, now);
    let (counts, groups): (Result<BTreeMap<_, _>, _>, _) = tokio::join!(counts, groups);
    let (counts, groups) = (counts?, groups?);
    let of = |status: DeadLetterStatus| counts.get(status.as_str()).copied().unwrap_or(0);
    Ok(DeadLettersLook {
        pending: of(DeadLetterStatus::Pending),
        replaying: of(DeadLetterStatus::Replaying),
        groups: groups.into_iter().map(group_look).collect(),
    })
}

fn group_look(group: DeadLetterGroup) -> GroupLook {
    GroupLook {
        fingerprint: group.fingerprint,
        count: group.count,
        service: group.service,
        step: group.step,
        reason: group.reason,
        foreign: group.origin == DeadLetterOrigin::Foreign,
        newest: group.sample,
        newest_at: group.last_failed_at,
        awaited: group.worth.awaited,
        ended: group.worth.ended,
        first_until: group.worth.first_until,
        last_until: group.worth.last_until,
    }
}
