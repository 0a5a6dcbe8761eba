//! Conformance: past states of rows, and changes since a position.

use jiff::SignedDuration;
use saga_core::decider::Decider as _;
use saga_core::decision::Writes;
use saga_core::query::Query;
use saga_engine::store::{Changes, Store, StoreFault};
use saga_engine::testing::NOON;

use crate::support::{Shelf, commit, put, recorded};

type Outcome = Result<(), StoreFault>;

fn ids(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

pub async fn rows_at_position_omits_later_rows(store: &dyn Store) -> Outcome {
    commit(store, recorded("tea", &[], &[put(3)])).await?;
    let then = store.position().await?.events;
    let was = store.find(Shelf::KIND, Query { limit: 9, ..Default::default() }).await?;
    commit(store, recorded("tea", &[put(3)], &[put(4)])).await?;
    commit(store, recorded("milk", &[], &[put(1)])).await?;
    let rows = store.rows_at(Shelf::KIND, ids(&["milk", "tea", "urn"]), then).await?;
    let [(id, Some((row, history)))] = &rows[..] else { panic!("only tea was there: {rows:?}") };
    assert_eq!((id.as_str(), history.len()), ("tea", 1));
    assert_eq!(format!("{row:?}"), format!("{:?}", was[0]));
    let now = store.position().await?.events;
    let rows = store.rows_at(Shelf::KIND, ids(&["milk", "tea"]), now).await?;
    assert_eq!(rows.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["milk", "tea"]);
    let histories = store.histories(Shelf::KIND, ids(&["tea", "urn", "milk"])).await?;
    assert_eq!(histories.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
    Ok(())
}

pub async fn changed_rows_are_read_page_by_page(store: &dyn Store) -> Outcome {
    commit(store, recorded("tea", &[], &[put(3)])).await?;
    let then = store.position().await?.events;
    commit(store, recorded("milk", &[], &[put(1), put(2)])).await?;
    commit(store, recorded("urn", &[], &[put(1)])).await?;
    let all = store.changed_rows(Shelf::KIND, then, 9).await?;
    assert_eq!(all, Changes { ids: ids(&["milk", "urn"]), up_to: then + 3, is_over: true });
    let page = store.changed_rows(Shelf::KIND, then, 2).await?;
    assert_eq!(page, Changes { ids: ids(&["milk"]), up_to: then + 2, is_over: false });
    assert_eq!(store.changed_rows(Shelf::KIND, page.up_to, 2).await?.ids, ids(&["urn"]));
    let nothing = store.changed_rows(Shelf::KIND, all.up_to, 9).await?;
    assert_eq!(nothing, Changes { ids: vec![], up_to: all.up_to, is_over: true });
    Ok(())
}

pub async fn event_fingerprint_distinguishes_events(store: &dyn Store) -> Outcome {
    commit(store, recorded("tea", &[], &[put(3), put(3)])).await?;
    let last = store.position().await?.events;
    let of = async |seq| store.event_fingerprint(seq).await;
    assert_eq!(of(last).await?, of(last).await?);
    assert_ne!(of(last).await?, of(last - 1).await?);
    assert_eq!((of(last + 1).await?, of(0).await?), (None, None));
    Ok(())
}

/// Also in parts of one event. A row with a long history is left to the full verification.
pub async fn changed_rows_are_verified(store: &dyn Store) -> Outcome {
    commit(store, recorded("tea", &[], &[put(3)])).await?;
    let then = store.position().await?.events;
    let long: Vec<_> = (0..300).map(put).collect();
    commit(store, recorded("urn", &[], &long)).await?;
    commit(store, recorded("milk", &[], &[put(1), put(2)])).await?;
    // What the row says is not what its events say.
    let forged = recorded("tea", &[put(3)], &[put(4)]);
    let events = recorded("tea", &[put(3)], &[put(5)]).events;
    commit(store, Writes { events, ..forged }).await?;
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
    let since = store.position().await?.events;
    assert_eq!(store.verify_changed(since, 9).await?.rows, 0, "nothing has changed since");
    Ok(())
}

/// A restart with the same setting accepts nothing new.
pub async fn accepted_loss_is_recorded_once_per_name(store: &dyn Store) -> Outcome {
    assert_eq!(store.lost_before().await?, None);
    let hour = |hour| NOON + SignedDuration::from_hours(hour);
    for (name, at, last) in [("one", 0, 0), ("one", 1, 0), ("other", 2, 2), ("one", 3, 2)] {
        store.accept_loss(name.to_owned(), hour(at)).await?;
        assert_eq!(store.lost_before().await?, Some(hour(last)), "{name} after {at} hours");
    }
    Ok(())
}
