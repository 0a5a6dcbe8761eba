//! Shell: whose turn it is to begin a batch, where several processes share a database. Batches are written one after the other
//! anyway, and those that change the same rows wait for each other: begun one after the other they are as large as those of
//! one process alone, and wait for nothing while they are under way.

use tokio::runtime::Handle;

use super::Database;
use super::pool::{Connection, Lane};
use crate::store::Turn;

/// The class of the lock, beside that of the names.
const TURN: i64 = 0x73_61_67_61_74;

/// Whoever waits longer begins without: one that stands still in its turn loses it with its connection, after five seconds
/// (`idle_in_transaction_session_timeout`), and until then holds the others up by this much a batch.
const WAITS_FOR_MS: u32 = 250;

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

/// Takes the turn, unless nobody else is there.
pub(super) async fn take(database: &Database) -> Option<Turn> {
    if !database.listening.is_anybody_there() {
        return None;
    }
    let conn = database.lanes.connection(Lane::Quick).await.ok()?;
    let sql = format!("BEGIN; SET LOCAL lock_timeout = {WAITS_FOR_MS}; SELECT pg_advisory_xact_lock({TURN})");
    // After a failure the transaction is over when the connection is closed.
    conn.client().batch_execute(&sql).await.ok()?;
    Some(Turn::of(Held(Some(conn))))
}
