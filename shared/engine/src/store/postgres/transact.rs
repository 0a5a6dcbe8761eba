//! Shell: one batch as one transaction, on a server that may break off at any place of it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jiff::Timestamp;
use saga_core::decision::{Decide, Loaded, Reads, Writes};
use saga_core::retry::{error_chain, panic_text};
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use super::Database;
use super::listening::Announced;
use super::load::load;
use super::pool::{Connection, Lane};
use super::values::{execute, is_collision, is_lost, micros, oops};
use super::write::{self, MESSAGE};
use crate::store::{OutboxEntry, StoreFault};

/// Others were first so often, or the connection was lost: then whoever asked may try again.
const TRIES: u32 = 4;

/// Between two tries to find out whether a commit was done.
const ASKS_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a batch has promised, and what of it is told to the others; `None` when nothing was written.
type Done = Option<(Vec<OutboxEntry>, Option<Announced>)>;

/// What became of a try.
enum Tried {
    Committed(Done),
    /// Nothing happened.
    Failed(StoreFault),
    /// The answer to the commit was lost.
    Unclear(Done, StoreFault),
}

pub(super) async fn transact(
    database: &Database,
    reads: &Reads,
    mut decide: Decide,
) -> Result<Vec<OutboxEntry>, StoreFault> {
    let mut tries = 0;
    loop {
        tries += 1;
        let token = Uuid::now_v7();
        let fault = match once(database, reads, &mut decide, token).await {
            Tried::Committed(done) => return Ok(told(database, done)),
            Tried::Unclear(done, fault) => match was_committed(database, token, &fault).await {
                true => return Ok(told(database, done)),
                false => fault,
            },
            Tried::Failed(fault) => fault,
        };
        let may_go_well = match &fault {
            // It was read, and is read anew.
            StoreFault::Conflict(key) => key.kind == MESSAGE || reads.rows.contains(key),
            StoreFault::Database { .. } | StoreFault::Refused { .. } => {
                is_collision(&fault) || is_lost(&fault)
            }
            StoreFault::Unusable(_) | StoreFault::Panicked(_) | StoreFault::Closed => false,
        };
        if tries == TRIES || !may_go_well {
            return Err(fault);
        }
    }
}

/// Tells the others. Answers what was promised.
fn told(database: &Database, done: Done) -> Vec<OutboxEntry> {
    let Some((promised, announced)) = done else { return vec![] };
    if let Some(announced) = announced {
        database.listening.say(&announced);
    }
    promised
}

async fn once(database: &Database, reads: &Reads, decide: &mut Decide, token: Uuid) -> Tried {
    let conn = match database.lanes.connection(Lane::Quick).await {
        Ok(conn) => conn,
        Err(fault) => return Tried::Failed(fault),
    };
    // Unless it comes to a clean end, the connection is closed, and with it the transaction.
    let (done, how) = match written(&conn, database, reads, decide, token).await {
        Ok(Some(done)) => (Ok(Some(done)), "COMMIT"),
        Ok(None) => (Ok(None), "ROLLBACK"),
        Err(fault) => (Err(fault), "ROLLBACK"),
    };
    let ended = end(&conn, how).await;
    if ended.is_ok() {
        conn.give_back();
    }
    match (done, ended) {
        (Err(fault), _) => Tried::Failed(fault),
        (Ok(done), Ok(())) => Tried::Committed(done),
        (Ok(Some(done)), Err(fault)) => Tried::Unclear(Some(done), fault),
        (Ok(None), Err(fault)) => Tried::Failed(fault),
    }
}

async fn end(conn: &Connection, how: &'static str) -> Result<(), StoreFault> {
    conn.client().batch_execute(how).await.map_err(oops("ending a batch"))
}

/// Everything but the commit; `None` when there was nothing to write.
async fn written(
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
        begun.map_err(oops("beginning a batch"))?;
        let (as_of, loaded) = loaded?;
        let mut writes = decided(decide, Loaded { also_read: also_read.clone(), ..loaded })?;
        if writes.to_read.is_empty() {
            if writes.is_empty() && writes.events.is_empty() {
                return Ok(None);
            }
            let (promised, generation) = write::write(conn, &database.kinds, as_of, &writes, token).await?;
            database.turns.wrote(generation, Instant::now());
            return Ok(Some((promised, database.listening.announced(&writes, database.lead.is_held()))));
        }
        // From the beginning: rows are locked in their order, or two batches would wait for each other.
        also_read.append(&mut writes.to_read);
        all.rows.extend(also_read.iter().cloned());
        end(conn, "ROLLBACK").await?;
    }
}

fn decided(decide: &mut Decide, loaded: Loaded) -> Result<Writes, StoreFault> {
    catch_unwind(AssertUnwindSafe(|| decide(loaded)))
        .map_err(|panic| StoreFault::Panicked(panic_text(panic.as_ref()).to_owned()))
}

/// Finds out whether a batch was committed whose answer was lost; until it is known nothing may be said of it.
async fn was_committed(database: &Database, token: Uuid, lost: &StoreFault) -> bool {
    warn!("the answer to a commit was lost, asking what became of it: {}", error_chain(lost));
    loop {
        match asked(database, token).await {
            Ok(was_committed) => return was_committed,
            Err(fault) => warn!("whether a batch was committed is not known yet: {}", error_chain(&fault)),
        }
        tokio::time::sleep(ASKS_AGAIN_AFTER).await;
    }
}

/// Writes its token once more, and takes that back: the write waits for a commit that is still under way.
async fn asked(database: &Database, token: Uuid) -> Result<bool, StoreFault> {
    let context = "asking whether a batch was committed";
    let conn = database.lanes.connection(Lane::Quick).await?;
    conn.client().batch_execute("BEGIN").await.map_err(oops(context))?;
    let sql = "INSERT INTO batch (token, committed_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let new = execute(&conn, sql, &[&token, &micros(Timestamp::now())]).await.map_err(oops(context))?;
    conn.client().batch_execute("ROLLBACK").await.map_err(oops(context))?;
    conn.give_back();
    Ok(new == 0)
}
