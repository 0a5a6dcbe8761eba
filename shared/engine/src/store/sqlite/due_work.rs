//! Shell: due rows, retries and tasks on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task, latest_end};

use super::values::{db_fault, limit_of, micros, timestamp, trace};
use crate::store::{Due, DueQuery, StoreFault};

/// Columns of a [`Task`], in the order that [`task`] reads.
pub(super) const TASK: &str =
    "id, kind, correlation_id, payload, attempts, claim, created_at, dead_letter_id, trace";

/// Finds due work. Needs a write transaction, because it claims tasks.
pub(super) fn claim_due(conn: &Connection, kinds: &[RowKind], query: &DueQuery) -> Result<Due, StoreFault> {
    let context = "finding due work";
    let (at, limit) = (micros(query.now), limit_of(query.limit));
    let first_lapse = end_overlong_waits(conn, query).map_err(db_fault("ending overlong waits"))?;
    let retries = due_retries(conn, at, limit, &query.paused).map_err(db_fault(context))?;
    let mut due = Due { retries, ..Due::default() };
    let mut next: Vec<Option<i64>> = vec![
        first(conn, "SELECT min(next_attempt) FROM retry WHERE next_attempt > ?1", at)
            .map_err(db_fault(context))?,
        first(conn, "SELECT min(next_attempt) FROM task WHERE next_attempt > ?1 AND lease_until IS NULL", at)
            .map_err(db_fault(context))?,
        first_lapse,
    ];
    for kind in kinds {
        let name = kind.name;
        let sql = format!("SELECT id, due FROM row_{name} WHERE due <= ?1 ORDER BY due LIMIT ?2");
        let rows: Vec<(RowKey, Timestamp)> = conn
            .prepare_cached(&sql)
            .and_then(|mut select| {
                select
                    .query_map([at, limit], |row| {
                        Ok((RowKey { kind: name, id: row.get(0)? }, timestamp(row.get(1)?)))
                    })?
                    .collect()
            })
            .map_err(db_fault(context))?;
        due.rows.extend(rows);
        let sql = format!("SELECT min(due) FROM row_{name} WHERE due > ?1");
        next.push(first(conn, &sql, at).map_err(db_fault(context))?);
    }
    due.next = next.into_iter().flatten().min().map(timestamp);
    due.tasks = claim_tasks(conn, at, query).map_err(db_fault("claiming tasks"))?;
    Ok(due)
}

/// Ends delays and claims that a clock that was ahead made too long. Returns the end of the first current claim.
fn end_overlong_waits(conn: &Connection, query: &DueQuery) -> rusqlite::Result<Option<i64>> {
    let at = micros(query.now);
    let latest = micros(latest_end(query.now, query.longest_delay));
    for (last, due_now) in [
        (
            "SELECT max(next_attempt) FROM retry WHERE next_attempt > ?1",
            "UPDATE retry SET next_attempt = ?1 WHERE next_attempt > ?2",
        ),
        (
            "SELECT max(next_attempt) FROM task WHERE next_attempt > ?1",
            "UPDATE task SET next_attempt = ?1 WHERE next_attempt > ?2",
        ),
    ] {
        if first(conn, last, latest)?.is_some() {
            conn.execute(due_now, [at, latest])?;
        }
    }
    let leases = || {
        let mut select = conn
            .prepare_cached("SELECT min(lease_until), max(lease_until) FROM task WHERE lease_until > ?1")?;
        select.query_row([at], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)))
    };
    let (first_lapse, last_lapse) = leases()?;
    let latest = micros(latest_end(query.now, query.lease));
    if last_lapse <= Some(latest) {
        return Ok(first_lapse);
    }
    conn.execute("UPDATE task SET owner = NULL, lease_until = NULL WHERE lease_until > ?1", [latest])?;
    Ok(leases()?.0)
}

fn first(conn: &Connection, sql: &str, at: i64) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(sql)?.query_row([at], |row| row.get(0))
}

fn due_retries(conn: &Connection, at: i64, limit: i64, paused: &[String]) -> rusqlite::Result<Vec<Retry>> {
    let paused = serde_json::to_string(paused).unwrap_or_else(|_| "[]".to_owned());
    conn.prepare_cached(
        "SELECT step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id
         FROM retry WHERE next_attempt <= ?1 AND NOT EXISTS (SELECT 1 FROM json_each(?3) WHERE value = step)
         ORDER BY next_attempt LIMIT ?2",
    )?
    .query_map(params![at, limit, paused], |row| {
        Ok(Retry {
            step: row.get(0)?,
            message_id: row.get(1)?,
            payload: row.get::<_, Vec<u8>>(2)?.into(),
            attempts: row.get(3)?,
            next_attempt: timestamp(row.get(4)?),
            first_failed_at: timestamp(row.get(5)?),
            last_error: row.get(6)?,
            delivery: row.get::<_, Option<String>>(7)?.and_then(|json| serde_json::from_str(&json).ok()),
            dead_letter: row.get(8)?,
        })
    })?
    .collect()
}

fn claim_tasks(conn: &Connection, at: i64, query: &DueQuery) -> rusqlite::Result<Vec<Task>> {
    if query.recover {
        let void = "UPDATE task SET owner = NULL, lease_until = NULL WHERE owner = ?1 AND created_at < ?2";
        conn.execute(void, params![query.owner, at])?;
    }
    // Usually no task is due. This check is cheaper than the update, which makes temporary tables.
    let is_any_due = "SELECT EXISTS (
        SELECT 1 FROM task WHERE next_attempt <= ?1 AND (lease_until IS NULL OR lease_until <= ?1))";
    if !conn.prepare_cached(is_any_due)?.query_row([at], |row| row.get(0))? {
        return Ok(Vec::new());
    }
    let mut update = conn.prepare_cached(&format!(
        "UPDATE task SET owner = ?1, lease_until = ?2, claim = claim + 1 WHERE id IN (
             SELECT id FROM task WHERE next_attempt <= ?3 AND (lease_until IS NULL OR lease_until <= ?3)
             ORDER BY next_attempt LIMIT ?4)
         RETURNING {TASK}"
    ))?;
    let limit = limit_of(query.tasks);
    let until = micros(query.now.saturating_add(query.lease).unwrap_or(Timestamp::MAX));
    let mut tasks: Vec<Task> =
        update.query_map(params![query.owner, until, at, limit], task)?.collect::<Result<_, _>>()?;
    tasks.sort_by_key(|task| (task.created_at, task.id));
    Ok(tasks)
}

/// Reads a task from the columns [`TASK`].
pub(super) fn task(row: &rusqlite::Row<'_>) -> rusqlite::Result<Task> {
    Ok(Task {
        id: row.get(0)?,
        kind: row.get(1)?,
        correlation_id: row.get(2)?,
        payload: row.get(3)?,
        attempts: row.get(4)?,
        claim: row.get(5)?,
        created_at: timestamp(row.get(6)?),
        dead_letter: row.get(7)?,
        trace: trace(row, 8)?,
    })
}
