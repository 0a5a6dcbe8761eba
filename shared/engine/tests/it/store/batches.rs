//! Conformance: a batch is written as a whole or not at all.

use std::sync::Arc;

use saga_core::decision::{KeyedAnswer, Loaded, Reads, Writes};
use saga_engine::store::{Store, StoreFault};
use uuid::Uuid;

use crate::support::{
    Shelf, ShelfEvent, at, commit, dead, id, keyed, load, of_row, outbox_write, put, recorded, retry, shelf,
    state, task,
};

type Outcome = Result<(), StoreFault>;

pub async fn written_batch_is_read_back(store: &Arc<dyn Store>) -> Outcome {
    let history = [ShelfEvent::Listed, put(3)];
    commit(store.as_ref(), recorded("tea", &[], &history)).await?;
    let later = Writes { decided_at: at(60), ..recorded("tea", &history, &[put(4)]) };
    commit(store.as_ref(), later).await?;

    let loaded = load(store.as_ref(), of_row("tea")).await?;
    let row = &loaded.rows[&shelf("tea")];
    assert_eq!(row.version, 3);
    let wanted = Shelf { listed: true, pieces: 7, ..Shelf::default() };
    assert_eq!(serde_json::from_str::<Shelf>(&row.state).expect("a state"), wanted);

    let found = store.row(shelf("tea")).await?.expect("the row");
    assert_eq!((found.version, found.created_at, found.updated_at), (3, at(0), at(60)));
    assert_eq!(found.state, row.state);
    Ok(())
}

pub async fn missing_row_is_not_loaded(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    let reads = Reads {
        rows: [shelf("tea"), shelf("coffee")].into(),
        inbox: [("filling", id(1))].into(),
        tasks: [id(2)].into(),
        keys: ["key".to_owned()].into(),
        dead_letters: [id(3)].into(),
    };
    let loaded = load(store.as_ref(), reads).await?;
    assert_eq!(loaded.rows.keys().collect::<Vec<_>>(), [&shelf("tea")]);
    assert!(loaded.inbox.is_empty() && loaded.tasks.is_empty() && loaded.keys.is_empty());
    assert!(loaded.dead_letters.is_empty());
    assert!(store.row(shelf("coffee")).await?.is_none());
    Ok(())
}

/// Guarantee 5: of two batches that read the same version, only one can write.
pub async fn update_of_row_changed_meanwhile_conflicts_and_leaves_nothing(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    commit(store.as_ref(), recorded("tea", &[put(3)], &[put(4)])).await?;
    let stale = everything_about("tea", &[put(3)], &[put(5)]);
    is_conflict(commit(store.as_ref(), stale).await);
    assert_eq!(pieces(store, "tea").await?, 7);
    assert_eq!(store.events(shelf("tea"), 0, usize::MAX).await?.len(), 2);
    nothing_of_everything(store).await
}

/// Guarantee 5, for a row that two batches create at once.
pub async fn insert_of_row_created_meanwhile_conflicts_and_leaves_nothing(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    let second_first = everything_about("tea", &[], &[put(5)]);
    is_conflict(commit(store.as_ref(), second_first).await);
    // Nor may it be made by somebody who has seen it, with nothing else in the batch.
    let decide = Box::new(|_| recorded("tea", &[], &[put(5)]));
    is_conflict(store.transact(of_row("tea"), decide).await.map(drop));
    assert_eq!(pieces(store, "tea").await?, 3);
    nothing_of_everything(store).await
}

pub async fn batch_that_fails_late_leaves_nothing(store: &Arc<dyn Store>) -> Outcome {
    let mut writes = everything_about("tea", &[], &[put(5)]);
    // The same key twice: the database refuses the second when the rows are long written.
    writes.keys.push(keyed("key", "{}"));
    let fault = commit(store.as_ref(), writes).await.expect_err("a key belongs to one answer");
    assert!(matches!(fault, StoreFault::Rejected { .. }), "{fault:?}");
    assert!(store.row(shelf("tea")).await?.is_none());
    nothing_of_everything(store).await
}

/// The process continues, so that the store must recover.
pub async fn batch_that_panics_leaves_nothing_and_next_batch_succeeds(store: &Arc<dyn Store>) -> Outcome {
    let panicking = store.clone();
    let answer = tokio::spawn(async move {
        let decide = Box::new(|_| panic!("a decision has a bug"));
        panicking.transact(of_row("tea"), decide).await
    });
    let answer = answer.await.expect("the caller gets a fault, not the panic");
    assert!(answer.is_err());
    commit(store.as_ref(), recorded("tea", &[], &[put(3)])).await?;
    assert_eq!(pieces(store, "tea").await?, 3);
    Ok(())
}

pub async fn failing_batch_fails_no_other(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), recorded("tea", &[], &[put(1)])).await?;
    let batches = (0..40).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let is_stale = number % 4 == 3;
            let label = format!("label-{number:02}");
            // Every fourth changes a version that is long gone.
            let stale = || recorded("tea", &[put(9), put(9)], &[put(9)]);
            let writes = if is_stale { stale() } else { recorded(&label, &[], &[put(number)]) };
            (is_stale, commit(store.as_ref(), writes).await)
        })
    });
    for batch in futures::future::join_all(batches).await {
        match batch.expect("no panic") {
            (true, answer) => is_conflict(answer),
            (false, answer) => answer?,
        }
    }
    for number in (0..40_u32).filter(|number| number % 4 != 3) {
        assert_eq!(pieces(store, &format!("label-{number:02}")).await?, i64::from(number));
    }
    assert_eq!(pieces(store, "tea").await?, 1);
    assert!(store.verify().await?.differing.is_empty());
    Ok(())
}

/// Guarantee 5: no update is lost under concurrency.
pub async fn concurrent_updates_of_one_row_are_all_kept(store: &Arc<dyn Store>) -> Outcome {
    let changes = (0..30).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let decide = Box::new(|loaded: Loaded| {
                let version = loaded.rows.get(&shelf("tea")).map_or(0, |row| row.version);
                let before = vec![put(1); usize::try_from(version).expect("a short history")];
                recorded("tea", &before, &[put(1)])
            });
            store.transact(of_row("tea"), decide).await
        })
    });
    for change in futures::future::join_all(changes).await {
        change.expect("no panic")?;
    }
    assert_eq!(pieces(store, "tea").await?, 30);
    assert_eq!(store.events(shelf("tea"), 0, usize::MAX).await?.len(), 30);
    Ok(())
}

pub async fn row_of_undeclared_kind_is_rejected(store: &Arc<dyn Store>) -> Outcome {
    let mut writes = recorded("tea", &[], &[put(1)]);
    writes.rows[0].key.kind = "cellar";
    for answer in [
        commit(store.as_ref(), writes).await,
        load(store.as_ref(), Reads { rows: [undeclared()].into(), ..Reads::default() }).await.map(|_| ()),
    ] {
        let fault = answer.expect_err("nobody declared it");
        assert!(matches!(&fault, StoreFault::Unusable(why) if why.contains("cellar")), "{fault:?}");
    }
    assert!(store.events(shelf("tea"), 0, usize::MAX).await?.is_empty());
    Ok(())
}

fn undeclared() -> saga_core::row::RowKey {
    saga_core::row::RowKey { kind: "cellar", id: "tea".to_owned() }
}

/// Batch that writes into every table.
fn everything_about(label: &str, before: &[ShelfEvent], new: &[ShelfEvent]) -> Writes {
    Writes {
        outbox: vec![outbox_write(50, Some(0))],
        inbox: vec![("filling", id(51))],
        retries: vec![retry("filling", 52, at(10))],
        tasks: vec![task(53, at(0))],
        new_dead_letters: vec![dead("filling", 54, at(0))],
        keys: vec![keyed("key", "{}")],
        ..recorded(label, before, new)
    }
}

async fn nothing_of_everything(store: &Arc<dyn Store>) -> Outcome {
    let stats = store.stats().await?;
    let waiting = [stats.outbox_pending, stats.retries, stats.tasks, stats.dead_letters];
    assert_eq!(waiting, [0; 4], "outbox, retries, tasks, dead letters");
    let known = |number: u128| ("filling", id(number));
    let reads = Reads {
        inbox: [known(51), known(52), known(54)].into(),
        tasks: [id(53)].into(),
        keys: ["key".to_owned()].into(),
        ..Reads::default()
    };
    let loaded = load(store.as_ref(), reads).await?;
    assert_eq!(loaded.inbox.keys().collect::<Vec<_>>(), Vec::<&(&str, Uuid)>::new());
    assert_eq!(loaded.keys.values().collect::<Vec<_>>(), Vec::<&KeyedAnswer>::new());
    assert!(loaded.tasks.is_empty());
    assert!(store.message_counts().await?.handled.is_empty());
    Ok(())
}

#[track_caller]
fn is_conflict(answer: Outcome) {
    match answer {
        Err(StoreFault::Conflict(key)) => assert_eq!(key, shelf("tea")),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

async fn pieces(store: &Arc<dyn Store>, label: &str) -> Result<i64, StoreFault> {
    Ok(state(store.as_ref(), label).await?.map_or(0, |shelf| shelf.pieces))
}
