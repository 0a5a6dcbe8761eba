//! Shell: rows, events and snapshots as the tables have them, damaged or not, for verification and folds.

use saga_core::row::{PastEvent, RowKind};

use super::cell::Cell;
use super::encoding::timestamp;
use super::sql::{Row, Sql, quoted};
use super::sql_error::SqlError;

/// Event of a row, as the fold reads it. A damaged cell spoils no more than the fold of its row.
pub(super) struct EventRow {
    pub(super) row_id: Cell,
    pub(super) version: Cell,
    /// Data of the event, as JSON.
    data: Cell,
    pub(super) recorded_at: Cell,
    is_published: Option<bool>,
}

impl EventRow {
    /// Values of the event, or the name of the first damaged column.
    pub(super) fn values(&self) -> Result<(i64, PastEvent<&str>), &'static str> {
        let version = self.version.integer().ok_or("version")?;
        let event = self.data.text().ok_or("data")?;
        let at = self.recorded_at.integer().ok_or("recorded_at")?;
        let is_published = self.is_published.ok_or("is_published")?;
        Ok((version, PastEvent { event, at: timestamp(at), is_published }))
    }
}

/// Row of the table of a kind.
pub(super) struct TableRow {
    pub(super) id: Cell,
    pub(super) version: Cell,
    pub(super) state: Cell,
    pub(super) created_at: Cell,
    pub(super) updated_at: Cell,
    pub(super) due: Cell,
    /// Searchable values, in the order of the kind's fields.
    pub(super) fields: Vec<Cell>,
}

impl TableRow {
    /// First column with a value of a wrong type.
    pub(super) fn damaged_column(&self) -> Option<&'static str> {
        let numbers =
            [("version", &self.version), ("created_at", &self.created_at), ("updated_at", &self.updated_at)];
        let texts = [("id", &self.id), ("state", &self.state)];
        let wrong_text = texts.into_iter().find(|(_, cell)| cell.text().is_none());
        let wrong = wrong_text.or_else(|| numbers.into_iter().find(|(_, cell)| cell.integer().is_none()));
        wrong.map(|(column, _)| column)
    }
}

/// State of a row that stands for its purged events.
pub(super) struct Snapshot {
    /// Version of the row after the last purged event.
    pub(super) version: i64,
    /// State at that version, as JSON.
    pub(super) state: String,
    /// Time of the first event.
    pub(super) created_at: i64,
}

/// Selection of the rows to read.
#[derive(Debug, Clone)]
pub(super) enum Rows {
    /// All rows with greater ids.
    After(Cell),
    /// The row with this id.
    One(Cell),
}

impl Rows {
    /// All rows: every id comes after the empty text.
    pub(super) const fn all() -> Self {
        Self::After(Cell::Text(String::new()))
    }
}

/// Events of the rows after the event (`row`, `version`), at most [`Sql::PAGE`]. Without a version, after every event of the row,
/// or from the first event of the one row.
pub(super) async fn events<S: Sql>(
    db: &S,
    kind: &RowKind,
    rows: &Rows,
    (row, version): (&Cell, Option<&Cell>),
) -> Result<Vec<EventRow>, SqlError> {
    let (condition, order) = match (rows, version) {
        (Rows::After(_), Some(_)) => ("(row_id, version) > ($3, $4)", "row_id, version"),
        (Rows::After(_), None) => ("row_id > $3", "row_id, version"),
        (Rows::One(_), Some(_)) => ("row_id = $3 AND version > $4", "version"),
        (Rows::One(_), None) => ("row_id = $3", "version"),
    };
    let sql =
        format!("SELECT {FOLDED_EVENT} FROM event WHERE kind = $1 AND {condition} ORDER BY {order} LIMIT $2");
    match version {
        Some(version) => db.query(&sql, &[&kind.name, &S::PAGE, row, version], event_row).await,
        None => db.query(&sql, &[&kind.name, &S::PAGE, row], event_row).await,
    }
}

/// Columns of an [`EventRow`], in the order that [`event_row`] reads.
pub(super) const FOLDED_EVENT: &str = "version, data, recorded_at, is_published, row_id";

pub(super) fn event_row(row: &Row<'_>) -> Result<EventRow, SqlError> {
    Ok(EventRow {
        version: row.cell(0, true)?,
        data: row.cell(1, false)?,
        recorded_at: row.cell(2, true)?,
        is_published: row.undamaged(3)?,
        row_id: row.cell(4, false)?,
    })
}

/// Rows of the table with ids greater than `after`, or the one row, at most `limit`.
pub(super) async fn table_rows<S: Sql>(
    db: &S,
    kind: &RowKind,
    rows: &Rows,
    after: &Cell,
    limit: i64,
) -> Result<Vec<TableRow>, SqlError> {
    let fields: String = kind.fields.iter().map(|field| format!(", {}", quoted(field))).collect();
    let is = match rows {
        Rows::After(_) => ">",
        Rows::One(_) => "=",
    };
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{}
         WHERE id {is} $1 ORDER BY id LIMIT $2",
        kind.name
    );
    let read = |row: &Row<'_>| {
        let field = |(field, column): (&&str, usize)| row.cell(column, kind.is_number(field));
        Ok(TableRow {
            id: row.cell(0, false)?,
            version: row.cell(1, true)?,
            state: row.cell(2, false)?,
            created_at: row.cell(3, true)?,
            updated_at: row.cell(4, true)?,
            due: row.cell(5, true)?,
            fields: kind.fields.iter().zip(6..).map(field).collect::<Result<_, _>>()?,
        })
    };
    db.query(&sql, &[after, &limit], read).await
}

pub(super) async fn has_snapshots<S: Sql>(db: &S, kind: &RowKind) -> Result<bool, SqlError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM snapshot WHERE kind = $1)";
    db.query_one(sql, &[&kind.name], |row| row.get(0)).await
}

/// Snapshot of a row, if it has one.
pub(super) async fn snapshot<S: Sql>(
    db: &S,
    kind: &RowKind,
    id: &Cell,
) -> Result<Option<Snapshot>, SqlError> {
    let sql = "SELECT version, state, created_at FROM snapshot WHERE kind = $1 AND row_id = $2";
    db.query_opt(sql, &[&kind.name, id], read_snapshot).await
}

/// Reads version, state and time of a snapshot. No fold begins at a damaged one.
pub(super) fn read_snapshot(row: &Row<'_>) -> Result<Snapshot, SqlError> {
    let numbers = row.cell(0, true)?.integer().zip(row.cell(2, true)?.integer());
    Ok(match numbers {
        Some((version, created_at)) => Snapshot { version, state: row.readable_text(1)?, created_at },
        None => Snapshot { version: 0, state: "damaged".to_owned(), created_at: 0 },
    })
}
