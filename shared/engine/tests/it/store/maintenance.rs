//! Conformance: verification, overrides, statistics and trimming.

use saga_core::decision::{InboxState, Reads, Writes};
use saga_core::ids::message_id;
use saga_core::query::Query;
use saga_engine::store::{Store, StoreFault, StoredOverrides, TrimCutoffs};
use uuid::Uuid;

use crate::support::{
    ShelfEvent, at, commit, dead, due_query, id, keyed, load, outbox_writes, put, recorded, retry, state,
    task, tasks,
};

type Outcome = Result<(), StoreFault>;

pub async fn every_row_equals_the_fold_of_its_events(store: &dyn Store) -> Outcome {
    let empty = store.verify().await?;
    assert_eq!((empty.rows, empty.events, empty.differing), (0, 0, vec![]));
    fill(store).await?;
    let report = store.verify().await?;
    assert_eq!((report.rows, report.events, report.differing), (3, 6, vec![]));
    assert_ne!(report.digest, empty.digest);
    assert_eq!(report.digest, store.verify().await?.digest, "the same rows have the same digest");

    commit(store, recorded("milk", &[put(1)], &[put(1)])).await?;
    assert_ne!(report.digest, store.verify().await?.digest);
    Ok(())
}

pub async fn rebuild_restores_every_row(store: &dyn Store) -> Outcome {
    fill(store).await?;
    let before = store.verify().await?;
    let rows = store.find("shelf", Query { limit: 9, ..Default::default() }).await?;
    assert_eq!(store.rebuild("shelf").await?, 3);
    let after = store.verify().await?;
    assert_eq!((&before.digest, after.differing), (&after.digest, vec![]));
    let rebuilt = store.find("shelf", Query { limit: 9, ..Default::default() }).await?;
    assert_eq!(format!("{rows:?}"), format!("{rebuilt:?}"));
    // Its due times too.
    let due = store.claim_due(due_query(at(10), 9, "depot-1", at(10))).await?.rows;
    assert_eq!(due.iter().map(|(key, _)| &key.id[..]).collect::<Vec<_>>(), ["tea"]);
    // And it goes on from there.
    commit(store, recorded("milk", &[put(1)], &[put(1)])).await?;
    assert_eq!(state(store, "milk").await?.map(|shelf| shelf.pieces), Some(2));
    Ok(())
}

pub async fn overrides_are_replaced_only_at_current_revision(store: &dyn Store) -> Outcome {
    let overridden = |revision, text: &str| StoredOverrides { revision, text: text.to_owned() };
    assert_eq!(store.overrides().await?, overridden(0, "{}"));
    assert!(store.replace_overrides(0, "mine".to_owned()).await?);
    assert!(
        !store.replace_overrides(0, "yours".to_owned()).await?,
        "it was decided on what is there no more"
    );
    assert_eq!(store.overrides().await?, overridden(1, "mine"));
    assert!(store.replace_overrides(1, "yours".to_owned()).await?);
    assert_eq!(store.overrides().await?, overridden(2, "yours"));
    Ok(())
}

pub async fn rebuild_of_undeclared_kind_fails(store: &dyn Store) -> Outcome {
    let fault = store.rebuild("cellar").await.expect_err("nobody declared it");
    assert!(matches!(&fault, StoreFault::Unusable(why) if why.contains("cellar")), "{fault:?}");
    Ok(())
}

/// Guarantee 2: all waiting work can be counted.
pub async fn stats_count_waiting_work(store: &dyn Store) -> Outcome {
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_oldest), (0, None));
    commit(store, Writes { decided_at: at(5), ..outbox_writes([1, 2]) }).await?;
    commit(store, Writes { decided_at: at(9), ..outbox_writes([3]) }).await?;
    commit(store, tasks([task(1, at(0)), task(2, at(0))], "depot-1", at(60))).await?;
    let writes = Writes {
        retries: vec![
            retry("filling", 1, at(10)),
            retry("filling", 2, at(10)),
            retry("listening", 1, at(10)),
        ],
        new_dead_letters: vec![dead("filling", 3, at(0))],
        ..Writes::default()
    };
    commit(store, writes).await?;

    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (3, 0, Some(at(5))));
    assert_eq!((stats.retries, stats.tasks, stats.dead_letters), (3, 2, 1));
    let counts = store.message_counts().await?;
    assert_eq!(counts.retrying, [("filling".to_owned(), 2), ("listening".to_owned(), 1)].into());
    assert_eq!(counts.dead, [("filling".to_owned(), 1)].into());
    Ok(())
}

/// Ids without a saga are random, so that old ones stand between recent ones.
pub async fn old_inbox_ids_are_trimmed_anywhere(store: &dyn Store) -> Outcome {
    let marks = |places: std::ops::Range<u128>, second| {
        let inbox = places.map(|place| ("filling", Uuid::from_u128(u128::MAX / 200 * place))).collect();
        Writes { inbox, decided_at: at(second), ..Writes::default() }
    };
    for (places, second) in [(0..90, 9), (90..110, 1), (110..200, 9)] {
        commit(store, marks(places, second)).await?;
    }
    let cutoffs = TrimCutoffs { inbox: at(5), keys: at(0), published: at(0) };
    let mut gone = 0;
    for _ in 0..1_000 {
        gone += store.trim(cutoffs, 3).await?;
        if gone == 20 {
            return Ok(());
        }
    }
    panic!("{gone} of 20 old marks went");
}

/// A redrive of old sagas leaves recent marks before old ones. Ids begin with the time of their saga.
pub async fn old_inbox_ids_behind_recent_ones_of_old_sagas_are_trimmed(store: &dyn Store) -> Outcome {
    let marks = |sagas: std::ops::Range<i64>, handled| {
        let mark = |millisecond: i64| {
            let began = at(0).as_millisecond() + millisecond;
            let saga = Uuid::from_u128(u128::try_from(began).expect("after 1970") << 80 | 7 << 76);
            ("filling", message_id(saga, "courier", Uuid::nil(), 0))
        };
        Writes { inbox: sagas.map(mark).collect(), decided_at: handled, ..Writes::default() }
    };
    let (cutoff, recent) = (at(50), at(60));
    for (sagas, handled) in [(0..400, recent), (400..600, at(1)), (600..1_000, recent), (1_000..1_010, at(2))]
    {
        commit(store, marks(sagas, handled)).await?;
    }
    let cutoffs = TrimCutoffs { inbox: cutoff, keys: at(0), published: at(0) };
    let mut trimmed = 0;
    // Thirty ids in each call, and three at most deleted.
    for _ in 0..150 {
        trimmed += store.trim(cutoffs, 3).await?;
    }
    assert_eq!(trimmed, 210);
    Ok(())
}

/// Trimming keeps recent entries, and counts outlive it.
pub async fn finished_entries_are_trimmed_by_age_in_chunks(store: &dyn Store) -> Outcome {
    for number in 1..=5 {
        let writes = Writes {
            inbox: vec![("filling", id(number))],
            keys: vec![keyed(&format!("key {number}"), "{}")],
            decided_at: at(i64::try_from(number).expect("a small number")),
            ..Writes::default()
        };
        commit(store, writes).await?;
    }
    fill(store).await?;
    let cutoffs = TrimCutoffs { inbox: at(5), keys: at(3), published: at(0) };
    // Four marks and two keys are old enough; at most three of each go at once.
    assert_eq!(store.trim(cutoffs, 3).await?, 3 + 2);
    assert_eq!(store.trim(cutoffs, 3).await?, 1);
    assert_eq!(store.trim(cutoffs, 3).await?, 0);

    let reads = Reads {
        inbox: (1..=5).map(|number| ("filling", id(number))).collect(),
        keys: (1..=5).map(|number| format!("key {number}")).collect(),
        ..Reads::default()
    };
    let loaded = load(store, reads).await?;
    assert_eq!(loaded.inbox, [(("filling", id(5)), InboxState::Processed)].into());
    assert_eq!(loaded.keys.keys().collect::<Vec<_>>(), ["key 3", "key 4", "key 5"]);
    assert_eq!(store.message_counts().await?.handled, [("filling".to_owned(), 5)].into());
    assert_eq!(store.verify().await?.rows, 3, "history is kept");
    Ok(())
}

/// Three shelves, six events.
async fn fill(store: &dyn Store) -> Outcome {
    let planned = ShelfEvent::CheckPlanned { at: at(10) };
    commit(store, recorded("tea", &[], &[ShelfEvent::Listed, put(3)])).await?;
    let later = recorded("tea", &[ShelfEvent::Listed, put(3)], &[planned, put(4)]);
    commit(store, Writes { decided_at: at(60), ..later }).await?;
    commit(store, recorded("coffee", &[], &[put(9)])).await?;
    commit(store, recorded("milk", &[], &[put(1)])).await
}
