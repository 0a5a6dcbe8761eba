//! Shell: SQL of retention on SQLite. Nothing else writes meanwhile, so that no locks are needed.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension as _, params};
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tracing::error;
use uuid::Uuid;

use super::queries::history_between;
use super::values::{db_fault, micros, stored_dead_letter};
use super::write::add_to_message_counts;
use crate::store::retention::{RetentionSql, ScannedEvent};
use crate::store::{PurgedRow, PurgedRows, RowSnapshot, StoreFault};

const SCANNING: &str = "looking for what may be purged";
const PURGING: &str = "purging old history";
const RESTORING: &str = "restoring purged events";

impl RetentionSql for Connection {
    async fn scan_position(&self) -> Result<i64, StoreFault> {
        self.prepare_cached("SELECT coalesce(max(up_to), 0) FROM retention_scan")
            .and_then(|mut select| select.query_row([], |row| row.get(0)))
            .map_err(db_fault(SCANNING))
    }

    async fn set_scan_position(&self, position: i64) -> Result<(), StoreFault> {
        self.prepare_cached("UPDATE retention_scan SET up_to = ?1")
            .and_then(|mut update| update.execute([position]))
            .map(drop)
            .map_err(db_fault(PURGING))
    }

    async fn old_events(&self, after: i64, cutoff: i64, limit: i64) -> Result<Vec<ScannedEvent>, StoreFault> {
        let read = || {
            let mut select = self.prepare_cached(
                "SELECT seq, kind, row_id, version, recorded_at, length(data) FROM event
                 WHERE seq > ?1 AND seq < (SELECT max(seq) FROM event) ORDER BY seq LIMIT ?2",
            )?;
            let (mut rows, mut events) = (select.query([after, limit])?, Vec::new());
            while let Some(row) = rows.next()? {
                if row.get::<_, i64>(4)? >= cutoff {
                    break;
                }
                events.push(ScannedEvent {
                    seq: row.get(0)?,
                    kind: row.get(1)?,
                    row_id: row.get(2)?,
                    version: row.get(3)?,
                    bytes: row.get(5)?,
                });
            }
            Ok(events)
        };
        read().map_err(db_fault(SCANNING))
    }

    async fn events_below(
        &self,
        kind: &RowKind,
        id: &str,
        version: i64,
        limit: i64,
    ) -> Result<Vec<StoredEvent>, StoreFault> {
        history_between(self, kind.name, id, 0, version, limit).map_err(db_fault(SCANNING))
    }

    async fn state_at(&self, kind: &RowKind, id: &str, version: i64) -> Result<Option<String>, StoreFault> {
        let sql = format!("SELECT state FROM row_{} WHERE id = ?1 AND version = ?2", kind.name);
        self.prepare_cached(&sql)
            .and_then(|mut select| select.query_row(params![id, version], |row| row.get(0)).optional())
            .map_err(db_fault(SCANNING))
    }

    async fn open_sagas(&self) -> Result<BTreeSet<Uuid>, StoreFault> {
        self.prepare_cached(
            "SELECT saga FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING') AND saga IS NOT NULL
             UNION SELECT correlation_id FROM task",
        )
        .and_then(|mut select| select.query_map([], |row| row.get(0))?.collect())
        .map_err(db_fault(SCANNING))
    }

    async fn closed_dead_letters(
        &self,
        cutoff: i64,
        limit: i64,
    ) -> Result<Vec<StoredDeadLetter>, StoreFault> {
        let read = || {
            // The revision is the time of the operator's last request.
            let mut select = self.prepare_cached(
                "SELECT content, status, revision, message_id FROM dead_letter
                 WHERE status IN ('RESOLVED', 'DISCARDED') AND max(last_failed_at, revision) < ?1 LIMIT ?2",
            )?;
            let found = select.query_map([cutoff, limit], stored_dead_letter)?;
            // A damaged one keeps no other.
            let readable = found.filter_map(|dead_letter| {
                dead_letter.inspect_err(|why| error!("a dead letter is not purged: {why}")).ok()
            });
            Ok(readable.collect())
        };
        read().map_err(db_fault(SCANNING))
    }

    async fn lock_rows(&self, rows: &[PurgedRow]) -> Result<BTreeSet<RowKey>, StoreFault> {
        Ok(rows.iter().map(|row| row.key.clone()).collect())
    }

    async fn store_snapshot(&self, snapshot: &RowSnapshot) -> Result<u64, StoreFault> {
        let RowSnapshot { key, version, state, created_at } = snapshot;
        let store = || {
            self.prepare_cached(
                "INSERT OR REPLACE INTO snapshot (kind, row_id, version, state, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![key.kind, key.id, version, state, micros(*created_at)])?;
            self.prepare_cached("DELETE FROM event WHERE kind = ?1 AND row_id = ?2 AND version <= ?3")?
                .execute(params![key.kind, key.id, version])
        };
        store().map(count).map_err(db_fault(PURGING))
    }

    async fn delete_row(&self, row: &PurgedRow) -> Result<Option<u64>, StoreFault> {
        let PurgedRow { key, version, .. } = row;
        let delete = || {
            let sql = format!("DELETE FROM row_{} WHERE id = ?1 AND version = ?2", key.kind);
            if self.prepare_cached(&sql)?.execute(params![key.id, version])? == 0 {
                return Ok(None);
            }
            self.prepare_cached("DELETE FROM event WHERE kind = ?1 AND row_id = ?2")?
                .execute([key.kind, &key.id])
                .map(Some)
        };
        delete().map(|deleted| deleted.map(count)).map_err(db_fault(PURGING))
    }

    async fn purged_before(&self) -> Result<Option<Uuid>, StoreFault> {
        purged_before(self).map_err(db_fault(PURGING))
    }

    async fn set_purged_before(&self, saga: Uuid) -> Result<(), StoreFault> {
        let set = || {
            self.prepare_cached("DELETE FROM purged_before")?.execute([])?;
            self.prepare_cached("INSERT INTO purged_before (saga) VALUES (?1)")?.execute([saga])
        };
        set().map(drop).map_err(db_fault(PURGING))
    }

    async fn delete_dead_letter(&self, stored: &StoredDeadLetter) -> Result<Option<String>, StoreFault> {
        let revision = i64::try_from(stored.revision).unwrap_or(i64::MAX);
        self.prepare_cached(
            "DELETE FROM dead_letter WHERE id = ?1 AND status = ?2 AND revision = ?3 RETURNING origin",
        )
        .and_then(|mut delete| {
            let mut deleted =
                delete.query(params![stored.dead_letter.id, stored.status.as_str(), revision])?;
            deleted.next()?.map(|row| row.get(0)).transpose()
        })
        .map_err(db_fault(PURGING))
    }

    async fn count_discarded(&self, counts: &BTreeMap<String, i64>) -> Result<(), StoreFault> {
        add_to_message_counts(self, "discarded", counts).map_err(db_fault(PURGING))
    }

    async fn lock_log(&self) -> Result<(), StoreFault> {
        Ok(())
    }

    async fn record_restored(&self, kind: &str, row: &str, saga: Uuid) -> Result<(), StoreFault> {
        self.prepare_cached(
            "INSERT OR IGNORE INTO restored_row (kind, row_id)
             SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM event WHERE kind = ?1 AND row_id = ?2)
                 AND ?3 < (SELECT max(saga) FROM purged_before)",
        )
        .and_then(|mut insert| insert.execute(params![kind, row, saga]))
        .map(drop)
        .map_err(db_fault(RESTORING))
    }

    async fn append_event(&self, kind: &str, row: &str, event: &StoredEvent) -> Result<bool, StoreFault> {
        let StoredEvent { version, name, data, causation_id, recorded_at, is_published } = event;
        self.prepare_cached(
            "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (kind, row_id, version) DO NOTHING",
        )
        .and_then(|mut insert| {
            let at = micros(*recorded_at);
            insert.execute(params![kind, row, version, name, data, causation_id, at, is_published])
        })
        .map(|appended| appended > 0)
        .map_err(db_fault(RESTORING))
    }

    async fn delete_covered_snapshots(&self, kind: &str) -> Result<(), StoreFault> {
        self.prepare_cached(
            "DELETE FROM snapshot WHERE kind = ?1 AND version = (SELECT count(*) FROM event
                 WHERE event.kind = snapshot.kind AND event.row_id = snapshot.row_id
                     AND event.version <= snapshot.version)",
        )
        .and_then(|mut delete| delete.execute([kind]))
        .map(drop)
        .map_err(db_fault(RESTORING))
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Lowest saga id whose rows were never purged.
pub(super) fn purged_before(conn: &Connection) -> rusqlite::Result<Option<Uuid>> {
    conn.prepare_cached("SELECT max(saga) FROM purged_before")?.query_row([], |row| row.get(0))
}

/// Summary of the purged rows of a kind.
pub(super) fn purged_rows(conn: &Connection, kind: &str) -> Result<PurgedRows, StoreFault> {
    let read = || {
        let mut sums = conn.prepare_cached("SELECT name, sum FROM purged_sum WHERE kind = ?1")?;
        let sums = sums.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(PurgedRows { before: purged_before(conn)?, carried: sums.collect::<rusqlite::Result<_>>()? })
    };
    read().map_err(db_fault("reading the sums over purged rows"))
}

/// Adds to a sum over purged rows.
pub(super) fn add_to_purged_sum(conn: &Connection, kind: &str, name: &str, sum: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO purged_sum (kind, name, sum) VALUES (?1, ?2, ?3)
         ON CONFLICT (kind, name) DO UPDATE SET sum = sum + excluded.sum",
    )?
    .execute(params![kind, name, sum])
    .map(drop)
}
