//! Shell: what people and timers ask.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use saga_core::query::{FoundRow, Group, Join, Joined, Order, Query};
use saga_core::row::{RowKey, RowKind, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};
use saga_core::waiting::{Retry, Task, latest_end};
use uuid::Uuid;

use super::values::{field_value, micros, oops, read_field, stored_dead_letter, timestamp, trace};
use crate::store::{Cutoffs, Due, DueQuery, FailingTask, StoreFault, StoredDeadLetters};

fn found(row: &rusqlite::Row<'_>) -> rusqlite::Result<FoundRow> {
    Ok(FoundRow {
        id: row.get(0)?,
        version: row.get(1)?,
        state: row.get(2)?,
        created_at: timestamp(row.get(3)?),
        updated_at: timestamp(row.get(4)?),
        ordered_by: read_field(row.get_ref(5)?),
    })
}

pub(super) fn row(conn: &Connection, key: &RowKey) -> Result<Option<FoundRow>, StoreFault> {
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, NULL FROM row_{} WHERE id = ?1",
        key.kind
    );
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_row([&key.id], found).optional())
        .map_err(oops("reading a row"))
}

/// The conditions of a query, as SQL that follows `WHERE 1`, with their values.
fn conditions(query: &Query) -> (String, Vec<Value>) {
    let (mut sql, mut values) = (String::new(), Vec::<Value>::new());
    let mut place = |value: Value| {
        values.push(value);
        values.len()
    };
    for (operator, conditions) in [("=", &query.equals), ("<", &query.below), (">=", &query.from)] {
        for (field, value) in conditions {
            let _ = write!(sql, " AND {field} {operator} ?{}", place(field_value(value)));
        }
    }
    for (field, options) in &query.one_of {
        let places: Vec<String> =
            options.iter().map(|value| format!("?{}", place(field_value(value)))).collect();
        let _ = write!(sql, " AND {field} IN ({})", places.join(", "));
    }
    if let Some(text) = &query.text {
        let _ = write!(sql, " AND instr(lower(state), lower(?{})) > 0", place(text.clone().into()));
    }
    let beyond = if query.descending { "<" } else { ">" };
    match (&query.after, query.order) {
        (Some(after), None) => {
            let _ = write!(sql, " AND id {beyond} ?{}", place(after.clone().into()));
        }
        (Some(after), Some(Order { field, after: Some(value) })) => {
            let (value, id) = (place(value.into()), place(after.clone().into()));
            let _ = write!(sql, " AND ({field}, id) {beyond} (?{value}, ?{id})");
        }
        (Some(_), Some(Order { after: None, .. })) | (None, _) => {}
    }
    (sql, values)
}

fn limit_of(query: &Query) -> Value {
    i64::try_from(query.limit).unwrap_or(i64::MAX).into()
}

pub(super) fn find(conn: &Connection, kind: &str, query: &Query) -> Result<Vec<FoundRow>, StoreFault> {
    let (conditions, mut values) = conditions(query);
    let direction = if query.descending { "DESC" } else { "ASC" };
    let first = query.order.map(|order| format!("{} {direction}, ", order.field)).unwrap_or_default();
    let by = query.order.map_or("NULL", |order| order.field);
    values.push(limit_of(query));
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, {by} FROM row_{kind} WHERE 1{conditions}
         ORDER BY {first}id {direction} LIMIT ?{}",
        values.len()
    );
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), found)?.collect())
        .map_err(oops("looking rows up"))
}

pub(super) fn counts(
    conn: &Connection,
    kind: &str,
    by: &str,
    query: &Query,
) -> Result<BTreeMap<String, u64>, StoreFault> {
    let (conditions, values) = conditions(query);
    let sql = format!("SELECT {by}, count(*) FROM row_{kind} WHERE 1{conditions} GROUP BY {by}");
    let read = |row: &rusqlite::Row<'_>| {
        let value: Option<String> = row.get(0)?;
        Ok((value.unwrap_or_default(), u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
    };
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), read)?.collect())
        .map_err(oops("counting rows"))
}

pub(super) fn groups(
    conn: &Connection,
    kind: &str,
    by: &str,
    times: &str,
    query: &Query,
) -> Result<Vec<Group>, StoreFault> {
    let (conditions, mut values) = conditions(query);
    values.push(limit_of(query));
    // With max() alone among the aggregates of its sort, SQLite takes the bare column `id` from the row that has
    // the maximum (https://sqlite.org/lang_select.html#bareagg); min() beside it would break that, so it is asked apart.
    let sql = format!(
        "SELECT latest.value, latest.count, oldest.first, latest.last, latest.id
         FROM (SELECT coalesce({by}, '') AS value, count(*) AS count, max({times}) AS last, id
               FROM row_{kind} WHERE 1{conditions} GROUP BY 1) AS latest
         JOIN (SELECT coalesce({by}, '') AS value, min({times}) AS first
               FROM row_{kind} WHERE 1{conditions} GROUP BY 1) AS oldest USING (value)
         ORDER BY latest.count DESC, latest.value LIMIT ?{}",
        values.len()
    );
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Group {
            value: row.get(0)?,
            count: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            first: row.get(2)?,
            last: row.get(3)?,
            latest: row.get(4)?,
        })
    };
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), read)?.collect())
        .map_err(oops("counting rows by a field"))
}

pub(super) fn joined(
    conn: &Connection,
    kind: &str,
    join: &Join,
    query: &Query,
) -> Result<Vec<Joined>, StoreFault> {
    let (conditions, mut values) = conditions(query);
    let Join { by, and, through, kind: other, their, range, after } = *join;
    values.push(after.into());
    let after = values.len();
    let sql = format!(
        "SELECT mine.one, mine.two, other.{their}, count(*), count(*) FILTER (WHERE other.{range} <= ?{after}),
                min(other.{range}) FILTER (WHERE other.{range} > ?{after}),
                max(other.{range}) FILTER (WHERE other.{range} > ?{after})
         FROM (SELECT coalesce({by}, '') AS one, coalesce({and}, '') AS two, {through} AS through
               FROM row_{kind} WHERE 1{conditions}) AS mine
         LEFT JOIN row_{other} AS other ON other.id = mine.through
         GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    );
    let read = |row: &rusqlite::Row<'_>| {
        let count = |column| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0));
        let (least, greatest): (Option<i64>, Option<i64>) = (row.get(5)?, row.get(6)?);
        Ok(Joined {
            by: row.get(0)?,
            and: row.get(1)?,
            their: row.get(2)?,
            count: count(3)?,
            past: count(4)?,
            range: least.zip(greatest),
        })
    };
    conn.prepare_cached(&sql)
        .and_then(|mut select| select.query_map(rusqlite::params_from_iter(values), read)?.collect())
        .map_err(oops("counting rows with those they name"))
}

/// An event of these columns.
pub(super) fn stored_event(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        version: row.get(0)?,
        name: row.get(1)?,
        data: row.get(2)?,
        causation_id: row.get(3)?,
        recorded_at: timestamp(row.get(4)?),
        is_published: row.get(5)?,
    })
}

/// Events of a row behind the version `after`, oldest first.
pub(super) fn history(
    conn: &Connection,
    kind: &str,
    id: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreFault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    history_between(conn, kind, id, after, i64::MAX, limit).map_err(oops("reading the history of a row"))
}

/// Events of a row behind the version `after`, and before the version `before`.
pub(super) fn history_between(
    conn: &Connection,
    kind: &str,
    id: &str,
    after: i64,
    before: i64,
    limit: i64,
) -> rusqlite::Result<Vec<StoredEvent>> {
    conn.prepare_cached(
        "SELECT version, name, data, causation_id, recorded_at, is_published FROM event
         WHERE kind = ?1 AND row_id = ?2 AND version > ?3 AND version < ?4 ORDER BY version LIMIT ?5",
    )?
    .query_map(params![kind, id, after, before, limit], stored_event)?
    .collect()
}

pub(super) fn stats(conn: &Connection) -> Result<StoreStats, StoreFault> {
    let context = "reading the statistics";
    let count = |sql: &str| -> Result<u64, StoreFault> {
        conn.prepare_cached(sql)
            .and_then(|mut select| select.query_row([], |row| row.get::<_, i64>(0)))
            .map(|count| u64::try_from(count).unwrap_or(0))
            .map_err(oops(context))
    };
    let oldest_task: Option<i64> = conn
        .prepare_cached("SELECT min(created_at) FROM task")
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(oops(context))?;
    let outbox = super::outbox::waiting(conn).map_err(oops(context))?;
    Ok(StoreStats {
        retries: count("SELECT count(*) FROM retry")?,
        tasks: count("SELECT count(*) FROM task")?,
        task_oldest: oldest_task.map(timestamp),
        dead_letters: count("SELECT count(*) FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING')")?,
        ..outbox
    })
}

pub(super) fn tallies(conn: &Connection) -> Result<MessageCounts, StoreFault> {
    let counts = |sql: &str| -> Result<BTreeMap<String, u64>, StoreFault> {
        conn.prepare_cached(sql)
            .and_then(|mut select| {
                let read = |row: &rusqlite::Row<'_>| {
                    Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
                };
                select.query_map([], read)?.collect()
            })
            .map_err(oops("reading the tallies"))
    };
    Ok(MessageCounts {
        published: counts("SELECT name, count FROM message_count WHERE outcome = 'published'")?,
        handled: counts("SELECT name, count FROM message_count WHERE outcome = 'handled'")?,
        // What nobody of this system sent, or what is no message, is not among the messages that are reconciled.
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
        let mut rows = select.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            match stored_dead_letter(row) {
                Ok(letter) => found.readable.push(letter),
                Err(error) => {
                    let id = row.get(4).map(|id: uuid::Uuid| id.to_string()).or_else(|_| row.get(5))?;
                    tracing::error!(dead_letter = %id, "a dead letter cannot be read: {error}");
                    found.unreadable.push(id);
                }
            }
        }
        Ok(found)
    };
    read().map_err(oops("reading dead letters"))
}

/// What is due. Runs inside a write transaction, because it claims tasks.
pub(super) fn due(conn: &Connection, kinds: &[RowKind], query: &DueQuery) -> Result<Due, StoreFault> {
    let context = "looking for what is due";
    let (at, limit) = (micros(query.now), i64::try_from(query.limit).unwrap_or(i64::MAX));
    let first_lapse = put_right(conn, query).map_err(oops("ending waits that are too long"))?;
    let retries = due_retries(conn, at, limit, &query.paused).map_err(oops(context))?;
    let mut due = Due { retries, ..Due::default() };
    let mut next: Vec<Option<i64>> = vec![
        first(conn, "SELECT min(next_attempt) FROM retry WHERE next_attempt > ?1", at)
            .map_err(oops(context))?,
        first(conn, "SELECT min(next_attempt) FROM task WHERE next_attempt > ?1 AND lease_until IS NULL", at)
            .map_err(oops(context))?,
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
            .map_err(oops(context))?;
        due.rows.extend(rows);
        let sql = format!("SELECT min(due) FROM row_{name} WHERE due > ?1");
        next.push(first(conn, &sql, at).map_err(oops(context))?);
    }
    due.next = next.into_iter().flatten().min().map(timestamp);
    due.tasks = claim_tasks(conn, at, query).map_err(oops("claiming tasks"))?;
    Ok(due)
}

/// Ends the waits that were begun by a clock that was ahead. Answers when the first claim lapses of those that have
/// not lapsed yet.
fn put_right(conn: &Connection, query: &DueQuery) -> rusqlite::Result<Option<i64>> {
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
    // Mostly nothing is: then the tables in memory that the update works with are not made.
    let is_any_due = "SELECT EXISTS (
        SELECT 1 FROM task WHERE next_attempt <= ?1 AND (lease_until IS NULL OR lease_until <= ?1))";
    if !conn.prepare_cached(is_any_due)?.query_row([at], |row| row.get(0))? {
        return Ok(Vec::new());
    }
    let mut update = conn.prepare_cached(
        "UPDATE task SET owner = ?1, lease_until = ?2, claim = claim + 1 WHERE id IN (
             SELECT id FROM task WHERE next_attempt <= ?3 AND (lease_until IS NULL OR lease_until <= ?3)
             ORDER BY next_attempt LIMIT ?4)
         RETURNING id, kind, correlation_id, payload, attempts, claim, created_at, dead_letter_id, trace",
    )?;
    let limit = i64::try_from(query.tasks).unwrap_or(i64::MAX);
    let until = micros(query.now.saturating_add(query.lease).unwrap_or(Timestamp::MAX));
    let mut tasks: Vec<Task> =
        update.query_map(params![query.owner, until, at, limit], task)?.collect::<Result<_, _>>()?;
    tasks.sort_by_key(|task| (task.created_at, task.id));
    Ok(tasks)
}

/// A task of these columns.
fn task(row: &rusqlite::Row<'_>) -> rusqlite::Result<Task> {
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

pub(super) fn failing_tasks(conn: &Connection, limit: usize) -> Result<Vec<FailingTask>, StoreFault> {
    conn.prepare_cached(
        "SELECT id, kind, correlation_id, payload, attempts, claim, created_at, dead_letter_id, trace, next_attempt,
                last_error
         FROM task WHERE last_error IS NOT NULL ORDER BY created_at, id LIMIT ?1",
    )
    .and_then(|mut select| {
        let read = |row: &rusqlite::Row<'_>| {
            let (next_attempt, last_error) = (timestamp(row.get(9)?), row.get(10)?);
            Ok(FailingTask { task: task(row)?, next_attempt, last_error })
        };
        select.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], read)?.collect()
    })
    .map_err(oops("reading tasks"))
}

pub(super) fn trim(conn: &Connection, cutoffs: Cutoffs, limit: usize) -> Result<u64, StoreFault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let marks = trim_inbox(conn, cutoffs.inbox, limit);
    let keys = conn.execute(
        "DELETE FROM idempotency_key WHERE key IN
         (SELECT key FROM idempotency_key WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)",
        params![micros(cutoffs.keys), limit],
    );
    let published = super::outbox::trim(conn, cutoffs.published, limit);
    let context = "trimming finished entries";
    let gone =
        [marks, keys, published].into_iter().sum::<rusqlite::Result<usize>>().map_err(oops(context))?;
    Ok(u64::try_from(gone).unwrap_or(u64::MAX))
}

/// Deletes marks of each step: from the first on, since an id begins with the time of its saga; and from anywhere on, for
/// those that do not, as those of dead letters.
fn trim_inbox(conn: &Connection, cutoff: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    /// Marks looked at for each that may go: those of old sagas that were handled only lately stand in the way.
    const LOOKED_AT: i64 = 10;
    const GO: &str = "DELETE FROM inbox WHERE step = ?1 AND message_id IN
         (SELECT message_id FROM
              (SELECT message_id, handled_at FROM inbox WHERE step = ?1 AND message_id >= ?5 ORDER BY message_id LIMIT ?4)
          WHERE handled_at < ?2 LIMIT ?3)";
    let mut next_step = conn.prepare_cached("SELECT min(step) FROM inbox WHERE step > ?1")?;
    let (mut gone, mut last) = (0, String::new());
    while let Some(step) = next_step.query_row([&last], |row| row.get::<_, Option<String>>(0))? {
        for first in [Uuid::nil(), Uuid::from_u128(fastrand::u128(..))] {
            let limit = limit - i64::try_from(gone).unwrap_or(limit);
            let looked_at = limit.saturating_mul(LOOKED_AT);
            gone +=
                conn.prepare_cached(GO)?.execute(params![step, micros(cutoff), limit, looked_at, first])?;
        }
        last = step;
    }
    Ok(gone)
}
