//! Shell: what a batch needs, read and locked: rows, tasks and dead letters, each in the order of their keys, so that no two
//! batches ever wait for each other.

use std::collections::BTreeMap;

use saga_core::decision::{InboxState, KeyedAnswer, Loaded, Reads};
use saga_core::row::{RowKey, StoredRow};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Kinds;
use super::pool::Connection;
use super::values::{Owned, Ready, oops, pipelined, stored_dead_letter};
use crate::store::StoreFault;

const CONTEXT: &str = "reading what a batch needs";

/// What is known of each message that is asked for, as [`number_of`] says.
const KNOWN: &str = "SELECT asked.step, asked.id, known.state
     FROM unnest($1::text[], $2::uuid[]) AS asked (step, id)
     CROSS JOIN LATERAL (
         SELECT 0 AS state FROM inbox WHERE step = asked.step AND message_id = asked.id
         UNION ALL SELECT 1 FROM retry WHERE step = asked.step AND message_id = asked.id
         UNION ALL SELECT 2 FROM dead_letter WHERE step = asked.step AND message_id = asked.id
         LIMIT 1) AS known";

/// What was loaded, and the generation of the database at which that was, or an earlier one.
pub(super) struct AsOf {
    pub(super) generation: i64,
    pub(super) loaded: Loaded,
}

pub(super) async fn load(conn: &Connection, kinds: &Kinds, reads: &Reads) -> Result<AsOf, StoreFault> {
    let mut by_kind: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for key in &reads.rows {
        kinds.of_name(key.kind)?;
        by_kind.entry(key.kind).or_default().push(key.id.clone());
    }
    let mut asked: Vec<(String, Owned)> = vec![(
        // First: what is read after it is of this generation, or of a later one.
        "SELECT generation FROM head".to_owned(),
        vec![],
    )];
    for (kind, ids) in &by_kind {
        let sql = format!(
            "SELECT id, version, state FROM row_{kind} WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE"
        );
        asked.push((sql, vec![Box::new(ids.clone())]));
    }
    let rest = asked.len();
    if !reads.tasks.is_empty() {
        let ids: Vec<Uuid> = reads.tasks.iter().copied().collect();
        let sql = "SELECT id, claim FROM task WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
        asked.push((sql.to_owned(), vec![Box::new(ids)]));
    }
    if !reads.dead_letters.is_empty() {
        let ids: Vec<Uuid> = reads.dead_letters.iter().copied().collect();
        let sql = "SELECT letter, status, revision, message_id, id FROM dead_letter WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
        asked.push((sql.to_owned(), vec![Box::new(ids)]));
    }
    if !reads.inbox.is_empty() {
        let (steps, ids) = places(reads);
        asked.push((KNOWN.to_owned(), vec![Box::new(steps), Box::new(ids)]));
    }
    if !reads.keys.is_empty() {
        let keys: Vec<String> = reads.keys.iter().cloned().collect();
        let sql = "SELECT key, fingerprint, reply FROM idempotency_key WHERE key = ANY ($1::text[])";
        asked.push((sql.to_owned(), vec![Box::new(keys)]));
    }
    // Last: what has left while the rows were read is known to have left.
    asked.push(("SELECT saga FROM left_before LIMIT 1".to_owned(), vec![]));
    let mut statements = Vec::with_capacity(asked.len());
    for (sql, values) in asked {
        statements.push(Ready::of(conn, &sql, values).await.map_err(oops(CONTEXT))?);
    }
    let answers: Result<Vec<_>, _> = pipelined(conn, &statements).await.into_iter().collect();
    let mut answers = answers.map_err(oops(CONTEXT))?.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    let mut loaded = Loaded::default();
    let head = next();
    let Some(head) = head.first() else {
        return Err(StoreFault::Unusable("the database is damaged, its head is missing".to_owned()));
    };
    let generation = head.get(0);
    for kind in by_kind.keys().take(rest - 1) {
        loaded.rows.extend(next().iter().map(|row| row_of(kind, row)));
    }
    if !reads.tasks.is_empty() {
        loaded.tasks.extend(next().iter().map(|row| (row.get::<_, Uuid>(0), row.get::<_, i64>(1))));
    }
    if !reads.dead_letters.is_empty() {
        for row in next() {
            let stored = stored_dead_letter(&row).map_err(|why| StoreFault::Refused {
                context: "reading a dead letter",
                source: why.into(),
            })?;
            loaded.dead_letters.insert(row.get(4), stored);
        }
    }
    if !reads.inbox.is_empty() {
        let known: BTreeMap<(String, Uuid), i32> =
            next().iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
        for (step, id) in &reads.inbox {
            let state = match known.get(&((*step).to_owned(), *id)) {
                None => continue,
                Some(0) => InboxState::Handled,
                Some(1) => InboxState::Waiting,
                Some(_) => InboxState::Parked,
            };
            loaded.inbox.insert((step, *id), state);
        }
    }
    if !reads.keys.is_empty() {
        loaded.keys.extend(next().iter().map(|row| {
            (row.get::<_, String>(0), KeyedAnswer { fingerprint: row.get(1), reply: row.get(2) })
        }));
    }
    loaded.left_before = next().first().map(|row| row.get(0));
    Ok(AsOf { generation, loaded })
}

/// What is known of a message, for the server.
pub(super) const fn number_of(state: &InboxState) -> i32 {
    match state {
        InboxState::Handled => 0,
        InboxState::Waiting => 1,
        InboxState::Parked => 2,
    }
}

/// Steps and ids of the messages that are asked for.
pub(super) fn places(reads: &Reads) -> (Vec<String>, Vec<Uuid>) {
    reads.inbox.iter().map(|(step, id)| ((*step).to_owned(), *id)).unzip()
}

fn row_of(kind: &'static str, row: &Row) -> (RowKey, StoredRow) {
    (RowKey { kind, id: row.get(0) }, StoredRow { version: row.get(1), state: row.get(2) })
}
