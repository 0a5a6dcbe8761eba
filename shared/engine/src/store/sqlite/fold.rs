//! Shell: rows against their history: every row must be the fold of its events, and can be made from them.

use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator as _;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension};
use saga_core::decider::FieldValue;
use saga_core::query::FoundRow;
use saga_core::row::{AnyPast, Projected, Recorded, RowKind};
use sha2::{Digest, Sha256};

use super::along::Along;
use super::read;
use super::values::{field_value, hex, insert_sql, oops, timestamp};
use crate::store::{CheckedPage, CheckedRow, CheckedRows, FoldReport, Part, StoreFault};

/// At most this many differing rows are named; one is enough to know.
const NAMED_DIFFERENCES: usize = 100;

/// A row with more events than this, as a product has, is folded by a whole check alone.
const LONGEST_LOOKED_AT: i64 = 256;

/// What is done with the events.
const READING: &str = "reading the history";

/// The events of one row, read one by one: a history may be longer than the memory.
pub(super) struct History<'h, 's> {
    id: &'h str,
    /// What the fold begins from, if the events before it have left.
    snapshot: Option<Snapshot>,
    /// Of the event that was read last.
    version: i64,
    created_at: i64,
    updated_at: i64,
    /// Events read so far, but for those that the snapshot stands for.
    count: u64,
    /// Whether it has any event at all.
    is_there: bool,
    /// Why no more could be read.
    fault: Option<StoreFault>,
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

impl Iterator for History<'_, '_> {
    type Item = Recorded<String>;

    fn next(&mut self) -> Option<Recorded<String>> {
        if !self.is_there || self.fault.is_some() {
            return None;
        }
        match self.read() {
            Ok(event) => event,
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }
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
        let fault = None;
        Ok(Self { id, snapshot, version, created_at, updated_at: at, count: 0, is_there, fault, rest })
    }

    /// The next event that no snapshot stands for; what was brought back from an archive is in the snapshot already.
    fn read(&mut self) -> Result<Option<Recorded<String>>, StoreFault> {
        let before = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        while self.rest.id()? == Some(self.id.as_bytes()) {
            let Some(row) = self.rest.row() else { return Ok(None) };
            let version: i64 = row.get(VERSION).map_err(oops(READING))?;
            let counts = (version > before).then(|| Ok((row.get(DATA)?, row.get(AT)?, row.get(TOLD)?)));
            let counts = counts.transpose().map_err(oops(READING))?;
            self.rest.advance()?;
            if let Some((event, at, told)) = counts {
                (self.version, self.updated_at, self.count) = (version, at, self.count + 1);
                return Ok(Some(Recorded { event, at: timestamp(at), told }));
            }
        }
        Ok(None)
    }

    /// Whether an event is missing. Known once all are read.
    fn has_gap(&self) -> bool {
        let before = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        i64::try_from(self.count) != Ok(self.version - before)
    }

    /// What its events make of it. All of them are read then.
    fn folded(&mut self, kind: &RowKind) -> serde_json::Result<Projected> {
        let (id, state) =
            (self.id, self.snapshot.as_mut().map(|snapshot| std::mem::take(&mut snapshot.state)));
        let projected = (kind.fold)(id, state.as_deref(), &mut self.by_ref().map(|recorded| recorded.event));
        self.by_ref().for_each(drop);
        projected
    }

    /// The same, and what its events were, if it `keeps` them; not of one that begins with a snapshot.
    fn known(&mut self, kind: &RowKind, keeps: bool) -> serde_json::Result<(Projected, AnyPast)> {
        let known = (kind.read)(self.id, keeps, self);
        self.by_ref().for_each(drop);
        known
    }

    /// The row that was folded, in the order of the table's columns.
    fn values(&self, projected: Projected) -> Vec<Value> {
        row_values(self.id, self.version, (self.created_at, self.updated_at), projected)
    }
}

/// A row of this version in the order of its table's columns; when it was created and changed.
pub(super) fn row_values(
    id: &str,
    version: i64,
    (created_at, updated_at): (i64, i64),
    projected: Projected,
) -> Vec<Value> {
    let due = projected.due.map(|due| due.as_microsecond());
    let mut values: Vec<Value> = vec![
        id.to_owned().into(),
        version.into(),
        projected.state.into(),
        created_at.into(),
        updated_at.into(),
        due.into(),
    ];
    values.extend(projected.fields.iter().map(field_value));
    values
}

/// Deletes the rows of a kind and folds them anew. Answers how many there are.
pub(super) fn rebuild(conn: &Connection, kind: &RowKind) -> Result<u64, StoreFault> {
    let delete = format!("DELETE FROM row_{}", kind.name);
    conn.execute(&delete, []).map_err(oops("deleting the rows of a kind"))?;
    let mut insert = conn.prepare(&insert_sql(kind)).map_err(oops("preparing to write folded rows"))?;
    let mut count = 0;
    let events_alone = None;
    for_each_row(conn, kind, Which::Behind(""), events_alone, |history, _| {
        let folded = history.folded(kind).map_err(|error| {
            StoreFault::Unusable(format!(
                "the events of {}/{} cannot be folded: {error}",
                kind.name, history.id
            ))
        })?;
        let values = history.values(folded);
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

/// The same of the rows behind `after`, until so many events are folded: a `kind/id`, or a `kind@position` of what is
/// folded [along the log](Along).
pub(super) fn verify_part(
    conn: &Connection,
    kinds: &[RowKind],
    Part { after, events, but }: &Part,
    along: &mut Option<Along>,
) -> Result<FoldReport, StoreFault> {
    let mut report = FoldReport::default();
    let end_of_kind = |after: &str| after.find(['/', '@']);
    let (first, mut after) =
        after.as_deref().and_then(|after| Some(after.split_at(end_of_kind(after)?))).unzip();
    let rest = kinds.iter().skip_while(|kind| first.is_some_and(|first| first != kind.name));
    let rest = rest.filter(|kind| !but.iter().any(|but| but == kind.name));
    for kind in rest {
        let after = after.take();
        let from_here = along.take().filter(|along| along.is_at(kind, after));
        let begun = match (from_here, after) {
            (Some(along), _) => Some(along),
            (None, None) if Along::is_for(conn, kind)? => Some(Along::begin(conn, kind)?),
            (None, _) => None,
        };
        if let Some(mut begun) = begun {
            if !begun.go_on(conn, kind, *events, &mut report)? {
                report.next = Some(begun.next());
                *along = Some(begun);
                break;
            }
            continue;
        }
        // What was folded so far may be gone, with a process or for another check: from the first row, then.
        let id = after.and_then(|after| after.strip_prefix('/')).unwrap_or_default();
        if let Some(last) = verify_kind(conn, kind, id, *events, &mut report, |_, _| ())? {
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
        let select = select_rows(kind);
        for (_, id) in changed.rows.iter().filter(|(of, _)| of == kind.name) {
            for_each_row(conn, kind, Which::Of(id), Some(&select), |history, row| {
                if let Some(row) = row
                    && matches!(row.get_ref(1), Ok(ValueRef::Integer(version)) if version > LONGEST_LOOKED_AT)
                {
                    return Ok(false);
                }
                check(kind, history, row, &mut report);
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
    mut seen: impl FnMut(&str, Option<&rusqlite::Row<'_>>),
) -> Result<Option<String>, StoreFault> {
    let (mut forged, mut last) = (0, None);
    for_each_row(conn, kind, Which::Behind(after), Some(&select_rows(kind)), |history, row| {
        if history.is_there {
            seen(history.id, row);
        }
        forged += u64::from(!check(kind, history, row, report));
        let is_enough = report.events >= events;
        last = is_enough.then(|| history.id.to_owned());
        Ok(!is_enough)
    })?;
    report.differing.extend(without_events(kind, forged));
    Ok(last)
}

/// Compares a row with its history, all of which is read then. Answers whether it has one.
pub(super) fn check(
    kind: &RowKind,
    history: &mut History<'_, '_>,
    row: Option<&rusqlite::Row<'_>>,
    report: &mut FoldReport,
) -> bool {
    if !history.is_there {
        return false;
    }
    let folded = history.folded(kind);
    note(kind, history, row, folded, report);
    true
}

/// Takes note of what a history, all of which has been read, was folded to. Answers whether that is the row.
fn note(
    kind: &RowKind,
    history: &History<'_, '_>,
    row: Option<&rusqlite::Row<'_>>,
    folded: serde_json::Result<Projected>,
    report: &mut FoldReport,
) -> bool {
    let is_same = |folded| row.is_some_and(|row| is_row(row, &history.values(folded)));
    let is_fold = folded.is_ok_and(is_same) && !history.has_gap();
    (report.rows, report.events) = (report.rows + 1, report.events + history.count);
    if !is_fold && report.differing.len() < NAMED_DIFFERENCES {
        report.differing.push(format!("{}/{}", kind.name, history.id));
    }
    is_fold
}

/// Whether a row has these values, each of its type.
pub(super) fn is_row(row: &rusqlite::Row<'_>, values: &[Value]) -> bool {
    let is = |(column, value): (usize, &Value)| row.get_ref(column).is_ok_and(|is| is == value.into());
    values.iter().enumerate().all(is)
}

pub(super) fn without_events(kind: &RowKind, rows: u64) -> Option<String> {
    (rows > 0).then(|| format!("{}: {rows} rows without events", kind.name))
}

/// Compares a row with its history, all of which is read then, as [`check`] does. Answers what was read, if it is the
/// row.
fn past(
    kind: &RowKind,
    history: &mut History<'_, '_>,
    row: Option<&rusqlite::Row<'_>>,
    keeps: bool,
    report: &mut FoldReport,
) -> Option<AnyPast> {
    let (folded, past) = match history.known(kind, keeps) {
        Ok((folded, past)) => (Ok(folded), Some(past)),
        Err(error) => (Err(error), None),
    };
    let is_fold = note(kind, history, row, folded, report);
    past.filter(|_| is_fold)
}

/// A page of the rows of a kind, and whether they are the folds of their histories.
pub(super) fn checked(
    conn: &Connection,
    kind: &RowKind,
    CheckedPage { after, limit, with_histories }: &CheckedPage,
) -> Result<CheckedRows, StoreFault> {
    let (mut checked, mut seen, mut forged) = (CheckedRows::default(), 0, 0);
    let behind = Which::Behind(after.as_deref().unwrap_or_default());
    for_each_row(conn, kind, behind, Some(&select_rows(kind)), |history, row| {
        let past = if history.is_there && history.snapshot.is_none() {
            past(kind, history, row, *with_histories, &mut checked.folds)
        } else {
            forged += u64::from(!check(kind, history, row, &mut checked.folds));
            None
        };
        if let Some(row) = row {
            checked.rows.push(match past {
                Some(past) => CheckedRow::Folded(history.id.to_owned(), past),
                None => CheckedRow::Found(found(row).map_err(oops("reading a row"))?),
            });
        }
        seen += 1;
        let is_over = seen == *limit;
        checked.folds.next = is_over.then(|| history.id.to_owned());
        Ok(!is_over)
    })?;
    checked.folds.differing.extend(without_events(kind, forged));
    Ok(checked)
}

/// All columns of the rows of a kind.
pub(super) fn select_rows(kind: &RowKind) -> String {
    let fields: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
    format!("SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{}", kind.name)
}

/// A row of these columns. It was not asked for in an order.
fn found(row: &rusqlite::Row<'_>) -> rusqlite::Result<FoundRow> {
    Ok(FoundRow { ordered_by: FieldValue::Null, ..read::found(row)? })
}

/// Adds a row to a digest, each value behind its type and its length.
fn add(digest: &mut Sha256, kind: &RowKind, id: &str, row: Option<&rusqlite::Row<'_>>) {
    let mut value = |tag: u8, bytes: &[u8]| {
        digest.update([tag]);
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    value(0, kind.name.as_bytes());
    value(0, id.as_bytes());
    let Some(row) = row else { return };
    for column in (0..6 + kind.fields.len()).map_while(|column| row.get_ref(column).ok()) {
        match column {
            ValueRef::Null => value(1, &[]),
            ValueRef::Integer(number) => value(2, &number.to_le_bytes()),
            ValueRef::Real(number) => value(3, &number.to_le_bytes()),
            ValueRef::Text(text) => value(4, text),
            ValueRef::Blob(bytes) => value(5, bytes),
        }
    }
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
            "SELECT version, data, recorded_at, told IS NOT NULL, row_id FROM event
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
        if goes_on {
            history.by_ref().for_each(drop);
        }
        match history.fault {
            Some(fault) => return Err(fault),
            None if !goes_on => return Ok(()),
            None => {}
        }
        if let Some(rows) = rows.as_mut().filter(|_| is_row) {
            rows.advance()?;
        }
    }
}
