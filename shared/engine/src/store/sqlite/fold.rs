//! Shell: rows against their history: every row must be the fold of its events, and can be made from them.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};
use saga_core::row::RowKind;
use sha2::{Digest, Sha256};

use super::values::{field_value, hex, insert_sql, oops};
use crate::store::{FoldReport, StoreFault};

/// At most this many differing rows are named; one is enough to know.
const NAMED_DIFFERENCES: usize = 100;

/// What is done with the events.
const READING: &str = "reading the history";

/// The events of one row, read one by one: a history may be longer than the memory.
struct History<'h, 's> {
    id: String,
    /// What the fold begins from, if the events before it have left.
    snapshot: Option<Snapshot>,
    /// Of the event that was read last.
    version: i64,
    created_at: i64,
    updated_at: i64,
    /// Events read so far.
    count: u64,
    rest: &'h mut Events<'s>,
}

/// The state of a row, which stands for the events that have left.
pub(super) struct Snapshot {
    pub(super) version: i64,
    /// As JSON.
    pub(super) state: String,
    pub(super) created_at: i64,
}

impl Snapshot {
    pub(super) fn of(conn: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<Self>> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Self { version: row.get(0)?, state: row.get(1)?, created_at: row.get(2)? })
        };
        conn.prepare_cached(
            "SELECT version, state, created_at FROM snapshot WHERE kind = ?1 AND row_id = ?2",
        )?
        .query_row([kind, id], read)
        .optional()
    }
}

/// The events of a kind, row by row.
struct Events<'s> {
    rows: rusqlite::Rows<'s>,
    /// The one that was read, but not taken yet.
    next: Option<Event>,
    /// Why no more could be read.
    fault: Option<StoreFault>,
}

struct Event {
    row_id: String,
    version: i64,
    /// As JSON.
    data: String,
    at: i64,
}

impl Events<'_> {
    fn advance(&mut self) -> Option<Event> {
        let read = self.rows.next().and_then(|row| {
            let read = |row: &rusqlite::Row<'_>| {
                Ok(Event { row_id: row.get(0)?, version: row.get(1)?, data: row.get(2)?, at: row.get(3)? })
            };
            row.map(read).transpose()
        });
        let after = read.unwrap_or_else(|error| {
            self.fault = Some(oops(READING)(error));
            None
        });
        std::mem::replace(&mut self.next, after)
    }

    /// Passes over the events of a row up to a version.
    fn skip(&mut self, id: &str, up_to: i64) {
        while self.next.as_ref().is_some_and(|next| next.row_id == id && next.version <= up_to) {
            self.advance();
        }
    }
}

impl Iterator for History<'_, '_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.rest.next.as_ref().filter(|next| next.row_id == self.id)?;
        let event = self.rest.advance()?;
        (self.version, self.updated_at, self.count) = (event.version, event.at, self.count + 1);
        Some(event.data)
    }
}

impl History<'_, '_> {
    /// Whether an event is missing. Known once all are read.
    fn has_gap(&self) -> bool {
        let before = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        i64::try_from(self.count) != Ok(self.version - before)
    }

    /// The row as its events make it, in the order of the table's columns. All events are read then.
    fn folded(&mut self, kind: &RowKind) -> serde_json::Result<Vec<Value>> {
        let state = self.snapshot.as_ref().map(|snapshot| snapshot.state.clone());
        let projected = (kind.fold)(&self.id.clone(), state.as_deref(), self);
        self.by_ref().for_each(drop);
        let projected = projected?;
        let due = projected.due.map(|due| due.as_microsecond());
        let mut values: Vec<Value> = vec![
            self.id.clone().into(),
            self.version.into(),
            projected.state.into(),
            self.created_at.into(),
            self.updated_at.into(),
            due.into(),
        ];
        values.extend(projected.fields.iter().map(field_value));
        Ok(values)
    }
}

/// Deletes the rows of a kind and folds them anew. Answers how many there are.
pub(super) fn rebuild(conn: &Connection, kind: &RowKind) -> Result<u64, StoreFault> {
    let delete = format!("DELETE FROM row_{}", kind.name);
    conn.execute(&delete, []).map_err(oops("deleting the rows of a kind"))?;
    let mut insert = conn.prepare(&insert_sql(kind)).map_err(oops("preparing to write folded rows"))?;
    let mut count = 0;
    for_each_history(conn, kind, |history| {
        let values = history.folded(kind).map_err(|error| {
            StoreFault::Unusable(format!(
                "the events of {}/{} cannot be folded: {error}",
                kind.name, history.id
            ))
        })?;
        insert.execute(rusqlite::params_from_iter(values)).map_err(oops("writing a folded row"))?;
        count += 1;
        Ok(())
    })?;
    super::left::carry_no_more(conn, kind).map_err(oops("counting what was brought back"))?;
    Ok(count)
}

/// Compares every row of every kind with the fold of its events.
pub(super) fn verify(conn: &Connection, kinds: &[RowKind]) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        let columns = 6 + kind.fields.len();
        let fields: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
        let sql = format!(
            "SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{} WHERE id = ?1",
            kind.name
        );
        let mut select = conn.prepare(&sql).map_err(oops("preparing to read rows"))?;
        let mut with_history = 0;
        for_each_history(conn, kind, |history| {
            with_history += 1;
            let read = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
            let row: Option<Vec<Value>> =
                select.query_row([&history.id], read).optional().map_err(oops("reading a row"))?;
            digest.update(format!("{}/{row:?}\n", kind.name));
            let is_same = history.folded(kind).is_ok_and(|folded| row == Some(folded));
            report.events += history.count;
            if (history.has_gap() || !is_same) && report.differing.len() < NAMED_DIFFERENCES {
                report.differing.push(format!("{}/{}", kind.name, history.id));
            }
            Ok(())
        })?;
        report.rows += with_history;
        let count = format!("SELECT count(*) FROM row_{}", kind.name);
        let rows: i64 = conn.query_row(&count, [], |row| row.get(0)).map_err(oops("counting rows"))?;
        let forged = u64::try_from(rows).unwrap_or(0).saturating_sub(with_history);
        if forged > 0 {
            report.differing.push(format!("{}: {forged} rows without events", kind.name));
        }
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

fn for_each_history(
    conn: &Connection,
    kind: &RowKind,
    mut each: impl FnMut(&mut History<'_, '_>) -> Result<(), StoreFault>,
) -> Result<(), StoreFault> {
    let mut statement = conn
        .prepare(
            "SELECT row_id, version, data, recorded_at FROM event WHERE kind = ?1 ORDER BY row_id, version",
        )
        .map_err(oops(READING))?;
    let rows = statement.query([kind.name]).map_err(oops(READING))?;
    let mut events = Events { rows, next: None, fault: None };
    events.advance();
    let has_snapshots: bool = conn
        .query_row("SELECT EXISTS (SELECT 1 FROM snapshot WHERE kind = ?1)", [kind.name], |row| row.get(0))
        .map_err(oops(READING))?;
    while let Some(first) = &events.next {
        let (id, at) = (first.row_id.clone(), first.at);
        let snapshot = match has_snapshots {
            true => Snapshot::of(conn, kind.name, &id).map_err(oops(READING))?,
            false => None,
        };
        let created_at = snapshot.as_ref().map_or(at, |snapshot| snapshot.created_at);
        let version = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        // What was brought back from an archive is in the snapshot already.
        events.skip(&id, version);
        let (updated_at, count, rest) = (at, 0, &mut events);
        let mut history = History { id, snapshot, version, created_at, updated_at, count, rest };
        each(&mut history)?;
        history.for_each(drop);
        if let Some(fault) = events.fault.take() {
            return Err(fault);
        }
    }
    events.fault.map_or(Ok(()), Err)
}
