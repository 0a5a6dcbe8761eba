//! How rows were, and which have changed since: what a look needs that begins where the last one ended.

use std::sync::Arc;

use saga_core::decider::Decider as _;
use saga_core::decision::Writes;
use saga_core::query::Query;
use saga_engine::store::{Changes, Store, StoreFault};

use crate::support::{Shelf, commit, put, recorded};

type Promise = Result<(), StoreFault>;

fn ids(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

pub async fn a_row_is_told_as_it_was_and_one_that_was_not_there_is_not(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    let then = store.mark().await?.events;
    let was = store.find(Shelf::KIND, Query { limit: 9, ..Default::default() }).await?;
    commit(store.as_ref(), recorded("tea", &[put(3)], &[put(4)])).await?;
    commit(store.as_ref(), recorded("milk", &[], &[put(1)])).await?;
    let rows = store.rows_as_of(Shelf::KIND, ids(&["milk", "tea", "urn"]), then).await?;
    let [(id, Some((row, history)))] = &rows[..] else { panic!("only tea was there: {rows:?}") };
    assert_eq!((id.as_str(), history.len()), ("tea", 1));
    assert_eq!(format!("{row:?}"), format!("{:?}", was[0]));
    let now = store.mark().await?.events;
    let rows = store.rows_as_of(Shelf::KIND, ids(&["milk", "tea"]), now).await?;
    assert_eq!(rows.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["milk", "tea"]);
    let histories = store.histories(Shelf::KIND, ids(&["tea", "urn", "milk"])).await?;
    assert_eq!(histories.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
    Ok(())
}

pub async fn what_has_changed_is_told_once_page_by_page(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    let then = store.mark().await?.events;
    commit(store.as_ref(), recorded("milk", &[], &[put(1), put(2)])).await?;
    commit(store.as_ref(), recorded("urn", &[], &[put(1)])).await?;
    let all = store.changes(Shelf::KIND, then, 9).await?;
    assert_eq!(all, Changes { ids: ids(&["milk", "urn"]), up_to: then + 3, is_over: true });
    let page = store.changes(Shelf::KIND, then, 2).await?;
    assert_eq!(page, Changes { ids: ids(&["milk"]), up_to: then + 2, is_over: false });
    assert_eq!(store.changes(Shelf::KIND, page.up_to, 2).await?.ids, ids(&["urn"]));
    let nothing = store.changes(Shelf::KIND, all.up_to, 9).await?;
    assert_eq!(nothing, Changes { ids: vec![], up_to: all.up_to, is_over: true });
    Ok(())
}

pub async fn an_event_is_told_from_any_other_in_its_place(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), recorded("tea", &[], &[put(3), put(3)])).await?;
    let last = store.mark().await?.events;
    let of = async |seq| store.fingerprint(seq).await;
    assert_eq!(of(last).await?, of(last).await?);
    assert_ne!(of(last).await?, of(last - 1).await?);
    assert_eq!((of(last + 1).await?, of(0).await?), (None, None));
    Ok(())
}

/// In parts of one event too; and a row whose history is long is left to the whole check.
pub async fn rows_that_have_changed_are_checked_against_their_events(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    let then = store.mark().await?.events;
    let long: Vec<_> = (0..300).map(put).collect();
    commit(store.as_ref(), recorded("urn", &[], &long)).await?;
    commit(store.as_ref(), recorded("milk", &[], &[put(1), put(2)])).await?;
    // What the row says is not what its events say.
    let forged = recorded("tea", &[put(3)], &[put(4)]);
    let events = recorded("tea", &[put(3)], &[put(5)]).events;
    commit(store.as_ref(), Writes { events, ..forged }).await?;
    let all = store.verify_changed(then, 10_000).await?;
    assert_eq!((all.rows, all.differing, all.next), (2, ids(&["shelf/tea"]), None));
    let (mut differing, mut from) = (vec![], then);
    loop {
        let part = store.verify_changed(from, 1).await?;
        differing.extend(part.differing);
        let Some(next) = part.next else { break };
        from = next.parse().expect("a position");
    }
    assert_eq!(differing, ids(&["shelf/tea"]));
    let since = store.mark().await?.events;
    assert_eq!(store.verify_changed(since, 9).await?.rows, 0, "nothing has changed since");
    Ok(())
}
