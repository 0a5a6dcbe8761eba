//! Shell: replay values of dead letters, looked up beside the saga view.

use std::collections::{BTreeMap, BTreeSet};

use admin_api::dead_letters::{DeadLetterItem, Filter};
use admin_api::replay_value::{ReplayValue, ReplayValues};
use contract::money::Money;
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{Join, Query};
use saga_engine::store::StoreFault;
use saga_engine::store::roles::Queries;
use uuid::Uuid;

use super::events::Replay;
use super::filter::Selection;
use super::reading::{find, readable};
use super::view::{DeadLetterView, Report};
use crate::rows::{id_of, parsed};
use crate::sagas::summary::sums;

/// Rows of one query with a text filter.
const CHUNK: usize = 500;

/// Maximum number of causes that are checked for foreign messages. Further causes count as not foreign.
const MAX_CAUSES: usize = 500;

/// Status and deadline of sagas, without damaged ones.
type Sagas = BTreeMap<Uuid, (SagaStatus, Option<Timestamp>)>;

/// Sets the replay value of each item that is not resolved.
pub(crate) async fn set_values(
    store: &dyn Queries,
    items: &mut [DeadLetterItem],
    now: Timestamp,
) -> Result<(), StoreFault> {
    let sagas = sagas(store, items.iter().filter_map(|item| item.saga).collect()).await?;
    for item in items.iter_mut().filter(|item| item.status != DeadLetterStatus::Resolved) {
        item.replay_value = Some(value((item.origin, &item.step, item.saga), &sagas, now));
    }
    Ok(())
}

/// Finds ids of at most `limit` dead letters that accept this replay and that a saga waits for, oldest failure first.
pub(crate) async fn find_awaited_for(
    store: &dyn Queries,
    wanted: &Selection,
    replay: &Replay,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Uuid>, StoreFault> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = find(store, wanted, false, after.as_ref(), CHUNK).await?;
        let here = found.dead_letters.iter().filter(|(_, dead_letter)| dead_letter.may_be_replayed(replay));
        let here: Vec<_> = here.filter_map(|(id, dead_letter)| Some((*id, dead_letter.report()?))).collect();
        let sagas = sagas(store, here.iter().filter_map(|(_, report)| report.saga).collect()).await?;
        let is_awaited =
            |report: &Report| value((report.origin, &report.step, report.saga), &sagas, now).awaited;
        ids.extend(here.into_iter().filter(|(_, report)| is_awaited(report)).map(|(id, _)| id));
        after = found.next;
        if ids.len() >= limit || after.is_none() {
            ids.truncate(limit);
            return Ok(ids);
        }
    }
}

/// Sums the replay values of the wanted dead letters, by cause.
pub(crate) async fn by_cause(
    store: &dyn Queries,
    wanted: &Selection,
    now: Timestamp,
) -> Result<BTreeMap<String, ReplayValues>, StoreFault> {
    let mut values = BTreeMap::<String, ReplayValues>::new();
    if wanted.filter.text.is_none() {
        let join = Join {
            by: "fingerprint",
            and: "step",
            through: "saga",
            kind: SagaView::KIND,
            their: "status",
            range: "deadline",
            after: now.as_microsecond(),
        };
        let mut of_no_saga = BTreeSet::new();
        for counted in store.joined(DeadLetterView::KIND, join, wanted.query()).await? {
            values.entry(counted.by.clone()).or_default().add_counted(&counted);
            of_no_saga.extend(counted.their.is_none().then_some(counted.by));
        }
        for cause in foreign_causes(store, wanted, of_no_saga).await? {
            values.entry(cause).and_modify(|value| *value = value.of_foreign());
        }
        return Ok(values);
    }
    let mut after = None;
    loop {
        let found = find(store, wanted, false, after.as_ref(), CHUNK).await?;
        let reports = || found.dead_letters.iter().filter_map(|(_, dead_letter)| dead_letter.report());
        let sagas = sagas(store, reports().filter_map(|report| report.saga).collect()).await?;
        for report in reports() {
            let cause = values.entry(report.fingerprint.clone()).or_default();
            cause.add(value((report.origin, &report.step, report.saga), &sagas, now));
        }
        after = found.next;
        if after.is_none() {
            return Ok(values);
        }
    }
}

/// Sums the totals of the cancelled orders that pending dead letters of this cause belong to, by currency. `None` if there are
/// too many to read.
pub(crate) async fn cancelled_amounts(
    store: &dyn Queries,
    fingerprint: &str,
) -> Result<Option<Vec<Money>>, StoreFault> {
    let filter = Filter { fingerprint: Some(fingerprint.to_owned()), ..Filter::default() };
    let found = find(store, &Selection::pending(filter), false, None, CHUNK).await?;
    if found.next.is_some() {
        return Ok(None);
    }
    let reports = found.dead_letters.iter().filter_map(|(_, dead_letter)| dead_letter.report());
    let orders: BTreeSet<Uuid> = reports.filter_map(|report| report.saga).collect();
    let orders = orders.into_iter().map(|order| FieldValue::Text(order.to_string())).collect();
    let cancelled = SagaStatus::ALL.iter().filter(|status| status.is_cancelled());
    let cancelled = cancelled.map(|status| status.as_str().into()).collect();
    let query = Query { one_of: vec![("id", orders), ("status", cancelled)], ..Query::default() };
    Ok(Some(sums(store, query).await?.amounts))
}

/// Finds the causes of foreign messages. All dead letters of a cause have the same origin, so that a sample is enough.
async fn foreign_causes(
    store: &dyn Queries,
    wanted: &Selection,
    of_no_saga: BTreeSet<String>,
) -> Result<Vec<String>, StoreFault> {
    if of_no_saga.is_empty() {
        return Ok(vec![]);
    }
    let limit = of_no_saga.len().min(MAX_CAUSES);
    let causes = of_no_saga.into_iter().take(limit).map(FieldValue::Text).collect();
    let query = wanted.query();
    let query = Query { one_of: [query.one_of, vec![("fingerprint", causes)]].concat(), limit, ..query };
    let latest = store.groups(DeadLetterView::KIND, "fingerprint", "failed_at", query).await?;
    let ids = latest.into_iter().map(|group| FieldValue::Text(group.latest)).collect();
    let query = Query { one_of: vec![("id", ids)], limit, ..Query::default() };
    let samples = store.find(DeadLetterView::KIND, query).await?;
    let sample = |row| readable(row).ok()?.1.report().cloned();
    let foreign =
        samples.iter().filter_map(sample).filter(|report| report.origin == DeadLetterOrigin::Foreign);
    Ok(foreign.map(|report| report.fingerprint).collect())
}

fn value(
    (origin, step, saga): (DeadLetterOrigin, &str, Option<Uuid>),
    sagas: &Sagas,
    now: Timestamp,
) -> ReplayValue {
    let (status, deadline) = saga
        .and_then(|saga| sagas.get(&saga))
        .map_or((None, None), |(status, deadline)| (Some(*status), *deadline));
    ReplayValue::of(origin, step, status, deadline, now)
}

async fn sagas(store: &dyn Queries, ids: BTreeSet<Uuid>) -> Result<Sagas, StoreFault> {
    let limit = ids.len();
    let ids = ids.into_iter().map(|id| FieldValue::Text(id.to_string())).collect();
    let query = Query { one_of: vec![("id", ids)], limit, ..Query::default() };
    let mut sagas = Sagas::new();
    for row in store.find(SagaView::KIND, query).await? {
        if let (Ok(id), Ok(view)) = (id_of(&row), parsed::<SagaView>(&row)) {
            sagas.insert(id, (view.status(), view.deadline));
        }
    }
    Ok(sagas)
}
