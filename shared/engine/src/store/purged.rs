//! Shell: records of purged rows: sums over them, and the sagas that they may belong to.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::sql::Sql;
use super::sql_error::SqlError;

/// Summary of the purged rows of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgedRows {
    /// Finished rows of sagas with lower ids may have been purged; no others.
    pub before: Option<Uuid>,
    /// Sums over the purged rows, by name.
    pub sums: BTreeMap<String, i64>,
}

/// Lowest saga id whose rows were never purged.
pub(super) async fn purged_before<S: Sql>(db: &S) -> Result<Option<Uuid>, SqlError> {
    db.query_opt("SELECT saga FROM purged_before LIMIT 1", &[], |row| row.get(0)).await
}

/// Sets the lowest saga id whose rows were never purged.
pub(super) async fn set_purged_before<S: Sql>(db: &S, saga: Uuid) -> Result<(), SqlError> {
    db.execute("DELETE FROM purged_before", &[]).await?;
    db.execute("INSERT INTO purged_before (saga) VALUES ($1)", &[&saga]).await.map(drop)
}

/// Summary of the purged rows of a kind.
pub(super) async fn purged_rows<S: Sql>(db: &S, kind: &str) -> Result<PurgedRows, SqlError> {
    let sql = "SELECT name, sum FROM purged_sum WHERE kind = $1";
    let sums = db.query(sql, &[&kind], |row| Ok((row.get(0)?, row.get(1)?))).await?;
    Ok(PurgedRows { before: purged_before(db).await?, sums: sums.into_iter().collect() })
}

/// Adds to a sum over purged rows.
pub(super) async fn add_to_purged_sum<S: Sql>(
    db: &S,
    kind: &str,
    name: &str,
    sum: i64,
) -> Result<(), SqlError> {
    let sql = "INSERT INTO purged_sum (kind, name, sum) VALUES ($1, $2, $3)
         ON CONFLICT (kind, name) DO UPDATE SET sum = purged_sum.sum + excluded.sum";
    db.execute(sql, &[&kind, &name, &sum]).await.map(drop)
}
