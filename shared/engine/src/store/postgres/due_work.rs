//! Shell: due rows, retries and tasks on PostgreSQL.

use jiff::{SignedDuration, Timestamp};
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task, latest_end};
use tokio_postgres::{Error, Row};

use super::pool::Connection;
use super::values::{db_fault, execute, limit_of, micros, query, query_one, timestamp, trace};
use crate::store::{Due, DueQuery, StoreFault};

/// Finds due work. Needs a transaction, because it claims tasks.
pub(super) async fn claim_due(
    conn: &Connection,
    kinds: &[RowKind],
    wanted: &DueQuery,
) -> Result<Due, StoreFault> {
    let context = "finding due work";
    let (at, limit) = (micros(wanted.now), limit_of(wanted.limit));
    let first_lapse = end_overlong_waits(conn, wanted).await.map_err(db_fault("ending overlong waits"))?;
    let retries = due_retries(conn, limit, wanted).await.map_err(db_fault(context))?;
    let mut due = Due { retries, ..Due::default() };
    let times = "SELECT least((SELECT min(next_attempt) FROM retry WHERE next_attempt > $1),
                (SELECT min(claimed_until) FROM retry WHERE next_attempt <= $1 AND owner <> $2 AND claimed_until > $1)),
         (SELECT min(next_attempt) FROM task WHERE next_attempt > $1 AND lease_until IS NULL)";
    let times = query_one(conn, times, &[&at, &wanted.owner]).await.map_err(db_fault(context))?;
    let mut next: Vec<Option<i64>> = vec![times.get(0), times.get(1), first_lapse];
    for kind in kinds {
        let name = kind.name;
        // The last row is the first that is not due yet.
        let sql = format!(
            "(SELECT id, due FROM row_{name} WHERE due <= $1 ORDER BY due LIMIT $2)
             UNION ALL (SELECT id, due FROM row_{name} WHERE due > $1 ORDER BY due LIMIT 1)"
        );
        for row in query(conn, &sql, &[&at, &limit]).await.map_err(db_fault(context))? {
            let (id, when): (String, i64) = (row.get(0), row.get(1));
            match when <= at {
                true => due.rows.push((RowKey { kind: name, id }, timestamp(when))),
                false => next.push(Some(when)),
            }
        }
    }
    due.next = next.into_iter().flatten().min().map(timestamp);
    due.tasks = claim_tasks(conn, at, wanted).await.map_err(db_fault("claiming tasks"))?;
    Ok(due)
}

/// Ends delays and claims that a clock that was ahead made too long. Returns the end of the first current claim.
async fn end_overlong_waits(conn: &Connection, wanted: &DueQuery) -> Result<Option<i64>, Error> {
    let at = micros(wanted.now);
    let latest = micros(latest_end(wanted.now, wanted.longest_delay));
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
    let latest = micros(latest_end(wanted.now, wanted.lease));
    if last_lapse <= Some(latest) {
        return Ok(first_lapse);
    }
    let void = "UPDATE task SET owner = NULL, lease_until = NULL WHERE id IN
         (SELECT id FROM task WHERE lease_until > $1 FOR UPDATE SKIP LOCKED)";
    execute(conn, void, &[&latest]).await?;
    Ok(query_one(conn, lapses, &[&at]).await?.get(0))
}

/// Time for which one replica owns a due retry. It processes the retry at once, unless it dies or hangs.
const CLAIMED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// Claims due retries, except those that another replica owns.
async fn due_retries(conn: &Connection, limit: i64, wanted: &DueQuery) -> Result<Vec<Retry>, Error> {
    let at = micros(wanted.now);
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
    let until = micros(wanted.now.saturating_add(CLAIMED_FOR).unwrap_or(Timestamp::MAX));
    // A claim that ends later was made by a clock that is ahead.
    let latest = micros(latest_end(wanted.now, CLAIMED_FOR));
    let claimed = query(conn, sql, &[&at, &limit, &wanted.paused, &wanted.owner, &until, &latest]).await?;
    let mut retries: Vec<Retry> = claimed.iter().map(retry).collect();
    retries.sort_by_key(|retry| (retry.next_attempt, retry.message_id));
    Ok(retries)
}

/// Columns of a [`Task`], in the order that [`task`] reads.
pub(super) const TASK: &str =
    "id, kind, correlation_id, payload, attempts, claim, created_at, dead_letter_id, trace";

/// Claims due tasks. Replicas that do so at the same time claim different ones.
async fn claim_tasks(conn: &Connection, at: i64, wanted: &DueQuery) -> Result<Vec<Task>, Error> {
    if wanted.recover {
        let void = "UPDATE task SET owner = NULL, lease_until = NULL WHERE id IN
             (SELECT id FROM task WHERE owner = $1 AND created_at < $2 FOR UPDATE SKIP LOCKED)";
        execute(conn, void, &[&wanted.owner, &at]).await?;
    }
    let sql = format!(
        "WITH due AS (
             SELECT id AS due_id FROM task WHERE next_attempt <= $3 AND (lease_until IS NULL OR lease_until <= $3)
             ORDER BY next_attempt LIMIT $4 FOR UPDATE SKIP LOCKED)
         UPDATE task SET owner = $1, lease_until = $2, claim = claim + 1 FROM due WHERE id = due_id RETURNING {TASK}"
    );
    let until = micros(wanted.now.saturating_add(wanted.lease).unwrap_or(Timestamp::MAX));
    let claimed = query(conn, &sql, &[&wanted.owner, &until, &at, &limit_of(wanted.tasks)]).await?;
    let mut tasks: Vec<Task> = claimed.iter().map(task).collect();
    tasks.sort_by_key(|task| (task.created_at, task.id));
    Ok(tasks)
}

/// Reads a task from the columns [`TASK`].
pub(super) fn task(row: &Row) -> Task {
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
