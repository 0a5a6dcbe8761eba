//! Shell: rows and their histories as SQLite reads and replaces them, for the fold that all stores share.

use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use saga_core::decider::FieldValue;
use saga_core::row::{Projected, RowKind, StoredEvent};

use super::queries;
use super::retention::add_to_purged_sum;
use super::values::{db_fault, field_value, insert_sql, micros};
use crate::store::StoreFault;
use crate::store::fold::{Cell, EventRow, FoldedRow, HistorySql, RebuildSql, Rows, Snapshot, TableRow};
use crate::store::history::ChangedRows;
use crate::store::verification::VerificationSql;

const READING: &str = "reading the history";

impl HistorySql for Connection {
    // Small, because a read that nobody waits for is interrupted only within SQL.
    const PAGE: i64 = 200;

    async fn events(
        &self,
        kind: &RowKind,
        rows: &Rows,
        (row, version): (&str, i64),
        limit: i64,
    ) -> Result<Vec<EventRow>, StoreFault> {
        let sql = match rows {
            Rows::After(_) => {
                "SELECT version, data, recorded_at, is_published, row_id FROM event
                 WHERE kind = ?1 AND (row_id, version) > (?2, ?3) ORDER BY row_id, version LIMIT ?4"
            }
            Rows::One(_) => {
                "SELECT version, data, recorded_at, is_published, row_id FROM event
                 WHERE kind = ?1 AND row_id = ?2 AND version > ?3 ORDER BY version LIMIT ?4"
            }
        };
        self.prepare_cached(sql)
            .and_then(|mut select| {
                select.query_map(params![kind.name, row, version, limit], event_row)?.collect()
            })
            .map_err(db_fault(READING))
    }

    async fn table_rows(
        &self,
        kind: &RowKind,
        rows: &Rows,
        after: &str,
        limit: i64,
    ) -> Result<Vec<TableRow>, StoreFault> {
        let fields: String = kind.fields.iter().map(|field| format!(", {field}")).collect();
        let is = match rows {
            Rows::After(_) => ">",
            Rows::One(_) => "=",
        };
        let sql = format!(
            "SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{}
             WHERE id {is} ?1 ORDER BY id LIMIT ?2",
            kind.name
        );
        self.prepare_cached(&sql)
            .and_then(|mut select| {
                select.query_map(params![after, limit], |row| table_row(row, kind.fields.len()))?.collect()
            })
            .map_err(db_fault(READING))
    }

    async fn has_snapshots(&self, kind: &RowKind) -> Result<bool, StoreFault> {
        self.prepare_cached("SELECT EXISTS (SELECT 1 FROM snapshot WHERE kind = ?1)")
            .and_then(|mut select| select.query_row([kind.name], |row| row.get(0)))
            .map_err(db_fault(READING))
    }

    async fn snapshot(&self, kind: &RowKind, id: &str) -> Result<Option<Snapshot>, StoreFault> {
        self.prepare_cached("SELECT version, state, created_at FROM snapshot WHERE kind = ?1 AND row_id = ?2")
            .and_then(|mut select| select.query_row([kind.name, id], read_snapshot).optional())
            .map_err(db_fault(READING))
    }

    fn stored_value(_kind: &RowKind, _field: &str, value: FieldValue) -> FieldValue {
        value
    }
}

/// Reads version, data, time, publication and row id of an event.
pub(super) fn event_row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        version: row.get(0)?,
        data: row.get(1)?,
        recorded_at: row.get(2)?,
        is_published: row.get(3)?,
        row_id: row.get(4)?,
    })
}

/// Reads version, state and time of a snapshot.
pub(super) fn read_snapshot(row: &Row<'_>) -> rusqlite::Result<Snapshot> {
    Ok(Snapshot { version: row.get(0)?, state: row.get(1)?, created_at: row.get(2)? })
}

fn table_row(row: &Row<'_>, fields: usize) -> rusqlite::Result<TableRow> {
    let cell = |column| row.get_ref(column).map(cell);
    Ok(TableRow {
        id: row.get(0)?,
        version: cell(1)?,
        state: cell(2)?,
        created_at: cell(3)?,
        updated_at: cell(4)?,
        due: cell(5)?,
        fields: (6..6 + fields).map(cell).collect::<Result<_, _>>()?,
    })
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cell::Text(text.to_owned()),
            Err(_) => Cell::Other(bytes.to_owned()),
        },
        ValueRef::Real(number) => Cell::Other(number.to_le_bytes().to_vec()),
        ValueRef::Blob(bytes) => Cell::Other(bytes.to_owned()),
    }
}

impl RebuildSql for Connection {
    async fn delete_rows(&self, kind: &RowKind) -> Result<(), StoreFault> {
        let delete = format!("DELETE FROM row_{}", kind.name);
        self.execute(&delete, []).map(drop).map_err(db_fault("deleting the rows of a kind"))
    }

    async fn insert_rows(&self, kind: &RowKind, rows: Vec<FoldedRow>) -> Result<(), StoreFault> {
        let fault = db_fault("writing folded rows");
        let mut insert = self.prepare_cached(&insert_sql(kind)).map_err(&fault)?;
        for FoldedRow { id, version, created_at, updated_at, projected } in &rows {
            let Projected { state, fields, due } = projected;
            let due = due.map(micros);
            let head: [&dyn ToSql; 6] = [id, version, state, created_at, updated_at, &due];
            let fields: Vec<_> = fields.iter().map(field_value).collect();
            let values = head.into_iter().chain(fields.iter().map(|value| value as &dyn ToSql));
            insert.execute(rusqlite::params_from_iter(values)).map_err(&fault)?;
        }
        Ok(())
    }

    async fn restored_states(&self, kind: &RowKind) -> Result<Vec<String>, StoreFault> {
        let sql = format!(
            "SELECT state FROM restored_row JOIN row_{} AS folded ON folded.id = row_id WHERE kind = ?1",
            kind.name
        );
        self.prepare(&sql)
            .and_then(|mut select| select.query_map([kind.name], |row| row.get(0))?.collect())
            .map_err(db_fault("reading restored rows"))
    }

    async fn add_to_purged_sum(&self, kind: &str, name: &str, sum: i64) -> Result<(), StoreFault> {
        add_to_purged_sum(self, kind, name, sum).map_err(db_fault("adding to a sum over purged rows"))
    }

    async fn clear_restored(&self, kind: &RowKind) -> Result<(), StoreFault> {
        self.execute("DELETE FROM restored_row WHERE kind = ?1", [kind.name])
            .map(drop)
            .map_err(db_fault("forgetting restored rows"))
    }
}

impl VerificationSql for Connection {
    async fn changed(&self, after: i64, limit: usize) -> Result<ChangedRows, StoreFault> {
        super::history_at::changed(self, after, limit)
    }

    async fn stored_history(&self, kind: &RowKind, id: &str) -> Result<Vec<StoredEvent>, StoreFault> {
        queries::history(self, kind.name, id, 0, usize::MAX)
    }
}
