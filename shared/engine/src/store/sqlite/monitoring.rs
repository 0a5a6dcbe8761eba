//! Shell: statistics and lists for operators and metrics on SQLite.

use std::collections::BTreeMap;

use rusqlite::Connection;
use saga_core::service_stats::{MessageCounts, StoreStats};
use tracing::error;
use uuid::Uuid;

use super::due_work::{TASK, task};
use super::outbox;
use super::values::{db_fault, limit_of, stored_dead_letter, timestamp};
use crate::store::{FailingTask, StoreFault, StoredDeadLetters};

pub(super) fn stats(conn: &Connection) -> Result<StoreStats, StoreFault> {
    let context = "reading the statistics";
    let count = |sql: &str| -> Result<u64, StoreFault> {
        conn.prepare_cached(sql)
            .and_then(|mut select| select.query_row([], |row| row.get::<_, i64>(0)))
            .map(|count| u64::try_from(count).unwrap_or(0))
            .map_err(db_fault(context))
    };
    let oldest_task: Option<i64> = conn
        .prepare_cached("SELECT min(created_at) FROM task")
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(db_fault(context))?;
    let outbox = outbox::stats(conn).map_err(db_fault(context))?;
    Ok(StoreStats {
        retries: count("SELECT count(*) FROM retry")?,
        tasks: count("SELECT count(*) FROM task")?,
        task_oldest: oldest_task.map(timestamp),
        dead_letters: count("SELECT count(*) FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING')")?,
        ..outbox
    })
}

pub(super) fn message_counts(conn: &Connection) -> Result<MessageCounts, StoreFault> {
    let counts = |sql: &str| -> Result<BTreeMap<String, u64>, StoreFault> {
        conn.prepare_cached(sql)
            .and_then(|mut select| {
                let read = |row: &rusqlite::Row<'_>| {
                    Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
                };
                select.query_map([], read)?.collect()
            })
            .map_err(db_fault("reading the message counts"))
    };
    Ok(MessageCounts {
        published: counts("SELECT name, count FROM message_count WHERE outcome = 'published'")?,
        handled: counts("SELECT name, count FROM message_count WHERE outcome = 'handled'")?,
        // Reconciliation covers messages of this system only: neither foreign messages nor tasks.
        retrying: counts(
            "SELECT retry.step, count(*) FROM retry LEFT JOIN dead_letter ON dead_letter.id = retry.dead_letter_id
             WHERE coalesce(origin, 'message') = 'message' GROUP BY retry.step",
        )?,
        dead: counts(
            "SELECT step, sum(count) FROM
             (SELECT step, count(*) AS count FROM dead_letter
              WHERE status IN ('PENDING', 'DISCARDED') AND origin = 'message' GROUP BY step
              UNION ALL SELECT name, count FROM message_count WHERE outcome = 'discarded')
             GROUP BY step",
        )?,
    })
}

pub(super) fn dead_letters(conn: &Connection, limit: usize) -> Result<StoredDeadLetters, StoreFault> {
    let read = || {
        let mut found = StoredDeadLetters::default();
        let mut select = conn.prepare_cached(
            "SELECT content, status, revision, message_id, id, hex(id) FROM dead_letter
             ORDER BY last_failed_at DESC LIMIT ?1",
        )?;
        let mut rows = select.query([limit_of(limit)])?;
        while let Some(row) = rows.next()? {
            match stored_dead_letter(row) {
                Ok(letter) => found.readable.push(letter),
                Err(error) => {
                    let id = row.get(4).map(|id: Uuid| id.to_string()).or_else(|_| row.get(5))?;
                    error!(dead_letter = %id, "a dead letter cannot be read: {error}");
                    found.unreadable.push(id);
                }
            }
        }
        Ok(found)
    };
    read().map_err(db_fault("reading dead letters"))
}

pub(super) fn failing_tasks(conn: &Connection, limit: usize) -> Result<Vec<FailingTask>, StoreFault> {
    conn.prepare_cached(&format!(
        "SELECT {TASK}, next_attempt, last_error FROM task WHERE last_error IS NOT NULL
         ORDER BY created_at, id LIMIT ?1"
    ))
    .and_then(|mut select| {
        let read = |row: &rusqlite::Row<'_>| {
            let (next_attempt, last_error) = (timestamp(row.get(9)?), row.get(10)?);
            Ok(FailingTask { task: task(row)?, next_attempt, last_error })
        };
        select.query_map([limit_of(limit)], read)?.collect()
    })
    .map_err(db_fault("reading tasks"))
}
