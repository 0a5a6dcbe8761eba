//! Shell: rows and their history: every row must be the fold of its events, and can be made from them.

use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator as _;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension};
use saga_core::decider::FieldValue;
use saga_core::row::{Folding, PastEvent, Projected, RowKind, SearchedBy};

use super::values::{insert_sql, oops, timestamp};
use crate::store::{FoldReport, StoreFault};

/// What is done with the events.
const READING: &str = "reading the history";

/// The events of one row, read one by one: a history may be longer than the memory.
pub(super) struct History<'h, 's> {
    pub(super) id: &'h str,
    /// What the fold begins from, if the events before it have left.
    pub(super) snapshot: Option<Snapshot>,
    /// Of the event that was read last.
    version: i64,
    created_at: i64,
    updated_at: i64,
    /// Events read so far, but for those that the snapshot stands for.
    count: u64,
    /// Whether it has any event at all.
    pub(super) is_there: bool,
    rest: &'h mut Cursor<'s>,
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

/// Columns of an event.
const VERSION: usize = 0;
const DATA: usize = 1;
const AT: usize = 2;
const TOLD: usize = 3;
const ROW_ID: usize = 4;

/// What a query finds, sorted by the ids of rows: where it stands can be looked at again.
struct Cursor<'s> {
    found: rusqlite::Rows<'s>,
    /// The column of the id.
    id: usize,
}

impl<'s> Cursor<'s> {
    /// At the first of them.
    fn of(found: rusqlite::Rows<'s>, id: usize) -> Result<Self, StoreFault> {
        let mut cursor = Self { found, id };
        cursor.advance()?;
        Ok(cursor)
    }

    fn advance(&mut self) -> Result<(), StoreFault> {
        self.found.advance().map_err(oops(READING))
    }

    fn row(&self) -> Option<&rusqlite::Row<'s>> {
        self.found.get()
    }

    /// The id of the row that it stands at.
    fn id(&self) -> Result<Option<&[u8]>, StoreFault> {
        let id = self.row().map(|row| Ok(row.get_ref(self.id)?.as_bytes()?));
        id.transpose().map_err(oops(READING))
    }
}

/// A row that was made of its events, or why they make none.
type Folded = serde_json::Result<Box<dyn Folding>>;

/// Folds an event into a row, which `keeps` it if that is wanted.
fn add(mut row: Box<dyn Folding>, event: &rusqlite::Row<'_>, keeps: bool) -> rusqlite::Result<Folded> {
    let data = event.get_ref(DATA)?.as_str()?;
    let added = if keeps {
        row.keep(PastEvent { event: data, at: timestamp(event.get(AT)?), is_published: event.get(TOLD)? })
    } else {
        row.add(data)
    };
    Ok(added.map(|()| row))
}

impl<'h, 's> History<'h, 's> {
    fn of(id: &'h str, snapshot: Option<Snapshot>, rest: &'h mut Cursor<'s>) -> Result<Self, StoreFault> {
        let is_there = rest.id()? == Some(id.as_bytes());
        let at = match rest.row().filter(|_| is_there) {
            Some(first) => first.get(AT).map_err(oops(READING))?,
            None => 0,
        };
        let created_at = snapshot.as_ref().map_or(at, |snapshot| snapshot.created_at);
        let version = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        Ok(Self { id, snapshot, version, created_at, updated_at: at, count: 0, is_there, rest })
    }

    /// The row that its events make, all of which are read then; it `keeps` them, if that is wanted. What was brought back
    /// from an archive is in the snapshot already.
    fn fold(&mut self, kind: &RowKind, keeps: bool) -> Result<Folded, StoreFault> {
        let snapshot = self.snapshot.as_mut().map(|snapshot| std::mem::take(&mut snapshot.state));
        let before = self.version;
        let mut folded = (kind.begin)(snapshot.as_deref());
        while let Some(event) = self.event()? {
            let version: i64 = event.get(VERSION).map_err(oops(READING))?;
            if version > before {
                let at = event.get(AT).map_err(oops(READING))?;
                folded = match folded {
                    Ok(row) => add(row, event, keeps).map_err(oops(READING))?,
                    Err(error) => Err(error),
                };
                (self.version, self.updated_at, self.count) = (version, at, self.count + 1);
            }
            self.rest.advance()?;
        }
        Ok(folded)
    }

    /// The event that is read next.
    fn event(&self) -> Result<Option<&rusqlite::Row<'s>>, StoreFault> {
        let is_its = self.is_there && self.rest.id()? == Some(self.id.as_bytes());
        Ok(self.rest.row().filter(|_| is_its))
    }

    /// Leaves the rest of it unread.
    fn pass_over(&mut self) -> Result<(), StoreFault> {
        while self.event()?.is_some() {
            self.rest.advance()?;
        }
        Ok(())
    }

    /// Whether an event is missing. Known once all are read.
    fn has_gap(&self) -> bool {
        let before = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        i64::try_from(self.count) != Ok(self.version - before)
    }

    /// The row that was folded, but for its state.
    fn made(&self, searched_by: SearchedBy) -> Made<'_> {
        Made {
            id: self.id,
            version: self.version,
            created_at: self.created_at,
            updated_at: self.updated_at,
            searched_by,
        }
    }
}

/// What the table keeps of a row that was folded, beside its state.
pub(super) struct Made<'i> {
    pub(super) id: &'i str,
    pub(super) version: i64,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    pub(super) searched_by: SearchedBy,
}

/// The column of a row's state.
const STATE: usize = 2;

impl Made<'_> {
    /// In the order of the table's columns, with this state.
    fn values<'v>(&'v self, state: &'v [u8]) -> impl Iterator<Item = ValueRef<'v>> {
        let SearchedBy { fields, due } = &self.searched_by;
        let due = due.map_or(ValueRef::Null, |due| ValueRef::Integer(due.as_microsecond()));
        let first = [
            ValueRef::Text(self.id.as_bytes()),
            ValueRef::Integer(self.version),
            ValueRef::Text(state),
            ValueRef::Integer(self.created_at),
            ValueRef::Integer(self.updated_at),
            due,
        ];
        first.into_iter().chain(fields.iter().map(|field| match field {
            FieldValue::Text(text) => ValueRef::Text(text.as_bytes()),
            FieldValue::Integer(number) => ValueRef::Integer(*number),
            FieldValue::Null => ValueRef::Null,
        }))
    }
}

/// Whether a row of the table is what was folded: `made` says what that is beside the state, and each value has its type.
pub(super) fn is_row<'i>(
    row: &rusqlite::Row<'_>,
    id: &str,
    fold: &dyn Folding,
    made: impl FnOnce(SearchedBy) -> Made<'i>,
) -> bool {
    let Ok(ValueRef::Text(state)) = row.get_ref(STATE) else { return false };
    let Some(searched_by) = fold.kept_as(id, state) else { return false };
    let is = |(column, value)| row.get_ref(column).is_ok_and(|is| is == value);
    made(searched_by).values(state).enumerate().all(is)
}

/// Deletes the rows of a kind and folds them anew. Answers how many there are.
pub(super) fn rebuild(conn: &Connection, kind: &RowKind) -> Result<u64, StoreFault> {
    let delete = format!("DELETE FROM row_{}", kind.name);
    conn.execute(&delete, []).map_err(oops("deleting the rows of a kind"))?;
    let mut insert = conn.prepare(&insert_sql(kind)).map_err(oops("preparing to write folded rows"))?;
    let mut count = 0;
    let events_alone = None;
    for_each_row(conn, kind, Which::Behind(""), events_alone, |history, _| {
        let folded =
            history.fold(kind, false)?.and_then(|row| row.projected(history.id)).map_err(|error| {
                StoreFault::Unusable(format!(
                    "the events of {}/{} cannot be folded: {error}",
                    kind.name, history.id
                ))
            })?;
        let Projected { state, fields, due } = folded;
        let made = history.made(SearchedBy { fields, due });
        let values = made.values(state.as_bytes()).map(ToSqlOutput::Borrowed);
        insert.execute(rusqlite::params_from_iter(values)).map_err(oops("writing a folded row"))?;
        count += 1;
        Ok(true)
    })?;
    super::left::carry_no_more(conn, kind).map_err(oops("counting what was brought back"))?;
    Ok(count)
}

/// What a row turned out to be.
pub(super) enum Judged {
    /// The fold of its events.
    Fold(Box<dyn Folding>),
    /// Something else, or missing.
    Differs,
    /// A row without a history.
    Forged,
}

/// Compares a row with its history, all of which is read then. A row that is its fold `keeps` the events, if that is
/// wanted.
pub(super) fn check(
    kind: &RowKind,
    history: &mut History<'_, '_>,
    row: Option<&rusqlite::Row<'_>>,
    keeps: bool,
    report: &mut FoldReport,
) -> Result<Judged, StoreFault> {
    if !history.is_there {
        return Ok(Judged::Forged);
    }
    let folded = history.fold(kind, keeps)?.ok().filter(|_| !history.has_gap());
    let fold = folded
        .filter(|fold| row.is_some_and(|row| is_row(row, history.id, fold.as_ref(), |by| history.made(by))));
    (report.rows, report.events) = (report.rows + 1, report.events + history.count);
    if let Some(fold) = fold {
        return Ok(Judged::Fold(fold));
    }
    report.differs(kind, history.id);
    Ok(Judged::Differs)
}

/// All columns of the rows of a kind.
pub(super) fn select_rows(kind: &RowKind) -> String {
    let fields: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
    format!("SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{}", kind.name)
}

/// Which rows are read.
#[derive(Clone, Copy)]
pub(super) enum Which<'i> {
    /// All behind this one.
    Behind(&'i str),
    /// This one.
    Of(&'i str),
}

/// Does something with the history of each row, empty where it has none, and the row itself, if there is one: both are
/// read side by side in the order of the ids. Until it is told that it is enough. Rows are those of `select`; none are
/// read without it.
pub(super) fn for_each_row(
    conn: &Connection,
    kind: &RowKind,
    which: Which<'_>,
    select: Option<&str>,
    mut each: impl FnMut(&mut History<'_, '_>, Option<&rusqlite::Row<'_>>) -> Result<bool, StoreFault>,
) -> Result<(), StoreFault> {
    let (is, id) = match which {
        Which::Behind(id) => (">", id),
        Which::Of(id) => ("=", id),
    };
    let mut of_events = conn
        .prepare_cached(&format!(
            "SELECT version, data, recorded_at, is_published, row_id FROM event
             WHERE kind = ?1 AND row_id {is} ?2 ORDER BY row_id, version"
        ))
        .map_err(oops(READING))?;
    let mut events = Cursor::of(of_events.query([kind.name, id]).map_err(oops(READING))?, ROW_ID)?;
    let of_rows = select.map(|select| conn.prepare_cached(&format!("{select} WHERE id {is} ?1 ORDER BY id")));
    let mut of_rows = of_rows.transpose().map_err(oops(READING))?;
    let mut rows = match &mut of_rows {
        Some(of_rows) => Some(Cursor::of(of_rows.query([id]).map_err(oops(READING))?, 0)?),
        None => None,
    };
    let has_snapshots: bool = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM snapshot WHERE kind = ?1)")
        .and_then(|mut select| select.query_row([kind.name], |row| row.get(0)))
        .map_err(oops(READING))?;
    loop {
        let row = rows.as_ref().map_or(Ok(None), Cursor::id)?;
        let Some(first) = [row, events.id()?].into_iter().flatten().min() else { return Ok(()) };
        let is_row = row == Some(first);
        let id = std::str::from_utf8(first).map_err(|error| oops(READING)(error.into()))?.to_owned();
        let snapshot = match has_snapshots {
            true => Snapshot::of(conn, kind.name, &id).map_err(oops(READING))?,
            false => None,
        };
        let mut history = History::of(&id, snapshot, &mut events)?;
        let row = rows.as_ref().filter(|_| is_row).and_then(Cursor::row);
        let goes_on = each(&mut history, row)?;
        if !goes_on {
            return Ok(());
        }
        history.pass_over()?;
        if let Some(rows) = rows.as_mut().filter(|_| is_row) {
            rows.advance()?;
        }
    }
}
