//! Shell: deletes finished entries on PostgreSQL. Skips what another transaction has locked.

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::Error;
use uuid::Uuid;

use super::pool::Connection;
use super::values::{db_fault, execute, limit_of, micros, query_opt};
use crate::store::{StoreFault, TrimCutoffs};

/// Time for which tokens of batches are kept. A token is looked up within seconds, if ever.
const TOKENS_KEPT: SignedDuration = SignedDuration::from_hours(1);

pub(super) async fn trim(conn: &Connection, cutoffs: TrimCutoffs, limit: usize) -> Result<u64, StoreFault> {
    let limit = limit_of(limit);
    let trimmed = async {
        let marks = trim_inbox(conn, cutoffs.inbox, limit).await?;
        let keys = "DELETE FROM idempotency_key WHERE key = ANY (ARRAY(
             SELECT key FROM idempotency_key WHERE created_at < $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
        let keys = execute(conn, keys, &[&micros(cutoffs.keys), &limit]).await?;
        let published = super::outbox::trim(conn, cutoffs.published, limit).await?;
        let tokens = "DELETE FROM batch WHERE token = ANY (ARRAY(
             SELECT token FROM batch WHERE committed_at < $1 ORDER BY committed_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
        let old = Timestamp::now().saturating_sub(TOKENS_KEPT).unwrap_or(Timestamp::MIN);
        let tokens = execute(conn, tokens, &[&micros(old), &limit]).await?;
        Ok(marks + keys + published + tokens)
    };
    trimmed.await.map_err(db_fault("trimming finished entries"))
}

/// Deletes old ids of each step. Ids begin with the time of their saga, so that the oldest ones come first. A second pass begins
/// at a random id, for ids without a saga such as those of dead letters.
async fn trim_inbox(conn: &Connection, cutoff: Timestamp, limit: i64) -> Result<u64, Error> {
    /// Number of ids to read for each to delete. Ids of old sagas that were processed lately come first and are kept.
    const READ_FACTOR: i64 = 10;
    const DELETE: &str = "DELETE FROM inbox WHERE step = $1 AND message_id = ANY (ARRAY(
         SELECT message_id FROM inbox WHERE step = $1 AND handled_at < $2 AND message_id = ANY (ARRAY(
              SELECT message_id FROM inbox WHERE step = $1 AND message_id >= $5 ORDER BY message_id LIMIT $4))
         LIMIT $3 FOR UPDATE SKIP LOCKED))";
    let next_step = "SELECT min(step) FROM inbox WHERE step > $1";
    let (mut gone, mut last) = (0, String::new());
    while let Some(step) =
        query_opt(conn, next_step, &[&last]).await?.and_then(|row| row.get::<_, Option<String>>(0))
    {
        for first in [Uuid::nil(), Uuid::from_u128(fastrand::u128(..))] {
            let limit = limit.saturating_sub_unsigned(gone).max(0);
            let read = limit.saturating_mul(READ_FACTOR);
            gone += execute(conn, DELETE, &[&step, &micros(cutoff), &limit, &read, &first]).await?;
        }
        last = step;
    }
    Ok(gone)
}
