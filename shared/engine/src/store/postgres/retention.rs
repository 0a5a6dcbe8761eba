//! Shell: SQL of retention on PostgreSQL, where other processes write at the same time. Rows are locked before the head, as
//! batches do. What a batch has locked is skipped.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::dead_letter::StoredDeadLetter;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tokio_postgres::Error;
use tracing::error;
use uuid::Uuid;

use super::commit_order::lock_head;
use super::outbox::add_to_message_counts;
use super::pool::Connection;
use super::queries::history_between;
use super::values::{Values, db_fault, execute, micros, query, query_one, query_opt, stored_dead_letter};
use crate::store::retention::{RetentionSql, ScannedEvent};
use crate::store::{PurgedRow, PurgedRows, RowSnapshot, StoreFault};

const SCANNING: &str = "looking for what may be purged";
const PURGING: &str = "purging old history";
const RESTORING: &str = "restoring purged events";

impl RetentionSql for Connection {
    async fn scan_position(&self) -> Result<i64, StoreFault> {
        let sql = "SELECT coalesce(max(up_to), 0) FROM retention_scan";
        Ok(query_one(self, sql, &[]).await.map_err(db_fault(SCANNING))?.get(0))
    }

    async fn set_scan_position(&self, position: i64) -> Result<(), StoreFault> {
        let sql = "UPDATE retention_scan SET up_to = $1";
        execute(self, sql, &[&position]).await.map(drop).map_err(db_fault(PURGING))
    }

    async fn old_events(&self, after: i64, cutoff: i64, limit: i64) -> Result<Vec<ScannedEvent>, StoreFault> {
        let sql = "SELECT seq, kind, row_id, version, recorded_at, length(data)::bigint FROM event
             WHERE seq > $1 AND seq < (SELECT max(seq) FROM event) ORDER BY seq LIMIT $2";
        let events = query(self, sql, &[&after, &limit]).await.map_err(db_fault(SCANNING))?;
        let old = events.iter().take_while(|event| event.get::<_, i64>(4) < cutoff);
        let scanned = old.map(|event| ScannedEvent {
            seq: event.get(0),
            kind: event.get(1),
            row_id: event.get(2),
            version: event.get(3),
            bytes: event.get(5),
        });
        Ok(scanned.collect())
    }

    async fn events_below(
        &self,
        kind: &RowKind,
        id: &str,
        version: i64,
        limit: i64,
    ) -> Result<Vec<StoredEvent>, StoreFault> {
        history_between(self, kind.name, id, 0, version, limit).await.map_err(db_fault(SCANNING))
    }

    async fn state_at(&self, kind: &RowKind, id: &str, version: i64) -> Result<Option<String>, StoreFault> {
        let sql = format!("SELECT state FROM row_{} WHERE id = $1 AND version = $2", kind.name);
        let row = query_opt(self, &sql, &[&id, &version]).await.map_err(db_fault(SCANNING))?;
        Ok(row.map(|row| row.get(0)))
    }

    async fn open_sagas(&self) -> Result<BTreeSet<Uuid>, StoreFault> {
        let sql = "SELECT saga FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING') AND saga IS NOT NULL
             UNION SELECT correlation_id FROM task";
        let sagas = query(self, sql, &[]).await.map_err(db_fault(SCANNING))?;
        Ok(sagas.iter().map(|row| row.get(0)).collect())
    }

    async fn closed_dead_letters(
        &self,
        cutoff: i64,
        limit: i64,
    ) -> Result<Vec<StoredDeadLetter>, StoreFault> {
        // The revision is the time of the operator's last request.
        let sql = "SELECT content, status, revision, message_id FROM dead_letter
             WHERE status IN ('RESOLVED', 'DISCARDED') AND greatest(last_failed_at, revision) < $1 LIMIT $2";
        let found = query(self, sql, &[&cutoff, &limit]).await.map_err(db_fault(SCANNING))?;
        // A damaged one keeps no other.
        let readable = |row| {
            stored_dead_letter(row).inspect_err(|why| error!("a dead letter is not purged: {why}")).ok()
        };
        Ok(found.iter().filter_map(readable).collect())
    }

    async fn lock_rows(&self, rows: &[PurgedRow]) -> Result<BTreeSet<RowKey>, StoreFault> {
        let mut by_kind: BTreeMap<&'static str, (Vec<&str>, Vec<i64>)> = BTreeMap::new();
        for PurgedRow { key, version, .. } in rows {
            let (ids, versions) = by_kind.entry(key.kind).or_default();
            ids.push(&key.id);
            versions.push(*version);
        }
        let mut locked = BTreeSet::new();
        for (kind, (ids, versions)) in &by_kind {
            let sql = format!(
                "SELECT id FROM row_{kind}
                 JOIN unnest($1::text[], $2::bigint[]) AS purged (of, at) ON id = of AND version = at
                 ORDER BY id FOR UPDATE OF row_{kind} SKIP LOCKED"
            );
            let found = query(self, &sql, &[ids, versions]).await.map_err(db_fault(PURGING))?;
            locked.extend(found.iter().map(|row| RowKey { kind, id: row.get(0) }));
        }
        lock_head(self).await.map_err(db_fault(PURGING))?;
        Ok(locked)
    }

    async fn store_snapshot(&self, snapshot: &RowSnapshot) -> Result<u64, StoreFault> {
        let RowSnapshot { key, version, state, created_at } = snapshot;
        let insert =
            "INSERT INTO snapshot (kind, row_id, version, state, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (kind, row_id) DO UPDATE
             SET version = excluded.version, state = excluded.state, created_at = excluded.created_at";
        let at = micros(*created_at);
        execute(self, insert, &[&key.kind, &key.id, version, state, &at]).await.map_err(db_fault(PURGING))?;
        let delete = "DELETE FROM event WHERE kind = $1 AND row_id = $2 AND version <= $3";
        execute(self, delete, &[&key.kind, &key.id, version]).await.map_err(db_fault(PURGING))
    }

    async fn delete_row(&self, row: &PurgedRow) -> Result<Option<u64>, StoreFault> {
        let PurgedRow { key, version, .. } = row;
        let sql = format!("DELETE FROM row_{} WHERE id = $1 AND version = $2", key.kind);
        if execute(self, &sql, &[&key.id, version]).await.map_err(db_fault(PURGING))? == 0 {
            return Ok(None);
        }
        let events = "DELETE FROM event WHERE kind = $1 AND row_id = $2";
        execute(self, events, &[&key.kind, &key.id]).await.map(Some).map_err(db_fault(PURGING))
    }

    async fn purged_before(&self) -> Result<Option<Uuid>, StoreFault> {
        purged_before(self).await.map_err(db_fault(PURGING))
    }

    async fn set_purged_before(&self, saga: Uuid) -> Result<(), StoreFault> {
        execute(self, "DELETE FROM purged_before", &[]).await.map_err(db_fault(PURGING))?;
        let insert = "INSERT INTO purged_before (saga) VALUES ($1)";
        execute(self, insert, &[&saga]).await.map(drop).map_err(db_fault(PURGING))
    }

    async fn delete_dead_letter(&self, stored: &StoredDeadLetter) -> Result<Option<String>, StoreFault> {
        // Not waited for: a batch that holds the head may write a dead letter that it has not locked before.
        let sql = "DELETE FROM dead_letter WHERE id = ANY (ARRAY(
                 SELECT id FROM dead_letter WHERE id = $1 AND status = $2 AND revision = $3
                 FOR UPDATE SKIP LOCKED))
             RETURNING origin";
        let revision = i64::try_from(stored.revision).unwrap_or(i64::MAX);
        let status = stored.status.as_str();
        let deleted = query_opt(self, sql, &[&stored.dead_letter.id, &status, &revision]).await;
        Ok(deleted.map_err(db_fault(PURGING))?.map(|row| row.get(0)))
    }

    async fn count_discarded(&self, counts: &BTreeMap<String, i64>) -> Result<(), StoreFault> {
        add_to_message_counts(self, "discarded", counts).await.map_err(db_fault(PURGING))
    }

    async fn lock_log(&self) -> Result<(), StoreFault> {
        lock_head(self).await.map_err(db_fault(RESTORING))
    }

    async fn record_restored(&self, kind: &str, row: &str, saga: Uuid) -> Result<(), StoreFault> {
        let sql = "INSERT INTO restored_row (kind, row_id)
             SELECT $1::text, $2::text WHERE NOT EXISTS (SELECT FROM event WHERE kind = $1 AND row_id = $2)
                 AND $3 < (SELECT saga FROM purged_before LIMIT 1)
             ON CONFLICT DO NOTHING";
        execute(self, sql, &[&kind, &row, &saga]).await.map(drop).map_err(db_fault(RESTORING))
    }

    async fn append_event(&self, kind: &str, row: &str, event: &StoredEvent) -> Result<bool, StoreFault> {
        let StoredEvent { version, name, data, causation_id, recorded_at, is_published } = event;
        let insert = include_str!("sql/restore_event.sql");
        let at = micros(*recorded_at);
        let values: &Values<'_> = &[&kind, &row, version, name, data, causation_id, &at, is_published];
        if execute(self, insert, values).await.map_err(db_fault(RESTORING))? == 0 {
            return Ok(false);
        }
        let head = "UPDATE head SET event = event + 1";
        execute(self, head, &[]).await.map_err(db_fault(RESTORING))?;
        Ok(true)
    }

    async fn delete_covered_snapshots(&self, kind: &str) -> Result<(), StoreFault> {
        let sql = "DELETE FROM snapshot WHERE kind = $1 AND version = (SELECT count(*) FROM event
                 WHERE event.kind = snapshot.kind AND event.row_id = snapshot.row_id
                     AND event.version <= snapshot.version)";
        execute(self, sql, &[&kind]).await.map(drop).map_err(db_fault(RESTORING))
    }
}

/// Lowest saga id whose rows were never purged.
pub(super) async fn purged_before(conn: &Connection) -> Result<Option<Uuid>, Error> {
    Ok(query_opt(conn, "SELECT saga FROM purged_before LIMIT 1", &[]).await?.map(|row| row.get(0)))
}

/// Summary of the purged rows of a kind.
pub(super) async fn purged_rows(conn: &Connection, kind: &str) -> Result<PurgedRows, StoreFault> {
    let read = async {
        let sums = query(conn, "SELECT name, sum FROM purged_sum WHERE kind = $1", &[&kind]).await?;
        let carried = sums.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(PurgedRows { before: purged_before(conn).await?, carried })
    };
    read.await.map_err(db_fault("reading the sums over purged rows"))
}

/// Adds to a sum over purged rows.
pub(super) async fn add_to_purged_sum(
    conn: &Connection,
    kind: &str,
    name: &str,
    sum: i64,
) -> Result<(), Error> {
    let sql = "INSERT INTO purged_sum (kind, name, sum) VALUES ($1, $2, $3)
         ON CONFLICT (kind, name) DO UPDATE SET sum = purged_sum.sum + excluded.sum";
    execute(conn, sql, &[&kind, &name, &sum]).await.map(drop)
}
