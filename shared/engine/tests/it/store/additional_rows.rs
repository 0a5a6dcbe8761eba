//! Conformance: a batch that requests more rows is decided again in the same transaction.

use saga_core::decision::{Loaded, Writes};
use saga_engine::store::{Store, StoreFault};

use crate::support::{commit, of_row, put, recorded, shelf, state};

type Outcome = Result<(), StoreFault>;

/// Requests the shelves after tea one after another, then puts so many pieces on the last.
fn asking(mut seen: impl FnMut(&Loaded) + Send + 'static) -> Box<dyn FnMut(Loaded) -> Writes + Send> {
    Box::new(move |loaded: Loaded| {
        seen(&loaded);
        let next = ["coffee", "milk"].into_iter().find(|label| !loaded.also_read.contains(&shelf(label)));
        match next {
            Some(label) => Writes { to_read: [shelf(label)].into(), ..recorded("tea", &[], &[put(9)]) },
            None => recorded("coffee", &[put(3)], &[put(4)]),
        }
    })
}

pub async fn batch_may_request_more_rows_before_decision(store: &dyn Store) -> Outcome {
    commit(store, recorded("coffee", &[], &[put(3)])).await?;
    let (given, taken) = std::sync::mpsc::channel();
    let seen = move |loaded: &Loaded| {
        let _ = given.send((loaded.rows.keys().cloned().collect::<Vec<_>>(), loaded.also_read.clone()));
    };
    store.transact(of_row("tea"), asking(seen)).await?;
    let seen: Vec<_> = taken.into_iter().collect();
    // Tea and milk are not there: that they were read is said all the same.
    let wanted = [
        (vec![], [].into()),
        (vec![shelf("coffee")], [shelf("coffee")].into()),
        (vec![shelf("coffee")], [shelf("coffee"), shelf("milk")].into()),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(state(store, "tea").await?, None, "nothing is written on the way");
    assert_eq!(state(store, "coffee").await?.map(|shelf| shelf.pieces), Some(7));
    Ok(())
}

pub async fn batch_with_requested_rows_is_guarded_by_last_read_versions(store: &dyn Store) -> Outcome {
    commit(store, recorded("coffee", &[], &[put(3)])).await?;
    commit(store, recorded("coffee", &[put(3)], &[put(1)])).await?;
    let answer = store.transact(of_row("tea"), asking(|_| {})).await;
    assert!(matches!(answer, Err(StoreFault::Conflict(key)) if key == shelf("coffee")));
    assert_eq!(state(store, "coffee").await?.map(|shelf| shelf.pieces), Some(4));
    Ok(())
}
