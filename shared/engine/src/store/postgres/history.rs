//! Shell: rows and their histories as PostgreSQL reads and replaces them, for the fold that all stores share.

use saga_core::decider::FieldValue;
use saga_core::row::{RowKind, StoredEvent};
use tokio_postgres::Row;

use super::pool::Connection;
use super::retention::add_to_purged_sum;
use super::values::{
    Owned, Ready, array_of, db_fault, execute, micros, number, pipelined, query, query_one, query_opt,
    quoted, text, type_of,
};
use super::{commit_order, history_at, queries};
use crate::store::StoreFault;
use crate::store::fold::{Cell, EventRow, FoldedRow, HistorySql, RebuildSql, Rows, Snapshot, TableRow};
use crate::store::history::ChangedRows;
use crate::store::verification::VerificationSql;

const READING: &str = "reading the history";

/// Column of the first searchable value of a row.
const FIRST_FIELD: usize = 6;

impl HistorySql for Connection {
    const PAGE: i64 = 1_000;

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
                 WHERE kind = $1 AND (row_id, version) > ($2, $3) ORDER BY row_id, version LIMIT $4"
            }
            Rows::One(_) => {
                "SELECT version, data, recorded_at, is_published, row_id FROM event
                 WHERE kind = $1 AND row_id = $2 AND version > $3 ORDER BY version LIMIT $4"
            }
        };
        let events = query(self, sql, &[&kind.name, &row, &version, &limit]).await;
        Ok(events.map_err(db_fault(READING))?.iter().map(event_row).collect())
    }

    async fn table_rows(
        &self,
        kind: &RowKind,
        rows: &Rows,
        after: &str,
        limit: i64,
    ) -> Result<Vec<TableRow>, StoreFault> {
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
        let found = query(self, &sql, &[&after, &limit]).await.map_err(db_fault(READING))?;
        Ok(found.iter().map(|row| table_row(kind, row)).collect())
    }

    async fn has_snapshots(&self, kind: &RowKind) -> Result<bool, StoreFault> {
        let sql = "SELECT EXISTS (SELECT FROM snapshot WHERE kind = $1)";
        Ok(query_one(self, sql, &[&kind.name]).await.map_err(db_fault(READING))?.get(0))
    }

    async fn snapshot(&self, kind: &RowKind, id: &str) -> Result<Option<Snapshot>, StoreFault> {
        let sql = "SELECT version, state, created_at FROM snapshot WHERE kind = $1 AND row_id = $2";
        let row = query_opt(self, sql, &[&kind.name, &id]).await.map_err(db_fault(READING))?;
        Ok(row.map(|row| Snapshot { version: row.get(0), state: row.get(1), created_at: row.get(2) }))
    }

    fn stored_value(kind: &RowKind, field: &str, value: FieldValue) -> FieldValue {
        match kind.is_number(field) {
            true => number(value).map_or(FieldValue::Null, FieldValue::Integer),
            false => text(value).map_or(FieldValue::Null, FieldValue::Text),
        }
    }
}

fn event_row(row: &Row) -> EventRow {
    EventRow {
        version: row.get(0),
        data: row.get(1),
        recorded_at: row.get(2),
        is_published: row.get(3),
        row_id: row.get(4),
    }
}

fn table_row(kind: &RowKind, row: &Row) -> TableRow {
    let integer = |column: usize| row.get::<_, Option<i64>>(column).map_or(Cell::Null, Cell::Integer);
    let text = |column: usize| row.get::<_, Option<String>>(column).map_or(Cell::Null, Cell::Text);
    let field = |(index, field): (usize, &&str)| match kind.is_number(field) {
        true => integer(FIRST_FIELD + index),
        false => text(FIRST_FIELD + index),
    };
    TableRow {
        id: row.get(0),
        version: integer(1),
        state: text(2),
        created_at: integer(3),
        updated_at: integer(4),
        due: integer(5),
        fields: kind.fields.iter().enumerate().map(field).collect(),
    }
}

impl RebuildSql for Connection {
    async fn delete_rows(&self, kind: &RowKind) -> Result<(), StoreFault> {
        // Rows are locked before the head, as batches do.
        let lock = format!("LOCK TABLE row_{} IN EXCLUSIVE MODE", kind.name);
        let client = self.client();
        client.batch_execute(&lock).await.map_err(db_fault("waiting for writers of the rows of a kind"))?;
        commit_order::lock_head(self).await.map_err(db_fault("waiting for other writers"))?;
        let delete = format!("DELETE FROM row_{}", kind.name);
        client.batch_execute(&delete).await.map_err(db_fault("deleting the rows of a kind"))
    }

    async fn insert_rows(&self, kind: &RowKind, rows: Vec<FoldedRow>) -> Result<(), StoreFault> {
        if rows.is_empty() {
            return Ok(());
        }
        let (values, types) = columns(kind, &rows);
        let parameters: Vec<String> =
            types.iter().zip(1..).map(|(of, number)| format!("${number}::{of}[]")).collect();
        let sql = format!("INSERT INTO row_{} SELECT * FROM unnest({})", kind.name, parameters.join(", "));
        let context = "writing folded rows";
        let insert = Ready::of(self, &sql, values).await.map_err(db_fault(context))?;
        let written: Result<Vec<_>, _> = pipelined(self, &[insert]).await.into_iter().collect();
        written.map(drop).map_err(db_fault(context))
    }

    async fn restored_states(&self, kind: &RowKind) -> Result<Vec<String>, StoreFault> {
        let sql = format!(
            "SELECT state FROM restored_row JOIN row_{} AS folded ON folded.id = row_id WHERE kind = $1",
            kind.name
        );
        let states = query(self, &sql, &[&kind.name]).await.map_err(db_fault("reading restored rows"))?;
        Ok(states.iter().map(|row| row.get(0)).collect())
    }

    async fn add_to_purged_sum(&self, kind: &str, name: &str, sum: i64) -> Result<(), StoreFault> {
        add_to_purged_sum(self, kind, name, sum).await.map_err(db_fault("adding to a sum over purged rows"))
    }

    async fn clear_restored(&self, kind: &RowKind) -> Result<(), StoreFault> {
        execute(self, "DELETE FROM restored_row WHERE kind = $1", &[&kind.name])
            .await
            .map(drop)
            .map_err(db_fault("forgetting restored rows"))
    }
}

/// Values of rows, an array for each column of the table, and the types of the columns.
fn columns(kind: &RowKind, rows: &[FoldedRow]) -> (Owned, Vec<&'static str>) {
    fn column<T>(rows: &[FoldedRow], of: impl Fn(&FoldedRow) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    let mut values: Owned = vec![
        Box::new(column(rows, |row| row.id.clone())),
        Box::new(column(rows, |row| row.version)),
        Box::new(column(rows, |row| row.projected.state.clone())),
        Box::new(column(rows, |row| row.created_at)),
        Box::new(column(rows, |row| row.updated_at)),
        Box::new(column(rows, |row| row.projected.due.map(micros))),
    ];
    let mut types = vec!["text", "bigint", "text", "bigint", "bigint", "bigint"];
    for (index, field) in kind.fields.iter().enumerate() {
        let value = |row: &FoldedRow| row.projected.fields.get(index).cloned().unwrap_or(FieldValue::Null);
        values.push(array_of(kind, field, rows.iter().map(value)));
        types.push(type_of(kind, field));
    }
    (values, types)
}

impl VerificationSql for Connection {
    async fn changed(&self, after: i64, limit: usize) -> Result<ChangedRows, StoreFault> {
        history_at::changed(self, after, limit).await
    }

    async fn stored_history(&self, kind: &RowKind, id: &str) -> Result<Vec<StoredEvent>, StoreFault> {
        queries::history(self, kind.name, id, 0, usize::MAX).await
    }
}
