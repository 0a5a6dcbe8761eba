//! Shell: the store on PostgreSQL, which several replicas may share.
//!
//! Batches are written one after the other, each holding the lock on the head of the database (`write`). A batch that was
//! decided on something that another one changed is a conflict, and is decided again. Rows, tasks and dead letters are locked
//! when they are loaded, in the order of their keys, and before the head.

pub mod commit;
mod commit_order;
mod db_location;
mod db_open;
mod instance_names;
mod leadership;
mod leases;
mod load;
mod notify;
mod pool;
mod pooler;
mod schema;
mod sql;
mod statements;
mod transact;
mod values;
mod watched_kinds;
mod write;
mod write_waiting;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::decision::{Decide, Reads};
use saga_core::row::RowKind;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::warn;

use self::commit_order::Turns;
pub use self::db_location::DbLocation;
use self::leadership::Leadership;
use self::leases::DeadOwners;
use self::notify::{Announcement, Notifications};
use self::pool::{Connection, Lanes, is_short};
use self::values::{is_lost, is_unanswered};
use super::backend::{Backend, DiskUse, Kinds, Lane, LocationCheck, Urgency, Work};
use super::highest_position::HighestPosition;
use super::identity::identify;
use super::log_scan::LogScan;
use super::roles::{Replicas, Transactions};
use super::sql_error::{db_fault, is_full};
use super::write_health::WriteHealth;
use super::{Answer, Guard, OpenOptions, OutboxEntry, ReplicaSignal, StoreFault};

/// Minimum interval of settlements. Each is a commit of its own, with a sync; SQLite defers one to its next commit instead.
pub const MIN_SETTLE_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of attempts to reach a server at the start.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Database on a server that several replicas of a service may share.
pub struct PostgresStore {
    database: Arc<Database>,
    log_scan: Arc<Mutex<Option<LogScan>>>,
}

struct Database {
    lanes: Lanes,
    highest_position: HighestPosition,
    write_health: WriteHealth,
    kinds: Arc<Kinds>,
    notifications: Notifications,
    turns: Turns,
    dead_owners: DeadOwners,
    leadership: Leadership,
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
                // The server may have been started a moment ago, or its disk be full for a moment.
                Err(fault)
                    if (is_lost(&fault) || is_unanswered(&fault) || is_short(&fault) || is_full(&fault))
                        && began.elapsed() < options.wait =>
                {
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
        pooler::check(location).await?;
        let (lanes, kinds) =
            (Lanes::of(location, options.max_connections.saturating_sub(1))?, Arc::new(Kinds(kinds)));
        let conn = lanes.connection(Lane::Scan).await?;
        db_open::check_before(&conn, &kinds.0, options.service, options.must_exist).await?;
        let prepared = async {
            conn.client().batch_execute("BEGIN").await.map_err(db_fault("beginning to make tables"))?;
            schema::prepare(&conn, &kinds.0).await?;
            // Another process may have created them meanwhile.
            db_open::check_before(&conn, &kinds.0, options.service, false).await?;
            identify(&conn, options.service).await?;
            conn.client().batch_execute("COMMIT").await.map_err(db_fault("making tables"))
        };
        // Takes the replica's name before anything is changed: another process may have it.
        let notifications = Notifications::start(location, &kinds.0, options).await?;
        prepared.await?;
        conn.give_back();
        let database = Database {
            lanes,
            highest_position: HighestPosition::default(),
            write_health: WriteHealth::default(),
            kinds,
            notifications,
            turns: Turns::new(Instant::now()),
            dead_owners: DeadOwners::new(options.instance.to_owned()),
            leadership: Leadership::none(),
        };
        Ok(Self { database: Arc::new(database), log_scan: Arc::default() })
    }
}

impl Database {
    /// Takes a free connection of this lane, unless the database has gone back in time.
    async fn connection(&self, lane: Lane) -> Result<Connection, StoreFault> {
        self.highest_position.check()?;
        self.lanes.connection(lane).await
    }
}

impl Backend for PostgresStore {
    type Conn = Connection;

    const MIN_SETTLE_INTERVAL: Duration = MIN_SETTLE_INTERVAL;

    fn kinds(&self) -> &Arc<Kinds> {
        &self.database.kinds
    }

    fn log_scan(&self) -> &Arc<Mutex<Option<LogScan>>> {
        &self.log_scan
    }

    fn highest_position(&self) -> &HighestPosition {
        &self.database.highest_position
    }

    fn read<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        args: A,
        work: Work<Connection, A, T>,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let conn = self.database.connection(lane).await?;
            let answer = work(&conn, &args).await;
            self.database.lanes.release(conn, answer.as_ref().err());
            answer
        })
    }

    fn snapshot<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        args: A,
        work: Work<Connection, A, T>,
    ) -> Answer<'_, T> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        Box::pin(in_transaction(&self.database, lane, begin, args, work))
    }

    fn write<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        urgency: Urgency,
        args: A,
        work: Work<Connection, A, T>,
    ) -> Answer<'_, T> {
        let lane = match urgency {
            Urgency::Immediate | Urgency::Deferrable => Lane::Row,
            Urgency::Long => Lane::Scan,
        };
        let database = self.database.clone();
        spawned(async move {
            let in_progress = urgency.is_short().then(|| database.write_health.begin());
            let written = in_transaction(&database, lane, "BEGIN", args, work).await;
            if let Some(in_progress) = in_progress {
                in_progress.end(&written);
            }
            written
        })
    }

    fn notify(&self, signal: ReplicaSignal) {
        self.database.notifications.send(&Announcement::of_signal(&signal));
    }

    fn write_health(&self) -> &WriteHealth {
        &self.database.write_health
    }

    fn location_check(&self) -> LocationCheck {
        Arc::new(|| Ok(DiskUse::default()))
    }
}

impl Transactions for PostgresStore {
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        let database = self.database.clone();
        spawned(async move {
            let in_progress = database.write_health.begin();
            let written = transact::transact(&database, &reads, decide).await;
            in_progress.end(&written);
            written
        })
    }

    fn wait_for_turn(&self) -> BoxFuture<'_, Option<Guard>> {
        Box::pin(commit_order::wait_for_turn(&self.database))
    }
}

impl Replicas for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn signals(&self) -> Option<mpsc::Receiver<ReplicaSignal>> {
        self.database.notifications.signals()
    }

    fn watch_kind(&self, kind: &'static str) -> Option<Guard> {
        Some(self.database.notifications.watch_kind(kind))
    }

    fn leadership(&self) -> Option<watch::Receiver<bool>> {
        Some(self.database.leadership.subscribe())
    }
}

/// Runs `work` in a transaction. Closes the connection unless the transaction ends cleanly.
async fn in_transaction<A, T>(
    database: &Database,
    lane: Lane,
    begin: &str,
    args: A,
    work: Work<Connection, A, T>,
) -> Result<T, StoreFault> {
    let conn = database.connection(lane).await?;
    commit_order::begin(&conn, begin, &database.highest_position).await?;
    let done = work(&conn, &args).await;
    let how = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = conn.client().batch_execute(how).await.map_err(db_fault("ending a transaction"));
    if ended.is_ok() {
        database.lanes.release(conn, done.as_ref().err());
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
