//! Shell: deletes finished entries. Skips what another transaction has locked.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::encoding::micros;
use super::purge_batch::TrimCutoffs;
use super::sql::Sql;
use super::sql_error::SqlError;

/// Time for which tokens of batches are kept. A token is looked up within seconds, if ever.
const TOKENS_KEPT: SignedDuration = SignedDuration::from_hours(1);

/// Number of inbox ids to read for each to delete. Ids of old sagas that were processed lately come first and are kept.
const READ_FACTOR: i64 = 10;

pub(super) async fn trim<S: Sql>(db: &S, cutoffs: TrimCutoffs, limit: i64) -> Result<u64, SqlError> {
    let mut trimmed = trim_inbox(db, cutoffs.inbox, limit).await?;
    let keys =
        S::among_locked("SELECT key FROM idempotency_key WHERE created_at < $1 ORDER BY created_at LIMIT $2");
    let keys = format!("DELETE FROM idempotency_key WHERE key {keys}");
    trimmed += db.execute(&keys, &[&micros(cutoffs.keys), &limit]).await?;
    trimmed += trim_outbox(db, cutoffs.published, limit).await?;
    if S::HAS_BATCH_TOKENS {
        let tokens =
            S::among_locked("SELECT token FROM batch WHERE committed_at < $1 ORDER BY committed_at LIMIT $2");
        let old = Timestamp::now().saturating_sub(TOKENS_KEPT).unwrap_or(Timestamp::MIN);
        trimmed +=
            db.execute(&format!("DELETE FROM batch WHERE token {tokens}"), &[&micros(old), &limit]).await?;
    }
    Ok(trimmed)
}

/// Deletes old ids of each step. Ids begin with the time of their saga, so that the oldest ones come first. A second pass begins
/// at a random id, for ids without a saga such as those of dead letters.
async fn trim_inbox<S: Sql>(db: &S, cutoff: Timestamp, limit: i64) -> Result<u64, SqlError> {
    let first_ids = S::among(
        "SELECT message_id FROM inbox WHERE step = $1 AND message_id >= $5 ORDER BY message_id LIMIT $4",
    );
    let old_ids = S::among_locked(&format!(
        "SELECT message_id FROM inbox WHERE step = $1 AND handled_at < $2 AND message_id {first_ids} LIMIT $3"
    ));
    let delete = format!("DELETE FROM inbox WHERE step = $1 AND message_id {old_ids}");
    let next_step = "SELECT min(step) FROM inbox WHERE step > $1";
    let (mut trimmed, mut last) = (0, String::new());
    while let Some(step) = db.query_one(next_step, &[&last], |row| row.get::<Option<String>>(0)).await? {
        for first in [Uuid::nil(), Uuid::from_u128(fastrand::u128(..))] {
            let limit = limit.saturating_sub_unsigned(trimmed).max(0);
            let read = limit.saturating_mul(READ_FACTOR);
            trimmed += db.execute(&delete, &[&step, &micros(cutoff), &limit, &read, &first]).await?;
        }
        last = step;
    }
    Ok(trimmed)
}

/// Deletes entries that were published before `cutoff`, and publications whose entries are gone. Keeps the last publication,
/// which is the published position, and with it the last entry: positions are never assigned twice.
async fn trim_outbox<S: Sql>(db: &S, cutoff: Timestamp, limit: i64) -> Result<u64, SqlError> {
    let entries = S::among_locked(include_str!("sql/old_entries.sql"));
    let entries = format!("DELETE FROM outbox WHERE seq {entries}");
    let entries = db.execute(&entries, &[&micros(cutoff), &limit]).await?;
    let publications = S::among_locked(include_str!("sql/old_publications.sql"));
    let publications = format!("DELETE FROM publication WHERE up_to {publications}");
    let publications = db.execute(&publications, &[&limit]).await?;
    Ok(entries.max(publications))
}
