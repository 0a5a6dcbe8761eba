//! Shell: writes a batch by few set-based statements, all sent at once, since each statement has a fixed cost.
//!
//! The first statement locks the head of the database, so that batches of several replicas are written one after the other,
//! in the order of their positions. A batch locks its rows before the head. Thus the holder of the head waits for no row that
//! another batch has locked.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::decider::FieldValue;
use saga_core::decision::{OutboxWrite, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Database;
use super::load::{Assumptions, CHANGED_STATE, MessageStates};
use super::pool::Connection;
use super::statements::{Returned, Statements, column, values};
use super::values::{Owned, Ready, array_of, pipelined, type_of};
use super::write_waiting::{write_dead_letters, write_retries, write_tasks};
use crate::store::backend::Kinds;
use crate::store::encoding::micros;
use crate::store::sql::{limit_of, quoted};
use crate::store::sql_error::db_fault;
use crate::store::{OutboxEntry, StoreFault};

/// Locks the head, reserves positions for events and entries, and stores the token of the batch, dated by the server.
const LOCK_HEAD: &str = "WITH token AS (INSERT INTO batch (token, committed_at)
         VALUES ($3, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)))
     UPDATE head SET generation = generation + 1, event = event + $1, outbox = outbox + $2 RETURNING outbox, generation";

/// Kind in a conflict about a message or an idempotency key.
pub(super) const MESSAGE: &str = "message";

/// Generation that no database has.
const NO_GENERATION: i64 = -1;

/// Writes a batch, if its assumptions still hold, and the database has not gone back in time. Returns its outbox entries
/// with their positions, and the generation of the database that it made.
pub(super) async fn write(
    conn: &Connection,
    database: &Database,
    assumptions: Assumptions,
    writes: &Writes,
    token: Uuid,
) -> Result<(Vec<OutboxEntry>, i64), StoreFault> {
    let (kinds, highest) = (&database.kinds, &database.highest_position);
    let (at, known) = (micros(writes.decided_at), highest.known_generation());
    let mut statements = Statements::default();
    let (events, entries) = (limit_of(writes.events.len()), limit_of(writes.outbox.len()));
    statements.push(LOCK_HEAD, values![events, entries, token], Returned::Head);
    let undisturbed = undisturbed_generation(&assumptions, writes);
    write_messages(&mut statements, assumptions, writes, undisturbed, at);
    write_rows(&mut statements, kinds, writes, undisturbed, at)?;
    write_history(&mut statements, writes, at);
    write_retries(&mut statements, writes)?;
    write_dead_letters(&mut statements, writes)?;
    write_tasks(&mut statements, writes);
    let (mut ready, mut all_returned) = (Vec::with_capacity(statements.0.len()), Vec::new());
    for (sql, values, returned) in statements.0 {
        ready.push(Ready::of(conn, &sql, values).await.map_err(db_fault("preparing a batch"))?);
        all_returned.push(returned);
    }
    let results = pipelined(conn, &ready).await;
    let (mut last, mut generation, mut is_any_out_of_sequence) = (0_i64, 0_i64, false);
    // Messages precede rows: after a conflict, a processed message is loaded again with the rows that it changed. Rows precede
    // events: a row that another batch changed is a conflict, not an event that exists already.
    for (returned, rows) in all_returned.into_iter().zip(results) {
        let rows = rows.map_err(db_fault("writing a batch"))?;
        match returned {
            Returned::Head => {
                (last, generation) = rows.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
                highest.compare_generation(known, generation - 1)?;
            }
            Returned::Conflict => {
                if let Some(row) = rows.first() {
                    return Err(StoreFault::Conflict(RowKey { kind: MESSAGE, id: row.get(0) }));
                }
            }
            Returned::Rows(keys) => check_written(keys, &rows)?,
            Returned::OutOfSequence => is_any_out_of_sequence = rows.first().is_some_and(|row| row.get(0)),
            Returned::Nothing => {}
        }
    }
    let entries = if is_any_out_of_sequence { vec![] } else { entries_until(last, writes) };
    Ok((entries, generation))
}

/// Outbox entries of a batch, the last of which has this position.
fn entries_until(last: i64, writes: &Writes) -> Vec<OutboxEntry> {
    let first = last - limit_of(writes.outbox.len()) + 1;
    let entry = |(seq, write): (i64, &OutboxWrite)| {
        let OutboxWrite { id, saga, subject, payload, trace, .. } = write.clone();
        OutboxEntry { seq, id, saga, subject, payload, trace, is_repetition: false }
    };
    (first..).zip(&writes.outbox).map(entry).collect()
}

/// Generation that the batch makes if nothing was written since its load. Then what was missing at the load is still missing,
/// and need not be looked for again. [`NO_GENERATION`] for a batch that inserts something that it has not looked for.
fn undisturbed_generation(assumptions: &Assumptions, writes: &Writes) -> i64 {
    let mut made = writes.rows.iter().filter(|row| row.read_version == 0);
    let were_missing = made.all(|row| assumptions.missing.binary_search(&row.key).is_ok())
        && writes.inbox.iter().all(|mark| assumptions.unprocessed.contains(mark));
    if were_missing { assumptions.generation + 1 } else { NO_GENERATION }
}

/// Fails unless every row had the version that was read.
fn check_written(keys: Vec<RowKey>, rows: &[Row]) -> Result<(), StoreFault> {
    if rows.len() == keys.len() {
        return Ok(());
    }
    let missing = keys.into_iter().find(|key| !rows.iter().any(|row| row.get::<_, &str>(0) == key.id));
    Err(missing.map_or(StoreFault::Closed, StoreFault::Conflict))
}

fn write_rows(
    statements: &mut Statements,
    kinds: &Kinds,
    writes: &Writes,
    undisturbed: i64,
    at: i64,
) -> Result<(), StoreFault> {
    let mut by_kind: BTreeMap<(&'static str, bool), Vec<&RowWrite>> = BTreeMap::new();
    for row in &writes.rows {
        by_kind.entry((row.key.kind, row.read_version == 0)).or_default().push(row);
    }
    for ((kind, is_new), rows) in by_kind {
        let kind = kinds.of_name(kind)?;
        let keys = rows.iter().map(|row| row.key.clone()).collect();
        let mut values: Owned = values![
            column(&rows, |row| row.key.id.clone()),
            column(&rows, |row| row.version),
            column(&rows, |row| row.projected.state.clone()),
            column(&rows, |row| row.projected.due.map(micros)),
        ];
        fields(kind, &rows, &mut values);
        let first = values.len() + 1;
        values.push(Box::new(at));
        let sql = match is_new {
            true => {
                values.push(Box::new(undisturbed));
                insert_rows(kind, &arrays(kind), first)
            }
            false => {
                values.push(Box::new(column(&rows, |row| row.read_version)));
                update_rows(kind, first)
            }
        };
        statements.push(sql, values, Returned::Rows(keys));
    }
    Ok(())
}

/// Adds the searchable values, an array for each field.
fn fields(kind: &RowKind, rows: &[&RowWrite], values: &mut Owned) {
    for (at, field) in kind.fields.iter().enumerate() {
        let value = |row: &&RowWrite| row.projected.fields.get(at).cloned().unwrap_or(FieldValue::Null);
        values.push(array_of(kind, field, rows.iter().map(value)));
    }
}

/// First parameters: arrays of id, version, state, due and the fields.
fn arrays(kind: &RowKind) -> String {
    let types = ["text", "bigint", "text", "bigint"].into_iter();
    let of_fields = kind.fields.iter().map(|field| type_of(kind, field));
    let places = types.chain(of_fields).zip(1..).map(|(of, place): (_, usize)| format!("${place}::{of}[]"));
    places.collect::<Vec<_>>().join(", ")
}

/// Columns of the fields, formatted by `of`.
fn columns(kind: &RowKind, of: impl Fn(&str) -> String) -> String {
    kind.fields.iter().map(|field| of(&quoted(field))).collect()
}

/// Condition of an insertion: nothing was written since the load, or the row is still missing. The holder of the head need not
/// fear concurrent insertions: this lookup is cheaper than `ON CONFLICT`. `OFFSET 0` keeps it one index lookup for each row,
/// whatever the table statistics say.
fn if_new(undisturbed: usize, kept: &str) -> String {
    format!("(SELECT generation FROM head) = ${undisturbed} OR NOT EXISTS (SELECT FROM {kept} OFFSET 0)")
}

fn insert_rows(kind: &RowKind, places: &str, at: usize) -> String {
    let (name, fields) = (kind.name, columns(kind, |field| format!(", {field}")));
    let if_new = if_new(at + 1, &format!("row_{name} AS kept WHERE kept.id = made.id"));
    format!(
        "INSERT INTO row_{name} (id, version, state, created_at, updated_at, due{fields})
         SELECT id, version, state, ${at}::bigint, ${at}::bigint, due{fields}
         FROM unnest({places}) AS made (id, version, state, due{fields})
         WHERE {if_new} RETURNING id"
    )
}

fn update_rows(kind: &RowKind, at: usize) -> String {
    let (places, read) = (arrays(kind), at + 1);
    let set = columns(kind, |field| format!(", {field} = made.{field}"));
    let fields = columns(kind, |field| format!(", {field}"));
    format!(
        "UPDATE row_{} AS kept SET version = made.version, state = made.state, updated_at = ${at}, due = made.due{set}
         FROM unnest({places}, ${read}::bigint[]) AS made (id, version, state, due{fields}, read)
         WHERE kept.id = made.id AND kept.version = made.read RETURNING kept.id",
        kind.name
    )
}

/// Appends events, and outbox entries to the sequence. Behind a failed one of its saga, an entry is blocked from the start:
/// otherwise it would count as pending until something else is published.
fn write_history(statements: &mut Statements, writes: &Writes, at: i64) {
    let Writes { events, outbox: entries, .. } = writes;
    if events.is_empty() && entries.is_empty() {
        return;
    }
    let mut is_published = vec![false; events.len()];
    for index in entries.iter().filter_map(|entry| entry.event) {
        is_published[index] = true;
    }
    statements.push(
        include_str!("sql/insert_history.sql"),
        values![
            column(events, |event| event.key.kind),
            column(events, |event| event.key.id.clone()),
            column(events, |event| event.version),
            column(events, |event| event.name),
            column(events, |event| event.data.clone()),
            column(events, |event| event.causation_id),
            is_published,
            at,
            column(entries, |entry| entry.id),
            column(entries, |entry| entry.saga),
            column(entries, |entry| entry.subject.clone()),
            column(entries, |entry| entry.payload.to_vec()),
            column(entries, |entry| entry.trace.map(|trace| trace.to_bytes().to_vec())),
        ],
        Returned::OutOfSequence,
    );
}

/// Writes inbox ids and replies to keys. Two replicas may receive one message, one key, or one retry. If anything was written
/// since the load, the message states must be unchanged, and the keys still unused.
fn write_messages(
    statements: &mut Statements,
    assumptions: Assumptions,
    writes: &Writes,
    undisturbed: i64,
    at: i64,
) {
    let Assumptions { messages: MessageStates { steps, ids, states }, unused_keys, .. } = assumptions;
    if !ids.is_empty() || !writes.inbox.is_empty() {
        let marks: BTreeSet<_> = writes.inbox.iter().copied().collect();
        let (marked_steps, marked_ids): (Vec<&str>, Vec<Uuid>) = marks.into_iter().unzip();
        let if_new = if_new(4, "inbox AS kept WHERE kept.step = made.step AND kept.message_id = made.id");
        let sql = include_str!("sql/write_inbox.sql")
            .replace("{if_new}", &if_new)
            .replace("{changed_state}", CHANGED_STATE);
        let values = values![steps, ids, states, undisturbed, marked_steps, marked_ids, at];
        statements.push(sql, values, Returned::Conflict);
    }
    if !unused_keys.is_empty() || !writes.keys.is_empty() {
        let if_new = if_new(2, "idempotency_key AS kept WHERE kept.key = made.key");
        let sql = include_str!("sql/write_keys.sql").replace("{if_new}", &if_new);
        let values = values![
            unused_keys,
            undisturbed,
            column(&writes.keys, |(key, _)| key.clone()),
            column(&writes.keys, |(_, answer)| answer.fingerprint.clone()),
            column(&writes.keys, |(_, answer)| answer.reply.clone()),
            at,
        ];
        statements.push(sql, values, Returned::Conflict);
    }
}
