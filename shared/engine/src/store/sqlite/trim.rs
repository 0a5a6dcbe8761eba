//! Shell: deletes finished entries on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::values::{db_fault, limit_of, micros};
use crate::store::{StoreFault, TrimCutoffs};

pub(super) fn trim(conn: &Connection, cutoffs: TrimCutoffs, limit: usize) -> Result<u64, StoreFault> {
    let limit = limit_of(limit);
    let marks = trim_inbox(conn, cutoffs.inbox, limit);
    let keys = conn.execute(
        "DELETE FROM idempotency_key WHERE key IN
         (SELECT key FROM idempotency_key WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)",
        params![micros(cutoffs.keys), limit],
    );
    let published = super::outbox::trim(conn, cutoffs.published, limit);
    let context = "trimming finished entries";
    let gone =
        [marks, keys, published].into_iter().sum::<rusqlite::Result<usize>>().map_err(db_fault(context))?;
    Ok(u64::try_from(gone).unwrap_or(u64::MAX))
}

/// Deletes old ids of each step. Ids begin with the time of their saga, so that the oldest ones come first. A second pass begins
/// at a random id, for ids without a saga such as those of dead letters.
fn trim_inbox(conn: &Connection, cutoff: Timestamp, limit: i64) -> rusqlite::Result<usize> {
    /// Number of ids to read for each to delete. Ids of old sagas that were processed lately come first and are kept.
    const READ_FACTOR: i64 = 10;
    const DELETE: &str = "DELETE FROM inbox WHERE step = ?1 AND message_id IN
         (SELECT message_id FROM
              (SELECT message_id, handled_at FROM inbox WHERE step = ?1 AND message_id >= ?5 ORDER BY message_id LIMIT ?4)
          WHERE handled_at < ?2 LIMIT ?3)";
    let mut next_step = conn.prepare_cached("SELECT min(step) FROM inbox WHERE step > ?1")?;
    let (mut gone, mut last) = (0, String::new());
    while let Some(step) = next_step.query_row([&last], |row| row.get::<_, Option<String>>(0))? {
        for first in [Uuid::nil(), Uuid::from_u128(fastrand::u128(..))] {
            let limit = limit - i64::try_from(gone).unwrap_or(limit);
            let read = limit.saturating_mul(READ_FACTOR);
            gone +=
                conn.prepare_cached(DELETE)?.execute(params![step, micros(cutoff), limit, read, first])?;
        }
        last = step;
    }
    Ok(gone)
}
