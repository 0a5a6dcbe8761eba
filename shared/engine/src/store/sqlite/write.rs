//! Shell: writes one batch. Prepared statements in loops are faster on SQLite than set-based SQL.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, params};
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::decision::{OutboxWrite, RowWrite, Writes};
use saga_core::row::{Projected, RowKind};
use saga_core::trace::TraceContext;
use saga_core::waiting::{Retry, Task};

use super::connection::add_to_message_counts;
use super::values::{field_value, insert_sql};
use crate::store::encoding::micros;
use crate::store::sql_error::db_fault;
use crate::store::{OutboxEntry, StoreFault};

/// Appends an entry to the sequence.
const INSERT_ENTRY: &str =
    "INSERT INTO outbox (id, saga, subject, payload, created_at, trace) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Appends an entry where some are blocked. Behind a failed one of its saga, an entry is blocked from the start: otherwise
/// it would count as pending until something else is published.
const INSERT_BLOCKED: &str = "INSERT INTO outbox (id, saga, subject, payload, created_at, trace, status)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6,
             iif(EXISTS (SELECT 1 FROM outbox WHERE saga = ?2 AND status IN ('FAILED', 'BLOCKED')), 'BLOCKED', NULL))";

/// Maximum number of searchable values of a kind up to which only changed values are updated, so that the pages of other indexes
/// stay untouched. Each combination of values needs a statement of its own.
const UPDATED_SEPARATELY: usize = 6;

/// Statements for the table of a kind, built once.
#[derive(Debug)]
pub(super) struct KindSql {
    pub(super) load: String,
    insert: String,
    /// Statements by the changed values: a bit for each field, and the highest for the due time. With too many values, a
    /// single statement that updates all.
    updates: Vec<String>,
}

impl KindSql {
    pub(super) fn of(kind: &RowKind) -> Self {
        let name = kind.name;
        let columns: Vec<&str> = kind.fields.iter().copied().chain(["due"]).collect();
        let all = (1_usize << columns.len().min(usize::BITS as usize - 1)) - 1;
        let masks = if columns.len() <= UPDATED_SEPARATELY { 0..=all } else { all..=all };
        let update = |mask: usize| {
            let changed = columns.iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0);
            let assignments: String =
                changed.zip(6..).map(|((_, column), place)| format!(", {column} = ?{place}")).collect();
            format!(
                "UPDATE row_{name} SET version = ?2, state = ?3, updated_at = ?4{assignments}
                 WHERE id = ?1 AND version = ?5"
            )
        };
        Self {
            load: format!("SELECT version, state FROM row_{name} WHERE id = ?1"),
            insert: insert_sql(kind),
            updates: masks.map(update).collect(),
        }
    }

    /// Statement that updates a row, with the searchable values for it.
    fn update<'a>(&'a self, row: &'a RowWrite) -> (&'a str, Vec<Value>) {
        let RowWrite { projected: Projected { fields, due, .. }, searched_by, .. } = row;
        let due = Value::from(due.map(micros));
        if let (Some(before), true) = (searched_by, self.updates.len() > 1) {
            let is_changed = fields.iter().zip(&before.fields).map(|(now, before)| now != before);
            let is_changed = is_changed.chain([row.projected.due != before.due]);
            let (mut mask, mut values) = (0, Vec::new());
            let all = fields.iter().map(field_value).chain([due]).zip(is_changed).enumerate();
            for (bit, (value, _)) in all.filter(|(_, (_, is_changed))| *is_changed) {
                mask |= 1 << bit;
                values.push(value);
            }
            return (&self.updates[mask], values);
        }
        let all = self.updates.last().map_or("", String::as_str);
        (all, fields.iter().map(field_value).chain([due]).collect())
    }
}

pub(super) fn sql_of<'k>(
    kinds: &'k BTreeMap<&'static str, KindSql>,
    kind: &str,
) -> Result<&'k KindSql, StoreFault> {
    kinds.get(kind).ok_or_else(|| StoreFault::Unusable(format!("rows of kind {kind:?} are not declared")))
}

/// Writes a batch. Returns its outbox entries with their positions.
pub(super) fn write(
    conn: &Connection,
    kinds: &BTreeMap<&'static str, KindSql>,
    writes: &Writes,
) -> Result<Vec<OutboxEntry>, StoreFault> {
    let at = micros(writes.decided_at);
    for row in &writes.rows {
        write_row(conn, kinds, row, at)?;
    }
    write_events(conn, writes, at).map_err(db_fault("writing events"))?;
    let entries = write_outbox(conn, writes, at).map_err(db_fault("writing the outbox"))?;
    write_messages(conn, writes, at).map_err(db_fault("writing inbox, retries and dead letters"))?;
    write_tasks(conn, writes).map_err(db_fault("writing tasks"))?;
    Ok(entries)
}

fn write_row(
    conn: &Connection,
    kinds: &BTreeMap<&'static str, KindSql>,
    row: &RowWrite,
    at: i64,
) -> Result<(), StoreFault> {
    let sql = sql_of(kinds, row.key.kind)?;
    let (id, version, state) = (&row.key.id, row.version, &row.projected.state);
    let (sql, head, searched): (&str, [&dyn ToSql; 5], Vec<Value>) = match row.read_version {
        0 => {
            let due = Value::from(row.projected.due.map(micros));
            let searched = std::iter::once(due).chain(row.projected.fields.iter().map(field_value));
            (&sql.insert, [id, &version, state, &at, &at], searched.collect())
        }
        _ => {
            let (sql, searched) = sql.update(row);
            (sql, [id, &version, state, &at, &row.read_version], searched)
        }
    };
    let values = head.into_iter().chain(searched.iter().map(|value| value as &dyn ToSql));
    let changed = conn
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute(rusqlite::params_from_iter(values)))
        .map_err(db_fault("writing a row"))?;
    match changed {
        1 => Ok(()),
        _ => Err(StoreFault::Conflict(row.key.clone())),
    }
}

fn write_events(conn: &Connection, writes: &Writes, at: i64) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached(
        "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut is_published = vec![false; writes.events.len()];
    for index in writes.outbox.iter().filter_map(|entry| entry.event) {
        is_published[index] = true;
    }
    for (event, is_published) in writes.events.iter().zip(is_published) {
        let key = &event.key;
        insert.execute(params![
            key.kind,
            key.id,
            event.version,
            event.name,
            event.data,
            event.causation_id,
            at,
            is_published
        ])?;
    }
    Ok(())
}

/// Writes outbox entries. Returns none of them if any entry of the outbox is out of sequence (failed, blocked, to retry or to
/// republish): the relay then reads the outbox.
fn write_outbox(conn: &Connection, writes: &Writes, at: i64) -> rusqlite::Result<Vec<OutboxEntry>> {
    if writes.outbox.is_empty() {
        return Ok(vec![]);
    }
    // Checked once: nothing else writes meanwhile, and these entries block no other.
    let (is_any_blocked, is_any_out_of_sequence): (bool, bool) = conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM outbox WHERE status IN ('FAILED', 'BLOCKED')),
                    EXISTS (SELECT 1 FROM outbox WHERE status IS NOT NULL)",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut insert = conn.prepare_cached(if is_any_blocked { INSERT_BLOCKED } else { INSERT_ENTRY })?;
    let mut entries = Vec::with_capacity(writes.outbox.len());
    for entry in &writes.outbox {
        let OutboxWrite { id, saga, subject, payload, trace: context, .. } = entry;
        let seq = insert.insert(params![id, saga, subject, &payload[..], at, trace(*context)])?;
        entries.push(OutboxEntry {
            seq,
            id: *id,
            saga: *saga,
            subject: subject.clone(),
            payload: payload.clone(),
            trace: *context,
            is_repetition: false,
        });
    }
    if is_any_out_of_sequence {
        entries.clear();
    }
    Ok(entries)
}

fn write_messages(conn: &Connection, writes: &Writes, at: i64) -> rusqlite::Result<()> {
    let mut handled: BTreeMap<&str, i64> = BTreeMap::new();
    let mut insert = conn
        .prepare_cached("INSERT OR IGNORE INTO inbox (step, message_id, handled_at) VALUES (?1, ?2, ?3)")?;
    for (step, id) in &writes.inbox {
        let new = insert.execute(params![step, id, at])?;
        *handled.entry(step).or_default() += i64::from(new > 0);
    }
    add_to_message_counts(conn, "handled", &handled)?;
    for (step, id) in &writes.retries_done {
        conn.prepare_cached("DELETE FROM retry WHERE step = ?1 AND message_id = ?2")?
            .execute(params![step, id])?;
    }
    for retry in &writes.retries {
        insert_retry(conn, "INSERT OR REPLACE", retry)?;
    }
    for retry in &writes.retries_again {
        insert_retry(conn, "INSERT OR IGNORE", retry)?;
    }
    write_dead_letters(conn, writes)?;
    for (key, answer) in &writes.keys {
        conn.prepare_cached(
            "INSERT INTO idempotency_key (key, fingerprint, reply, created_at) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key, answer.fingerprint, answer.reply, at])?;
    }
    Ok(())
}

fn insert_retry(conn: &Connection, insert: &str, retry: &Retry) -> rusqlite::Result<usize> {
    conn.prepare_cached(&format!(
        "{insert} INTO retry
         (step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    ))?
    .execute(params![
        retry.step,
        retry.message_id,
        &retry.payload[..],
        retry.attempts,
        micros(retry.next_attempt),
        micros(retry.first_failed_at),
        retry.last_error,
        retry.delivery.as_ref().map(json).transpose()?,
        retry.dead_letter
    ])
}

fn write_dead_letters(conn: &Connection, writes: &Writes) -> rusqlite::Result<()> {
    for dead in &writes.new_dead_letters {
        conn.prepare_cached(
            "INSERT INTO dead_letter (id, step, message_id, saga, origin, content, last_failed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (id) DO UPDATE SET status = 'PENDING', saga = excluded.saga, content = excluded.content,
                 last_failed_at = excluded.last_failed_at",
        )?
        .execute(params![
            dead.id,
            dead.step,
            dead.message_id,
            dead.saga,
            dead.origin.as_str(),
            json(dead)?,
            micros(dead.last_failed_at)
        ])?;
    }
    for StoredDeadLetter { dead_letter: dead, status, revision, .. } in &writes.changed_dead_letters {
        let revision = i64::try_from(*revision).unwrap_or(i64::MAX);
        conn.prepare_cached(
            "UPDATE dead_letter SET content = ?2, status = ?3, revision = ?4, last_failed_at = ?5, saga = ?6
             WHERE id = ?1",
        )?
        .execute(params![
            dead.id,
            json(dead)?,
            status.as_str(),
            revision,
            micros(dead.last_failed_at),
            dead.saga
        ])?;
    }
    Ok(())
}

fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn write_tasks(conn: &Connection, writes: &Writes) -> rusqlite::Result<()> {
    // First: the same task may be created again in the same batch.
    for id in &writes.tasks_done {
        conn.prepare_cached("DELETE FROM task WHERE id = ?1")?.execute([id])?;
    }
    let claim = writes.claim.as_ref();
    let (owner, lease_until) = (claim.map(|(owner, _)| owner), claim.map(|(_, until)| micros(*until)));
    for task in &writes.tasks {
        insert_task(conn, INSERT_TASK, task, owner, lease_until)?;
    }
    for task in &writes.tasks_again {
        insert_task(conn, &format!("{INSERT_TASK} ON CONFLICT (id) DO NOTHING"), task, None, None)?;
    }
    for retry in &writes.task_retries {
        conn.prepare_cached(
            "UPDATE task SET attempts = ?2, next_attempt = ?3, last_error = ?4, owner = NULL, lease_until = NULL,
                 trace = coalesce(?5, trace)
             WHERE id = ?1",
        )?
        .execute(params![
            retry.id,
            retry.attempts,
            micros(retry.next_attempt),
            retry.last_error,
            retry.trace.map(|trace| trace.to_bytes())
        ])?;
    }
    Ok(())
}

const INSERT_TASK: &str = "INSERT INTO task
    (id, kind, correlation_id, payload, attempts, claim, owner, lease_until, next_attempt, created_at,
     dead_letter_id, trace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11)";

fn insert_task(
    conn: &Connection,
    sql: &str,
    task: &Task,
    owner: Option<&String>,
    lease_until: Option<i64>,
) -> rusqlite::Result<usize> {
    conn.prepare_cached(sql)?.execute(params![
        task.id,
        task.kind,
        task.correlation_id,
        task.payload,
        task.attempts,
        task.claim,
        owner,
        lease_until,
        micros(task.created_at),
        task.dead_letter,
        trace(task.trace)
    ])
}

fn trace(context: Option<TraceContext>) -> Option<[u8; TraceContext::LENGTH]> {
    context.map(|context| context.to_bytes())
}
