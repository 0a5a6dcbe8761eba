//! Shell: the store on PostgreSQL, which several replicas may share.
//!
//! Batches are written one after the other, each holding the lock on the head of the database (`write`). A batch that was
//! decided on something that another one changed is a conflict, and is decided again. Rows, tasks and dead letters are locked
//! when they are loaded, in the order of their keys, and before the head.

mod commit_order;
mod db_location;
mod db_open;
mod due_work;
mod history;
mod history_at;
mod instance_names;
mod leadership;
mod leases;
mod load;
mod monitoring;
mod notify;
mod outbox;
mod overrides;
mod pool;
mod queries;
mod retention;
mod roles;
mod schema;
mod statements;
mod transact;
mod trim;
mod values;
mod watched_kinds;
mod write;
mod write_waiting;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use saga_core::row::RowKind;
use tokio::time::{Instant, sleep};
use tracing::warn;

use self::commit_order::Turns;
pub use self::db_location::DbLocation;
use self::leadership::Leadership;
use self::leases::DeadOwners;
use self::notify::{Announcement, Notifications};
use self::pool::{Connection, Lane, Lanes};
use self::values::{db_fault, is_lost};
use super::{Answer, OpenOptions, StoreFault};

/// Minimum interval of settlements. Each is a commit of its own, with a sync; SQLite defers one to its next commit instead.
pub const MIN_SETTLE_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of attempts to reach a server at the start.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Database on a server that several replicas of a service may share.
pub struct PostgresStore {
    database: Arc<Database>,
}

struct Database {
    lanes: Lanes,
    kinds: Kinds,
    notifications: Notifications,
    turns: Turns,
    dead_owners: DeadOwners,
    leadership: Leadership,
}

struct Kinds(Vec<RowKind>);

impl Kinds {
    fn of_name(&self, name: &str) -> Result<&RowKind, StoreFault> {
        let declared = self.0.iter().find(|declared| declared.name == name);
        declared.ok_or_else(|| StoreFault::Unusable(format!("rows of kind {name:?} are not declared")))
    }
}

impl PostgresStore {
    /// Opens the database, and brings its tables up to date.
    ///
    /// # Errors
    /// [`StoreFault::Unusable`] with the reason. Examples are a missing server or database, an old server, missing rights, and
    /// tables of a newer build or another service. Nothing was changed then.
    pub async fn open(
        location: &DbLocation,
        kinds: Vec<RowKind>,
        options: &OpenOptions<'_>,
    ) -> Result<Self, StoreFault> {
        let reason = |fault: StoreFault| format!("database {location}: {}", db_open::unusable(&fault));
        let (began, mut has_warned) = (Instant::now(), false);
        loop {
            match Self::try_open(location, kinds.clone(), options).await {
                // The server may have been started a moment ago.
                Err(fault) if is_lost(&fault) && began.elapsed() < options.wait => {
                    if !std::mem::replace(&mut has_warned, true) {
                        warn!("waiting for {:?} at most: {}", options.wait, reason(fault));
                    }
                    sleep(RETRY_EVERY).await;
                }
                opened => return opened.map_err(|fault| StoreFault::Unusable(reason(fault))),
            }
        }
    }

    async fn try_open(
        location: &DbLocation,
        kinds: Vec<RowKind>,
        options: &OpenOptions<'_>,
    ) -> Result<Self, StoreFault> {
        let (lanes, kinds) = (Lanes::of(location)?, Kinds(kinds));
        let conn = lanes.connection(Lane::Scan).await?;
        db_open::check_before(&conn, &kinds.0, options.service, options.must_exist).await?;
        let prepared = async {
            conn.client().batch_execute("BEGIN").await.map_err(db_fault("beginning to make tables"))?;
            schema::prepare(&conn, &kinds.0).await?;
            // Another process may have created them meanwhile.
            db_open::check_before(&conn, &kinds.0, options.service, false).await?;
            db_open::identify(&conn, options.service).await?;
            conn.client().batch_execute("COMMIT").await.map_err(db_fault("making tables"))
        };
        // Takes the replica's name before anything is changed: another process may have it.
        let notifications = Notifications::start(location, &kinds.0, options).await?;
        prepared.await?;
        conn.give_back();
        let database = Database {
            lanes,
            kinds,
            notifications,
            turns: Turns::new(Instant::now()),
            dead_owners: DeadOwners::new(options.instance.to_owned()),
            leadership: Leadership::none(),
        };
        Ok(Self { database: Arc::new(database) })
    }

    /// Runs `work` in a transaction. Dropping the future does not interrupt it.
    fn write<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>
        + Send
        + 'static,
    ) -> Answer<'_, T> {
        let database = self.database.clone();
        spawned(async move { in_transaction(&database, lane, "BEGIN", work).await })
    }

    /// Notifies the other replicas once `work` has succeeded.
    fn announcing<'a, T: Send + 'a>(
        &'a self,
        announcement: Announcement,
        work: Answer<'a, T>,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = work.await?;
            self.database.notifications.send(&announcement);
            Ok(answer)
        })
    }

    /// Reads by one statement, or by some that need no common snapshot. Dropping the future cancels it.
    fn read<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>
        + Send
        + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let conn = self.database.lanes.connection(lane).await?;
            let answer = work(&conn, &self.database.kinds).await;
            conn.give_back();
            answer
        })
    }

    /// Reads in one snapshot. Dropping the future cancels it.
    fn snapshot<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>
        + Send
        + 'static,
    ) -> Answer<'_, T> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        Box::pin(in_transaction(&self.database, lane, begin, work))
    }
}

/// Runs `work` in a transaction. Closes the connection unless the transaction ends cleanly.
async fn in_transaction<T>(
    database: &Database,
    lane: Lane,
    begin: &str,
    work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>,
) -> Result<T, StoreFault> {
    let conn = database.lanes.connection(lane).await?;
    conn.client().batch_execute(begin).await.map_err(db_fault("beginning a transaction"))?;
    let done = work(&conn, &database.kinds).await;
    let how = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = conn.client().batch_execute(how).await.map_err(db_fault("ending a transaction"));
    if ended.is_ok() {
        conn.give_back();
    }
    done.and_then(|answer| ended.map(|()| answer))
}

/// Runs `work` to its end, even if the future is dropped.
fn spawned<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreFault>> + Send + 'static,
) -> Answer<'static, T> {
    Box::pin(async move {
        match tokio::spawn(work).await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => Err(StoreFault::Closed),
            },
        }
    })
}
