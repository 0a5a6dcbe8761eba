//! What a check in parts costs, and what it tells of, when rows are folded along the log.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;
use saga_core::decision::Writes;
use saga_core::service::Service as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Departures, FoldReport, LeavingEvent, Part, Store, StoreFault};

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

/// So many events of each shelf, in turns, one a second.
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

/// All parts of a check.
async fn parts(store: &SqliteStore, events: u64, most: usize) -> Result<Vec<FoldReport>, StoreFault> {
    let (mut parts, mut after) = (vec![], None);
    loop {
        let part = store.verify_part(Part { after, events, ..Part::default() }).await?;
        after = part.next.clone();
        parts.push(part);
        if after.is_none() {
            return Ok(parts);
        }
        assert!(parts.len() < most, "it does not end: {after:?}");
    }
}

/// Somebody waits for the answer to each part: it is of about so many events, and the whole history of one row at most.
fn assert_bounded(parts: &[FoldReport], events: u64, longest: u64) {
    let most = parts.iter().map(|part| part.events).max();
    assert!(most <= Some(events + longest), "a part of {most:?} events, of which {events} were asked");
}

/// After `rebuild --archived`, for good: what was brought back stands behind what came after it.
#[tokio::test]
async fn parts_stay_small_after_events_were_brought_back() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 20).await?;
    let mut left: Vec<LeavingEvent> = vec![];
    let before = Departures { history: at(15), began: at(15), dead_letters: Timestamp::MIN };
    loop {
        let leaving = store.departures(before, 100).await?;
        if leaving.is_over() {
            break;
        }
        left.extend(leaving.events.clone());
        store.depart(leaving).await?;
    }
    assert!(left.len() > 100, "{}", left.len());
    assert_bounded(&parts(&store, 10, 1_000).await?, 10, 20);
    store.bring_back("shelf", left).await?;
    store.rebuild("shelf").await?;
    let parts = parts(&store, 10, 1_000).await?;
    assert_eq!(parts.iter().map(|part| part.rows).sum::<u64>(), SHELVES as u64);
    assert!(parts.iter().all(|part| part.differing.is_empty()));
    assert_bounded(&parts, 10, 20);
    Ok(())
}

/// As after a build that folds otherwise than the one that wrote them.
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

/// As admin's one row of the books beside the events of all sagas.
#[tokio::test]
async fn a_row_of_a_few_events_costs_no_reading_of_the_whole_log() -> Outcome {
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

/// The parameter comes from outside.
#[tokio::test]
async fn a_check_in_parts_of_no_events_ends() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 2).await?;
    parts(&store, 0, 100).await.map(drop)
}

/// The last event of a row never leaves: one that has none but a snapshot was robbed of it.
#[tokio::test]
async fn a_row_that_has_nothing_but_a_snapshot_is_told_of_in_parts_as_in_one() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 3).await?;
    let before = Departures { history: at(2), began: at(2), dead_letters: Timestamp::MIN };
    loop {
        let leaving = store.departures(before, 100).await?;
        if leaving.is_over() {
            break;
        }
        store.depart(leaving).await?;
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

/// Of two checks at once, one loses what it had folded; not both.
#[tokio::test]
async fn of_two_checks_at_once_one_stays_along_the_log() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 20).await?;
    let part = |after| store.verify_part(Part { after, events: 10, ..Part::default() });
    let one = part(None).await?.next;
    let other = part(part(None).await?.next).await?.next;
    let one = part(one).await?.next.expect("there is more");
    assert!(one.starts_with("shelf/"), "it begins anew, row by row: {one}");
    let other = part(other).await?.next.expect("there is more");
    assert!(other.starts_with("shelf@"), "nobody else folds along the log: {other}");
    Ok(())
}

/// A service that has run for long: what is old has left, and the log begins far behind its first place. Each part is an
/// answer over the network: of places where nothing is any more there must not be any.
#[tokio::test]
async fn a_log_whose_beginning_has_left_costs_no_parts_of_nothing() -> Outcome {
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

/// The same where it was made: old events of shelves leave, while those of the others stay in between.
#[tokio::test]
async fn what_has_left_of_the_log_makes_a_check_no_longer() -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path())?;
    fill(&store, 0, 40).await?;
    let fresh = parts(&store, 10, 1_000).await?.len();
    let before = Departures { history: at(38), began: at(38), dead_letters: Timestamp::MIN };
    loop {
        let leaving = store.departures(before, 100).await?;
        if leaving.is_over() {
            break;
        }
        store.depart(leaving).await?;
    }
    let aged = parts(&store, 10, 1_000).await?;
    let events: u64 = aged.iter().map(|part| part.events).sum();
    assert!(aged.len() as u64 <= 3 + events / 10, "{} parts for {events} events; {fresh} before", aged.len());
    Ok(())
}
