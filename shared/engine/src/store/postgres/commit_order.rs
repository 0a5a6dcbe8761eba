//! Shell: order of commits between replicas: the head, which writers lock, and turns to begin a batch.
//!
//! Batches are written one after the other anyway, and those that change the same rows wait for each other. Replicas that
//! begin their batches in turns write batches as large as those of a single process, and wait less in transactions.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::SimpleQueryMessage;

use super::Database;
use super::pool::Connection;
use crate::store::backend::Lane;
use crate::store::highest_position::HighestPosition;
use crate::store::sql::Sql as _;
use crate::store::sql_error::{SqlError, db_fault};
use crate::store::{Guard, StoreFault};

/// Locks the head of the database until the end of the transaction. Waits for the batch that holds it, and sees its writes.
pub(super) async fn lock_head(conn: &Connection) -> Result<(), SqlError> {
    conn.execute("UPDATE head SET generation = generation + 1", &[]).await.map(drop)
}

/// Begins a transaction by the statement `begin`, on a database that has not gone back in time.
pub(super) async fn begin(
    conn: &Connection,
    begin: &str,
    highest: &HighestPosition,
) -> Result<(), StoreFault> {
    let known = highest.known_generation();
    let begun = conn.client().simple_query(&format!("{begin}; SELECT generation FROM head")).await;
    let begun = begun.map_err(db_fault("beginning a transaction"))?;
    let generation = begun.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)?.parse().ok()
    });
    highest.compare_generation(known, generation.unwrap_or(0))
}

/// Advisory lock of the turn.
const TURN: i64 = 0x73_61_67_61_74;

/// Maximum wait for a turn, in milliseconds. A replica that hangs in its turn loses it after five seconds, with its connection
/// (`idle_in_transaction_session_timeout`). Until then it delays each batch of the others by this.
const MAX_WAIT_MS: u32 = 250;

/// Time after which a replica takes no turns any more, if it saw no batch of another.
const OTHERS_WRITE_WITHIN: Duration = Duration::from_secs(1);

/// Observation of other writers, by the generations of this replica's own batches.
pub(super) struct Turns(Mutex<Seen>);

struct Seen {
    /// Generation of the last batch.
    generation: i64,
    /// Time of the last batch that followed a change by another process. A needless turn costs little.
    others_at: Instant,
}

impl Turns {
    pub(super) const fn new(now: Instant) -> Self {
        Self(Mutex::new(Seen { generation: 0, others_at: now }))
    }

    /// Records a batch of this replica that made a generation.
    pub(super) fn add_batch(&self, generation: i64, now: Instant) {
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

/// Connection in a transaction that holds the turn.
struct Turn(Option<Connection>);

impl Drop for Turn {
    fn drop(&mut self) {
        // Without a runtime the connection is closed, which releases the lock as well.
        if let (Some(conn), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if conn.client().batch_execute("COMMIT").await.is_ok() {
                    conn.give_back();
                }
            });
        }
    }
}

/// Takes a turn, unless no other replica runs, or none writes.
pub(super) async fn wait_for_turn(database: &Database) -> Option<Guard> {
    if !database.lanes.has_spare()
        || !database.notifications.has_others()
        || !database.turns.do_others_write(Instant::now())
    {
        return None;
    }
    let (conn, spare) = (database.connection(Lane::Row).await.ok()?, database.connection(Lane::Row));
    // The batch needs a connection beside that of its turn. A server may have no other.
    match timeout(Duration::from_millis(MAX_WAIT_MS.into()), spare).await {
        Ok(Ok(spare)) => spare.give_back(),
        Ok(Err(_)) | Err(_) => {
            conn.give_back();
            return None;
        }
    }
    let sql = format!("BEGIN; SET LOCAL lock_timeout = {MAX_WAIT_MS}; SELECT pg_advisory_xact_lock({TURN})");
    // On failure the connection is closed, which ends the transaction.
    conn.client().batch_execute(&sql).await.ok()?;
    Some(Guard::of(Turn(Some(conn))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_for_one_second_after_batch_of_another_replica() {
        let origin = Instant::now();
        let at = |millis| origin + Duration::from_millis(millis);
        let turns = Turns::new(origin);
        assert!(turns.do_others_write(at(999)), "nothing is known yet");
        turns.add_batch(7, at(1_000));
        turns.add_batch(8, at(1_500));
        assert!(turns.do_others_write(at(1_999)), "the first followed another's");
        turns.add_batch(9, at(1_999));
        assert!(!turns.do_others_write(at(2_000)));
        turns.add_batch(11, at(3_000));
        assert!(turns.do_others_write(at(3_999)));
    }
}
