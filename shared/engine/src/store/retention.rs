//! Shell: retention: finds old history and purges it, and restores it from an archive.
//!
//! A batch is found first, so that the caller can archive it before it is deleted. The log is scanned once, from its oldest
//! event on. An old event lets earlier events of its row be purged, with a snapshot in their place. The last event of a
//! finished row lets the whole row be purged, at once or when no work of its saga is open any more. The last event of a row
//! that lives on is kept. So is the last event of all, whose position must not be assigned twice.
//!
//! Replicas that share the database write at the same time. Rows are locked before the log, as batches do. What a batch has
//! locked is skipped.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::{ClosedRows, RetentionPolicy, Sums};
use saga_core::ids::first_at;
use saga_core::retry::error_chain;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tracing::error;
use uuid::Uuid;

use super::Answer;
use super::backend::{Backend, Lane, Urgency};
use super::cell::Cell;
use super::encoding::micros;
use super::held_rows::{LastEvent, OpenSagas, held_rows, hold, release};
use super::purge_batch::{
    PurgeBatch, PurgedEvent, PurgedRow, RetentionCutoffs, RowSnapshot, Scanned, TrimCutoffs,
};
use super::purged::{PurgedRows, add_to_purged_sum, purged_before, purged_rows, set_purged_before};
use super::reading::history_between;
use super::roles::Retention;
use super::sql::{Array, Row, Sql, Values, limit_of, quoted};
use super::sql_error::{SqlError, db_fault};
use super::stored_rows::snapshot;
use super::trim::trim;

/// Approximate limit of a scan, in bytes of events. An event may carry a whole message.
const SCAN_BYTES: i64 = 4 * 1024 * 1024;

impl<B: Backend> Retention for B {
    fn find_purgeable(&self, before: RetentionCutoffs, limit: usize) -> Answer<'_, PurgeBatch> {
        let args = (self.kinds().clone(), before, limit_of(limit));
        self.snapshot(Lane::Verification, args, |db, (kinds, before, limit)| {
            Box::pin(async move {
                find(db, &kinds.0, before, *limit).await.map_err(db_fault("looking for what may be purged"))
            })
        })
    }

    fn purge(&self, batch: PurgeBatch) -> Answer<'_, u64> {
        self.write(Urgency::Deferrable, batch, |db, batch| {
            Box::pin(async move { purge(db, batch).await.map_err(db_fault("purging old history")) })
        })
    }

    fn purged_rows(&self, kind: &'static str) -> Answer<'_, PurgedRows> {
        self.read(Lane::Row, kind, |db, kind| {
            Box::pin(async move {
                purged_rows(db, kind).await.map_err(db_fault("reading the sums over purged rows"))
            })
        })
    }

    fn restore_events(&self, kind: &'static str, events: Vec<PurgedEvent>) -> Answer<'_, u64> {
        self.write(Urgency::Long, (kind, events), |db, (kind, events)| {
            Box::pin(
                async move { restore(db, kind, events).await.map_err(db_fault("restoring purged events")) },
            )
        })
    }

    fn trim(&self, cutoffs: TrimCutoffs, limit: usize) -> Answer<'_, u64> {
        self.write(Urgency::Immediate, (cutoffs, limit_of(limit)), |db, (cutoffs, limit)| {
            Box::pin(async move {
                trim(db, *cutoffs, *limit).await.map_err(db_fault("trimming finished entries"))
            })
        })
    }
}

/// Finds what may be purged next.
async fn find<S: Sql>(
    db: &S,
    kinds: &[RowKind],
    cutoffs: &RetentionCutoffs,
    limit: i64,
) -> Result<PurgeBatch, SqlError> {
    let from = scan_position(db).await?;
    let mut batch = PurgeBatch { from, up_to: from, ..PurgeBatch::default() };
    let scanned = scan(db, &mut batch, micros(cutoffs.history), limit).await?;
    batch.before = first_at(cutoffs.began);
    let mut open_sagas = None;
    for ((kind, id), scanned) in scanned {
        let Some(kind) = kinds.iter().find(|declared| declared.name == kind) else { continue };
        match kind.retention {
            RetentionPolicy::Keep => {}
            RetentionPolicy::PurgeEvents => {
                let events = history_between(db, kind.name, &id, (0, scanned.newest), limit).await?;
                let snapshot = snapshot(db, kind, &Cell::Text(id.clone())).await?;
                batch.add_events_of_row((kind, &id), snapshot.as_ref(), events, (scanned, limit));
            }
            RetentionPolicy::PurgeRows | RetentionPolicy::PurgeRowsFirst | RetentionPolicy::PurgeRowsLast => {
                let version = scanned.newest;
                add_finished_row(db, kinds, &mut batch, (kind, &id, version), &mut open_sagas).await?;
            }
            // By their own age, below.
            RetentionPolicy::PurgeClosedRows(_) => {}
        }
    }
    // Only at the end of the log: each search reads past what is too young, or still open.
    if batch.from == batch.up_to {
        add_held_rows(db, kinds, &mut batch, (micros(cutoffs.history), limit)).await?;
        for kind in kinds {
            if let RetentionPolicy::PurgeClosedRows(closed) = kind.retention {
                add_closed_rows(db, &mut batch, (kind, closed), (micros(cutoffs.dead_letters), limit))
                    .await?;
            }
        }
    }
    if batch.events.is_empty() {
        batch.dead_letters = closed_dead_letters(db, micros(cutoffs.dead_letters), limit).await?;
    }
    Ok(batch)
}

/// Position of the last scanned event.
async fn scan_position<S: Sql>(db: &S) -> Result<i64, SqlError> {
    db.query_one("SELECT coalesce(max(up_to), 0) FROM retention_scan", &[], |row| row.get(0)).await
}

/// Reads the next old events, grouped by row, up to the first that is too young. Leaves out the last of all.
async fn scan<S: Sql>(
    db: &S,
    batch: &mut PurgeBatch,
    cutoff: i64,
    limit: i64,
) -> Result<BTreeMap<(String, String), Scanned>, SqlError> {
    let (mut rows, mut total) = (BTreeMap::new(), 0);
    let sql = "SELECT seq, kind, row_id, version, recorded_at, CAST(octet_length(data) AS bigint) FROM event
         WHERE seq > $1 AND seq < (SELECT max(seq) FROM event) ORDER BY seq LIMIT $2";
    let read = |row: &Row<'_>| {
        let position: (i64, i64) = (row.get(0)?, row.get(4)?);
        let event: ((String, String), i64) = ((row.get(1)?, row.get(2)?), row.get(3)?);
        Ok((position, event, row.get::<i64>(5)?))
    };
    for ((seq, recorded_at), (key, version), bytes) in db.query(sql, &[&batch.from, &limit], read).await? {
        total += bytes;
        if recorded_at >= cutoff || (total > SCAN_BYTES && !rows.is_empty()) {
            break;
        }
        let scanned = rows.entry(key).or_insert(Scanned { first_seq: seq, newest: version });
        scanned.newest = scanned.newest.max(version);
        batch.up_to = seq;
    }
    Ok(rows)
}

/// Dead letters that were closed before `cutoff`.
async fn closed_dead_letters<S: Sql>(
    db: &S,
    cutoff: i64,
    limit: i64,
) -> Result<Vec<StoredDeadLetter>, SqlError> {
    // The revision is the time of the operator's last request.
    let sql = "SELECT content, status, revision, message_id FROM dead_letter
         WHERE status IN ('RESOLVED', 'DISCARDED') AND last_failed_at < $1 AND revision < $1 LIMIT $2";
    // A damaged one keeps no other.
    let read = |row: &Row<'_>| {
        Ok(row.dead_letter().inspect_err(|error| error!("a dead letter is not purged: {error}")).ok())
    };
    Ok(db.query(sql, &[&cutoff, &limit], read).await?.into_iter().flatten().collect())
}

/// Adds a row at this version, if it is finished. Holds it while work of its saga is open.
async fn add_finished_row<S: Sql>(
    db: &S,
    kinds: &[RowKind],
    batch: &mut PurgeBatch,
    (kind, id, version): (&RowKind, &str, i64),
    open_sagas: &mut Option<OpenSagas>,
) -> Result<(), SqlError> {
    let Ok(saga) = id.parse::<Uuid>() else { return Ok(()) };
    let state = format!("SELECT state FROM row_{} WHERE id = $1 AND version = $2", kind.name);
    let state = db.query_opt(&state, &[&id, &version], |row| row.get::<String>(0)).await?;
    let Some(sums) = state.and_then(|state| sums_of_finished(kind, id, &state)) else { return Ok(()) };
    let open_sagas = OpenSagas::find_once(open_sagas, db).await?;
    let is_young = batch.before.is_none_or(|before| saga >= before);
    let is_last = kind.retention == RetentionPolicy::PurgeRowsLast;
    if is_young || open_sagas.contains(saga) || (is_last && has_other_row(db, kinds, id).await?) {
        batch.held.push(RowKey { kind: kind.name, id: id.to_owned() });
        return Ok(());
    }
    let events = history_between(db, kind.name, id, (0, i64::MAX), i64::MAX).await?;
    batch.add_row((kind, id), (version, sums), events);
    Ok(())
}

/// Adds held rows of sagas without open work. Those that have changed since the scan passed them are left to it.
async fn add_held_rows<S: Sql>(
    db: &S,
    kinds: &[RowKind],
    batch: &mut PurgeBatch,
    (cutoff, limit): (i64, i64),
) -> Result<(), SqlError> {
    let (mut open_sagas, mut after) = (None, Default::default());
    'pages: loop {
        let page = held_rows(db, &after).await?;
        let Some(last) = page.last() else { break };
        after = last.clone();
        for (kind, id) in page {
            let Some(kind) = kinds.iter().find(|declared| declared.name == kind) else { continue };
            let Ok(saga) = id.parse() else { continue };
            if limit_of(batch.rows.len()) >= limit {
                break 'pages;
            }
            if !OpenSagas::find_once(&mut open_sagas, db).await?.contains(saga)
                && let Some(last) = LastEvent::of(db, kind.name, &id).await?
                && last.seq <= batch.from
                && last.recorded_at < cutoff
            {
                add_finished_row(db, kinds, batch, (kind, &id, last.version), &mut open_sagas).await?;
            }
        }
    }
    // They are held already.
    batch.held.clear();
    Ok(())
}

/// True if the saga has a row that must be purged first.
async fn has_other_row<S: Sql>(db: &S, kinds: &[RowKind], id: &str) -> Result<bool, SqlError> {
    for kind in kinds.iter().filter(|kind| kind.retention.purges_sagas()) {
        let exists = format!("SELECT EXISTS (SELECT 1 FROM row_{} WHERE id = $1)", kind.name);
        if db.query_one(&exists, &[&id], |row| row.get::<bool>(0)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds rows that were closed before `cutoff`.
async fn add_closed_rows<S: Sql>(
    db: &S,
    batch: &mut PurgeBatch,
    (kind, ClosedRows { status, closed, since }): (&RowKind, ClosedRows),
    (cutoff, limit): (i64, i64),
) -> Result<(), SqlError> {
    let (status, since) = (quoted(status), quoted(since));
    let sql = format!(
        "SELECT id, version, (SELECT max(seq) FROM event) FROM row_{} WHERE {status} {}
             AND {since} < $2 AND updated_at < $2 ORDER BY {since} LIMIT $3",
        kind.name,
        S::any(1)
    );
    let read = |row: &Row<'_>| Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?));
    let closed: Vec<String> = closed.iter().map(|value| (*value).to_owned()).collect();
    for (id, version, last_seq) in db.query(&sql, &[&Array(&closed), &cutoff, &limit], read).await? {
        let is_unchanged = |last: LastEvent| last.version == version && last.seq < last_seq;
        if !LastEvent::of(db, kind.name, &id).await?.is_some_and(is_unchanged) {
            // The last event of all is kept.
            continue;
        }
        let events = history_between(db, kind.name, &id, (0, i64::MAX), i64::MAX).await?;
        batch.add_closed_row((kind, &id), version, events);
    }
    Ok(())
}

/// Numbers to add to the sums over purged rows; `None` if the row is not finished, or its state cannot be read.
fn sums_of_finished(kind: &RowKind, id: &str, state: &str) -> Option<Sums> {
    (kind.finished)(state).unwrap_or_else(|why| {
        error!(row = id, kind = kind.name, "the row is not purged: {}", error_chain(&why));
        None
    })
}

/// Purges a batch, except for what has changed, or is locked by another transaction. Returns the number of purged events and
/// dead letters.
async fn purge<S: Sql>(db: &S, batch: &PurgeBatch) -> Result<u64, SqlError> {
    let mut purged = 0;
    let locked = lock_rows(db, batch).await?;
    // Another process may have purged the same scan.
    if scan_position(db).await? == batch.from {
        for snapshot in &batch.snapshots {
            purged += store_snapshot(db, snapshot).await?;
        }
        purged += purge_rows(db, batch, &locked).await?;
        for key in &batch.held {
            hold(db, key).await?;
        }
        // Rows that were locked elsewhere are scanned again.
        if locked.len() == batch.rows.len() + batch.closed_rows.len() {
            db.execute("UPDATE retention_scan SET up_to = $1", &[&batch.up_to]).await?;
        }
    }
    Ok(purged + purge_dead_letters(db, &batch.dead_letters).await?)
}

/// Locks rows and then the log. Returns the keys of the locked rows: of those that no batch has locked and that still have
/// their versions.
async fn lock_rows<S: Sql>(db: &S, batch: &PurgeBatch) -> Result<BTreeSet<RowKey>, SqlError> {
    let mut by_kind: BTreeMap<&'static str, (Vec<String>, Vec<i64>)> = BTreeMap::new();
    for PurgedRow { key, version, .. } in batch.rows.iter().chain(&batch.closed_rows) {
        let (ids, versions) = by_kind.entry(key.kind).or_default();
        ids.push(key.id.clone());
        versions.push(*version);
    }
    let mut locked = BTreeSet::new();
    for (kind, (ids, versions)) in by_kind {
        let ids = db.lock_rows(kind, ids, versions).await?;
        locked.extend(ids.into_iter().map(|id| RowKey { kind, id }));
    }
    db.lock_log().await?;
    Ok(locked)
}

/// Stores a snapshot, and deletes the events that it replaces. Returns the number of deleted events.
async fn store_snapshot<S: Sql>(db: &S, snapshot: &RowSnapshot) -> Result<u64, SqlError> {
    let RowSnapshot { key, version, state, created_at } = snapshot;
    let insert = "INSERT INTO snapshot (kind, row_id, version, state, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (kind, row_id) DO UPDATE
         SET version = excluded.version, state = excluded.state, created_at = excluded.created_at";
    db.execute(insert, &[&key.kind, &key.id, version, state, &micros(*created_at)]).await?;
    let delete = "DELETE FROM event WHERE kind = $1 AND row_id = $2 AND version <= $3";
    db.execute(delete, &[&key.kind, &key.id, version]).await
}

async fn purge_rows<S: Sql>(db: &S, batch: &PurgeBatch, locked: &BTreeSet<RowKey>) -> Result<u64, SqlError> {
    let (mut purged, mut has_purged_any) = (0, false);
    for row in batch.rows.iter().filter(|row| locked.contains(&row.key)) {
        let Some(events) = purge_row(db, row).await? else { continue };
        (purged, has_purged_any) = (purged + events, true);
        for (name, sum) in &row.sums {
            add_to_purged_sum(db, row.key.kind, name, *sum).await?;
        }
        release(db, &row.key).await?;
    }
    if has_purged_any
        && let Some(before) = batch.before
        && purged_before(db).await? < Some(before)
    {
        set_purged_before(db, before).await?;
    }
    for row in batch.closed_rows.iter().filter(|row| locked.contains(&row.key)) {
        purged += purge_row(db, row).await?.unwrap_or_default();
    }
    Ok(purged)
}

/// Deletes a row that has not changed. Returns the number of its events, which it deletes too.
async fn purge_row<S: Sql>(db: &S, row: &PurgedRow) -> Result<Option<u64>, SqlError> {
    let PurgedRow { key, version, .. } = row;
    let delete = format!("DELETE FROM row_{} WHERE id = $1 AND version = $2", key.kind);
    if db.execute(&delete, &[&key.id, version]).await? == 0 {
        return Ok(None);
    }
    let delete = "DELETE FROM event WHERE kind = $1 AND row_id = $2";
    db.execute(delete, &[&key.kind, &key.id]).await.map(Some)
}

/// Purges dead letters, except those that have changed, and those that a batch has locked.
async fn purge_dead_letters<S: Sql>(db: &S, dead_letters: &[StoredDeadLetter]) -> Result<u64, SqlError> {
    let (mut purged, mut discarded) = (0, BTreeMap::new());
    // Locks are not waited for: a batch that holds the log may write a dead letter that it has not locked before.
    let is_same =
        S::among_locked("SELECT id FROM dead_letter WHERE id = $1 AND status = $2 AND revision = $3");
    let sql = format!("DELETE FROM dead_letter WHERE id {is_same} RETURNING origin");
    for stored in dead_letters {
        let revision = i64::try_from(stored.revision).unwrap_or(i64::MAX);
        let (id, status) = (stored.dead_letter.id, stored.status.as_str());
        let origin = db.query_opt(&sql, &[&id, &status, &revision], |row| row.get::<String>(0)).await?;
        let Some(origin) = origin else { continue };
        purged += 1;
        if stored.status == DeadLetterStatus::Discarded && origin == "message" {
            *discarded.entry(stored.dead_letter.step.clone()).or_default() += 1;
        }
    }
    db.add_to_message_counts("discarded", &discarded).await?;
    Ok(purged)
}

/// Restores purged events at the end of the log, where later scans find them again. Returns the number of restored events.
async fn restore<S: Sql>(db: &S, kind: &str, events: &[PurgedEvent]) -> Result<u64, SqlError> {
    db.lock_log().await?;
    let mut restored = 0;
    for PurgedEvent { row, event, .. } in events {
        // A row that has any event was not purged.
        if let Ok(saga) = row.parse::<Uuid>() {
            db.execute(include_str!("sql/record_restored.sql"), &[&kind, row, &saga]).await?;
        }
        let StoredEvent { version, name, data, causation_id, recorded_at, is_published } = event;
        let at = micros(*recorded_at);
        let values: &Values<'_> = &[&kind, row, version, name, data, causation_id, &at, is_published];
        restored += db.execute(S::APPEND_EVENT, values).await?;
    }
    // Their events all exist again.
    let covered = "DELETE FROM snapshot WHERE kind = $1 AND version = (SELECT count(*) FROM event
             WHERE event.kind = snapshot.kind AND event.row_id = snapshot.row_id
                 AND event.version <= snapshot.version)";
    db.execute(covered, &[&kind]).await?;
    Ok(restored)
}
