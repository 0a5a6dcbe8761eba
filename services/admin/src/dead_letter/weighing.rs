//! Shell: what dead letters are worth now: looked up beside the view of their sagas.

use std::collections::{BTreeMap, BTreeSet};

use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{Join, Query};
use saga_engine::store::{Store, StoreFault};
use uuid::Uuid;

use super::filter::Wanted;
use super::item::DeadLetterItem;
use super::reading::{find, readable};
use super::view::DeadLetterView;
use super::worth::{Worth, WorthOfMany};
use crate::rows::{id_of, parsed};

/// Dead letters in one look while a text is looked for.
const CHUNK: usize = 500;

/// Causes that are looked at one by one; causes beyond that count as those of this system.
const MOST_CAUSES: usize = 500;

/// Where sagas stand, each with the deadline of its order. Those that cannot be read are left out.
type Sagas = BTreeMap<Uuid, (SagaStatus, Option<Timestamp>)>;

/// Writes down what each is worth, but for what is resolved: that is worth nothing any more.
pub(crate) async fn weigh(
    store: &dyn Store,
    items: &mut [DeadLetterItem],
    now: Timestamp,
) -> Result<(), StoreFault> {
    let sagas = sagas(store, items.iter().filter_map(|item| item.saga).collect()).await?;
    for item in items.iter_mut().filter(|item| item.status != DeadLetterStatus::Resolved) {
        item.worth = Some(worth((item.origin, &item.step, item.saga), &sagas, now));
    }
    Ok(())
}

/// What the wanted ones are worth, by cause.
pub(crate) async fn by_cause(
    store: &dyn Store,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<BTreeMap<String, WorthOfMany>, StoreFault> {
    let mut worths = BTreeMap::<String, WorthOfMany>::new();
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
            worths.entry(counted.by.clone()).or_default().add_counted(&counted);
            of_no_saga.extend(counted.their.is_none().then_some(counted.by));
        }
        for cause in of_strangers(store, wanted, of_no_saga).await? {
            worths.entry(cause).and_modify(|worth| *worth = worth.of_strangers());
        }
        return Ok(worths);
    }
    let mut after = None;
    loop {
        let found = find(store, wanted, false, after.as_ref(), CHUNK).await?;
        let said = || found.dead_letters.iter().filter_map(|(_, dead_letter)| dead_letter.said());
        let sagas = sagas(store, said().filter_map(|said| said.saga).collect()).await?;
        for said in said() {
            let cause = worths.entry(said.fingerprint.clone()).or_default();
            cause.add(worth((said.origin, &said.step, said.saga), &sagas, now));
        }
        after = found.next;
        if after.is_none() {
            return Ok(worths);
        }
    }
}

/// Of the causes whose dead letters belong to no saga, those that nobody of this system sent: the cause says which, as
/// what is wrong with a message that is none is no other's cause.
async fn of_strangers(
    store: &dyn Store,
    wanted: &Wanted,
    of_no_saga: BTreeSet<String>,
) -> Result<Vec<String>, StoreFault> {
    if of_no_saga.is_empty() {
        return Ok(vec![]);
    }
    let limit = of_no_saga.len().min(MOST_CAUSES);
    let causes = of_no_saga.into_iter().take(limit).map(FieldValue::Text).collect();
    let query = wanted.query();
    let query = Query { one_of: [query.one_of, vec![("fingerprint", causes)]].concat(), limit, ..query };
    let latest = store.groups(DeadLetterView::KIND, "fingerprint", "failed_at", query).await?;
    let ids = latest.into_iter().map(|group| FieldValue::Text(group.latest)).collect();
    let query = Query { one_of: vec![("id", ids)], limit, ..Query::default() };
    let samples = store.find(DeadLetterView::KIND, query).await?;
    let sample = |row| readable(row).ok()?.1.said().cloned();
    let foreign = samples.iter().filter_map(sample).filter(|said| said.origin == DeadLetterOrigin::Foreign);
    Ok(foreign.map(|said| said.fingerprint).collect())
}

fn worth(
    (origin, step, saga): (DeadLetterOrigin, &str, Option<Uuid>),
    sagas: &Sagas,
    now: Timestamp,
) -> Worth {
    let (status, deadline) = saga
        .and_then(|saga| sagas.get(&saga))
        .map_or((None, None), |(status, deadline)| (Some(*status), *deadline));
    Worth::of(origin, step, status, deadline, now)
}

async fn sagas(store: &dyn Store, ids: BTreeSet<Uuid>) -> Result<Sagas, StoreFault> {
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
