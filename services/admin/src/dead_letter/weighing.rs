//! Shell: what dead letters are worth now: looked up beside the view of their sagas.

use std::collections::{BTreeMap, BTreeSet};

use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{Join, Query};
use saga_engine::store::{Store, StoreFault};
use uuid::Uuid;

use super::filter::Wanted;
use super::item::DeadLetterItem;
use super::reading::find;
use super::view::DeadLetterView;
use super::worth::{Worth, WorthOfMany};
use crate::rows::{id_of, parsed};

/// Dead letters in one look while a text is looked for.
const CHUNK: usize = 500;

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
        item.worth = Some(worth(&item.step, item.saga, &sagas, now));
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
        for counted in store.joined(DeadLetterView::KIND, join, wanted.query()).await? {
            worths.entry(counted.by.clone()).or_default().add_counted(&counted);
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
            cause.add(worth(&said.step, said.saga, &sagas, now));
        }
        after = found.next;
        if after.is_none() {
            return Ok(worths);
        }
    }
}

fn worth(step: &str, saga: Option<Uuid>, sagas: &Sagas, now: Timestamp) -> Worth {
    let (status, deadline) = saga
        .and_then(|saga| sagas.get(&saga))
        .map_or((None, None), |(status, deadline)| (Some(*status), *deadline));
    Worth::of(step, status, deadline, now)
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
