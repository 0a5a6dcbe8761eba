//! Shell: statistics and lists for operators and metrics on PostgreSQL.

use std::collections::BTreeMap;

use saga_core::service_stats::{MessageCounts, StoreStats};
use tokio_postgres::Row;
use tracing::error;
use uuid::Uuid;

use super::due_work::{TASK, task};
use super::outbox;
use super::pool::Connection;
use super::values::{count_of, db_fault, limit_of, query, query_one, stored_dead_letter, timestamp};
use crate::store::{FailingTask, StoreFault, StoredDeadLetters};

/// Reads the statistics by one statement, because it is executed all the time.
pub(super) async fn stats(conn: &Connection) -> Result<StoreStats, StoreFault> {
    let (columns, tables) = outbox::stats_sql();
    let sql = format!(
        "SELECT {columns}, (SELECT count(*) FROM retry), open.count, open.oldest,
             (SELECT count(*) FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING'))
         FROM (SELECT count(*) AS count, min(created_at) AS oldest FROM task) AS open, {tables}"
    );
    let row = query_one(conn, &sql, &[]).await.map_err(db_fault("reading the statistics"))?;
    let outbox = outbox::stats(&row);
    Ok(StoreStats {
        retries: count_of(row.get(6)),
        tasks: count_of(row.get(7)),
        task_oldest: row.get::<_, Option<i64>>(8).map(timestamp),
        dead_letters: count_of(row.get(9)),
        ..outbox
    })
}

pub(super) async fn message_counts(conn: &Connection) -> Result<MessageCounts, StoreFault> {
    let counts = async |sql: &str| -> Result<BTreeMap<String, u64>, StoreFault> {
        let rows = query(conn, sql, &[]).await.map_err(db_fault("reading the message counts"))?;
        Ok(rows.iter().map(|row| (row.get(0), count_of(row.get(1)))).collect())
    };
    Ok(MessageCounts {
        published: counts("SELECT name, count FROM message_count WHERE outcome = 'published'").await?,
        handled: counts("SELECT name, count FROM message_count WHERE outcome = 'handled'").await?,
        // Reconciliation covers messages of this system only: neither foreign messages nor tasks.
        retrying: counts(
            "SELECT retry.step, count(*) FROM retry LEFT JOIN dead_letter ON dead_letter.id = retry.dead_letter_id
             WHERE coalesce(origin, 'message') = 'message' GROUP BY retry.step",
        )
        .await?,
        dead: counts(
            "SELECT step, sum(count)::bigint FROM
             (SELECT step, count(*) AS count FROM dead_letter
              WHERE status IN ('PENDING', 'DISCARDED') AND origin = 'message' GROUP BY step
              UNION ALL SELECT name, count FROM message_count WHERE outcome = 'discarded') AS dead
             GROUP BY step",
        )
        .await?,
    })
}

pub(super) async fn dead_letters(conn: &Connection, limit: usize) -> Result<StoredDeadLetters, StoreFault> {
    let sql = "SELECT content, status, revision, message_id, id FROM dead_letter
         ORDER BY last_failed_at DESC LIMIT $1";
    let mut found = StoredDeadLetters::default();
    for row in query(conn, sql, &[&limit_of(limit)]).await.map_err(db_fault("reading dead letters"))? {
        match stored_dead_letter(&row) {
            Ok(letter) => found.readable.push(letter),
            Err(why) => {
                let id = row.get::<_, Uuid>(4).to_string();
                error!(dead_letter = %id, "a dead letter cannot be read: {why}");
                found.unreadable.push(id);
            }
        }
    }
    Ok(found)
}

pub(super) async fn failing_tasks(conn: &Connection, limit: usize) -> Result<Vec<FailingTask>, StoreFault> {
    let sql = format!(
        "SELECT {TASK}, next_attempt, last_error FROM task WHERE last_error IS NOT NULL ORDER BY created_at, id LIMIT $1"
    );
    let failing = |row: &Row| FailingTask {
        task: task(row),
        next_attempt: timestamp(row.get(9)),
        last_error: row.get(10),
    };
    let found = query(conn, &sql, &[&limit_of(limit)]).await.map_err(db_fault("reading tasks"))?;
    Ok(found.iter().map(failing).collect())
}
