//! SQLite: crashes, manual changes and changed declarations.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use saga_core::decision::{Loaded, Reads, Writes};
use saga_core::query::Query;
use saga_core::row::{
    AnyWithHistory, Folding, PastEvent, Projected, RowKey, RowKind, SearchedBy, WithHistory,
};
use saga_engine::store::roles::{
    Monitoring as _, Outbox as _, Queries as _, Transactions as _, Verification as _,
};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{
    OutboxEntry, Store, StoreFault, VerificationPart, VerifiedPage, VerifiedRow, VerifiedRows,
};

use super::DepotFile;
use crate::support::{
    Shelf, ShelfEvent, at, commit, id, in_time, outbox_writes, put, recorded, retry, state, task, tasks,
};

type Outcome = Result<(), StoreFault>;

/// Guarantee 1: a committed batch is on the disk, whatever happens to the process.
#[tokio::test]
async fn crash_keeps_exactly_committed_data() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    commit(&store, Writes { outbox: outbox_writes([1]).outbox, ..recorded("milk", &[], &[put(1)]) }).await?;
    commit(&store, tasks([task(2, at(0))], "depot-1", at(60))).await?;
    commit(&store, Writes { retries: vec![retry("filling", 3, at(10))], ..Writes::default() }).await?;

    // The writer is in the middle of a commit: one batch is written, the next is being decided.
    let (barrier, entered) = Barrier::new();
    let blocked = barrier.block(&store);
    let mut first = Box::pin(commit(&store, recorded("coffee", &[], &[put(9)])));
    let second_barrier = Barrier::new();
    let mut blocked = Box::pin(blocked);
    assert!(futures::poll!(&mut blocked).is_pending());
    entered.recv().expect("the writer is at work");
    assert!(futures::poll!(&mut first).is_pending());
    let mut second = Box::pin(second_barrier.0.block(&store));
    assert!(futures::poll!(&mut second).is_pending());
    barrier.open();
    second_barrier.1.recv().expect("the writer has written the batch before this one");

    let image = image_of(file.0.path());
    let after = image.open()?;
    assert_eq!(state(&after, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    assert_eq!(state(&after, "milk").await?.map(|shelf| shelf.pieces), Some(1));
    assert_eq!(state(&after, "coffee").await?, None, "nobody was told that it is there");
    let stats = after.stats().await?;
    assert_eq!((stats.outbox_pending, stats.tasks, stats.retries), (1, 1, 1));
    assert!(after.verify().await?.differing.is_empty());

    second_barrier.0.open();
    in_time("the commits", futures::future::try_join3(blocked, first, second)).await?;
    Ok(())
}

#[tokio::test]
async fn committed_data_survives_restart() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    drop(store);
    let store = file.open()?;
    assert_eq!(state(&store, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    commit(&store, recorded("tea", &[put(3)], &[put(4)])).await?;
    assert_eq!(state(&store, "tea").await?.map(|shelf| shelf.pieces), Some(7));
    Ok(())
}

/// The next process that opens the file must not meet the former writer.
#[tokio::test]
async fn dropped_store_releases_its_file() -> Outcome {
    let (file, store) = DepotFile::new()?;
    let (barrier, entered) = Barrier::new();
    let mut blocked = Box::pin(barrier.block(&store));
    assert!(futures::poll!(&mut blocked).is_pending());
    entered.recv().expect("the writer is at work");
    let last = Box::pin(commit(&store, recorded("tea", &[], &[put(3)])));
    let mut last = last;
    assert!(futures::poll!(&mut last).is_pending());
    drop((blocked, last));
    let opening = std::thread::spawn(move || barrier.open());
    drop(store);

    let log = file.path().with_extension("db-wal").metadata();
    assert_eq!(log.map_or(0, |log| log.len()), 0, "all that was stored is in the file itself");
    let conn = Connection::open(file.path()).expect("the file");
    let mode: String = conn
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .expect("nobody else has the file open");
    assert_eq!(mode, "delete");
    opening.join().expect("no panic");
    Ok(())
}

/// Jobs that wait during a commit share the next one. If one fails, the others are repeated alone.
#[tokio::test]
async fn waiting_batches_share_a_commit_without_the_failing_one() -> Outcome {
    let (_file, store) = DepotFile::new()?;
    let decided = Arc::new(AtomicUsize::new(0));
    let deciding = |writes: Writes| {
        let decided = decided.clone();
        let decide = move |_: Loaded| {
            decided.fetch_add(1, Ordering::Relaxed);
            writes.clone()
        };
        store.transact(Reads::default(), Box::new(decide))
    };
    let (barrier, entered) = Barrier::new();
    let mut blocked = Box::pin(barrier.block(&store));
    assert!(futures::poll!(&mut blocked).is_pending());
    entered.recv().expect("the writer is at work");
    let mut good = deciding(recorded("tea", &[], &[put(3)]));
    let mut stale = deciding(recorded("milk", &[put(1)], &[put(1)]));
    let mut also_good = deciding(recorded("coffee", &[], &[put(9)]));
    for waiting in [&mut good, &mut stale, &mut also_good] {
        assert!(futures::poll!(waiting).is_pending());
    }
    barrier.open();
    in_time("the blocked batch", blocked).await?;
    in_time("the first batch", good).await?;
    let fault = in_time("the stale batch", stale).await.expect_err("it read a version that is not there");
    assert!(matches!(fault, StoreFault::Conflict(_)), "{fault:?}");
    in_time("the last batch", also_good).await?;

    // The first two together until the second failed; then each of the three alone.
    assert_eq!(decided.load(Ordering::Relaxed), 2 + 3);
    assert_eq!(state(&store, "tea").await?.map(|shelf| shelf.pieces), Some(3));
    assert_eq!(state(&store, "coffee").await?.map(|shelf| shelf.pieces), Some(9));
    assert_eq!(state(&store, "milk").await?, None);
    Ok(())
}

/// Differences found in parts of so many events, by a scan of the log and row by row. Each row is verified once.
async fn in_parts(store: &SqliteStore, events: u64) -> Result<Vec<String>, StoreFault> {
    let by_scan = in_parts_from(store, events, |next| next).await?;
    let lose_scan = |next: String| match next.split_once('@') {
        Some((kind, _)) => format!("{kind}@-1"),
        None => next,
    };
    assert_eq!(in_parts_from(store, events, lose_scan).await?, by_scan);
    Ok(by_scan)
}

async fn in_parts_from(
    store: &SqliteStore,
    events: u64,
    begin: impl Fn(String) -> String,
) -> Result<Vec<String>, StoreFault> {
    let (mut differing, mut rows, mut after) = (vec![], 0, None);
    loop {
        let part =
            store.verify_part(VerificationPart { after, events, ..VerificationPart::default() }).await?;
        differing.extend(part.differing);
        rows += part.rows;
        after = part.next.map(&begin);
        if after.is_none() {
            assert_eq!(rows, 2, "each once");
            return Ok(differing);
        }
    }
}

/// Differences found in pages of so many rows with their histories.
async fn in_pages(store: &SqliteStore, limit: usize) -> Result<Vec<String>, StoreFault> {
    let (mut differing, mut rows, mut after) = (vec![], 0, None);
    loop {
        let page = VerifiedPage { after, limit, with_histories: true };
        let VerifiedRows { folds, .. } = store.verified_rows("shelf", page).await?;
        differing.extend(folds.differing);
        rows += folds.rows;
        after = folds.next;
        if after.is_none() {
            assert_eq!(rows, 2, "each once");
            return Ok(differing);
        }
    }
}

#[tokio::test]
async fn verified_page_contains_rows_and_histories() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(3), put(4)])).await?;
    commit(&store, recorded("milk", &[], &[put(1)])).await?;
    let page = VerifiedPage { after: None, limit: 9, with_histories: true };
    let VerifiedRows { rows, folds } = store.verified_rows("shelf", page.clone()).await?;
    assert_eq!((folds.rows, folds.events, folds.differing, folds.next), (2, 3, vec![], None));
    let folds = |rows: Vec<VerifiedRow>| rows.into_iter().map(fold).collect::<Vec<_>>();
    let mut whole = vec![];
    for id in ["milk", "tea"] {
        let alone = store.row(RowKey { kind: "shelf", id: id.to_owned() }).await?.expect("a row");
        let history = store.histories("shelf", vec![id.to_owned()]).await?.remove(0);
        whole.push((id.to_owned(), WithHistory::<Shelf>::of(&alone.state, &history).expect("a shelf")));
    }
    assert_eq!(folds(rows), whole);
    let without =
        store.verified_rows("shelf", VerifiedPage { with_histories: false, ..page.clone() }).await?;
    let alone = whole.iter().map(|(id, row)| (id.clone(), WithHistory { events: vec![], ..row.clone() }));
    assert_eq!(folds(without.rows), alone.collect::<Vec<_>>());

    // One that differs is as it was found, and hides no other.
    file.execute("UPDATE row_shelf SET state = replace(state, '1', '2') WHERE id = 'milk'");
    let mut differing = store.verified_rows("shelf", page).await?;
    assert_eq!(differing.folds.differing, ["shelf/milk"]);
    let VerifiedRow::Other { id, state, history } = differing.rows.remove(0) else { panic!("no fold") };
    let milk = WithHistory::<Shelf>::of(&state, &history).expect("a shelf");
    assert_eq!((&id[..], milk.state.pieces, milk.events), ("milk", 2, whole[0].1.events.clone()));
    assert_eq!(folds(differing.rows), whole[1..]);
    Ok(())
}

fn fold(row: VerifiedRow) -> (String, WithHistory<Shelf>) {
    let VerifiedRow::Fold { id, row } = row else { panic!("not the fold of its events: {row:?}") };
    (id, *row.downcast().expect("a shelf"))
}

#[tokio::test]
async fn row_without_events_is_reported_whole_and_in_parts() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    commit(&store, recorded("milk", &[], &[put(1)])).await?;
    for forged in ["a", "n", "z"] {
        file.execute(&format!(
            "INSERT INTO row_shelf (id, version, state, created_at, updated_at)
                 SELECT '{forged}', version, state, created_at, updated_at FROM row_shelf WHERE id = 'tea'"
        ));
        assert_eq!(store.verify().await?.differing, ["shelf: 1 rows without events"], "{forged}");
        for events in 1..=3 {
            assert_eq!(in_parts(&store, events).await?, ["shelf: 1 rows without events"], "{forged}");
            let limit = usize::try_from(events).expect("a few");
            assert_eq!(in_pages(&store, limit).await?, ["shelf: 1 rows without events"], "{forged}");
        }
        file.execute(&format!("DELETE FROM row_shelf WHERE id = '{forged}'"));
    }
    Ok(())
}

#[tokio::test]
async fn altered_row_is_reported_and_rebuilt() -> Outcome {
    let alterations = [
        ("state", "UPDATE row_shelf SET state = replace(state, '3', '4') WHERE id = 'tea'"),
        ("field", "UPDATE row_shelf SET pieces = 4 WHERE id = 'tea'"),
        ("version", "UPDATE row_shelf SET version = 9 WHERE id = 'tea'"),
        ("due time", "UPDATE row_shelf SET due = 1 WHERE id = 'tea'"),
        ("time", "UPDATE row_shelf SET updated_at = 1 WHERE id = 'tea'"),
        ("row", "DELETE FROM row_shelf WHERE id = 'tea'"),
    ];
    for (what, sql) in alterations {
        let (file, store) = DepotFile::new()?;
        commit(&store, recorded("tea", &[], &[put(3)])).await?;
        commit(&store, recorded("milk", &[], &[put(1)])).await?;
        let whole = store.verify().await?;
        file.execute(sql);
        let altered = store.verify().await?;
        assert_eq!(altered.differing, ["shelf/tea"], "{what}");
        assert_ne!(altered.digest, whole.digest, "{what}");
        // In parts too, whichever row stands at the end of one.
        for events in 1..=3 {
            assert_eq!(in_parts(&store, events).await?, ["shelf/tea"], "{what}");
            let limit = usize::try_from(events).expect("a few");
            assert_eq!(in_pages(&store, limit).await?, ["shelf/tea"], "{what}");
        }

        assert_eq!(store.rebuild("shelf").await?, 2);
        let mended = store.verify().await?;
        assert_eq!((mended.differing, mended.digest), (vec![], whole.digest), "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn missing_event_is_reported() -> Outcome {
    let (file, store) = DepotFile::new()?;
    // The state is the same with and without the second event: only its version tells.
    let history = [ShelfEvent::Listed, ShelfEvent::Listed, put(3)];
    commit(&store, recorded("tea", &[], &history)).await?;
    commit(&store, recorded("milk", &[], &[put(1)])).await?;
    file.execute("DELETE FROM event WHERE row_id = 'tea' AND version = 2");
    let report = store.verify().await?;
    assert_eq!((report.differing, report.events), (vec!["shelf/tea".to_owned()], 3));
    for events in 1..=3 {
        assert_eq!(in_parts(&store, events).await?, ["shelf/tea"]);
        assert_eq!(in_pages(&store, usize::try_from(events).expect("a few")).await?, ["shelf/tea"]);
    }
    Ok(())
}

/// Verification lists every difference, not only the first.
#[tokio::test]
async fn unreadable_event_is_reported_and_others_are_verified() -> Outcome {
    let (file, store) = DepotFile::new()?;
    for label in ["coffee", "milk", "tea"] {
        commit(&store, recorded(label, &[], &[put(3)])).await?;
    }
    file.execute("UPDATE event SET data = '{\"Put\":\"three\"}' WHERE row_id = 'coffee'");
    file.execute("UPDATE row_shelf SET pieces = 4 WHERE id = 'tea'");
    assert_eq!(store.verify().await?.differing, ["shelf/coffee", "shelf/tea"]);
    let fault = store.rebuild("shelf").await.expect_err("a row without a state is none");
    assert!(saga_core::retry::error_chain(&fault).contains("shelf/coffee"), "{fault:?}");
    assert_eq!(state(&store, "milk").await?.map(|shelf| shelf.pieces), Some(3), "nothing was touched");
    Ok(())
}

/// Shelf without its first field.
struct Fewer(Box<dyn Folding>);

impl Folding for Fewer {
    fn add(&mut self, event: &str) -> serde_json::Result<()> {
        self.0.add(event)
    }
    fn keep(&mut self, event: PastEvent<&str>) -> serde_json::Result<()> {
        self.0.keep(event)
    }
    fn projected(&self, id: &str) -> serde_json::Result<Projected> {
        let mut projected = self.0.projected(id)?;
        projected.fields.remove(0);
        Ok(projected)
    }
    fn kept_as(&self, id: &str, state: &[u8]) -> Option<SearchedBy> {
        let mut searched_by = self.0.kept_as(id, state)?;
        searched_by.fields.remove(0);
        Some(searched_by)
    }
    fn with_history(self: Box<Self>) -> AnyWithHistory {
        self.0.with_history()
    }
}

/// A changed declaration rebuilds the rows from their events.
#[tokio::test]
async fn kind_with_changed_fields_is_rebuilt_on_open() -> Outcome {
    fn with_fewer_fields() -> RowKind {
        RowKind {
            fields: &["pieces"],
            begin: |snapshot| Ok(Box::new(Fewer((RowKind::of::<Shelf>().begin)(snapshot)?))),
            ..RowKind::of::<Shelf>()
        }
    }
    let file = DepotFile(tempfile::tempdir().expect("a folder"));
    let old = SqliteStore::open(&file.path(), vec![with_fewer_fields()])?;
    let mut writes = recorded("tea", &[], &[ShelfEvent::Listed, put(3)]);
    writes.rows[0].projected.fields.remove(0);
    commit(&old, writes).await?;
    drop(old);

    let store = file.open()?;
    let listed = Query { equals: vec![("status", "LISTED".into())], limit: 9, ..Query::default() };
    let found = store.find("shelf", listed).await?;
    assert_eq!(found.iter().map(|row| &row.id[..]).collect::<Vec<_>>(), ["tea"]);
    let report = store.verify().await?;
    assert_eq!((report.rows, report.differing), (1, vec![]));
    commit(&store, recorded("tea", &[ShelfEvent::Listed, put(3)], &[put(4)])).await
}

#[tokio::test]
async fn reader_sees_last_commit_during_write() -> Outcome {
    let (_file, store) = DepotFile::new()?;
    commit(&store, outbox_writes([1])).await?;
    let (barrier, entered) = Barrier::new();
    let mut blocked = Box::pin(barrier.block(&store));
    assert!(futures::poll!(&mut blocked).is_pending());
    entered.recv().expect("the writer is at work");
    let pending = in_time("a reader that does not wait for the writer", store.pending_entries(9)).await?;
    assert_eq!(pending.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(1)]);
    barrier.open();
    in_time("the blocked batch", blocked).await.map(drop)
}

/// Blocks the writer within a decision until opened.
struct Barrier {
    opening: Sender<()>,
    opened: Arc<Mutex<Receiver<()>>>,
    entering: Sender<()>,
}

impl Barrier {
    /// Barrier, and a receiver that learns when the writer has reached it.
    fn new() -> (Self, Receiver<()>) {
        let (opening, opened) = channel();
        let (entering, entered) = channel();
        (Self { opening, opened: Arc::new(Mutex::new(opened)), entering }, entered)
    }

    fn block(&self, store: &dyn Store) -> impl Future<Output = Result<Vec<OutboxEntry>, StoreFault>> {
        let (opened, entering) = (self.opened.clone(), self.entering.clone());
        let decide = move |_: Loaded| {
            let _ = entering.send(());
            let _ = opened.lock().expect("no panic").recv();
            Writes::default()
        };
        store.transact(Reads::default(), Box::new(decide))
    }

    fn open(&self) {
        self.opening.send(()).expect("the writer waits");
    }
}

/// Copy of the folder as a crash at this moment would leave it.
fn image_of(folder: &Path) -> DepotFile {
    let image = tempfile::tempdir().expect("a folder");
    for name in ["depot.db", "depot.db-wal"] {
        std::fs::copy(folder.join(name), image.path().join(name)).expect("a copy");
    }
    DepotFile(image)
}
