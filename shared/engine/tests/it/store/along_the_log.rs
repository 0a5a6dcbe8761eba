//! Verification in parts by scans of the log: cost and findings.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;
use saga_core::decision::Writes;
use saga_core::service::Service as _;
use saga_engine::store::roles::{Retention as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{PurgedEvent, RetentionCutoffs, StoreFault, VerificationPart, VerificationReport};

use crate::support::{Depot, ShelfEvent, at, commit, put, recorded};

type Outcome = Result<(), StoreFault>;

const SHELVES: usize = 8;

fn open(folder: &Path) -> Result<SqliteStore, StoreFault> {
    SqliteStore::open(&folder.join("depot.db"), Depot::rows())
}

fn by_hand(folder: &Path, sql: &str) {
    let conn = Connection::open(folder.join("depot.db")).expect("the file");
    assert!(conn.execute(sql, []).expect("the change") > 0, "{sql} changed nothing");
}

/// Commits so many events of each shelf in turn, one a second.
async fn fill(store: &SqliteStore, from: usize, to: usize) -> Outcome {
    for version in from..to {
        let before: Vec<ShelfEvent> = (0..version).map(|_| put(1)).collect();
        for shelf in 0..SHELVES {
            let second = i64::try_from(version).expect("a few");
            let writes = recorded(&format!("shelf {shelf}"), &before, &[put(1)]);
            commit(store, Writes { decided_at: at(second), ..writes }).await?;
        }
    }
    Ok(())
}

async fn parts(store: &SqliteStore, events: u64, most: usize) -> Result<Vec<VerificationReport>, StoreFault> {
    let (mut parts, mut after) = (vec![], None);
    loop {
        let part =
            store.verify_part(VerificationPart { after, events, ..VerificationPart::default() }).await?;
        after = part.next.clone();
        parts.push(part);
        if after.is_none() {
            return Ok(parts);
        }
        assert!(parts.len() < most, "it does not end: {after:?}");
    }
}

/// A caller waits for each part, so that a part covers about so many events, and one whole history at most.
fn assert_bounded(parts: &[VerificationReport], events: u64, longest: u64) {
    let most = parts.iter().map(|part| part.events).max();
    assert!(most <= Some(events + longest), "a part of {most:?} events, of which {events} were asked");
}

/// As after `rebuild --archived`: restored events stand after newer ones.
#[tokio::test]
async fn parts_stay_small_after_events_were_restored() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 20).await?;
    let mut left: Vec<PurgedEvent> = vec![];
    let before = RetentionCutoffs { history: at(15), began: at(15), dead_letters: Timestamp::MIN };
    loop {
        let leaving = store.find_purgeable(before, 100).await?;
        if leaving.is_over() {
            break;
        }
        left.extend(leaving.events.clone());
        store.purge(leaving).await?;
    }
    assert!(left.len() > 100, "{}", left.len());
    assert_bounded(&parts(&store, 10, 1_000).await?, 10, 20);
    store.restore_events("shelf", left).await?;
    store.rebuild("shelf").await?;
    let parts = parts(&store, 10, 1_000).await?;
    assert_eq!(parts.iter().map(|part| part.rows).sum::<u64>(), SHELVES as u64);
    assert!(parts.iter().all(|part| part.differing.is_empty()));
    assert_bounded(&parts, 10, 20);
    Ok(())
}

/// As after a change of the fold.
#[tokio::test]
async fn parts_stay_small_where_every_row_differs() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 20).await?;
    by_hand(folder.path(), "UPDATE row_shelf SET updated_at = updated_at + 1");
    let parts = parts(&store, 10, 1_000).await?;
    assert_eq!(parts.iter().map(|part| part.differing.len()).sum::<usize>(), SHELVES);
    assert_bounded(&parts, 10, 20);
    Ok(())
}

/// As the reconciliation state of admin, one row beside the events of all sagas.
#[tokio::test]
async fn kind_with_few_events_is_not_scanned() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    by_hand(
        folder.path(),
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
         INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at)
         SELECT 'saga', 'saga ' || n, 1, 'Heard', '{}', zeroblob(16), 0 FROM n",
    );
    let parts = parts(&store, 10, 10_000).await?;
    assert!(parts.len() <= 2, "{} parts for one event", parts.len());
    Ok(())
}

/// The number of events comes from an API parameter.
#[tokio::test]
async fn verification_in_parts_of_zero_events_ends() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 2).await?;
    parts(&store, 0, 100).await.map(drop)
}

/// The last event of a row is never purged, so that a row with a snapshot only has lost events.
#[tokio::test]
async fn row_with_snapshot_only_is_reported_in_parts_as_in_full_verification() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 3).await?;
    let before = RetentionCutoffs { history: at(2), began: at(2), dead_letters: Timestamp::MIN };
    loop {
        let leaving = store.find_purgeable(before, 100).await?;
        if leaving.is_over() {
            break;
        }
        store.purge(leaving).await?;
    }
    by_hand(folder.path(), "DELETE FROM event WHERE row_id = 'shelf 3'");
    by_hand(
        folder.path(),
        "UPDATE row_shelf SET version = s.version, state = s.state, updated_at = row_shelf.created_at,
             pieces = json_extract(s.state, '$.pieces')
         FROM snapshot AS s WHERE s.row_id = row_shelf.id AND row_shelf.id = 'shelf 3'",
    );
    let whole = store.verify().await?.differing;
    assert_eq!(whole, ["shelf: 1 rows without events"]);
    let in_parts: Vec<_> = parts(&store, 3, 100).await?.into_iter().flat_map(|part| part.differing).collect();
    assert_eq!(in_parts, whole);
    Ok(())
}

/// One of two concurrent verifications loses its progress, but not both.
#[tokio::test]
async fn one_of_two_concurrent_verifications_keeps_its_scan() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 20).await?;
    let part =
        |after| store.verify_part(VerificationPart { after, events: 10, ..VerificationPart::default() });
    let one = part(None).await?.next;
    let other = part(part(None).await?.next).await?.next;
    let one = part(one).await?.next.expect("there is more");
    assert!(one.starts_with("shelf/"), "it begins anew, row by row: {one}");
    let other = part(other).await?.next.expect("there is more");
    assert!(other.starts_with("shelf@"), "nobody else folds along the log: {other}");
    Ok(())
}

/// In a long-running service the log begins far from position 0. Parts are requests over the network, and none may be
/// empty.
#[tokio::test]
async fn purged_beginning_of_log_adds_no_empty_parts() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 20).await?;
    let fresh = parts(&store, 10, 1_000).await?.len();
    by_hand(folder.path(), "UPDATE event SET seq = seq + 100000 WHERE seq > 0");
    let aged = parts(&store, 10, 100_000).await?;
    assert_eq!(aged.iter().map(|part| part.rows).sum::<u64>(), SHELVES as u64);
    let empty = aged.iter().filter(|part| part.events == 0 && part.rows == 0).count();
    assert!(aged.len() <= 2 * fresh, "{} parts, {empty} of them of nothing; {fresh} before", aged.len());
    Ok(())
}

/// Old events of shelves are purged, while those of other kinds stay in between.
#[tokio::test]
async fn purged_events_do_not_lengthen_verification() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 40).await?;
    let fresh = parts(&store, 10, 1_000).await?.len();
    let before = RetentionCutoffs { history: at(38), began: at(38), dead_letters: Timestamp::MIN };
    loop {
        let leaving = store.find_purgeable(before, 100).await?;
        if leaving.is_over() {
            break;
        }
        store.purge(leaving).await?;
    }
    let aged = parts(&store, 10, 1_000).await?;
    let events: u64 = aged.iter().map(|part| part.events).sum();
    assert!(aged.len() as u64 <= 3 + events / 10, "{} parts for {events} events; {fresh} before", aged.len());
    Ok(())
}
