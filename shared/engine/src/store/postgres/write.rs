//! Shell: what a batch writes: few set-based statements, all sent at once. Each costs, however little it writes.
//!
//! The first of them takes the head of the database, and with it the turn: batches of several processes are written one
//! after the other, in the order of their positions. Whoever has the head waits for no row that another batch has locked:
//! it has locked its own before.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::dead_letter::{DeadLettered, StoredDeadLetter};
use saga_core::decider::FieldValue;
use saga_core::decision::{OutboxWrite, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Kinds;
use super::load::{AsOf, KNOWN_OTHERWISE, Known};
use super::pool::Connection;
use super::values::{Owned, Ready, array_of, micros, oops, pipelined, quoted, type_of, without_nul};
use crate::store::{OutboxEntry, StoreFault};

/// Takes the turn, and places for so many events and entries; and leaves the token of the batch.
const TAKE_HEAD: &str = "WITH token AS (INSERT INTO batch (token, committed_at) VALUES ($3, $4))
     UPDATE head SET generation = generation + 1, event = event + $1, outbox = outbox + $2 RETURNING outbox, generation";

/// What a conflict names that is about no row, but a message or a key.
pub(super) const MESSAGE: &str = "message";

/// No database is of it.
const NO_GENERATION: i64 = -1;

/// What is looked at in the answers.
enum Answer {
    Head,
    /// Rows that somebody else has written since they were loaded, of messages or keys.
    NewlyKnown,
    /// The ids of the rows that were written: these, or somebody was first.
    Rows(Vec<RowKey>),
    /// Whether anything stands out of line.
    OutOfLine,
    Nothing,
}

/// What is sent.
#[derive(Default)]
struct Statements(Vec<(String, Owned, Answer)>);

impl Statements {
    fn push(&mut self, sql: impl Into<String>, values: Owned, answer: Answer) {
        self.0.push((sql.into(), values, answer));
    }
}

/// Boxes values.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as _),*] };
}

/// Writes a batch that was decided on what was loaded. Answers what it has promised, in its places, and the generation of the
/// database that it makes.
pub(super) async fn write(
    conn: &Connection,
    kinds: &Kinds,
    as_of: AsOf,
    writes: &Writes,
    token: Uuid,
) -> Result<(Vec<OutboxEntry>, i64), StoreFault> {
    let at = micros(writes.decided_at);
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mut statements = Statements::default();
    let (events, entries) = (count(writes.events.len()), count(writes.outbox.len()));
    let now = micros(jiff::Timestamp::now());
    statements.push(TAKE_HEAD, values![events, entries, token, now], Answer::Head);
    let undisturbed = if_undisturbed(&as_of, writes);
    write_messages(&mut statements, as_of, writes, undisturbed, at);
    write_rows(&mut statements, kinds, writes, undisturbed, at)?;
    write_history(&mut statements, writes, at);
    write_retries(&mut statements, writes)?;
    write_dead_letters(&mut statements, writes)?;
    write_tasks(&mut statements, writes);
    let (mut ready, mut looked_at) = (Vec::with_capacity(statements.0.len()), Vec::new());
    for (sql, values, answer) in statements.0 {
        ready.push(Ready::of(conn, &sql, values).await.map_err(oops("preparing a batch"))?);
        looked_at.push(answer);
    }
    let answers = pipelined(conn, &ready).await;
    let (mut last, mut generation, mut is_any_out_of_line) = (0_i64, 0_i64, false);
    // Messages come before rows: one that another has handled is read again, with whatever it made. And rows come before
    // their events: what somebody else has changed is no event that is there already.
    for (answer, rows) in looked_at.into_iter().zip(answers) {
        let rows = rows.map_err(oops("writing a batch"))?;
        match answer {
            Answer::Head => (last, generation) = rows.first().map_or((0, 0), |row| (row.get(0), row.get(1))),
            Answer::NewlyKnown => {
                if let Some(known) = rows.first() {
                    return Err(StoreFault::Conflict(RowKey { kind: MESSAGE, id: known.get(0) }));
                }
            }
            Answer::Rows(keys) => check_written(keys, &rows)?,
            Answer::OutOfLine => is_any_out_of_line = rows.first().is_some_and(|row| row.get(0)),
            Answer::Nothing => {}
        }
    }
    let first = last - count(writes.outbox.len()) + 1;
    let entry =
        |(seq, OutboxWrite { id, saga, subject, payload, trace, .. }): (i64, &OutboxWrite)| OutboxEntry {
            seq,
            id: *id,
            saga: *saga,
            subject: subject.clone(),
            payload: payload.clone(),
            trace: *trace,
        };
    let promised = match is_any_out_of_line {
        true => vec![],
        false => (first..).zip(&writes.outbox).map(entry).collect(),
    };
    Ok((promised, generation))
}

/// The generation that a batch makes if nobody has written since it was loaded; none at all for one that makes what it has
/// not looked for, or has found.
fn if_undisturbed(as_of: &AsOf, writes: &Writes) -> i64 {
    let mut made = writes.rows.iter().filter(|row| row.read_version == 0);
    let were_missing = made.all(|row| as_of.missing.binary_search(&row.key).is_ok())
        && writes.inbox.iter().all(|mark| as_of.unmarked.contains(mark));
    if were_missing { as_of.generation + 1 } else { NO_GENERATION }
}

/// Every row must have been what it was when it was read.
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
        statements.push(sql, values, Answer::Rows(keys));
    }
    Ok(())
}

fn column<R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Searchable values, a column each.
fn fields(kind: &RowKind, rows: &[&RowWrite], values: &mut Owned) {
    for (at, field) in kind.fields.iter().enumerate() {
        let value = |row: &&RowWrite| row.projected.fields.get(at).cloned().unwrap_or(FieldValue::Null);
        values.push(array_of(kind, field, rows.iter().map(value)));
    }
}

/// Arrays of id, version, state, due and the fields: the first places.
fn arrays(kind: &RowKind) -> String {
    let types = ["text", "bigint", "text", "bigint"].into_iter();
    let of_fields = kind.fields.iter().map(|field| type_of(kind, field));
    let places = types.chain(of_fields).zip(1..).map(|(of, place): (_, usize)| format!("${place}::{of}[]"));
    places.collect::<Vec<_>>().join(", ")
}

/// Columns of the fields, each with something before it and behind it.
fn columns(kind: &RowKind, of: impl Fn(&str) -> String) -> String {
    kind.fields.iter().map(|field| of(&quoted(field))).collect()
}

/// What was not there when it was looked for is not there now, unless somebody has written since: then each is looked for
/// again. Who has the turn need not fear that somebody else inserts the same: a look at the index is cheaper than `ON
/// CONFLICT`, and `OFFSET 0` keeps it one look for each row, whatever the planner takes the table for.
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

/// Events and the promises that they make. A new entry stands at the end of the line. Behind an earlier one of its saga that
/// failed, it is held from the start: nothing else might move the line, and it would be said to wait for the broker.
fn write_history(statements: &mut Statements, writes: &Writes, at: i64) {
    let Writes { events, outbox: entries, .. } = writes;
    if events.is_empty() && entries.is_empty() {
        return;
    }
    let mut told = vec![false; events.len()];
    for index in entries.iter().filter_map(|entry| entry.event) {
        told[index] = true;
    }
    statements.push(
        "WITH event AS (
             INSERT INTO event (seq, kind, row_id, version, name, data, causation_id, recorded_at, is_published)
             SELECT head.event - cardinality($1::text[]) + made.place, made.kind, made.row_id, made.version, made.name,
                    made.data, made.causation_id, $8::bigint, made.told
             FROM head, unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::boolean[])
                  WITH ORDINALITY AS made (kind, row_id, version, name, data, causation_id, told, place)),
         entry AS (
             INSERT INTO outbox (seq, id, saga, subject, payload, trace, created_at, status)
             SELECT head.outbox - cardinality($9::uuid[]) + made.place, made.id, made.saga, made.subject, made.payload,
                    made.trace, $8::bigint,
                    CASE WHEN (SELECT EXISTS (SELECT FROM outbox WHERE status IN ('FAILED', 'BLOCKED')))
                              AND EXISTS (SELECT FROM outbox AS before
                                          WHERE before.saga = made.saga AND before.status IN ('FAILED', 'BLOCKED'))
                         THEN 'BLOCKED' END
             FROM head, unnest($9::uuid[], $10::uuid[], $11::text[], $12::bytea[], $13::bytea[])
                  WITH ORDINALITY AS made (id, saga, subject, payload, trace, place))
         SELECT EXISTS (SELECT FROM outbox WHERE status IS NOT NULL)",
        values![
            column(events, |event| event.key.kind),
            column(events, |event| event.key.id.clone()),
            column(events, |event| event.version),
            column(events, |event| event.name),
            column(events, |event| event.data.clone()),
            column(events, |event| event.causation_id),
            told,
            at,
            column(entries, |entry| entry.id),
            column(entries, |entry| entry.saga),
            column(entries, |entry| entry.subject.clone()),
            column(entries, |entry| entry.payload.to_vec()),
            column(entries, |entry| entry.trace.map(|trace| trace.to_bytes().to_vec())),
        ],
        Answer::OutOfLine,
    );
}

/// Marks of the inbox, and answers under their keys. What is known of each message must be what it was, and a key must still
/// be unknown, if anybody has written since: two replicas may be given one message, or one key, and both may be told of a
/// retry.
fn write_messages(statements: &mut Statements, as_of: AsOf, writes: &Writes, undisturbed: i64, at: i64) {
    let AsOf { known: Known { steps, ids, states }, unknown_keys, .. } = as_of;
    if !ids.is_empty() || !writes.inbox.is_empty() {
        let marks: BTreeSet<_> = writes.inbox.iter().copied().collect();
        let (marked_steps, marked_ids): (Vec<&str>, Vec<Uuid>) = marks.into_iter().unzip();
        let if_new = if_new(4, "inbox AS kept WHERE kept.step = made.step AND kept.message_id = made.id");
        let sql = format!(
            "WITH new AS (
                 INSERT INTO inbox (step, message_id, handled_at)
                 SELECT step, id, $7::bigint FROM unnest($5::text[], $6::uuid[]) AS made (step, id)
                 WHERE {if_new} RETURNING step),
             handled AS (
                 INSERT INTO message_count (outcome, name, count) SELECT 'handled', step, count(*) FROM new GROUP BY step
                 ON CONFLICT (outcome, name) DO UPDATE SET count = message_count.count + excluded.count)
             {KNOWN_OTHERWISE}"
        );
        let values = values![steps, ids, states, undisturbed, marked_steps, marked_ids, at];
        statements.push(sql, values, Answer::NewlyKnown);
    }
    if !unknown_keys.is_empty() || !writes.keys.is_empty() {
        let if_new = if_new(2, "idempotency_key AS kept WHERE kept.key = made.key");
        let sql = format!(
            "WITH new AS (
                 INSERT INTO idempotency_key (key, fingerprint, reply, created_at)
                 SELECT key, fingerprint, reply, $6::bigint FROM unnest($3::text[], $4::text[], $5::text[])
                     AS made (key, fingerprint, reply)
                 WHERE {if_new})
             SELECT key FROM idempotency_key
             WHERE key = ANY ($1 || $3) AND (SELECT generation FROM head) <> $2 LIMIT 1"
        );
        let values = values![
            unknown_keys,
            undisturbed,
            column(&writes.keys, |(key, _)| key.clone()),
            column(&writes.keys, |(_, answer)| answer.fingerprint.clone()),
            column(&writes.keys, |(_, answer)| answer.reply.clone()),
            at,
        ];
        statements.push(sql, values, Answer::NewlyKnown);
    }
}

fn write_retries(statements: &mut Statements, writes: &Writes) -> Result<(), StoreFault> {
    if !writes.retries_done.is_empty() {
        let (steps, ids): (Vec<&str>, Vec<Uuid>) = writes.retries_done.iter().copied().unzip();
        statements.push(
            "DELETE FROM retry USING unnest($1::text[], $2::uuid[]) AS over (step, id)
             WHERE retry.step = over.step AND retry.message_id = over.id",
            values![steps, ids],
            Answer::Nothing,
        );
    }
    let last: BTreeMap<(&str, Uuid), &Retry> =
        writes.retries.iter().map(|retry| ((retry.step.as_str(), retry.message_id), retry)).collect();
    insert_retries(
        statements,
        &last.into_values().collect::<Vec<_>>(),
        "DO UPDATE SET payload = excluded.payload, attempts = excluded.attempts, next_attempt = excluded.next_attempt,
             first_failed_at = excluded.first_failed_at, last_error = excluded.last_error,
             delivery = excluded.delivery, dead_letter_id = excluded.dead_letter_id, owner = NULL, claimed_until = NULL",
    )?;
    insert_retries(statements, &writes.retries_again.iter().collect::<Vec<_>>(), "DO NOTHING")
}

fn insert_retries(statements: &mut Statements, retries: &[&Retry], conflict: &str) -> Result<(), StoreFault> {
    if retries.is_empty() {
        return Ok(());
    }
    let delivery = |retry: &&Retry| retry.delivery.as_ref().map(json).transpose();
    let sql = format!(
        "INSERT INTO retry (step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id)
         SELECT * FROM unnest($1::text[], $2::uuid[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
                              $8::text[], $9::uuid[])
         ON CONFLICT (step, message_id) {conflict}"
    );
    statements.push(
        sql,
        values![
            column(retries, |retry| retry.step.clone()),
            column(retries, |retry| retry.message_id),
            column(retries, |retry| retry.payload.to_vec()),
            column(retries, |retry| i64::from(retry.attempts)),
            column(retries, |retry| micros(retry.next_attempt)),
            column(retries, |retry| micros(retry.first_failed_at)),
            column(retries, |retry| without_nul(&retry.last_error)),
            retries.iter().map(delivery).collect::<Result<Vec<_>, _>>()?,
            column(retries, |retry| retry.dead_letter),
        ],
        Answer::Nothing,
    );
    Ok(())
}

fn write_dead_letters(statements: &mut Statements, writes: &Writes) -> Result<(), StoreFault> {
    let last: BTreeMap<Uuid, &DeadLettered> = writes.parked.iter().map(|dead| (dead.id, dead)).collect();
    let parked: Vec<&DeadLettered> = last.into_values().collect();
    if !parked.is_empty() {
        statements.push(
            "INSERT INTO dead_letter (id, step, message_id, saga, origin, content, last_failed_at)
             SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bigint[])
             ON CONFLICT (id) DO UPDATE SET status = 'PENDING', saga = excluded.saga, content = excluded.content,
                 last_failed_at = excluded.last_failed_at",
            values![
                column(&parked, |dead| dead.id),
                column(&parked, |dead| dead.step.clone()),
                column(&parked, |dead| dead.message_id),
                column(&parked, |dead| dead.saga),
                column(&parked, |dead| dead.origin.as_str()),
                parked.iter().map(json).collect::<Result<Vec<_>, _>>()?,
                column(&parked, |dead| micros(dead.last_failed_at)),
            ],
            Answer::Nothing,
        );
    }
    let last: BTreeMap<Uuid, &StoredDeadLetter> =
        writes.dead_letters.iter().map(|stored| (stored.dead_letter.id, stored)).collect();
    let changed: Vec<&StoredDeadLetter> = last.into_values().collect();
    if !changed.is_empty() {
        statements.push(
            "UPDATE dead_letter AS kept SET content = made.content, status = made.status, revision = made.revision,
                 saga = made.saga, last_failed_at = made.last_failed_at
             FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::uuid[])
                 AS made (id, content, status, revision, last_failed_at, saga)
             WHERE kept.id = made.id",
            values![
                column(&changed, |stored| stored.dead_letter.id),
                changed.iter().map(|stored| json(&stored.dead_letter)).collect::<Result<Vec<_>, _>>()?,
                column(&changed, |stored| stored.status.as_str()),
                column(&changed, |stored| i64::try_from(stored.revision).unwrap_or(i64::MAX)),
                column(&changed, |stored| micros(stored.dead_letter.last_failed_at)),
                column(&changed, |stored| stored.dead_letter.saga),
            ],
            Answer::Nothing,
        );
    }
    Ok(())
}

fn json(value: &impl serde::Serialize) -> Result<String, StoreFault> {
    serde_json::to_string(value)
        .map_err(|error| StoreFault::Refused { context: "writing JSON", source: Box::new(error) })
}

fn write_tasks(statements: &mut Statements, writes: &Writes) {
    // What is over goes first: the same task may be taken up again in the same batch.
    if !writes.tasks_done.is_empty() {
        let done = "DELETE FROM task WHERE id = ANY ($1)";
        statements.push(done, values![writes.tasks_done.clone()], Answer::Nothing);
    }
    insert_tasks(statements, &writes.tasks, writes.claim.as_ref(), "");
    insert_tasks(statements, &writes.tasks_again, None, "ON CONFLICT (id) DO NOTHING");
    let last: BTreeMap<Uuid, _> = writes.task_retries.iter().map(|retry| (retry.id, retry)).collect();
    let retries: Vec<_> = last.into_values().collect();
    if !retries.is_empty() {
        statements.push(
            "UPDATE task SET attempts = made.attempts, next_attempt = made.next_attempt, last_error = made.last_error,
                 owner = NULL, lease_until = NULL, trace = coalesce(made.trace, task.trace)
             FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[])
                 AS made (id, attempts, next_attempt, last_error, trace)
             WHERE task.id = made.id",
            values![
                column(&retries, |retry| retry.id),
                column(&retries, |retry| i64::from(retry.attempts)),
                column(&retries, |retry| micros(retry.next_attempt)),
                column(&retries, |retry| without_nul(&retry.last_error)),
                column(&retries, |retry| retry.trace.map(|trace| trace.to_bytes().to_vec())),
            ],
            Answer::Nothing,
        );
    }
}

fn insert_tasks(
    statements: &mut Statements,
    tasks: &[Task],
    claim: Option<&(String, jiff::Timestamp)>,
    conflict: &str,
) {
    if tasks.is_empty() {
        return;
    }
    let (owner, until) = (claim.map(|(owner, _)| owner.clone()), claim.map(|(_, until)| micros(*until)));
    let sql = format!(
        "INSERT INTO task (id, kind, correlation_id, payload, attempts, claim, owner, lease_until, next_attempt, created_at,
                           dead_letter_id, trace)
         SELECT id, kind, saga, payload, attempts, claim, $10::text, $11::bigint, created_at, created_at, dead_letter_id, trace
         FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
                     $8::uuid[], $9::bytea[])
             AS made (id, kind, saga, payload, attempts, claim, created_at, dead_letter_id, trace) {conflict}"
    );
    statements.push(
        sql,
        values![
            column(tasks, |task| task.id),
            column(tasks, |task| task.kind.clone()),
            column(tasks, |task| task.correlation_id),
            column(tasks, |task| task.payload.clone()),
            column(tasks, |task| i64::from(task.attempts)),
            column(tasks, |task| task.claim),
            column(tasks, |task| micros(task.created_at)),
            column(tasks, |task| task.dead_letter),
            column(tasks, |task| task.trace.map(|trace| trace.to_bytes().to_vec())),
            owner,
            until,
        ],
        Answer::Nothing,
    );
}
