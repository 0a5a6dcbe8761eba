//! Shell: work that is due: rows, retries and tasks.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task, latest_end};

use super::Answer;
use super::backend::{Backend, Kinds, Urgency};
use super::encoding::{micros, timestamp};
use super::roles::DueWork;
use super::sql::{Array, Row, Sql, limit_of};
use super::sql_error::{SqlError, db_fault};

/// Time for which one replica owns a due retry. It processes the retry at once, unless it dies or hangs.
const RETRY_CLAIM: SignedDuration = SignedDuration::from_secs(10);

/// Parameters of a search for due work.
#[derive(Debug, Clone)]
pub struct DueQuery {
    /// Current time, by which work counts as due.
    pub now: Timestamp,
    /// Maximum number of rows of each kind, and of retries.
    pub limit: usize,
    /// Maximum number of tasks to claim.
    pub tasks: usize,
    /// Steps whose retries are wanted. Those of blocked steps wait, those of unknown steps belong to another build.
    pub steps: Vec<String>,
    /// Owner of the claimed tasks.
    pub owner: String,
    /// Duration of the claims. A stored claim that lasts longer is void: a clock was ahead.
    pub lease: SignedDuration,
    /// Longest delay before another attempt. A stored delay that lasts longer is over: a clock was ahead.
    pub longest_delay: SignedDuration,
    /// Voids claims of `owner` on tasks created before `now`: they belong to a process that has ended.
    pub recover: bool,
}

/// Due work that was found and claimed.
#[derive(Debug, Clone, Default)]
pub struct Due {
    /// Due rows, with their due times.
    pub rows: Vec<(RowKey, Timestamp)>,
    /// Messages to process again, of the wanted steps.
    pub retries: Vec<Retry>,
    /// All steps with retries, if any retry is due.
    pub retry_steps: Vec<String>,
    /// Tasks, claimed by the caller.
    pub tasks: Vec<Task>,
    /// Time at which more work becomes due.
    pub next: Option<Timestamp>,
}

/// Task whose last attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingTask {
    /// The task that will be tried again.
    pub task: Task,
    /// Time of the next attempt.
    pub next_attempt: Timestamp,
    /// Error of the last attempt.
    pub last_error: String,
}

impl<B: Backend> DueWork for B {
    fn claim_due(&self, query: DueQuery) -> Answer<'_, Due> {
        self.write(Urgency::Immediate, (self.kinds().clone(), query), |db, (kinds, query)| {
            let kinds: &Arc<Kinds> = kinds;
            Box::pin(
                async move { claim_due(db, &kinds.0, query).await.map_err(db_fault("finding due work")) },
            )
        })
    }
}

async fn claim_due<S: Sql>(db: &S, kinds: &[RowKind], query: &DueQuery) -> Result<Due, SqlError> {
    let (at, limit) = (micros(query.now), limit_of(query.limit));
    let first_lapse = end_overlong_waits(db, query).await?;
    let sql = format!(
        "SELECT (SELECT min(next_attempt) FROM retry WHERE next_attempt > $1),
             (SELECT min(next_attempt) FROM task WHERE next_attempt > $1 AND lease_until IS NULL),
             {},
             EXISTS (SELECT 1 FROM retry WHERE next_attempt <= $1)",
        S::FIRST_RETRY_CLAIM
    );
    let read = |row: &Row<'_>| -> Result<([Option<i64>; 3], bool), SqlError> {
        Ok(([row.get(0)?, row.get(1)?, row.get(2)?], row.get(3)?))
    };
    let (times, is_any_retry_due) = db.query_one(&sql, &[&at, &query.owner], read).await?;
    let mut next: Vec<Option<i64>> = times.into_iter().chain([first_lapse]).collect();
    let mut due = Due::default();
    // Mostly none is: then nothing is written.
    if is_any_retry_due {
        due.retries = due_retries(db, query).await?;
        due.retry_steps = steps_with_retries(db).await?;
    }
    for kind in kinds {
        let sql = include_str!("sql/due_rows.sql").replace("{kind}", kind.name);
        // A damaged row is never due. Verification names it.
        let read = |row: &Row<'_>| Ok(row.undamaged(0)?.zip(row.undamaged::<i64>(1)?));
        for (id, when) in db.query(&sql, &[&at, &limit], read).await?.into_iter().flatten() {
            match when <= at {
                true => due.rows.push((RowKey { kind: kind.name, id }, timestamp(when))),
                false => next.push(Some(when)),
            }
        }
    }
    due.next = next.into_iter().flatten().min().map(timestamp);
    due.tasks = claim_tasks(db, at, query).await?;
    Ok(due)
}

/// Ends delays and claims that a clock that was ahead made too long. Returns the end of the first current claim.
async fn end_overlong_waits<S: Sql>(db: &S, query: &DueQuery) -> Result<Option<i64>, SqlError> {
    let at = micros(query.now);
    let latest = micros(latest_end(query.now, query.longest_delay));
    let sql = "SELECT EXISTS (SELECT 1 FROM retry WHERE next_attempt > $1),
             EXISTS (SELECT 1 FROM task WHERE next_attempt > $1)";
    let is_any: [bool; 2] = db.query_one(sql, &[&latest], |row| Ok([row.get(0)?, row.get(1)?])).await?;
    for ((table, id), is_any) in [("retry", "step, message_id"), ("task", "id")].into_iter().zip(is_any) {
        if is_any {
            let due_now = format!(
                "UPDATE {table} SET next_attempt = $1 WHERE ({id}) IN
                     (SELECT {id} FROM {table} WHERE next_attempt > $2{})",
                S::SKIP_LOCKED
            );
            db.execute(&due_now, &[&at, &latest]).await?;
        }
    }
    let lapses = "SELECT min(lease_until), max(lease_until) FROM task WHERE lease_until > $1";
    let read =
        |row: &Row<'_>| -> Result<(Option<i64>, Option<i64>), SqlError> { Ok((row.get(0)?, row.get(1)?)) };
    let (first_lapse, last_lapse) = db.query_one(lapses, &[&at], read).await?;
    let latest = micros(latest_end(query.now, query.lease));
    if last_lapse <= Some(latest) {
        return Ok(first_lapse);
    }
    let void = format!(
        "UPDATE task SET owner = NULL, lease_until = NULL WHERE id IN
             (SELECT id FROM task WHERE lease_until > $1{})",
        S::SKIP_LOCKED
    );
    db.execute(&void, &[&latest]).await?;
    Ok(db.query_one(lapses, &[&at], read).await?.0)
}

/// Finds due retries, except those that another replica owns.
async fn due_retries<S: Sql>(db: &S, query: &DueQuery) -> Result<Vec<Retry>, SqlError> {
    let at = micros(query.now);
    let until = micros(query.now.saturating_add(RETRY_CLAIM).unwrap_or(Timestamp::MAX));
    // A claim that ends later was made by a clock that is ahead.
    let latest = micros(latest_end(query.now, RETRY_CLAIM));
    let read = |row: &Row<'_>| {
        Ok(Retry {
            step: row.get(0)?,
            message_id: row.get(1)?,
            payload: row.get::<Vec<u8>>(2)?.into(),
            attempts: row.attempts(3)?,
            next_attempt: row.time(4)?,
            first_failed_at: row.time(5)?,
            last_error: row.get(6)?,
            delivery: row.get::<Option<String>>(7)?.and_then(|json| serde_json::from_str(&json).ok()),
            dead_letter: row.get(8)?,
        })
    };
    let (limit, steps) = (limit_of(query.limit), Array(&query.steps));
    let mut retries =
        db.query(S::DUE_RETRIES, &[&at, &limit, &steps, &query.owner, &until, &latest], read).await?;
    retries.sort_by_key(|retry| (retry.next_attempt, retry.message_id));
    Ok(retries)
}

/// Finds the steps with retries, by one look into the index for each.
async fn steps_with_retries<S: Sql>(db: &S) -> Result<Vec<String>, SqlError> {
    let next_step = "SELECT min(step) FROM retry WHERE step > $1";
    let (mut steps, mut last) = (Vec::new(), String::new());
    while let Some(step) = db.query_one(next_step, &[&last], |row| row.get::<Option<String>>(0)).await? {
        steps.push(step.clone());
        last = step;
    }
    Ok(steps)
}

/// Columns of a [`Task`], in the order that [`task`] reads.
pub(super) const TASK: &str =
    "id, kind, correlation_id, payload, attempts, claim, created_at, dead_letter_id, trace";

/// Claims due tasks. Replicas that do so at the same time claim different ones.
async fn claim_tasks<S: Sql>(db: &S, at: i64, query: &DueQuery) -> Result<Vec<Task>, SqlError> {
    if query.recover {
        let void = format!(
            "UPDATE task SET owner = NULL, lease_until = NULL WHERE id IN
                 (SELECT id FROM task WHERE owner = $1 AND created_at < $2{})",
            S::SKIP_LOCKED
        );
        db.execute(&void, &[&query.owner, &at]).await?;
    }
    // Usually none is due. This check is cheaper than the update.
    let is_any_due = "SELECT EXISTS (
             SELECT 1 FROM task WHERE next_attempt <= $1 AND (lease_until IS NULL OR lease_until <= $1))";
    if !db.query_one(is_any_due, &[&at], |row| row.get::<bool>(0)).await? {
        return Ok(Vec::new());
    }
    let sql =
        include_str!("sql/claim_tasks.sql").replace("{skip_locked}", S::SKIP_LOCKED).replace("{task}", TASK);
    let limit = limit_of(query.tasks);
    let until = micros(query.now.saturating_add(query.lease).unwrap_or(Timestamp::MAX));
    let mut tasks = db.query(&sql, &[&query.owner, &until, &at, &limit], task).await?;
    tasks.sort_by_key(|task| (task.created_at, task.id));
    Ok(tasks)
}

/// Reads a task from the columns [`TASK`].
pub(super) fn task(row: &Row<'_>) -> Result<Task, SqlError> {
    Ok(Task {
        id: row.get(0)?,
        kind: row.get(1)?,
        correlation_id: row.get(2)?,
        payload: row.get(3)?,
        attempts: row.attempts(4)?,
        claim: row.get(5)?,
        created_at: row.time(6)?,
        dead_letter: row.get(7)?,
        trace: row.trace(8)?,
    })
}
