//! Shell: runs one batch as one transaction, on a server that may fail at any point of it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use saga_core::decision::{Decide, Loaded, Reads, Writes};
use saga_core::retry::panic_text;
use tokio::time::Instant;
use uuid::Uuid;

use super::Database;
use super::commit::{Attempt, Attempts, commit};
use super::load::load;
use super::notify::Announcement;
use super::pool::Connection;
use super::values::{is_collision, is_lost};
use super::write::{self, MESSAGE};
use crate::store::backend::Lane;
use crate::store::sql::Sql as _;
use crate::store::sql_error::db_fault;
use crate::store::{OutboxEntry, StoreFault};

/// Batch that was written; `None` if there was nothing to write.
type Done = Option<Written>;

struct Written {
    entries: Vec<OutboxEntry>,
    /// Announcement for other replicas.
    announcement: Option<Announcement>,
    /// Generation of the database that the batch made.
    generation: i64,
}

struct BatchAttempts<'a> {
    database: &'a Database,
    reads: &'a Reads,
    decide: Decide,
}

pub(super) async fn transact(
    database: &Database,
    reads: &Reads,
    decide: Decide,
) -> Result<Vec<OutboxEntry>, StoreFault> {
    let done = commit(BatchAttempts { database, reads, decide }).await?;
    Ok(committed(database, done))
}

impl Attempts for BatchAttempts<'_> {
    type Done = Done;

    async fn attempt(&mut self, token: Uuid) -> Attempt<Done> {
        attempt(self.database, self.reads, &mut self.decide, token).await
    }

    async fn is_committed(&mut self, token: Uuid) -> Result<bool, StoreFault> {
        is_committed(self.database, token).await
    }

    fn may_succeed(&self, fault: &StoreFault) -> bool {
        match fault {
            // The row or message is read again.
            StoreFault::Conflict(key) => key.kind == MESSAGE || self.reads.rows.contains(key),
            StoreFault::Database { .. } | StoreFault::Rejected { .. } => {
                is_collision(fault) || is_lost(fault)
            }
            StoreFault::Unusable(_)
            | StoreFault::DataLost(_)
            | StoreFault::Panicked(_)
            | StoreFault::Closed => false,
        }
    }
}

/// Records a committed batch, and notifies the other replicas. Returns the outbox entries.
fn committed(database: &Database, done: Done) -> Vec<OutboxEntry> {
    let Some(Written { entries, announcement, generation }) = done else { return vec![] };
    database.highest_position.raise_generation(generation);
    if let Some(announcement) = announcement {
        database.notifications.send(&announcement);
    }
    entries
}

async fn attempt(database: &Database, reads: &Reads, decide: &mut Decide, token: Uuid) -> Attempt<Done> {
    let conn = match database.connection(Lane::Row).await {
        Ok(conn) => conn,
        Err(fault) => return Attempt::Failed(fault),
    };
    // Without a clean end, the connection is closed, and with it the transaction.
    let (done, how) = match load_and_write(&conn, database, reads, decide, token).await {
        Ok(Some(done)) => (Ok(Some(done)), "COMMIT"),
        Ok(None) => (Ok(None), "ROLLBACK"),
        Err(fault) => (Err(fault), "ROLLBACK"),
    };
    let ended = end(&conn, how).await;
    if ended.is_ok() {
        database.lanes.release(conn, done.as_ref().err());
    }
    match (done, ended) {
        (Err(fault), _) => Attempt::Failed(fault),
        (Ok(done), Ok(())) => Attempt::Committed(done),
        (Ok(Some(done)), Err(fault)) => Attempt::Unclear(Some(done), fault),
        (Ok(None), Err(fault)) => Attempt::Failed(fault),
    }
}

async fn end(conn: &Connection, how: &'static str) -> Result<(), StoreFault> {
    conn.client().batch_execute(how).await.map_err(db_fault("ending a batch"))
}

/// Does everything but the commit; `None` if there was nothing to write.
async fn load_and_write(
    conn: &Connection,
    database: &Database,
    reads: &Reads,
    decide: &mut Decide,
    token: Uuid,
) -> Result<Done, StoreFault> {
    let mut all = reads.clone();
    let mut also_read = BTreeSet::new();
    loop {
        let (begun, loaded) =
            futures::join!(conn.client().batch_execute("BEGIN"), load(conn, &database.kinds, &all));
        begun.map_err(db_fault("beginning a batch"))?;
        let (assumptions, loaded) = loaded?;
        let mut writes = catch_decide(decide, Loaded { also_read: also_read.clone(), ..loaded })?;
        if writes.to_read.is_empty() {
            if writes.is_empty() && writes.events.is_empty() {
                return Ok(None);
            }
            let (entries, generation) = write::write(conn, database, assumptions, &writes, token).await?;
            database.turns.add_batch(generation, Instant::now());
            let announcement = database.notifications.announcement_of(&writes, database.leadership.is_held());
            return Ok(Some(Written { entries, announcement, generation }));
        }
        // Starts over, because rows must be locked in order: otherwise batches would deadlock.
        also_read.append(&mut writes.to_read);
        all.rows.extend(also_read.iter().cloned());
        end(conn, "ROLLBACK").await?;
    }
}

/// Runs `decide` and turns a panic into a fault.
fn catch_decide(decide: &mut Decide, loaded: Loaded) -> Result<Writes, StoreFault> {
    catch_unwind(AssertUnwindSafe(|| decide(loaded)))
        .map_err(|panic| StoreFault::Panicked(panic_text(panic.as_ref()).to_owned()))
}

/// Inserts the token of the batch once more, and rolls back. The insertion waits for a commit in progress.
async fn is_committed(database: &Database, token: Uuid) -> Result<bool, StoreFault> {
    let context = "checking whether a batch was committed";
    let conn = database.connection(Lane::Row).await?;
    conn.client().batch_execute("BEGIN").await.map_err(db_fault(context))?;
    let sql = "INSERT INTO batch (token, committed_at) VALUES ($1, 0) ON CONFLICT DO NOTHING";
    let new = conn.execute(sql, &[&token]).await.map_err(db_fault(context))?;
    conn.client().batch_execute("ROLLBACK").await.map_err(db_fault(context))?;
    conn.give_back();
    Ok(new == 0)
}
