//! Shell: what is known of finished rows that have left: whose they may be, and what still counts of them.

use saga_core::row::RowKind;
use tokio_postgres::Error;
use uuid::Uuid;

use super::pool::Connection;
use super::values::{execute, oops, query, query_opt};
use crate::store::{Left, StoreFault};

/// Finished rows of sagas with lower ids may have left.
pub(super) async fn left_before(conn: &Connection) -> Result<Option<Uuid>, Error> {
    Ok(query_opt(conn, "SELECT saga FROM purged_before LIMIT 1", &[]).await?.map(|row| row.get(0)))
}

/// What of the rows of a kind has left.
pub(super) async fn left_of(conn: &Connection, kind: &str) -> Result<Left, StoreFault> {
    let read = async {
        let carried = query(conn, "SELECT name, sum FROM purged_sum WHERE kind = $1", &[&kind]).await?;
        let carried = carried.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(Left { before: left_before(conn).await?, carried })
    };
    read.await.map_err(oops("reading what has left"))
}

/// Counts something of a row that has left.
pub(super) async fn carry(conn: &Connection, kind: &str, name: &str, sum: i64) -> Result<(), Error> {
    let sql = "INSERT INTO purged_sum (kind, name, sum) VALUES ($1, $2, $3)
         ON CONFLICT (kind, name) DO UPDATE SET sum = purged_sum.sum + excluded.sum";
    execute(conn, sql, &[&kind, &name, &sum]).await.map(drop)
}

/// Rows that were brought back are there again: they are carried no more. Called when they are folded anew.
pub(super) async fn carry_no_more(conn: &Connection, kind: &RowKind) -> Result<(), Error> {
    let states = format!(
        "SELECT state FROM restored_row JOIN row_{} AS folded ON folded.id = row_id WHERE kind = $1",
        kind.name
    );
    let states = query(conn, &states, &[&kind.name]).await?;
    for row in &states {
        for (name, sum) in (kind.finished)(row.get(0)).ok().flatten().unwrap_or_default() {
            carry(conn, kind.name, &name, -sum).await?;
        }
    }
    execute(conn, "DELETE FROM restored_row WHERE kind = $1", &[&kind.name]).await.map(drop)
}
