//! Shell: rows against their history: every row must be the fold of its events, and can be made from them.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};
use saga_core::row::RowKind;
use sha2::{Digest, Sha256};

use super::values::{field_value, hex, insert_sql, oops};
use crate::store::{FoldReport, StoreFault};

/// At most this many differing rows are named; one is enough to know.
const NAMED_DIFFERENCES: usize = 100;

/// A row with more events than this, as a product has, is folded by a whole check alone.
const LONGEST_LOOKED_AT: i64 = 256;

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
    for_each_history(conn, kind, Which::Behind(""), |history| {
        let values = history.folded(kind).map_err(|error| {
            StoreFault::Unusable(format!(
                "the events of {}/{} cannot be folded: {error}",
                kind.name, history.id
            ))
        })?;
        insert.execute(rusqlite::params_from_iter(values)).map_err(oops("writing a folded row"))?;
        count += 1;
        Ok(true)
    })?;
    super::left::carry_no_more(conn, kind).map_err(oops("counting what was brought back"))?;
    Ok(count)
}

/// Compares every row of every kind with the fold of its events.
pub(super) fn verify(conn: &Connection, kinds: &[RowKind]) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let mut digest = Sha256::new();
    for kind in kinds {
        verify_kind(conn, kind, "", u64::MAX, &mut report, |id, row| add(&mut digest, kind, id, row))?;
    }
    report.digest = hex(&digest.finalize());
    Ok(report)
}

/// The same of the rows behind `after`, a `kind/id`, until so many events are folded.
pub(super) fn verify_part(
    conn: &Connection,
    kinds: &[RowKind],
    after: Option<&str>,
    events: u64,
) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let (first, mut after) = after.and_then(|after| after.split_once('/')).unzip();
    let rest = kinds.iter().skip_while(|kind| first.is_some_and(|first| first != kind.name));
    for kind in rest {
        let id = after.take().unwrap_or_default();
        if let Some(last) = verify_kind(conn, kind, id, events, &mut report, |_, _| ())? {
            report.next = Some(format!("{}/{last}", kind.name));
            break;
        }
    }
    Ok(report)
}

/// The same of the rows that have one of the next `events` events behind the position `after`.
pub(super) fn verify_changed(
    conn: &Connection,
    kinds: &[RowKind],
    after: i64,
    events: u64,
) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let changed = super::past::changed(conn, after, usize::try_from(events).unwrap_or(usize::MAX))?;
    for kind in kinds {
        let mut select = Select::of(conn, kind)?;
        for (_, id) in changed.rows.iter().filter(|(of, _)| of == kind.name) {
            let row = select.row(id)?;
            if let Some(Value::Integer(version)) = row.as_ref().and_then(|row| row.get(1))
                && *version > LONGEST_LOOKED_AT
            {
                continue;
            }
            for_each_history(conn, kind, Which::Of(id), |history| {
                report.rows += 1;
                check(kind, history, row.as_deref(), &mut report);
                Ok(true)
            })?;
        }
    }
    report.next = (!changed.is_over).then(|| changed.up_to.to_string());
    Ok(report)
}

/// Compares the rows of a kind behind `after`. Answers where it stopped, if it did: there were enough events.
fn verify_kind(
    conn: &Connection,
    kind: &RowKind,
    after: &str,
    events: u64,
    report: &mut FoldReport,
    mut seen: impl FnMut(&str, Option<&[Value]>),
) -> Result<Option<String>, StoreFault> {
    let mut select = Select::of(conn, kind)?;
    let (mut with_history, mut last) = (0, None);
    for_each_history(conn, kind, Which::Behind(after), |history| {
        with_history += 1;
        let row = select.row(&history.id)?;
        seen(&history.id, row.as_deref());
        check(kind, history, row.as_deref(), report);
        let is_enough = report.events >= events;
        last = is_enough.then(|| history.id.clone());
        Ok(!is_enough)
    })?;
    report.rows += with_history;
    let count = format!("SELECT count(*) FROM row_{} WHERE id > ?1 AND (?2 IS NULL OR id <= ?2)", kind.name);
    let rows: i64 = conn
        .query_row(&count, rusqlite::params![after, last], |row| row.get(0))
        .map_err(oops("counting rows"))?;
    let forged = u64::try_from(rows).unwrap_or(0).saturating_sub(with_history);
    if forged > 0 {
        report.differing.push(format!("{}: {forged} rows without events", kind.name));
    }
    Ok(last)
}

/// Compares a row with its history, all of which is read then.
fn check(kind: &RowKind, history: &mut History<'_, '_>, row: Option<&[Value]>, report: &mut FoldReport) {
    let is_same = history.folded(kind).is_ok_and(|folded| row == Some(folded.as_slice()));
    history.by_ref().for_each(drop);
    report.events += history.count;
    if (history.has_gap() || !is_same) && report.differing.len() < NAMED_DIFFERENCES {
        report.differing.push(format!("{}/{}", kind.name, history.id));
    }
}

/// Reads rows of a kind by their ids.
struct Select<'c> {
    statement: rusqlite::Statement<'c>,
    columns: usize,
}

impl<'c> Select<'c> {
    fn of(conn: &'c Connection, kind: &RowKind) -> Result<Self, StoreFault> {
        let fields: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
        let sql = format!(
            "SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{} WHERE id = ?1",
            kind.name
        );
        let statement = conn.prepare(&sql).map_err(oops("preparing to read rows"))?;
        Ok(Self { statement, columns: 6 + kind.fields.len() })
    }

    /// All columns of a row; `None` when it is not there.
    fn row(&mut self, id: &str) -> Result<Option<Vec<Value>>, StoreFault> {
        let columns = self.columns;
        let read = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        self.statement.query_row([id], read).optional().map_err(oops("reading a row"))
    }
}

/// Adds a row to a digest, each value behind its type and its length.
fn add(digest: &mut Sha256, kind: &RowKind, id: &str, row: Option<&[Value]>) {
    let mut value = |tag: u8, bytes: &[u8]| {
        digest.update([tag]);
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    value(0, kind.name.as_bytes());
    value(0, id.as_bytes());
    for column in row.unwrap_or_default() {
        match column {
            Value::Null => value(1, &[]),
            Value::Integer(number) => value(2, &number.to_le_bytes()),
            Value::Real(number) => value(3, &number.to_le_bytes()),
            Value::Text(text) => value(4, text.as_bytes()),
            Value::Blob(bytes) => value(5, bytes),
        }
    }
}

/// Which histories are read.
#[derive(Clone, Copy)]
enum Which<'i> {
    /// Those of all rows behind this one.
    Behind(&'i str),
    /// That of this row.
    Of(&'i str),
}

/// Does something with each of these histories, until it is told that it is enough.
fn for_each_history(
    conn: &Connection,
    kind: &RowKind,
    which: Which<'_>,
    mut each: impl FnMut(&mut History<'_, '_>) -> Result<bool, StoreFault>,
) -> Result<(), StoreFault> {
    let (is, id) = match which {
        Which::Behind(id) => (">", id),
        Which::Of(id) => ("=", id),
    };
    let mut statement = conn
        .prepare_cached(&format!(
            "SELECT row_id, version, data, recorded_at FROM event WHERE kind = ?1 AND row_id {is} ?2
             ORDER BY row_id, version"
        ))
        .map_err(oops(READING))?;
    let rows = statement.query([kind.name, id]).map_err(oops(READING))?;
    let mut events = Events { rows, next: None, fault: None };
    events.advance();
    let has_snapshots: bool = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM snapshot WHERE kind = ?1)")
        .and_then(|mut select| select.query_row([kind.name], |row| row.get(0)))
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
        let goes_on = each(&mut history)?;
        history.for_each(drop);
        if let Some(fault) = events.fault.take() {
            return Err(fault);
        }
        if !goes_on {
            return Ok(());
        }
    }
    events.fault.map_or(Ok(()), Err)
}
