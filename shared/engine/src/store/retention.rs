//! Shell: retention: finds old history and purges it, and restores it from an archive, for every store.
//!
//! A batch is found first, so that the caller can archive it before it is deleted. The log is scanned once, from its oldest
//! event on. An old event lets earlier events of its row be purged, with a snapshot in their place. The last event of a
//! finished row lets the whole row be purged. The last event of a row that lives on is kept. So is the last event of all,
//! whose position must not be assigned twice.
//!
//! The algorithm is written once; a store supplies the SQL of [`RetentionSql`].

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decider::{RetentionPolicy, Sums};
use saga_core::retry::error_chain;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tracing::error;
use uuid::Uuid;

use super::StoreFault;
use super::encoding::micros;
use super::fold::RebuildSql;
use super::purge_batch::{PurgeBatch, PurgedEvent, PurgedRow, RetentionCutoffs, RowSnapshot, Scanned};

/// Approximate limit of a scan, in bytes of events. An event may carry a whole message.
const SCAN_BYTES: i64 = 4 * 1024 * 1024;

/// Event as the scan of the log reads it.
pub(super) struct ScannedEvent {
    pub(super) seq: i64,
    pub(super) kind: String,
    pub(super) row_id: String,
    pub(super) version: i64,
    /// Size of the event data in bytes.
    pub(super) bytes: i64,
}

/// SQL that retention needs from a store.
pub(super) trait RetentionSql: RebuildSql {
    /// Position of the last scanned event.
    async fn scan_position(&self) -> Result<i64, StoreFault>;

    /// Sets the position of the last scanned event.
    async fn set_scan_position(&self, position: i64) -> Result<(), StoreFault>;

    /// Events after a position, until the first that is not older than `cutoff`, at most `limit`; without the last of all.
    async fn old_events(&self, after: i64, cutoff: i64, limit: i64) -> Result<Vec<ScannedEvent>, StoreFault>;

    /// Events of a row with versions below `version`, oldest first, at most `limit`.
    async fn events_below(
        &self,
        kind: &RowKind,
        id: &str,
        version: i64,
        limit: i64,
    ) -> Result<Vec<StoredEvent>, StoreFault>;

    /// State of a row, if it has this version.
    async fn state_at(&self, kind: &RowKind, id: &str, version: i64) -> Result<Option<String>, StoreFault>;

    /// Sagas with an open dead letter or a task.
    async fn open_sagas(&self) -> Result<BTreeSet<Uuid>, StoreFault>;

    /// Dead letters that were closed before `cutoff`, at most `limit`. Skips damaged ones.
    async fn closed_dead_letters(&self, cutoff: i64, limit: i64)
    -> Result<Vec<StoredDeadLetter>, StoreFault>;

    /// Locks rows and then the log. Returns the keys of the locked rows: of those that no batch has locked and that still
    /// have their versions.
    async fn lock_rows(&self, rows: &[PurgedRow]) -> Result<BTreeSet<RowKey>, StoreFault>;

    /// Stores a snapshot, and deletes the events that it replaces. Returns the number of deleted events.
    async fn store_snapshot(&self, snapshot: &RowSnapshot) -> Result<u64, StoreFault>;

    /// Deletes a row of this version with its events. Returns the number of deleted events; `None` if the row has another
    /// version.
    async fn delete_row(&self, row: &PurgedRow) -> Result<Option<u64>, StoreFault>;

    /// Lowest saga id whose rows were never purged.
    async fn purged_before(&self) -> Result<Option<Uuid>, StoreFault>;

    /// Sets the lowest saga id whose rows were never purged.
    async fn set_purged_before(&self, saga: Uuid) -> Result<(), StoreFault>;

    /// Deletes a dead letter that has not changed and that no batch has locked. Returns its origin.
    async fn delete_dead_letter(&self, stored: &StoredDeadLetter) -> Result<Option<String>, StoreFault>;

    /// Adds to the lifetime counts of discarded messages, by step.
    async fn count_discarded(&self, counts: &BTreeMap<String, i64>) -> Result<(), StoreFault>;

    /// Locks the log, so that no batch appends to it.
    async fn lock_log(&self) -> Result<(), StoreFault>;

    /// Records that a purged row is restored. A row that has any event was not purged.
    async fn record_restored(&self, kind: &str, row: &str, saga: Uuid) -> Result<(), StoreFault>;

    /// Appends an event unless it exists. Returns true if it was appended.
    async fn append_event(&self, kind: &str, row: &str, event: &StoredEvent) -> Result<bool, StoreFault>;

    /// Deletes snapshots whose events all exist again.
    async fn delete_covered_snapshots(&self, kind: &str) -> Result<(), StoreFault>;
}

/// Finds what may be purged next.
pub(super) async fn find<S: RetentionSql>(
    sql: &S,
    kinds: &[RowKind],
    cutoffs: RetentionCutoffs,
    limit: usize,
) -> Result<PurgeBatch, StoreFault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let from = sql.scan_position().await?;
    let mut batch = PurgeBatch { from, up_to: from, ..PurgeBatch::default() };
    let scanned = scan(sql, &mut batch, micros(cutoffs.history), limit).await?;
    batch.before = first_kept_saga(cutoffs.began);
    let mut open_sagas = None;
    for ((kind, id), scanned) in scanned {
        let Some(kind) = kinds.iter().find(|declared| declared.name == kind) else { continue };
        match kind.retention {
            RetentionPolicy::Keep => {}
            RetentionPolicy::PurgeEvents => {
                let events = sql.events_below(kind, &id, scanned.newest, limit).await?;
                let snapshot = sql.snapshot(kind, &id).await?;
                batch.add_events_of_row((kind, &id), snapshot.as_ref(), events, (scanned, limit));
            }
            RetentionPolicy::PurgeRows | RetentionPolicy::PurgeRowsFirst => {
                add_finished_row(sql, &mut batch, (kind, &id), scanned, &mut open_sagas).await?;
            }
        }
    }
    // Only at the end of the log: each search reads past the dead letters that are too young.
    if batch.events.is_empty() {
        batch.dead_letters = sql.closed_dead_letters(micros(cutoffs.dead_letters), limit).await?;
    }
    Ok(batch)
}

/// Reads the next old events, grouped by row.
async fn scan<S: RetentionSql>(
    sql: &S,
    batch: &mut PurgeBatch,
    cutoff: i64,
    limit: i64,
) -> Result<BTreeMap<(String, String), Scanned>, StoreFault> {
    let (mut rows, mut total) = (BTreeMap::new(), 0);
    for event in sql.old_events(batch.from, cutoff, limit).await? {
        let ScannedEvent { seq, kind, row_id, version, bytes } = event;
        total += bytes;
        if total > SCAN_BYTES && !rows.is_empty() {
            break;
        }
        let scanned = rows.entry((kind, row_id)).or_insert(Scanned { first_seq: seq, newest: version });
        scanned.newest = scanned.newest.max(version);
        batch.up_to = seq;
    }
    Ok(rows)
}

/// Lowest id of sagas that began later.
fn first_kept_saga(began: Timestamp) -> Option<Uuid> {
    let began = u128::try_from(began.as_millisecond()).ok()?;
    (began < 1 << 48).then(|| Uuid::from_u128(began << 80))
}

/// Adds a row, if it is finished and nothing of its saga is open.
async fn add_finished_row<S: RetentionSql>(
    sql: &S,
    batch: &mut PurgeBatch,
    (kind, id): (&RowKind, &str),
    scanned: Scanned,
    open_sagas: &mut Option<BTreeSet<Uuid>>,
) -> Result<(), StoreFault> {
    let Ok(saga) = id.parse::<Uuid>() else { return Ok(()) };
    let version = scanned.newest;
    let Some(state) = sql.state_at(kind, id, version).await? else { return Ok(()) };
    let Some(carried) = sums_of_finished(kind, id, &state) else { return Ok(()) };
    let open_sagas = match open_sagas {
        Some(open_sagas) => open_sagas,
        None => open_sagas.insert(sql.open_sagas().await?),
    };
    if batch.before.is_none_or(|before| saga >= before) || open_sagas.contains(&saga) {
        return Ok(());
    }
    let events = sql.events_below(kind, id, i64::MAX, i64::MAX).await?;
    batch.add_row((kind, id), (version, carried), events);
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
pub(super) async fn purge<S: RetentionSql>(sql: &S, batch: &PurgeBatch) -> Result<u64, StoreFault> {
    let mut purged = 0;
    let locked = sql.lock_rows(&batch.rows).await?;
    // Another process may have purged the same scan.
    if sql.scan_position().await? == batch.from {
        for snapshot in &batch.snapshots {
            purged += sql.store_snapshot(snapshot).await?;
        }
        purged += purge_rows(sql, batch, &locked).await?;
        // Rows that were locked elsewhere are scanned again.
        if locked.len() == batch.rows.len() {
            sql.set_scan_position(batch.up_to).await?;
        }
    }
    Ok(purged + purge_dead_letters(sql, &batch.dead_letters).await?)
}

async fn purge_rows<S: RetentionSql>(
    sql: &S,
    batch: &PurgeBatch,
    locked: &BTreeSet<RowKey>,
) -> Result<u64, StoreFault> {
    let (mut purged, mut has_purged_any) = (0, false);
    for row in batch.rows.iter().filter(|row| locked.contains(&row.key)) {
        let Some(events) = sql.delete_row(row).await? else { continue };
        has_purged_any = true;
        purged += events;
        for (name, sum) in &row.carried {
            sql.add_to_purged_sum(row.key.kind, name, *sum).await?;
        }
    }
    if has_purged_any
        && let Some(before) = batch.before
        && sql.purged_before().await? < Some(before)
    {
        sql.set_purged_before(before).await?;
    }
    Ok(purged)
}

async fn purge_dead_letters<S: RetentionSql>(
    sql: &S,
    dead_letters: &[StoredDeadLetter],
) -> Result<u64, StoreFault> {
    let (mut purged, mut discarded) = (0, BTreeMap::new());
    for stored in dead_letters {
        let Some(origin) = sql.delete_dead_letter(stored).await? else { continue };
        purged += 1;
        if stored.status == DeadLetterStatus::Discarded && origin == "message" {
            *discarded.entry(stored.dead_letter.step.clone()).or_default() += 1;
        }
    }
    sql.count_discarded(&discarded).await?;
    Ok(purged)
}

/// Restores purged events at the end of the log, where later scans find them again. Returns the number of restored events.
pub(super) async fn restore<S: RetentionSql>(
    sql: &S,
    kind: &str,
    events: &[PurgedEvent],
) -> Result<u64, StoreFault> {
    sql.lock_log().await?;
    let mut restored = 0;
    for PurgedEvent { row, event, .. } in events {
        if let Ok(saga) = row.parse::<Uuid>() {
            sql.record_restored(kind, row, saga).await?;
        }
        restored += u64::from(sql.append_event(kind, row, event).await?);
    }
    sql.delete_covered_snapshots(kind).await?;
    Ok(restored)
}
