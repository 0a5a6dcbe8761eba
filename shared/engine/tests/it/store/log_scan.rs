//! Verification in parts by scans of the log: cost and findings.

use jiff::Timestamp;
use saga_core::decision::Writes;
use saga_engine::store::roles::{Retention as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{PurgedEvent, RetentionCutoffs, StoreFault, VerificationPart, VerificationReport};

use super::DepotFile;
use crate::support::{ShelfEvent, at, commit, put, recorded};

type Outcome = Result<(), StoreFault>;

const SHELVES: usize = 8;

/// Purges the events before this second. Returns them.
async fn purge_before(store: &SqliteStore, second: i64) -> Result<Vec<PurgedEvent>, StoreFault> {
    let cutoffs = RetentionCutoffs { history: at(second), began: at(second), dead_letters: Timestamp::MIN };
    let mut purged = vec![];
    loop {
        let batch = store.find_purgeable(cutoffs, 100).await?;
        if batch.is_over() {
            return Ok(purged);
        }
        purged.extend(batch.events.clone());
        store.purge(batch).await?;
    }
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
        assert!(parts.len() < most, "the verification does not end: {after:?}");
    }
}

/// A caller waits for each part, so that a part covers about so many events, and one whole history at most.
fn assert_bounded(parts: &[VerificationReport], events: u64, longest: u64) {
    let most = parts.iter().map(|part| part.events).max();
    assert!(most <= Some(events + longest), "a part of {most:?} events, of {events} requested");
}

/// As after `rebuild --archived`: restored events stand after newer ones.
#[tokio::test]
async fn parts_stay_small_after_events_were_restored() -> Outcome {
    let (_file, store) = DepotFile::new()?;
    fill(&store, 0, 20).await?;
    let purged = purge_before(&store, 15).await?;
    assert!(purged.len() > 100, "{}", purged.len());
    assert_bounded(&parts(&store, 10, 1_000).await?, 10, 20);
    store.restore_events("shelf", purged).await?;
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
    let (file, store) = DepotFile::new()?;
    fill(&store, 0, 20).await?;
    file.execute("UPDATE row_shelf SET updated_at = updated_at + 1");
    let parts = parts(&store, 10, 1_000).await?;
    assert_eq!(parts.iter().map(|part| part.differing.len()).sum::<usize>(), SHELVES);
    assert_bounded(&parts, 10, 20);
    Ok(())
}

/// As the reconciliation state of admin, one row beside the events of all sagas.
#[tokio::test]
async fn kind_with_few_events_is_not_scanned() -> Outcome {
    let (file, store) = DepotFile::new()?;
    commit(&store, recorded("tea", &[], &[put(3)])).await?;
    file.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
         INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at)
         SELECT 'saga', 'saga ' || n, 1, 'Recorded', '{}', zeroblob(16), 0 FROM n",
    );
    let parts = parts(&store, 10, 10_000).await?;
    assert!(parts.len() <= 2, "{} parts for one event", parts.len());
    Ok(())
}

/// The number of events comes from an API parameter.
#[tokio::test]
async fn verification_in_parts_of_zero_events_ends() -> Outcome {
    let (_file, store) = DepotFile::new()?;
    fill(&store, 0, 2).await?;
    parts(&store, 0, 100).await.map(drop)
}

/// The last event of a row is never purged, so that a row with a snapshot only has lost events.
#[tokio::test]
async fn row_with_snapshot_only_is_reported_in_parts_as_in_full_verification() -> Outcome {
    let (file, store) = DepotFile::new()?;
    fill(&store, 0, 3).await?;
    purge_before(&store, 2).await?;
    file.execute("DELETE FROM event WHERE row_id = 'shelf 3'");
    file.execute(
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
    let (_file, store) = DepotFile::new()?;
    fill(&store, 0, 20).await?;
    let part =
        |after| store.verify_part(VerificationPart { after, events: 10, ..VerificationPart::default() });
    let one = part(None).await?.next;
    let other = part(part(None).await?.next).await?.next;
    let one = part(one).await?.next.expect("there is more");
    assert!(one.starts_with("shelf/"), "it restarts row by row: {one}");
    let other = part(other).await?.next.expect("there is more");
    assert!(other.starts_with("shelf@"), "no other verification scans the log: {other}");
    Ok(())
}

/// In a long-running service the log begins far from position 0. Parts are requests over the network, and none may be
/// empty.
#[tokio::test]
async fn purged_beginning_of_log_adds_no_empty_parts() -> Outcome {
    let (file, store) = DepotFile::new()?;
    fill(&store, 0, 20).await?;
    let fresh = parts(&store, 10, 1_000).await?.len();
    file.execute("UPDATE event SET seq = seq + 100000 WHERE seq > 0");
    let aged = parts(&store, 10, 100_000).await?;
    assert_eq!(aged.iter().map(|part| part.rows).sum::<u64>(), SHELVES as u64);
    let empty = aged.iter().filter(|part| part.events == 0 && part.rows == 0).count();
    assert!(aged.len() <= 2 * fresh, "{} parts, {empty} of them of nothing; {fresh} before", aged.len());
    Ok(())
}

/// Old events of shelves are purged, while those of other kinds stay in between.
#[tokio::test]
async fn purged_events_do_not_lengthen_verification() -> Outcome {
    let (_file, store) = DepotFile::new()?;
    fill(&store, 0, 40).await?;
    let fresh = parts(&store, 10, 1_000).await?.len();
    purge_before(&store, 38).await?;
    let aged = parts(&store, 10, 1_000).await?;
    let events: u64 = aged.iter().map(|part| part.events).sum();
    assert!(aged.len() as u64 <= 3 + events / 10, "{} parts for {events} events; {fresh} before", aged.len());
    Ok(())
}
