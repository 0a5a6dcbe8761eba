//! Shell: counts of sagas by indexed fields. Ended sagas are counted only if that is fast.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admin_api::overview::{OldestSaga, SagaSummary, StepDuration};
use contract::money::{Money, total_by_currency};
use contract::saga::{SagaStatus, StepRole, role_of, steps};
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::{FoundRow, Query};
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;
use tokio::time::timeout;

use super::overdue::GRACE;
use super::sums::{SagaSums, WaitingOrders};
use crate::rows::parsed;

/// Time limit of a count that a response can do without. The store interrupts it.
const COUNT_TIMEOUT: Duration = Duration::from_millis(250);

/// Number of steps that sagas may wait for, at most.
const MAX_STEPS: usize = 100;

/// Number of sagas, oldest first, whose amounts are summed. Each row is read.
const MAX_SUMMED: usize = 1_000;

/// Counts rows; `None` when that takes long.
pub(crate) async fn count_soon(
    store: &dyn Queries,
    kind: &'static str,
    by: &'static str,
    query: Query,
) -> Option<u64> {
    let counts = timeout(COUNT_TIMEOUT, store.counts(kind, by, query)).await.ok()?.ok()?;
    Some(counts.values().sum())
}

/// Counts sagas, and measures the steps of the newest ones, of which each row is read.
pub(crate) async fn summary(
    store: &dyn Queries,
    newest: usize,
    now: Timestamp,
) -> Result<SagaSummary, StoreFault> {
    let all = timeout(COUNT_TIMEOUT, store.counts(SagaView::KIND, "status", Query::default()));
    let oldest = store.find(SagaView::KIND, Query { limit: 1, ..unfinished() });
    let overdue = store.counts(SagaView::KIND, "status", overdue(now));
    let all_steps = steps().map(FieldValue::from).collect();
    let waiting = Query { one_of: vec![("next_step", all_steps)], ..Query::default() };
    let waiting = store.counts(SagaView::KIND, "next_step", waiting);
    let with_deadline = SagaStatus::ALL.iter().filter(|status| status.has_deadline());
    let coming = first_deadlines(store, waiting_for(steps(), with_deadline.copied()), now);
    let newest = async {
        let query = Query { limit: newest, descending: true, ..Query::default() };
        if newest == 0 { Ok(vec![]) } else { store.find(SagaView::KIND, query).await }
    };
    let (all, oldest, overdue, waiting, coming, newest) =
        tokio::join!(all, oldest, overdue, waiting, coming, newest);
    let next_deadline = coming?.into_values().min();
    let (by_status, ended_counted) = match all {
        Ok(all) => (all?, true),
        Err(_) => (store.counts(SagaView::KIND, "status", unfinished()).await?, false),
    };
    let oldest = oldest?.first().map(oldest_saga);
    let steps = step_durations(&newest?);
    let (overdue, waiting) = (overdue?.values().sum(), waiting?);
    Ok(SagaSummary { by_status, ended_counted, overdue, waiting, next_deadline, oldest, steps })
}

fn step_durations(newest: &[FoundRow]) -> Vec<StepDuration> {
    let mut by_step: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for view in newest.iter().filter_map(|row| parsed::<SagaView>(row).ok()) {
        for (step, took) in view.step_durations() {
            // Clocks differ.
            by_step.entry(step).or_default().push(u64::try_from(took.as_micros()).unwrap_or(0));
        }
    }
    steps().filter_map(|step| duration_of(step, by_step.remove(step)?)).collect()
}

fn duration_of(step: &str, mut micros: Vec<u64>) -> Option<StepDuration> {
    micros.sort_unstable();
    let percentile =
        |percent: usize| micros.get((micros.len() * percent).div_ceil(100).checked_sub(1)?).copied();
    let (p50_us, p99_us) = (percentile(50)?, percentile(99)?);
    Some(StepDuration { step: step.to_owned(), sagas: micros.len() as u64, p50_us, p99_us })
}

pub(crate) fn unfinished() -> Query {
    Query { equals: vec![("finished", 0.into())], ..Query::default() }
}

pub(crate) fn in_status(status: SagaStatus) -> Query {
    Query { equals: vec![("status", status.as_str().into())], ..Query::default() }
}

/// Finds sagas in these statuses that wait for these steps.
fn waiting_for(
    steps: impl IntoIterator<Item = &'static str>,
    statuses: impl IntoIterator<Item = SagaStatus>,
) -> Query {
    let steps = steps.into_iter().map(FieldValue::from).collect();
    let statuses = statuses.into_iter().map(|status| status.as_str().into()).collect();
    Query { one_of: vec![("next_step", steps), ("status", statuses)], limit: MAX_STEPS, ..Query::default() }
}

/// Reads the earliest deadline that is not past, of the sagas that a query finds, by the step that they wait for.
async fn first_deadlines(
    store: &dyn Queries,
    query: Query,
    now: Timestamp,
) -> Result<BTreeMap<String, Timestamp>, StoreFault> {
    let coming = Query { from: vec![("deadline", now.as_microsecond().into())], ..query };
    let groups = store.groups(SagaView::KIND, "next_step", "deadline", coming).await?;
    let first = groups.into_iter();
    let first = first.filter_map(|group| Some((group.value, Timestamp::from_microsecond(group.first).ok()?)));
    Ok(first.collect())
}

/// Reads the orders that wait for these steps, by step, without those whose message is a dead letter.
pub(crate) async fn waiting_orders(
    store: &dyn Queries,
    wanted: &BTreeSet<&'static str>,
    now: Timestamp,
) -> Result<BTreeMap<&'static str, WaitingOrders>, StoreFault> {
    let waiting = |steps: &[&'static str]| {
        let statuses =
            [SagaStatus::Started, SagaStatus::InProgress, SagaStatus::TimedOut, SagaStatus::Compensating];
        waiting_for(steps.iter().copied(), statuses)
    };
    let wanted: Vec<_> = wanted.iter().copied().collect();
    let counts = store.counts(SagaView::KIND, "next_step", waiting(&wanted));
    let (counts, deadlines) = tokio::join!(counts, first_deadlines(store, waiting(&wanted), now));
    let (counts, deadlines) = (counts?, deadlines?);
    let mut found = BTreeMap::new();
    for step in wanted {
        let Some(count) = counts.get(step).copied() else { continue };
        let mut orders = WaitingOrders { count, ..WaitingOrders::default() };
        if role_of(step) == StepRole::Forward {
            let sums = sums(store, waiting(&[step])).await?;
            orders.first_deadline = deadlines.get(step).copied();
            (orders.amounts, orders.amounts_partial) = (sums.amounts, sums.is_partial);
        }
        found.insert(step, orders);
    }
    Ok(found)
}

/// Finds sagas that wait for a dead letter of a step.
pub(crate) fn waiting_for_dead_letter(step: &str) -> Query {
    let statuses = [SagaStatus::DeadLettered, SagaStatus::CompensationStuck];
    let statuses = statuses.iter().map(|status| status.as_str().into()).collect();
    let equals = vec![("next_step", step.into()), ("finished", 0.into())];
    Query { equals, one_of: vec![("status", statuses)], ..Query::default() }
}

pub(crate) fn overdue(now: Timestamp) -> Query {
    let mut query = Query::default();
    only_overdue(&mut query, now);
    query
}

/// Restricts a query to sagas past their deadline and the grace period, without those whose compensation is stuck.
pub(crate) fn only_overdue(query: &mut Query, now: Timestamp) {
    let can_be = SagaStatus::ALL.iter().filter(|status| status.can_be_overdue());
    query.one_of.push(("status", can_be.map(|status| status.as_str().into()).collect()));
    query.equals.push(("finished", 0.into()));
    query.below.push(("deadline", overdue_before(now).as_microsecond().into()));
}

/// Deadlines before this time are overdue.
pub(crate) fn overdue_before(now: Timestamp) -> Timestamp {
    now.saturating_sub(GRACE).unwrap_or(now)
}

/// Sums the oldest sagas that a query finds. Damaged sagas, and those without an order so far, are left out.
pub(crate) async fn sums(store: &dyn Queries, query: Query) -> Result<SagaSums, StoreFault> {
    let found = store.find(SagaView::KIND, Query { limit: MAX_SUMMED + 1, ..query }).await?;
    let read = &found[..found.len().min(MAX_SUMMED)];
    let totals: Vec<Money> = read.iter().filter_map(|row| parsed::<SagaView>(row).ok()?.total).collect();
    Ok(SagaSums {
        is_partial: found.len() > totals.len(),
        amounts: total_by_currency(totals),
        oldest: found.first().map(|row| row.id.clone()),
        oldest_at: found.first().map(|row| row.created_at),
    })
}

fn oldest_saga(row: &FoundRow) -> OldestSaga {
    let view = parsed::<SagaView>(row).ok();
    let wait = view.as_ref().map(Wait::of).unwrap_or_default();
    OldestSaga {
        id: row.id.clone(),
        status: view
            .as_ref()
            .map_or_else(|| "(damaged)".to_owned(), |view| view.status().as_str().to_owned()),
        waits_for: view.and_then(|view| Some(view.remaining().into_iter().next()?.step)),
        waits_since: wait.since,
        waits_until: wait.until,
    }
}

/// The current wait of a saga.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wait {
    /// Time of the last fact; `None` once the saga has ended.
    pub(crate) since: Option<Timestamp>,
    /// Deadline of the order; `None` when nothing ends the wait.
    pub(crate) until: Option<Timestamp>,
}

impl Wait {
    pub(crate) fn of(view: &SagaView) -> Self {
        let status = view.status();
        Self {
            since: view.last_progress_at().filter(|_| !status.is_terminal()),
            until: view.deadline.filter(|_| status.has_deadline()),
        }
    }
}
