//! Shell: loads and locks what a batch reads. Rows, tasks and dead letters are locked in the order of their keys, so that
//! batches never deadlock.

use std::collections::{BTreeMap, BTreeSet};

use saga_core::decision::{InboxState, KeyedAnswer, Loaded, Reads};
use saga_core::row::{RowKey, StoredRow};
use uuid::Uuid;

use super::pool::Connection;
use super::values::{Owned, Ready, is_storable_id, pipelined};
use crate::store::StoreFault;
use crate::store::backend::Kinds;
use crate::store::sql::Row;
use crate::store::sql_error::db_fault;

const CONTEXT: &str = "reading what a batch needs";

/// State of a message that is `asked` for, by its [`number_of`]: one row, or none. Where there are no retries or dead letters
/// at all, they are not searched for each message. That is checked at the end of an index whose beginning is full of deleted
/// entries.
macro_rules! state {
    () => {
        "LATERAL (SELECT 0 AS state FROM inbox WHERE step = asked.step AND message_id = asked.id
                  UNION ALL SELECT 1 FROM retry
                      WHERE (SELECT max(next_attempt) FROM retry) IS NOT NULL AND step = asked.step AND message_id = asked.id
                  UNION ALL SELECT 2 FROM dead_letter
                      WHERE (SELECT max(last_failed_at) FROM dead_letter) IS NOT NULL AND step = asked.step AND message_id = asked.id
                  LIMIT 1) AS current"
    };
}

const INBOX_STATES: &str = concat!(
    "SELECT asked.step, asked.id, current.state
     FROM unnest($1::text[], $2::uuid[]) AS asked (step, id) CROSS JOIN ",
    state!()
);

/// Message whose state is not what it was, if the head has another generation than this.
pub(super) const CHANGED_STATE: &str = concat!(
    "SELECT asked.step FROM unnest($1::text[], $2::uuid[], $3::integer[]) AS asked (step, id, was) LEFT JOIN ",
    state!(),
    " ON true
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

/// Loads and locks what a batch reads.
pub(super) async fn load(
    conn: &Connection,
    kinds: &Kinds,
    reads: &Reads,
) -> Result<(Assumptions, Loaded), StoreFault> {
    let mut by_kind: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for key in &reads.rows {
        kinds.of_name(key.kind)?;
        if !is_storable_id(&key.id) {
            continue;
        }
        by_kind.entry(key.kind).or_default().push(key.id.clone());
    }
    let mut asked: Vec<(String, Owned)> = vec![(
        // First: everything after it has this generation or a later one.
        "SELECT generation FROM head".to_owned(),
        vec![],
    )];
    for (kind, ids) in &by_kind {
        let sql = format!(
            "SELECT id, version, state FROM row_{kind} WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE"
        );
        asked.push((sql, vec![Box::new(ids.clone())]));
    }
    if !reads.tasks.is_empty() {
        let ids: Vec<Uuid> = reads.tasks.iter().copied().collect();
        let sql = "SELECT id, claim FROM task WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
        asked.push((sql.to_owned(), vec![Box::new(ids)]));
    }
    if !reads.dead_letters.is_empty() {
        let ids: Vec<Uuid> = reads.dead_letters.iter().copied().collect();
        let sql = "SELECT content, status, revision, message_id, id FROM dead_letter WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
        asked.push((sql.to_owned(), vec![Box::new(ids)]));
    }
    if !reads.inbox.is_empty() {
        let (steps, ids) = messages_of(reads);
        asked.push((INBOX_STATES.to_owned(), vec![Box::new(steps), Box::new(ids)]));
    }
    if !reads.keys.is_empty() {
        let keys: Vec<String> = reads.keys.iter().cloned().collect();
        let sql = "SELECT key, fingerprint, reply FROM idempotency_key WHERE key = ANY ($1::text[])";
        asked.push((sql.to_owned(), vec![Box::new(keys)]));
    }
    // Last: covers rows that are purged while the others are read.
    asked.push(("SELECT saga FROM purged_before LIMIT 1".to_owned(), vec![]));
    let mut statements = Vec::with_capacity(asked.len());
    for (sql, values) in asked {
        statements.push(Ready::of(conn, &sql, values).await.map_err(db_fault(CONTEXT))?);
    }
    let answers: Result<Vec<_>, _> = pipelined(conn, &statements).await.into_iter().collect();
    let mut answers = answers.map_err(db_fault(CONTEXT))?.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    let mut loaded = Loaded::default();
    let head = next();
    let Some(head) = head.first() else {
        return Err(StoreFault::Unusable("the database is damaged, its head is missing".to_owned()));
    };
    let generation = head.get(0);
    for kind in by_kind.keys() {
        loaded.rows.extend(next().iter().map(|row| row_of(kind, row)));
    }
    if !reads.tasks.is_empty() {
        loaded.tasks.extend(next().iter().map(|row| (row.get::<_, Uuid>(0), row.get::<_, i64>(1))));
    }
    if !reads.dead_letters.is_empty() {
        for row in next() {
            let stored = Row::Postgres(&row).dead_letter().map_err(db_fault("reading a dead letter"))?;
            loaded.dead_letters.insert(row.get(4), stored);
        }
    }
    if !reads.inbox.is_empty() {
        let states: BTreeMap<(String, Uuid), i32> =
            next().iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
        for (step, id) in &reads.inbox {
            let state = match states.get(&((*step).to_owned(), *id)) {
                None => continue,
                Some(0) => InboxState::Processed,
                Some(1) => InboxState::Retrying,
                Some(_) => InboxState::DeadLettered,
            };
            loaded.inbox.insert((step, *id), state);
        }
    }
    if !reads.keys.is_empty() {
        loaded.keys.extend(next().iter().map(|row| {
            (row.get::<_, String>(0), KeyedAnswer { fingerprint: row.get(1), reply: row.get(2) })
        }));
    }
    loaded.purged_before = next().first().map(|row| row.get(0));
    Ok((Assumptions::of(generation, reads, &loaded), loaded))
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
