//! Shell: folds the histories of rows, beside the rows of the table, page by page.

use std::collections::VecDeque;
use std::fmt::Display;

use saga_core::decider::FieldValue;
use saga_core::row::{Folding, RowKind, SearchedBy};

use super::StoreFault;
use super::cell::Cell;
use super::encoding::micros;
use super::purged::add_to_purged_sum;
use super::sql::{FoldedRow, Sql, limit_of};
use super::sql_error::{SqlError, db_fault};
use super::stored_rows::{EventRow, Rows, Snapshot, TableRow, events, has_snapshots, snapshot, table_rows};

const READING: &str = "reading the history";

/// Number of folded rows that are written at once.
const WRITTEN_AT_ONCE: usize = 500;

/// Row as its history makes it.
pub(super) struct Folded {
    pub(super) id: Cell,
    pub(super) version: i64,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    /// Number of folded events, without those that the snapshot stands for.
    pub(super) count: u64,
    /// True if the row has any event, even if the snapshot stands for it.
    pub(super) has_events: bool,
    pub(super) has_snapshot: bool,
    /// First damaged column of its events.
    pub(super) damaged: Option<&'static str>,
    /// Version at which the fold began.
    start: i64,
    /// The folded state, or the error of the event that could not be folded.
    state: serde_json::Result<Box<dyn Folding>>,
}

impl Folded {
    pub(super) fn begin(
        kind: &RowKind,
        id: Cell,
        snapshot: Option<&Snapshot>,
        first_at: Option<i64>,
    ) -> Self {
        let first_at = first_at.unwrap_or(0);
        let start = snapshot.map_or(0, |snapshot| snapshot.version);
        Self {
            id,
            version: start,
            created_at: snapshot.map_or(first_at, |snapshot| snapshot.created_at),
            updated_at: first_at,
            count: 0,
            has_events: false,
            has_snapshot: snapshot.is_some(),
            damaged: None,
            start,
            state: (kind.begin)(snapshot.map(|snapshot| snapshot.state.as_str())),
        }
    }

    /// Folds an event, and keeps it for [`Folding::with_history`] if `keeps`. Skips an event that the snapshot stands for:
    /// it was restored from the archive.
    pub(super) fn add(&mut self, event: &EventRow, keeps: bool) {
        self.has_events = true;
        let (version, past) = match event.values() {
            Ok(values) => values,
            Err(column) => {
                self.damaged.get_or_insert(column);
                return;
            }
        };
        let past_at = past.at;
        if version <= self.start {
            return;
        }
        let added = match &mut self.state {
            Ok(state) if keeps => state.keep(past),
            Ok(state) => state.add(past.event),
            Err(_) => Ok(()),
        };
        if let Err(fault) = added {
            self.state = Err(fault);
        }
        (self.version, self.updated_at, self.count) = (version, micros(past_at), self.count + 1);
    }

    /// Id as text; `None` if it is damaged.
    pub(super) fn text_id(&self) -> Option<&str> {
        self.id.text()
    }

    /// True if an event is missing.
    pub(super) fn has_gap(&self) -> bool {
        i64::try_from(self.count) != Ok(self.version - self.start)
    }

    /// State after the fold; `None` if an event was missing, damaged, or could not be folded.
    pub(super) fn into_state(self) -> Option<Box<dyn Folding>> {
        if self.has_gap() || self.damaged.is_some() { None } else { self.state.ok() }
    }

    /// True if the row of the table equals the folded one, in every value and its type.
    pub(super) fn equals<S: Sql>(&self, kind: &RowKind, row: &TableRow) -> bool {
        let (Ok(state), Some(text), Some(id), None) =
            (&self.state, row.state.text(), self.id.text(), self.damaged)
        else {
            return false;
        };
        let Some(SearchedBy { fields, due }) = state.kept_as(id, text.as_bytes()) else {
            return false;
        };
        let is_stored = |((field, value), cell): ((&&str, FieldValue), &Cell)| {
            Cell::from(S::stored_value(kind, field, value)) == *cell
        };
        row.version == Cell::Integer(self.version)
            && row.created_at == Cell::Integer(self.created_at)
            && row.updated_at == Cell::Integer(self.updated_at)
            && row.due == due.map_or(Cell::Null, |due| Cell::Integer(micros(due)))
            && kind.fields.iter().zip(fields).zip(&row.fields).all(is_stored)
    }

    fn into_row(self, kind: &RowKind) -> Result<FoldedRow, StoreFault> {
        let Self { id, version, created_at, updated_at, state, damaged, .. } = self;
        let unusable = |id: &dyn Display, why: &dyn Display| {
            StoreFault::Unusable(format!("the events of {}/{id} cannot be folded: {why}", kind.name))
        };
        let id = match (id, damaged) {
            (Cell::Text(id), None) => id,
            (id, damaged) => {
                let column = damaged.unwrap_or("row_id");
                return Err(unusable(&id, &format_args!("the column {column} of one is damaged")));
            }
        };
        match state.and_then(|state| state.projected(&id)) {
            Ok(projected) => Ok(FoldedRow { id, version, created_at, updated_at, projected }),
            Err(error) => Err(unusable(&id, &error)),
        }
    }
}

/// Walks through rows of a kind and their histories side by side, in the order of ids.
pub(super) struct SideBySide<'s, S> {
    db: &'s S,
    kind: &'s RowKind,
    rows: Rows,
    has_snapshots: bool,
    events: VecDeque<EventRow>,
    /// Row and version of the last event that was read, at first without a version; `None` when there are no more.
    last_event: Option<(Cell, Option<Cell>)>,
    table_rows: VecDeque<TableRow>,
    /// Id of the last row that was read; `None` when there are no more.
    last_row: Option<Cell>,
}

impl<'s, S: Sql> SideBySide<'s, S> {
    /// Walks through the rows of the table and all histories.
    pub(super) async fn of(db: &'s S, kind: &'s RowKind, rows: Rows) -> Result<Self, StoreFault> {
        let mut walk = Self::of_events(db, kind, rows).await?;
        walk.last_row = Some(walk.first_id());
        Ok(walk)
    }

    /// Walks through the histories alone.
    pub(super) async fn of_events(db: &'s S, kind: &'s RowKind, rows: Rows) -> Result<Self, StoreFault> {
        let has_snapshots = has_snapshots(db, kind).await.map_err(db_fault(READING))?;
        let mut walk = Self {
            db,
            kind,
            rows,
            has_snapshots,
            events: VecDeque::new(),
            last_event: None,
            table_rows: VecDeque::new(),
            last_row: None,
        };
        walk.last_event = Some((walk.first_id(), None));
        Ok(walk)
    }

    /// Id after which reading begins; that of one row, which is read whatever this is.
    fn first_id(&self) -> Cell {
        match &self.rows {
            Rows::After(id) | Rows::One(id) => id.clone(),
        }
    }

    /// Next row of the table.
    pub(super) async fn peek_row(&mut self) -> Result<Option<&TableRow>, StoreFault> {
        if self.table_rows.is_empty()
            && let Some(last) = self.last_row.take()
        {
            let page = table_rows(self.db, self.kind, &self.rows, &last, S::PAGE).await;
            self.table_rows = page.map_err(db_fault(READING))?.into();
            // The one row is not read twice.
            let is_full = limit_of(self.table_rows.len()) >= S::PAGE && matches!(self.rows, Rows::After(_));
            self.last_row = self.table_rows.back().filter(|_| is_full).map(|row| row.id.clone());
        }
        Ok(self.table_rows.front())
    }

    async fn peek_event(&mut self) -> Result<Option<&EventRow>, StoreFault> {
        if self.events.is_empty()
            && let Some((row, version)) = self.last_event.take()
        {
            let page = events(self.db, self.kind, &self.rows, (&row, version.as_ref())).await;
            self.events = page.map_err(db_fault(READING))?.into();
            let is_full = limit_of(self.events.len()) >= S::PAGE;
            self.last_event = self
                .events
                .back()
                .filter(|_| is_full)
                .map(|last| (last.row_id.clone(), Some(last.version.clone())));
        }
        Ok(self.events.front())
    }

    /// Folds the next history, empty where there is none, and returns the row of the table beside it, if there is one.
    pub(super) async fn next(
        &mut self,
        keeps: bool,
    ) -> Result<Option<(Folded, Option<TableRow>)>, StoreFault> {
        let row_id = self.peek_row().await?.map(|row| row.id.clone());
        let (event_id, first_at) =
            self.peek_event().await?.map(|event| (event.row_id.clone(), event.recorded_at.integer())).unzip();
        let Some(id) = [&row_id, &event_id].into_iter().flatten().min().cloned() else { return Ok(None) };
        let snapshot = match self.has_snapshots {
            true => snapshot(self.db, self.kind, &id).await.map_err(db_fault(READING))?,
            false => None,
        };
        let first_at = first_at.flatten().filter(|_| event_id.as_ref() == Some(&id));
        let is_row = row_id.as_ref() == Some(&id);
        // The purged events are in no fold, so that the history would not be whole.
        let keeps = keeps && snapshot.is_none();
        let mut folded = Folded::begin(self.kind, id, snapshot.as_ref(), first_at);
        while let Some(event) = self.peek_event().await?.filter(|event| event.row_id == folded.id) {
            folded.add(event, keeps);
            self.events.pop_front();
        }
        let row = if is_row { self.table_rows.pop_front() } else { None };
        Ok(Some((folded, row)))
    }
}

/// Deletes the rows of a kind and folds them again. Returns the number of rows.
pub(super) async fn rebuild<S: Sql>(db: &S, kind: &RowKind) -> Result<u64, StoreFault> {
    // Rows are locked before the log, as batches do.
    db.lock_table(kind.name).await.map_err(db_fault("waiting for writers of the rows of a kind"))?;
    db.lock_log().await.map_err(db_fault("waiting for other writers"))?;
    let delete = format!("DELETE FROM row_{}", kind.name);
    db.execute(&delete, &[]).await.map_err(db_fault("deleting the rows of a kind"))?;
    let mut all = SideBySide::of_events(db, kind, Rows::all()).await?;
    let (mut count, mut folded_rows) = (0, Vec::new());
    while let Some((folded, _)) = all.next(false).await? {
        folded_rows.push(folded.into_row(kind)?);
        count += 1;
        if folded_rows.len() == WRITTEN_AT_ONCE {
            let rows = std::mem::take(&mut folded_rows);
            db.insert_rows(kind, rows).await.map_err(db_fault("writing folded rows"))?;
        }
    }
    db.insert_rows(kind, folded_rows).await.map_err(db_fault("writing folded rows"))?;
    subtract_restored(db, kind).await.map_err(db_fault("adding to the sums over purged rows"))?;
    Ok(count)
}

/// Takes restored rows out of the sums over purged rows: they exist again.
async fn subtract_restored<S: Sql>(db: &S, kind: &RowKind) -> Result<(), SqlError> {
    let states = format!(
        "SELECT state FROM restored_row JOIN row_{} AS folded ON folded.id = row_id WHERE kind = $1",
        kind.name
    );
    for state in db.query(&states, &[&kind.name], |row| row.get::<String>(0)).await? {
        for (name, sum) in (kind.finished)(&state).ok().flatten().unwrap_or_default() {
            add_to_purged_sum(db, kind.name, &name, -sum).await?;
        }
    }
    db.execute("DELETE FROM restored_row WHERE kind = $1", &[&kind.name]).await.map(drop)
}
