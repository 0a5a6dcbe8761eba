//! Shell: rows that retention must not purge yet, because work of their saga is open.
//!
//! The scan of the log passes each event once. A finished row that it could not purge is recorded, and purged once nothing of
//! its saga is open any more.

use std::collections::BTreeSet;

use jiff::Timestamp;
use saga_core::ids::began_at;
use saga_core::row::RowKey;
use uuid::Uuid;

use super::sql::{Row, Sql};
use super::sql_error::SqlError;

/// Sagas with open work.
pub(super) struct OpenSagas {
    sagas: BTreeSet<Uuid>,
    /// Times in the ids of messages that wait for a retry: those of their sagas.
    retried: BTreeSet<Timestamp>,
}

impl OpenSagas {
    /// Finds sagas with an open dead letter, a task, a retry or an unpublished outbox entry.
    async fn find<S: Sql>(db: &S) -> Result<Self, SqlError> {
        let ids = |row: &Row<'_>| row.get::<Uuid>(0);
        let sagas = db.query(include_str!("sql/open_sagas.sql"), &[], ids).await?;
        let retried = db.query("SELECT DISTINCT message_id FROM retry", &[], ids).await?;
        let retried = retried.into_iter().map(began_at).collect();
        Ok(Self { sagas: sagas.into_iter().collect(), retried })
    }

    /// Returns what was found, or finds it.
    pub(super) async fn find_once<'f, S: Sql>(
        found: &'f mut Option<Self>,
        db: &S,
    ) -> Result<&'f Self, SqlError> {
        Ok(match found {
            Some(found) => found,
            None => found.insert(Self::find(db).await?),
        })
    }

    pub(super) fn contains(&self, saga: Uuid) -> bool {
        self.sagas.contains(&saga) || self.retried.contains(&began_at(saga))
    }
}

/// Last event of a row.
pub(super) struct LastEvent {
    pub(super) version: i64,
    pub(super) seq: i64,
    pub(super) recorded_at: i64,
}

impl LastEvent {
    pub(super) async fn of<S: Sql>(db: &S, kind: &str, id: &str) -> Result<Option<Self>, SqlError> {
        let sql = "SELECT version, seq, recorded_at FROM event WHERE kind = $1 AND row_id = $2
             ORDER BY version DESC LIMIT 1";
        let read =
            |row: &Row<'_>| Ok(Self { version: row.get(0)?, seq: row.get(1)?, recorded_at: row.get(2)? });
        db.query_opt(sql, &[&kind, &id], read).await
    }
}

/// Reads a page of held rows, by kind and id.
pub(super) async fn held_rows<S: Sql>(
    db: &S,
    (kind, id): &(String, String),
) -> Result<Vec<(String, String)>, SqlError> {
    let sql = "SELECT kind, row_id FROM held_row WHERE (kind, row_id) > ($1, $2)
         ORDER BY kind, row_id LIMIT $3";
    db.query(sql, &[kind, id, &S::PAGE], |row| Ok((row.get(0)?, row.get(1)?))).await
}

/// Records a row to purge later.
pub(super) async fn hold<S: Sql>(db: &S, RowKey { kind, id }: &RowKey) -> Result<(), SqlError> {
    let insert = "INSERT INTO held_row (kind, row_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    db.execute(insert, &[kind, id]).await.map(drop)
}

/// Forgets a row that was purged.
pub(super) async fn release<S: Sql>(db: &S, RowKey { kind, id }: &RowKey) -> Result<(), SqlError> {
    db.execute("DELETE FROM held_row WHERE kind = $1 AND row_id = $2", &[kind, id]).await.map(drop)
}
