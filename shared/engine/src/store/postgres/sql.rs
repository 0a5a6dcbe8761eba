//! Shell: the statements of the store on PostgreSQL.

use std::collections::BTreeMap;

use saga_core::decider::FieldValue;
use saga_core::row::RowKind;
use tokio_postgres::types::ToSql;

use super::commit_order;
use super::pool::Connection;
use super::values::{Owned, Ready, array_of, number, pipelined, prepared, text, type_of};
use crate::store::encoding::{micros, without_nul};
use crate::store::sql::{FoldedRow, Row, Sql, Values};
use crate::store::sql_error::SqlError;

impl Sql for Connection {
    const PAGE: i64 = 1_000;
    const STORES_NUL: bool = false;
    const SKIP_LOCKED: &'static str = " FOR UPDATE SKIP LOCKED";
    const FOR_SHARE: &'static str = " FOR SHARE";
    const POSITION: &'static str = "strpos";
    const LAST_EVENT: &'static str = "(SELECT event FROM head)";
    const GENERATION: Option<&'static str> = Some("SELECT generation FROM head");
    const LAST_ENTRY: &'static str = "(SELECT outbox FROM head)";
    const CLOCK: Option<&'static str> =
        Some("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)");
    const BY_STATUS: &'static str = "";
    const BY_PUBLICATION: &'static str = "";
    const FIRST_RETRY_CLAIM: &'static str = "(SELECT min(claimed_until) FROM retry
         WHERE next_attempt <= $1 AND owner <> $2 AND claimed_until > $1)";
    const DUE_RETRIES: &'static str = include_str!("sql/claim_retries.sql");
    const APPEND_EVENT: &'static str = include_str!("sql/append_event.sql");

    fn any(parameter: usize) -> String {
        format!("= ANY (${parameter})")
    }

    /// Keys are selected as an array: the server might repeat a subquery for each row, and lock other rows.
    fn among(select: &str) -> String {
        format!("= ANY (ARRAY({select}))")
    }

    async fn query<T: Send>(
        &self,
        sql: &str,
        values: &Values<'_>,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError> + Send,
    ) -> Result<Vec<T>, SqlError> {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| *value as _).collect();
        let rows = self.client().query(&prepared(self, sql).await?, &values).await?;
        rows.iter().map(|row| read(&Row::Postgres(row))).collect()
    }

    async fn execute(&self, sql: &str, values: &Values<'_>) -> Result<u64, SqlError> {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| *value as _).collect();
        Ok(self.client().execute(&prepared(self, sql).await?, &values).await?)
    }

    async fn lock_log(&self) -> Result<(), SqlError> {
        commit_order::lock_head(self).await
    }

    async fn lock_table(&self, kind: &'static str) -> Result<(), SqlError> {
        let lock = format!("LOCK TABLE row_{kind} IN EXCLUSIVE MODE");
        Ok(self.client().batch_execute(&lock).await?)
    }

    async fn lock_rows(
        &self,
        kind: &'static str,
        ids: Vec<String>,
        versions: Vec<i64>,
    ) -> Result<Vec<String>, SqlError> {
        let sql = format!(
            "SELECT id FROM row_{kind}
             JOIN unnest($1::text[], $2::bigint[]) AS purged (of, at) ON id = of AND version = at
             ORDER BY id FOR UPDATE OF row_{kind} SKIP LOCKED"
        );
        let rows = self.client().query(&prepared(self, &sql).await?, &[&ids, &versions]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn insert_rows(&self, kind: &RowKind, rows: Vec<FoldedRow>) -> Result<(), SqlError> {
        if rows.is_empty() {
            return Ok(());
        }
        let (values, types) = columns(kind, &rows);
        let parameters: Vec<String> =
            types.iter().zip(1..).map(|(of, number)| format!("${number}::{of}[]")).collect();
        let sql = format!("INSERT INTO row_{} SELECT * FROM unnest({})", kind.name, parameters.join(", "));
        let insert = Ready::of(self, &sql, values).await?;
        let written: Result<Vec<_>, _> = pipelined(self, &[insert]).await.into_iter().collect();
        Ok(written.map(drop)?)
    }

    async fn add_to_message_counts(
        &self,
        outcome: &'static str,
        counts: &BTreeMap<String, i64>,
    ) -> Result<(), SqlError> {
        if counts.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = counts.keys().map(String::as_str).collect();
        let counts: Vec<i64> = counts.values().copied().collect();
        let sql = "INSERT INTO message_count (outcome, name, count)
             SELECT $1::text, name, count FROM unnest($2::text[], $3::bigint[]) AS made (name, count)
             ON CONFLICT (outcome, name) DO UPDATE SET count = message_count.count + excluded.count";
        self.client().execute(&prepared(self, sql).await?, &[&outcome, &names, &counts]).await?;
        Ok(())
    }

    fn stored_value(kind: &RowKind, field: &str, value: FieldValue) -> FieldValue {
        match value {
            _ if kind.is_number(field) => number(value).map_or(FieldValue::Null, FieldValue::Integer),
            FieldValue::Text(id) if !kind.fields.contains(&field) => FieldValue::Text(without_nul(id)),
            FieldValue::Text(_) | FieldValue::Integer(_) | FieldValue::Null => {
                text(value).map_or(FieldValue::Null, FieldValue::Text)
            }
        }
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
