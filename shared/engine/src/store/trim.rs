//! Shell: deletes finished entries. Skips what another transaction has locked.

use jiff::Timestamp;
use saga_core::ids::first_at;
use uuid::Uuid;

use super::encoding::micros;
use super::purge_batch::TrimCutoffs;
use super::sql::Sql;
use super::sql_error::SqlError;

/// Time for which tokens of batches are kept, in microseconds: an hour. A token is looked up within seconds, if ever.
const TOKENS_KEPT_MICROS: i64 = 3_600_000_000;

/// Number of inbox ids to read for each to delete. Ids of old sagas that were processed lately are read and kept.
const READ_FACTOR: i64 = 10;

pub(super) async fn trim<S: Sql>(db: &S, cutoffs: TrimCutoffs, limit: i64) -> Result<u64, SqlError> {
    let mut trimmed = trim_inbox(db, cutoffs.inbox, limit).await?;
    let keys =
        S::among_locked("SELECT key FROM idempotency_key WHERE created_at < $1 ORDER BY created_at LIMIT $2");
    let keys = format!("DELETE FROM idempotency_key WHERE key {keys}");
    trimmed += db.execute(&keys, &[&micros(cutoffs.keys), &limit]).await?;
    trimmed += trim_outbox(db, cutoffs.published, limit).await?;
    if let Some(clock) = S::CLOCK {
        // The server dates tokens. Another process, whose clock differs, may still look one up.
        let tokens = format!(
            "SELECT token FROM batch WHERE committed_at < ({clock}) - $1 ORDER BY committed_at LIMIT $2"
        );
        let delete = format!("DELETE FROM batch WHERE token {}", S::among_locked(&tokens));
        trimmed += db.execute(&delete, &[&TOKENS_KEPT_MICROS, &limit]).await?;
    }
    Ok(trimmed)
}

/// Deletes old ids of each step.
///
/// Ids begin with the time of their saga, so that old ones stand before the id of `cutoff`. They are read part by part, each
/// call from where the last one ended: recent ids of old sagas may stand before old ones. A second pass begins at a random id,
/// for ids without a saga such as those of dead letters.
async fn trim_inbox<S: Sql>(db: &S, cutoff: Timestamp, limit: i64) -> Result<u64, SqlError> {
    let next_step = "SELECT min(step) FROM inbox WHERE step > $1";
    let position = "SELECT next_id FROM inbox_scan WHERE step = $1";
    let (mut trimmed, mut last) = (0, String::new());
    while let Some(step) = db.query_one(next_step, &[&last], |row| row.get::<Option<String>>(0)).await? {
        let first = db.query_opt(position, &[&step], |row| row.get(0)).await?.unwrap_or_default();
        let part = InboxPart { step, first, end: first_at(cutoff).unwrap_or_default() };
        let (deleted, next) = part.trim(db, cutoff, rest(limit, trimmed)).await?;
        trimmed += deleted;
        if next != part.first {
            part.set_position(db, next).await?;
        }
        let part = InboxPart { first: Uuid::from_u128(fastrand::u128(..)), end: Uuid::max(), ..part };
        trimmed += part.trim(db, cutoff, rest(limit, trimmed)).await?.0;
        last = part.step;
    }
    Ok(trimmed)
}

fn rest(limit: i64, trimmed: u64) -> i64 {
    limit.saturating_sub_unsigned(trimmed).max(0)
}

/// Ids of a step from `first` up to, but not including, `end`.
struct InboxPart {
    step: String,
    first: Uuid,
    end: Uuid,
}

impl InboxPart {
    /// Deletes old ids. Returns their number, and the id from which the next call goes on: the nil id after the last part.
    async fn trim<S: Sql>(&self, db: &S, cutoff: Timestamp, limit: i64) -> Result<(u64, Uuid), SqlError> {
        let Self { step, first, end } = self;
        let next = "SELECT message_id FROM inbox WHERE step = $1 AND message_id >= $2 AND message_id < $3
             ORDER BY message_id LIMIT 1 OFFSET $4";
        let read = limit.saturating_mul(READ_FACTOR);
        let next: Option<Uuid> = db.query_opt(next, &[step, first, end, &read], |row| row.get(0)).await?;
        let old_ids = S::among_locked(
            "SELECT message_id FROM inbox
             WHERE step = $1 AND handled_at < $2 AND message_id >= $4 AND message_id < $5
             ORDER BY message_id LIMIT $3",
        );
        let delete = format!("DELETE FROM inbox WHERE step = $1 AND message_id {old_ids}");
        let last = next.unwrap_or(*end);
        let deleted = db.execute(&delete, &[step, &micros(cutoff), &limit, first, &last]).await?;
        // More may be old in this part.
        let is_over = deleted < limit.unsigned_abs();
        Ok((deleted, if is_over { next.unwrap_or_default() } else { *first }))
    }

    async fn set_position<S: Sql>(&self, db: &S, next: Uuid) -> Result<(), SqlError> {
        let set = "INSERT INTO inbox_scan (step, next_id) VALUES ($1, $2)
             ON CONFLICT (step) DO UPDATE SET next_id = excluded.next_id";
        db.execute(set, &[&self.step, &next]).await.map(drop)
    }
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
