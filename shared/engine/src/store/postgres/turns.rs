//! Shell: whose turn it is to begin a batch, where several processes share a database. Batches are written one after the other
//! anyway, and those that change the same rows wait for each other: begun one after the other they are as large as those of
//! one process alone, and wait for nothing while they are under way.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::Database;
use super::pool::{Connection, Lane};
use crate::store::Guard;

/// The class of the lock, beside that of the names.
const TURN: i64 = 0x73_61_67_61_74;

/// Whoever waits longer begins without: one that stands still in its turn loses it with its connection, after five seconds
/// (`idle_in_transaction_session_timeout`), and until then holds the others up by this much a batch.
const WAITS_FOR_MS: u32 = 250;

/// Whoever has seen no batch of another for so long begins without.
const OTHERS_WRITE_WITHIN: Duration = Duration::from_secs(1);

/// Whether others write at the same time, as this process's own batches show.
pub(super) struct Turns(Mutex<Seen>);

struct Seen {
    /// The generation of the database that the last batch made.
    generation: i64,
    /// When a batch was seen to follow one of another process, or something else that changed the database: a turn too many
    /// costs a moment.
    others_at: Instant,
}

impl Turns {
    pub(super) const fn new(now: Instant) -> Self {
        Self(Mutex::new(Seen { generation: 0, others_at: now }))
    }

    /// A batch of this process makes this generation.
    pub(super) fn wrote(&self, generation: i64, now: Instant) {
        let mut seen = self.0.lock();
        if generation != seen.generation + 1 {
            seen.others_at = now;
        }
        seen.generation = generation;
    }

    fn do_others_write(&self, now: Instant) -> bool {
        now.duration_since(self.0.lock().others_at) < OTHERS_WRITE_WITHIN
    }
}

/// A connection in a transaction that holds the lock.
struct Held(Option<Connection>);

impl Drop for Held {
    fn drop(&mut self) {
        // Without a runtime the connection is closed, and the lock is gone with it.
        if let (Some(conn), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if conn.client().batch_execute("COMMIT").await.is_ok() {
                    conn.give_back();
                }
            });
        }
    }
}

/// Takes the turn, unless nobody else is there, or nobody else writes.
pub(super) async fn take(database: &Database) -> Option<Guard> {
    if !database.listening.is_anybody_there() || !database.turns.do_others_write(Instant::now()) {
        return None;
    }
    let conn = database.lanes.connection(Lane::Quick).await.ok()?;
    let sql = format!("BEGIN; SET LOCAL lock_timeout = {WAITS_FOR_MS}; SELECT pg_advisory_xact_lock({TURN})");
    // After a failure the transaction is over when the connection is closed.
    conn.client().batch_execute(&sql).await.ok()?;
    Some(Guard::of(Held(Some(conn))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_for_a_while_after_a_batch_that_followed_one_of_another() {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let turns = Turns::new(origin);
        assert!(turns.do_others_write(at(999)), "nothing is known yet");
        turns.wrote(7, at(1_000));
        turns.wrote(8, at(1_500));
        assert!(turns.do_others_write(at(1_999)), "the first followed somebody's");
        turns.wrote(9, at(1_999));
        assert!(!turns.do_others_write(at(2_000)));
        turns.wrote(11, at(3_000));
        assert!(turns.do_others_write(at(3_999)));
    }
}
