//! Shell: loads and locks what a batch reads. Rows, tasks and dead letters are locked in the order of their keys, so that
//! batches never deadlock.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::decision::{InboxState, KeyedAnswer, Loaded, Reads};
use saga_core::row::{RowKey, StoredRow};
use uuid::Uuid;

use super::pool::Connection;
use super::statements::values;
use super::values::{Owned, Ready, is_storable_id, pipelined};
use crate::store::StoreFault;
use crate::store::backend::Kinds;
use crate::store::sql::Row;
use crate::store::sql_error::db_fault;

const CONTEXT: &str = "reading what a batch needs";

const INBOX_STATES: &str = concat!(
    "SELECT asked.step, asked.id, current.state
     FROM unnest($1::text[], $2::uuid[]) AS asked (step, id) CROSS JOIN ",
    include_str!("sql/message_state.sql")
);

/// Message whose state is not what it was, if the head has another generation than this.
pub(super) const CHANGED_STATE: &str = concat!(
    "SELECT asked.step FROM unnest($1::text[], $2::uuid[], $3::integer[]) AS asked (step, id, was) LEFT JOIN ",
    include_str!("sql/message_state.sql"),
    "ON true
     WHERE coalesce(current.state, -1) <> asked.was AND (SELECT generation FROM head) <> $4 LIMIT 1"
);

/// Assumptions of a batch, which are checked when it is written.
pub(super) struct Assumptions {
    /// Generation of the database when the batch was loaded, or an earlier one.
    pub(super) generation: i64,
    /// Rows that did not exist, sorted.
    pub(super) missing: Vec<RowKey>,
    /// Messages that were not processed.
    pub(super) unprocessed: BTreeSet<(&'static str, Uuid)>,
    pub(super) messages: MessageStates,
    /// Idempotency keys without a reply.
    pub(super) unused_keys: Vec<String>,
}

/// Messages of a batch with their states.
pub(super) struct MessageStates {
    pub(super) steps: Vec<String>,
    pub(super) ids: Vec<Uuid>,
    pub(super) states: Vec<i32>,
}

impl Assumptions {
    fn of(generation: i64, reads: &Reads, loaded: &Loaded) -> Self {
        let (steps, ids) = messages_of(reads);
        let state = |message| loaded.inbox.get(message).map_or(-1, number_of);
        let states = reads.inbox.iter().map(state).collect();
        let is_unused = |key: &&String| !loaded.keys.contains_key(*key);
        let unused_keys = reads.keys.iter().filter(is_unused).cloned().collect();
        let is_missing = |key: &&RowKey| !loaded.rows.contains_key(*key);
        let missing = reads.rows.iter().filter(is_missing).cloned().collect();
        let is_unprocessed = |message: &&_| loaded.inbox.get(*message) != Some(&InboxState::Processed);
        let unprocessed = reads.inbox.iter().filter(is_unprocessed).copied().collect();
        let messages = MessageStates { steps, ids, states };
        Self { generation, missing, unprocessed, messages, unused_keys }
    }
}

/// Content of the rows that a statement returns.
enum Part {
    Head,
    Rows(&'static str),
    Tasks,
    DeadLetters,
    Inbox,
    Keys,
    PurgedBefore,
}

/// Loads and locks what a batch reads.
pub(super) async fn load(
    conn: &Connection,
    kinds: &Kinds,
    reads: &Reads,
) -> Result<(Assumptions, Loaded), StoreFault> {
    let (mut parts, mut ready) = (Vec::new(), Vec::new());
    for (part, sql, values) in statements(kinds, reads)? {
        parts.push(part);
        ready.push(Ready::of(conn, &sql, values).await.map_err(db_fault(CONTEXT))?);
    }
    let (mut generation, mut loaded) = (None, Loaded::default());
    for (part, rows) in parts.into_iter().zip(pipelined(conn, &ready).await) {
        let rows = rows.map_err(db_fault(CONTEXT))?;
        match part {
            Part::Head => generation = rows.first().map(|row| row.get(0)),
            Part::Rows(kind) => loaded.rows.extend(rows.iter().map(|row| row_of(kind, row))),
            Part::Tasks => {
                loaded.tasks.extend(rows.iter().map(|row| (row.get::<_, Uuid>(0), row.get::<_, i64>(1))));
            }
            Part::DeadLetters => {
                for row in &rows {
                    let stored = Row::Postgres(row).dead_letter();
                    loaded
                        .dead_letters
                        .insert(row.get(4), stored.map_err(db_fault("reading a dead letter"))?);
                }
            }
            Part::Inbox => loaded.inbox = inbox_of(reads, &rows),
            Part::Keys => loaded.keys.extend(rows.iter().map(|row| {
                (row.get::<_, String>(0), KeyedAnswer { fingerprint: row.get(1), reply: row.get(2) })
            })),
            Part::PurgedBefore => loaded.purged_before = rows.first().map(|row| row.get(0)),
        }
    }
    let generation = generation
        .ok_or_else(|| StoreFault::Unusable("the database is damaged, its head is missing".to_owned()))?;
    Ok((Assumptions::of(generation, reads, &loaded), loaded))
}

/// Statements that load what a batch reads.
fn statements(kinds: &Kinds, reads: &Reads) -> Result<Vec<(Part, String, Owned)>, StoreFault> {
    let mut by_kind: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for key in &reads.rows {
        kinds.of_name(key.kind)?;
        if is_storable_id(&key.id) {
            by_kind.entry(key.kind).or_default().push(key.id.clone());
        }
    }
    // First: everything after it has this generation or a later one.
    let mut all: Vec<(Part, String, Owned)> =
        vec![(Part::Head, "SELECT generation FROM head".to_owned(), vec![])];
    let mut add = |part, sql: &str, values| all.push((part, sql.to_owned(), values));
    for (kind, ids) in by_kind {
        let sql = format!(
            "SELECT id, version, state FROM row_{kind} WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE"
        );
        add(Part::Rows(kind), &sql, values![ids]);
    }
    if !reads.tasks.is_empty() {
        let ids: Vec<Uuid> = reads.tasks.iter().copied().collect();
        let sql = "SELECT id, claim FROM task WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
        add(Part::Tasks, sql, values![ids]);
    }
    if !reads.dead_letters.is_empty() {
        let ids: Vec<Uuid> = reads.dead_letters.iter().copied().collect();
        let sql = "SELECT content, status, revision, message_id, id FROM dead_letter WHERE id = ANY ($1)
             ORDER BY id FOR UPDATE";
        add(Part::DeadLetters, sql, values![ids]);
    }
    if !reads.inbox.is_empty() {
        let (steps, ids) = messages_of(reads);
        add(Part::Inbox, INBOX_STATES, values![steps, ids]);
    }
    if !reads.keys.is_empty() {
        let keys: Vec<String> = reads.keys.iter().cloned().collect();
        let sql = "SELECT key, fingerprint, reply FROM idempotency_key WHERE key = ANY ($1::text[])";
        add(Part::Keys, sql, values![keys]);
    }
    // Last: covers rows that are purged while the others are read.
    add(Part::PurgedBefore, "SELECT saga FROM purged_before LIMIT 1", vec![]);
    Ok(all)
}

/// States of the messages, without new ones.
fn inbox_of(reads: &Reads, rows: &[tokio_postgres::Row]) -> BTreeMap<(&'static str, Uuid), InboxState> {
    let states: BTreeMap<(&str, Uuid), i32> =
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    let state = |message: &(&'static str, Uuid)| match states.get(message)? {
        0 => Some((*message, InboxState::Processed)),
        1 => Some((*message, InboxState::Retrying)),
        _ => Some((*message, InboxState::DeadLettered)),
    };
    reads.inbox.iter().filter_map(state).collect()
}

/// Number of a state in SQL.
const fn number_of(state: &InboxState) -> i32 {
    match state {
        InboxState::Processed => 0,
        InboxState::Retrying => 1,
        InboxState::DeadLettered => 2,
    }
}

/// Steps and ids of the messages.
fn messages_of(reads: &Reads) -> (Vec<String>, Vec<Uuid>) {
    reads.inbox.iter().map(|(step, id)| ((*step).to_owned(), *id)).unzip()
}

fn row_of(kind: &'static str, row: &tokio_postgres::Row) -> (RowKey, StoredRow) {
    (RowKey { kind, id: row.get(0) }, StoredRow { version: row.get(1), state: row.get(2) })
}
