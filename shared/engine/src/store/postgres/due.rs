//! Shell: what time brings: rows, retries and tasks that are due, and what is old enough to be deleted.

use jiff::{SignedDuration, Timestamp};
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task, latest_end};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::pool::Connection;
use super::values::{execute, limit_of, micros, oops, query, query_one, query_opt, timestamp, trace};
use crate::store::{Cutoffs, Due, DueQuery, FailingTask, StoreFault};

/// What is due. Runs in a transaction, because it claims tasks.
pub(super) async fn due(conn: &Connection, kinds: &[RowKind], asked: &DueQuery) -> Result<Due, StoreFault> {
    let context = "looking for what is due";
    let (at, limit) = (micros(asked.now), limit_of(asked.limit));
    let first_lapse = put_right(conn, asked).await.map_err(oops("ending waits that are too long"))?;
    let retries = due_retries(conn, limit, asked).await.map_err(oops(context))?;
    let mut due = Due { retries, ..Due::default() };
    let times = "SELECT least((SELECT min(next_attempt) FROM retry WHERE next_attempt > $1),
                (SELECT min(claimed_until) FROM retry WHERE next_attempt <= $1 AND owner <> $2 AND claimed_until > $1)),
         (SELECT min(next_attempt) FROM task WHERE next_attempt > $1 AND lease_until IS NULL)";
    let times = query_one(conn, times, &[&at, &asked.owner]).await.map_err(oops(context))?;
    let mut next: Vec<Option<i64>> = vec![times.get(0), times.get(1), first_lapse];
    for kind in kinds {
        let name = kind.name;
        // The last one is the first that is not due yet.
        let sql = format!(
            "(SELECT id, due FROM row_{name} WHERE due <= $1 ORDER BY due LIMIT $2)
             UNION ALL (SELECT id, due FROM row_{name} WHERE due > $1 ORDER BY due LIMIT 1)"
        );
        for row in query(conn, &sql, &[&at, &limit]).await.map_err(oops(context))? {
            let (id, when): (String, i64) = (row.get(0), row.get(1));
            match when <= at {
                true => due.rows.push((RowKey { kind: name, id }, timestamp(when))),
                false => next.push(Some(when)),
            }
        }
    }
    due.next = next.into_iter().flatten().min().map(timestamp);
    due.tasks = claim_tasks(conn, at, asked).await.map_err(oops("claiming tasks"))?;
    Ok(due)
}

/// Ends the waits that were begun by a clock that was ahead. Answers when the first claim lapses of those that have
/// not lapsed yet.
async fn put_right(conn: &Connection, asked: &DueQuery) -> Result<Option<i64>, Error> {
    let at = micros(asked.now);
    let latest = micros(latest_end(asked.now, asked.longest_delay));
    for (table, id) in [("retry", "step, message_id"), ("task", "id")] {
        let is_any = format!("SELECT EXISTS (SELECT FROM {table} WHERE next_attempt > $1)");
        if query_one(conn, &is_any, &[&latest]).await?.get(0) {
            let due_now = format!(
                "UPDATE {table} SET next_attempt = $1 WHERE ({id}) IN
                     (SELECT {id} FROM {table} WHERE next_attempt > $2 FOR UPDATE SKIP LOCKED)"
            );
            execute(conn, &due_now, &[&at, &latest]).await?;
        }
    }
    let lapses = "SELECT min(lease_until), max(lease_until) FROM task WHERE lease_until > $1";
    let row = query_one(conn, lapses, &[&at]).await?;
    let (first_lapse, last_lapse): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
    let latest = micros(latest_end(asked.now, asked.lease));
    if last_lapse <= Some(latest) {
        return Ok(first_lapse);
    }
    let void = "UPDATE task SET owner = NULL, lease_until = NULL WHERE id IN
         (SELECT id FROM task WHERE lease_until > $1 FOR UPDATE SKIP LOCKED)";
    execute(conn, void, &[&latest]).await?;
    Ok(query_one(conn, lapses, &[&at]).await?.get(0))
}

/// For so long a retry that is due is one process's. It tries again within moments, unless it ends, or stands still.
const TOLD_FOR: SignedDuration = SignedDuration::from_secs(10);

/// Retries that are due, but for those that another process was told of just now.
async fn due_retries(conn: &Connection, limit: i64, asked: &DueQuery) -> Result<Vec<Retry>, Error> {
    let at = micros(asked.now);
    // Mostly none is: then nothing is written.
    let is_any = "SELECT EXISTS (SELECT FROM retry WHERE next_attempt <= $1)";
    if !query_one(conn, is_any, &[&at]).await?.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let sql = "WITH due AS (
             SELECT step AS due_step, message_id AS due_id FROM retry
             WHERE next_attempt <= $1 AND step <> ALL ($3)
                 AND (owner IS NULL OR owner = $4 OR claimed_until <= $1 OR claimed_until > $6)
             ORDER BY next_attempt LIMIT $2 FOR UPDATE SKIP LOCKED)
         UPDATE retry SET owner = $4, claimed_until = $5 FROM due WHERE step = due_step AND message_id = due_id
         RETURNING step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id";
    let retry = |row: &Row| Retry {
        step: row.get(0),
        message_id: row.get(1),
        payload: row.get::<_, Vec<u8>>(2).into(),
        attempts: u32::try_from(row.get::<_, i64>(3)).unwrap_or(u32::MAX),
        next_attempt: timestamp(row.get(4)),
        first_failed_at: timestamp(row.get(5)),
        last_error: row.get(6),
        delivery: row.get::<_, Option<&str>>(7).and_then(|json| serde_json::from_str(json).ok()),
        dead_letter: row.get(8),
    };
    let until = micros(asked.now.saturating_add(TOLD_FOR).unwrap_or(Timestamp::MAX));
    // One that ends later was begun by a clock that is ahead.
    let latest = micros(latest_end(asked.now, TOLD_FOR));
    let told = query(conn, sql, &[&at, &limit, &asked.paused, &asked.owner, &until, &latest]).await?;
    let mut retries: Vec<Retry> = told.iter().map(retry).collect();
    retries.sort_by_key(|retry| (retry.next_attempt, retry.message_id));
    Ok(retries)
}

const TASK: &str = "id, kind, correlation_id, payload, attempts, claim, created_at, dead_letter_id, trace";

/// Whoever looks at the same time gets others.
async fn claim_tasks(conn: &Connection, at: i64, asked: &DueQuery) -> Result<Vec<Task>, Error> {
    if asked.recover {
        let void = "UPDATE task SET owner = NULL, lease_until = NULL WHERE id IN
             (SELECT id FROM task WHERE owner = $1 AND created_at < $2 FOR UPDATE SKIP LOCKED)";
        execute(conn, void, &[&asked.owner, &at]).await?;
    }
    let sql = format!(
        "WITH due AS (
             SELECT id AS due_id FROM task WHERE next_attempt <= $3 AND (lease_until IS NULL OR lease_until <= $3)
             ORDER BY next_attempt LIMIT $4 FOR UPDATE SKIP LOCKED)
         UPDATE task SET owner = $1, lease_until = $2, claim = claim + 1 FROM due WHERE id = due_id RETURNING {TASK}"
    );
    let until = micros(asked.now.saturating_add(asked.lease).unwrap_or(Timestamp::MAX));
    let claimed = query(conn, &sql, &[&asked.owner, &until, &at, &limit_of(asked.tasks)]).await?;
    let mut tasks: Vec<Task> = claimed.iter().map(task).collect();
    tasks.sort_by_key(|task| (task.created_at, task.id));
    Ok(tasks)
}

/// A task of these columns.
fn task(row: &Row) -> Task {
    Task {
        id: row.get(0),
        kind: row.get(1),
        correlation_id: row.get(2),
        payload: row.get(3),
        attempts: u32::try_from(row.get::<_, i64>(4)).unwrap_or(u32::MAX),
        claim: row.get(5),
        created_at: timestamp(row.get(6)),
        dead_letter: row.get(7),
        trace: trace(row.get(8)),
    }
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
    let found = query(conn, &sql, &[&limit_of(limit)]).await.map_err(oops("reading tasks"))?;
    Ok(found.iter().map(failing).collect())
}

/// A token is asked for within seconds, if ever.
const TOKENS_KEPT: SignedDuration = SignedDuration::from_hours(1);

pub(super) async fn trim(conn: &Connection, cutoffs: Cutoffs, limit: usize) -> Result<u64, StoreFault> {
    let limit = limit_of(limit);
    let trimmed = async {
        let marks = trim_inbox(conn, cutoffs.inbox, limit).await?;
        let keys = "DELETE FROM idempotency_key WHERE key = ANY (ARRAY(
             SELECT key FROM idempotency_key WHERE created_at < $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
        let keys = execute(conn, keys, &[&micros(cutoffs.keys), &limit]).await?;
        let published = super::outbox::trim(conn, cutoffs.published, limit).await?;
        let tokens = "DELETE FROM batch WHERE token = ANY (ARRAY(
             SELECT token FROM batch WHERE committed_at < $1 ORDER BY committed_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
        let old = Timestamp::now().saturating_sub(TOKENS_KEPT).unwrap_or(Timestamp::MIN);
        let tokens = execute(conn, tokens, &[&micros(old), &limit]).await?;
        Ok(marks + keys + published + tokens)
    };
    trimmed.await.map_err(oops("trimming finished entries"))
}

/// Deletes marks of each step: from the first on, since an id begins with the time of its saga; and from anywhere on, for
/// those that do not, as those of dead letters.
async fn trim_inbox(conn: &Connection, cutoff: Timestamp, limit: i64) -> Result<u64, Error> {
    /// Marks looked at for each that may go: those of old sagas that were handled only lately stand in the way.
    const LOOKED_AT: i64 = 10;
    const GO: &str = "DELETE FROM inbox WHERE step = $1 AND message_id = ANY (ARRAY(
         SELECT message_id FROM inbox WHERE step = $1 AND handled_at < $2 AND message_id = ANY (ARRAY(
              SELECT message_id FROM inbox WHERE step = $1 AND message_id >= $5 ORDER BY message_id LIMIT $4))
         LIMIT $3 FOR UPDATE SKIP LOCKED))";
    let next_step = "SELECT min(step) FROM inbox WHERE step > $1";
    let (mut gone, mut last) = (0, String::new());
    while let Some(step) =
        query_opt(conn, next_step, &[&last]).await?.and_then(|row| row.get::<_, Option<String>>(0))
    {
        for first in [Uuid::nil(), Uuid::from_u128(fastrand::u128(..))] {
            let limit = limit.saturating_sub_unsigned(gone).max(0);
            let looked_at = limit.saturating_mul(LOOKED_AT);
            gone += execute(conn, GO, &[&step, &micros(cutoff), &limit, &looked_at, &first]).await?;
        }
        last = step;
    }
    Ok(gone)
}
