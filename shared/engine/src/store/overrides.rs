//! Shell: overrides of behaviour, such as forced circuit breakers, that operators have set.

use super::Answer;
use super::backend::{Backend, Lane};
use super::replicas::ReplicaSignal;
use super::roles::Overrides;
use super::sql::Sql as _;
use super::sql_error::db_fault;

/// Overrides by operators, as last stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredOverrides {
    /// Number of the change; grows with each.
    pub revision: i64,
    /// The overrides, in the caller's format.
    pub text: String,
}

impl<B: Backend> Overrides for B {
    fn overrides(&self) -> Answer<'_, StoredOverrides> {
        self.read(Lane::Row, (), |db, ()| {
            Box::pin(async move {
                let sql = "SELECT revision, text FROM overrides";
                db.query_one(sql, &[], |row| Ok(StoredOverrides { revision: row.get(0)?, text: row.get(1)? }))
                    .await
                    .map_err(db_fault("reading the overrides"))
            })
        })
    }

    fn replace_overrides(&self, revision: i64, text: String) -> Answer<'_, bool> {
        self.write_and_notify(ReplicaSignal::OverridesChanged, (revision, text), |db, (revision, text)| {
            Box::pin(async move {
                let sql = "UPDATE overrides SET revision = revision + 1, text = $2 WHERE revision = $1";
                let changed = db.execute(sql, &[revision, text]).await;
                changed.map(|changed| changed > 0).map_err(db_fault("replacing the overrides"))
            })
        })
    }
}
