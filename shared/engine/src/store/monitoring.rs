//! Shell: statistics and lists for operators and metrics.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::service_stats::{MessageCounts, StoreStats};
use tracing::error;
use uuid::Uuid;

use super::backend::{Backend, Lane, Urgency};
use super::due_work::{TASK, task};
use super::encoding::timestamp;
use super::outbox::outbox_items;
use super::roles::Monitoring;
use super::settle::PUBLISHED_UP_TO;
use super::sql::{Row, Sql, limit_of};
use super::sql_error::{SqlError, db_fault};
use super::{Answer, FailingTask, OutboxItem};

/// Dead letters of a store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredDeadLetters {
    /// Dead letters that could be read, newest first.
    pub readable: Vec<StoredDeadLetter>,
    /// Ids of damaged ones, as hexadecimal digits if the id itself is damaged. A damaged dead letter hides no other.
    pub unreadable: Vec<String>,
}

impl<B: Backend> Monitoring for B {
    fn stats(&self) -> Answer<'_, StoreStats> {
        let checks = (self.location_check(), self.highest_position().clone());
        self.read(Lane::Health, checks, |db, (check_location, highest)| {
            Box::pin(async move {
                let disk = check_location()?;
                highest.read(db).await?;
                let sql = include_str!("sql/stats.sql")
                    .replace("{published_up_to}", PUBLISHED_UP_TO)
                    .replace("{last_entry}", B::Conn::LAST_ENTRY)
                    .replace("{by_status}", B::Conn::BY_STATUS);
                let stats =
                    db.query_one(&sql, &[], stats).await.map_err(db_fault("reading the statistics"))?;
                Ok(StoreStats { free_bytes: disk.free, log_bytes: disk.log, ..stats })
            })
        })
    }

    fn write_problem(&self) -> Option<String> {
        self.write_health().problem()
    }

    fn probe_write(&self) -> Answer<'_, ()> {
        if !self.write_health().needs_probe() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let name = format!("probe {}", Uuid::now_v7());
        self.write(Urgency::Immediate, name, |db, name| {
            Box::pin(async move {
                let insert = "INSERT INTO lease (name, owner, fence, until) VALUES ($1, 'probe', 0, 0)";
                db.execute(insert, &[name]).await.map_err(db_fault("probing whether it takes writes"))?;
                let delete = "DELETE FROM lease WHERE name = $1";
                db.execute(delete, &[name])
                    .await
                    .map(drop)
                    .map_err(db_fault("probing whether it takes writes"))
            })
        })
    }

    fn clock(&self) -> Answer<'_, Option<Timestamp>> {
        let Some(sql) = B::Conn::CLOCK else { return Box::pin(std::future::ready(Ok(None))) };
        self.read(Lane::Health, sql, |db, sql| {
            Box::pin(async move {
                db.query_one(sql, &[], |row| row.time(0))
                    .await
                    .map(Some)
                    .map_err(db_fault("reading the clock"))
            })
        })
    }

    fn message_counts(&self) -> Answer<'_, MessageCounts> {
        self.snapshot(Lane::Scan, (), |db, ()| {
            Box::pin(async move { message_counts(db).await.map_err(db_fault("reading the message counts")) })
        })
    }

    fn outbox_items(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>> {
        self.read(Lane::Scan, limit_of(limit), |db, limit| {
            Box::pin(async move { outbox_items(db, *limit).await.map_err(db_fault("reading the outbox")) })
        })
    }

    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>> {
        self.read(Lane::Scan, limit_of(limit), |db, limit| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {TASK}, next_attempt, last_error FROM task WHERE last_error IS NOT NULL
                     ORDER BY created_at, id LIMIT $1"
                );
                let read = |row: &Row<'_>| {
                    let (next_attempt, last_error) = (row.time(9)?, row.get(10)?);
                    Ok(FailingTask { task: task(row)?, next_attempt, last_error })
                };
                db.query(&sql, &[limit], read).await.map_err(db_fault("reading tasks"))
            })
        })
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters> {
        self.read(Lane::Scan, limit_of(limit), |db, limit| {
            Box::pin(async move { dead_letters(db, *limit).await.map_err(db_fault("reading dead letters")) })
        })
    }
}

fn stats(row: &Row<'_>) -> Result<StoreStats, SqlError> {
    Ok(StoreStats {
        outbox_pending: row.count(0)? + row.count(4)?,
        outbox_republishing: row.count(1)?,
        outbox_failed: row.count(2)?,
        outbox_kept: row.count(3)?,
        outbox_oldest: row.get::<Option<i64>>(5)?.map(timestamp),
        retries: row.count(6)?,
        retry_oldest: row.get::<Option<i64>>(10)?.map(timestamp),
        tasks: row.count(7)?,
        task_oldest: row.get::<Option<i64>>(8)?.map(timestamp),
        dead_letters: row.count(9)?,
        ..StoreStats::default()
    })
}

async fn message_counts<S: Sql>(db: &S) -> Result<MessageCounts, SqlError> {
    async fn counts<S: Sql>(db: &S, sql: &str) -> Result<BTreeMap<String, u64>, SqlError> {
        let counts = db.query(sql, &[], |row| Ok((row.get(0)?, row.count(1)?))).await?;
        Ok(counts.into_iter().collect())
    }
    Ok(MessageCounts {
        published: counts(db, "SELECT name, count FROM message_count WHERE outcome = 'published'").await?,
        handled: counts(db, "SELECT name, count FROM message_count WHERE outcome = 'handled'").await?,
        retrying: counts(db, include_str!("sql/retrying_messages.sql")).await?,
        dead: counts(db, include_str!("sql/dead_messages.sql")).await?,
    })
}

async fn dead_letters<S: Sql>(db: &S, limit: i64) -> Result<StoredDeadLetters, SqlError> {
    let sql = "SELECT content, status, revision, message_id, id FROM dead_letter
         ORDER BY last_failed_at DESC LIMIT $1";
    let read = |row: &Row<'_>| match row.dead_letter() {
        Ok(dead_letter) => Ok(Ok(dead_letter)),
        Err(error) => Ok(Err((row.id_text(4)?, error))),
    };
    let mut found = StoredDeadLetters::default();
    for stored in db.query(sql, &[&limit], read).await? {
        match stored {
            Ok(dead_letter) => found.readable.push(dead_letter),
            Err((id, error)) => {
                error!(dead_letter = %id, "a dead letter cannot be read: {error}");
                found.unreadable.push(id);
            }
        }
    }
    Ok(found)
}
