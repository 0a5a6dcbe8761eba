//! What people look up.

use std::sync::Arc;

use shared::decider::FieldValue;
use shared::store::{Query, Store, StoreFault, Writes};

use crate::support::shelf::ShelfEvent;
use crate::support::writes::{at, commit, id, put, recorded, shelf};

type Promise = Result<(), StoreFault>;

pub async fn rows_are_found_by_their_fields(store: &Arc<dyn Store>) -> Promise {
    fill(store).await?;
    let listed = ("status", FieldValue::from("LISTED"));
    assert_eq!(find(store, Query { equals: vec![listed.clone()], ..all() }).await?, ["a", "c"]);
    let few = ("pieces", FieldValue::from(20));
    assert_eq!(find(store, Query { below: vec![few.clone()], ..all() }).await?, ["a", "b"]);
    let both = Query { equals: vec![listed], below: vec![few], ..all() };
    assert_eq!(find(store, both).await?, ["a"]);
    let some = |pieces: &[i64]| vec![("pieces", pieces.iter().map(|n| FieldValue::from(*n)).collect())];
    assert_eq!(find(store, Query { one_of: some(&[10, 30, 99]), ..all() }).await?, ["b", "d"]);
    assert_eq!(find(store, Query { one_of: some(&[]), ..all() }).await?, [""; 0]);
    let by_id = ("id", FieldValue::from("b"));
    assert_eq!(find(store, Query { equals: vec![by_id], ..all() }).await?, ["b"]);

    // Fields follow their row.
    commit(store.as_ref(), recorded("d", &[put(30)], &[ShelfEvent::Listed])).await?;
    let listed = vec![("status", FieldValue::from("LISTED"))];
    assert_eq!(find(store, Query { equals: listed, ..all() }).await?, ["a", "c", "d"]);
    Ok(())
}

pub async fn rows_are_found_by_text_in_any_case(store: &Arc<dyn Store>) -> Promise {
    fill(store).await?;
    let text = |text: &str| Query { text: Some(text.to_owned()), ..all() };
    assert_eq!(find(store, text("LISTED\":TRUE")).await?, ["a", "c"]);
    assert_eq!(find(store, text("\"pieces\":30")).await?, ["d"]);
    for harmless in ["%", "_", "' OR 1=1 --", "\\"] {
        assert_eq!(find(store, text(harmless)).await?.len(), usize::from(harmless == "_") * 4, "{harmless}");
    }
    Ok(())
}

pub async fn rows_are_found_in_the_order_of_their_ids(store: &Arc<dyn Store>) -> Promise {
    fill(store).await?;
    assert_eq!(find(store, all()).await?, ["a", "b", "c", "d"]);
    assert_eq!(find(store, Query { descending: true, ..all() }).await?, ["d", "c", "b", "a"]);
    Ok(())
}

pub async fn pages_follow_each_other_in_both_directions(store: &Arc<dyn Store>) -> Promise {
    fill(store).await?;
    for (descending, wanted) in [(false, [["a", "b"], ["c", "d"]]), (true, [["d", "c"], ["b", "a"]])] {
        let mut after: Option<String> = None;
        for page in wanted {
            let found = find(store, Query { after, descending, limit: 2, ..Query::default() }).await?;
            assert_eq!(found, page);
            after = found.last().cloned();
        }
        assert!(find(store, Query { after, descending, limit: 2, ..Query::default() }).await?.is_empty());
    }
    Ok(())
}

pub async fn a_history_is_told_oldest_first(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), recorded("tea", &[], &[ShelfEvent::Listed, put(1)])).await?;
    commit(store.as_ref(), recorded("coffee", &[], &[put(9)])).await?;
    let mut later =
        Writes { decided_at: at(60), ..recorded("tea", &[ShelfEvent::Listed, put(1)], &[put(2)]) };
    later.events[0].causation_id = id(77);
    commit(store.as_ref(), later).await?;

    let history = store.events(shelf("tea")).await?;
    let told: Vec<_> =
        history.iter().map(|event| (event.version, &event.name[..], &event.data[..])).collect();
    let wanted = [
        (1, "Listed", r#""Listed""#),
        (2, "Put", r#"{"Put":{"pieces":1}}"#),
        (3, "Put", r#"{"Put":{"pieces":2}}"#),
    ];
    assert_eq!(told, wanted);
    let last = &history[2];
    assert_eq!((last.causation_id, last.recorded_at, last.published_at), (id(77), at(60), None));
    assert_eq!(history[0].recorded_at, at(0));
    Ok(())
}

/// a: listed, 0 pieces; b: 10; c: listed, 20; d: 30.
async fn fill(store: &Arc<dyn Store>) -> Promise {
    for (sku, history) in [
        ("c", vec![ShelfEvent::Listed, put(20)]),
        ("a", vec![ShelfEvent::Listed]),
        ("d", vec![put(30)]),
        ("b", vec![put(10)]),
    ] {
        commit(store.as_ref(), recorded(sku, &[], &history)).await?;
    }
    Ok(())
}

fn all() -> Query {
    Query { limit: 100, ..Query::default() }
}

async fn find(store: &Arc<dyn Store>, query: Query) -> Result<Vec<String>, StoreFault> {
    Ok(store.find("shelf", query).await?.into_iter().map(|row| row.id).collect())
}
