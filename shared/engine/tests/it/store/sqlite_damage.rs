//! SQLite: a damaged cell is named by every verification, and hides no other row, event or work.

use std::collections::BTreeSet;

use saga_core::decider::Decider as _;
use saga_core::query::{Order, Query};
use saga_core::row::RowKey;
use saga_engine::host::queries::{LedgerQuery, changed_ids, entries_with_history, list_page, position};
use saga_engine::store::roles::{DueWork as _, History as _, Queries as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{StoreFault, VerificationPart, VerifiedPage};

use super::DepotFile;
use crate::support::{Shelf, ShelfEvent, at, commit, due_query, put, recorded};

type Outcome = Result<(), StoreFault>;

/// Values of a wrong type.
const INVALID_TEXT: &str = "CAST(x'74ff61' AS TEXT)";
const BLOB: &str = "x'7b7d00ff'";
const TEXT: &str = "'noon'";

/// Damages of a row or event of the shelf `tea`: table, column and value, with the names that a full verification gives.
const DAMAGES: &[(&str, &str, &str, &[&str])] = &[
    ("event", "data", INVALID_TEXT, &["shelf/tea: event.data is damaged"]),
    ("event", "data", BLOB, &["shelf/tea: event.data is damaged"]),
    ("event", "row_id", INVALID_TEXT, &["shelf/tea", "shelf/damaged:t\u{fffd}a: event.row_id is damaged"]),
    ("event", "row_id", BLOB, &["shelf/tea", "shelf/damaged:x'7b7d00ff': event.row_id is damaged"]),
    ("event", "recorded_at", TEXT, &["shelf/tea: event.recorded_at is damaged"]),
    ("event", "recorded_at", BLOB, &["shelf/tea: event.recorded_at is damaged"]),
    ("event", "version", TEXT, &["shelf/tea: event.version is damaged"]),
    ("event", "version", BLOB, &["shelf/tea: event.version is damaged"]),
    ("event", "is_published", TEXT, &["shelf/tea: event.is_published is damaged"]),
    ("event", "kind", INVALID_TEXT, &["shelf/tea"]),
    ("event", "kind", BLOB, &["shelf/tea"]),
    ("row_shelf", "id", INVALID_TEXT, &["shelf/tea", "shelf/damaged:t\u{fffd}a: row_shelf.id is damaged"]),
    ("row_shelf", "id", BLOB, &["shelf/tea", "shelf/damaged:x'7b7d00ff': row_shelf.id is damaged"]),
    ("row_shelf", "state", INVALID_TEXT, &["shelf/tea: row_shelf.state is damaged"]),
    ("row_shelf", "state", BLOB, &["shelf/tea: row_shelf.state is damaged"]),
    ("row_shelf", "version", TEXT, &["shelf/tea: row_shelf.version is damaged"]),
    ("row_shelf", "created_at", TEXT, &["shelf/tea: row_shelf.created_at is damaged"]),
    ("row_shelf", "updated_at", BLOB, &["shelf/tea: row_shelf.updated_at is damaged"]),
    ("row_shelf", "due", TEXT, &["shelf/tea"]),
    ("row_shelf", "status", INVALID_TEXT, &["shelf/tea"]),
    ("row_shelf", "status", BLOB, &["shelf/tea"]),
    ("row_shelf", "pieces", TEXT, &["shelf/tea"]),
];

#[tokio::test]
async fn damaged_cell_is_named_and_hides_no_other() -> Outcome {
    for (table, column, value, named) in DAMAGES {
        let what = format!("{table}.{column} = {value}");
        let (file, store) = filled().await?;
        let position = store.position().await?.events;
        let of_tea = match *table {
            "event" => "seq = (SELECT max(seq) FROM event WHERE row_id = 'tea')",
            _ => "id = 'tea'",
        };
        file.execute(&format!("UPDATE {table} SET {column} = {value} WHERE {of_tea}"));
        let named: BTreeSet<String> = named.iter().map(|name| (*name).to_owned()).collect();
        assert_verified(&store, &named, &what).await?;
        assert_lists(&store, *column == "id", &what).await?;
        assert_ledgers(&store, &what, position).await;
        let due = store.claim_due(due_query(at(99), 9, "owner", at(200))).await?;
        let due: Vec<String> = due.rows.into_iter().map(|(key, _)| key.id).filter(|id| id != "tea").collect();
        assert_eq!(due, ["milk"], "{what}");
    }
    Ok(())
}

/// Damages are named by incremental verification too, which reads only what has changed.
#[tokio::test]
async fn damaged_event_is_named_by_verification_of_changes() -> Outcome {
    for (column, value, named) in [
        ("data", BLOB, "shelf/tea: event.data is damaged"),
        ("recorded_at", TEXT, "shelf/tea: event.recorded_at is damaged"),
        ("row_id", INVALID_TEXT, "event 4: its kind or row_id is damaged"),
    ] {
        let (file, store) = filled().await?;
        file.execute(&format!("UPDATE event SET {column} = {value} WHERE seq = 4"));
        let report = store.verify_changed(0, 100).await?;
        assert!(report.differing.contains(&named.to_owned()), "{column}: {:?}", report.differing);
    }
    Ok(())
}

/// Store with the shelves `milk`, which is due, `tea` and `urn`.
async fn filled() -> Result<(DepotFile, SqliteStore), StoreFault> {
    let (file, store) = DepotFile::new()?;
    let planned = ShelfEvent::CheckPlanned { at: at(1) };
    for (label, new) in
        [("milk", vec![put(1), planned]), ("tea", vec![put(3), put(4)]), ("urn", vec![put(5)])]
    {
        commit(&store, recorded(label, &[], &new)).await?;
    }
    Ok((file, store))
}

async fn assert_verified(store: &SqliteStore, named: &BTreeSet<String>, what: &str) -> Outcome {
    let whole: BTreeSet<String> = store.verify().await?.differing.into_iter().collect();
    assert_eq!(&whole, named, "{what}: all at once");
    for events in [1, 2, 100] {
        for scans in [true, false] {
            let (mut found, mut after, mut parts) = (BTreeSet::new(), None, 0);
            loop {
                let part = VerificationPart { after, events, ..VerificationPart::default() };
                let part = store.verify_part(part).await?;
                found.extend(part.differing);
                // A scan that is lost is replaced by reading row by row.
                after = part.next.map(|next| match next.split_once('@') {
                    Some((kind, _)) if !scans => format!("{kind}@-1"),
                    Some(_) | None => next,
                });
                parts += 1;
                assert!(parts < 30, "{what}: parts of {events} do not end");
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(&found, named, "{what}: parts of {events}");
        }
    }
    for limit in [1, 2, 100] {
        let (mut found, mut after, mut pages) = (BTreeSet::new(), None, 0);
        loop {
            let page = VerifiedPage { after, limit, with_histories: true };
            let page = store.verified_rows(Shelf::KIND, page).await?;
            found.extend(page.folds.differing);
            after = page.folds.next;
            pages += 1;
            assert!(pages < 30, "{what}: pages of {limit} do not end");
            if after.is_none() {
                break;
            }
        }
        assert_eq!(&found, named, "{what}: pages of {limit}");
    }
    Ok(())
}

/// Lists have every row whose id can be read, page by page in any order.
async fn assert_lists(store: &SqliteStore, is_id: bool, what: &str) -> Outcome {
    let wanted: &[&str] = if is_id { &["milk", "urn"] } else { &["milk", "tea", "urn"] };
    for descending in [false, true] {
        let (mut ids, mut after) = (Vec::new(), None);
        for _ in 0..9 {
            let query = Query { after, descending, ..Query::default() };
            let (rows, next) = list_page(store, Shelf::KIND, Some(1), query).await.expect(what);
            ids.extend(rows.into_iter().map(|row| row.id));
            after = next;
            if after.is_none() {
                break;
            }
        }
        ids.sort();
        assert_eq!(ids, wanted, "{what}: descending {descending}");
    }
    let order = Some(Order { field: "status", after: None });
    let sorted = store.find(Shelf::KIND, Query { order, limit: 9, ..Query::default() }).await?;
    assert_eq!(sorted.len(), wanted.len(), "{what}");
    let all = Query { limit: 9, ..Query::default() };
    let counts = store.counts(Shelf::KIND, "status", all.clone()).await?;
    assert_eq!(counts.values().sum::<u64>(), 3, "{what}");
    let groups = store.groups(Shelf::KIND, "status", "pieces", all).await?;
    assert_eq!(groups.iter().map(|group| group.count).sum::<u64>(), 3, "{what}");
    Ok(())
}

async fn assert_ledgers(store: &SqliteStore, what: &str, end: i64) {
    let entry = |id: &str, _| Some(id.to_owned());
    let page = entries_with_history::<Shelf, _>(store, LedgerQuery::default(), entry).await.expect(what);
    for other in ["milk", "urn"] {
        assert!(page.entries.iter().any(|entry| entry == other), "{what}: {page:?}");
    }
    let only = |as_of| LedgerQuery { only: Some("milk,tea,urn".to_owned()), as_of, ..LedgerQuery::default() };
    for as_of in [None, Some(end)] {
        let page = entries_with_history::<Shelf, _>(store, only(as_of), entry).await.expect(what);
        for other in ["milk", "urn"] {
            assert!(page.entries.iter().any(|entry| entry == other), "{what}: {page:?}");
        }
    }
    let changed = changed_ids(store, Shelf::KIND, 0, None).await.expect(what);
    for other in ["milk", "urn"] {
        assert!(changed.ids.iter().any(|id| id == other), "{what}: {changed:?}");
    }
    for seq in 1..=end {
        let known = position(store, Some(seq)).await.expect(what);
        assert!(!known.event_hash.is_empty(), "{what}");
    }
    let history = store.events(RowKey::of::<Shelf>("tea"), 0, 9).await.expect(what);
    assert!(!history.is_empty(), "{what}");
}
