//! Shell: connection pools for short and for long statements. Work whose future is dropped is cancelled, and no connection
//! returns to its pool with unfinished work.
//!
//! A server, a database or a role may allow fewer connections than the pools may open. Then a pool makes do with those
//! that it has: whoever needs one waits until another is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, PoolError, QueueMode,
    RecyclingMethod, Runtime,
};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::CancelToken;
use tokio_postgres::error::SqlState;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::db_location::{DbLocation, Tls};
use crate::reloaded::Kept;
use crate::store::StoreFault;
use crate::store::backend::Lane;
use crate::store::sql_error::is_read_only;

/// Share of the connections that is for long work: one in three.
const SCAN_SHARE: usize = 3;

/// Maximum wait for a free or new connection.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Age at which a connection is replaced. Bounds the time for which work stays on a server that is not the primary any
/// more, if that says nothing about it.
const MAX_AGE: Duration = Duration::from_mins(10);
/// Time after which an unused connection is closed.
const IDLE_FOR: Duration = Duration::from_secs(10);
/// Time after which it is closed while the server has no more connections: others need them.
const IDLE_WHEN_SHORT: Duration = Duration::from_secs(2);
/// Interval of the check for unused and old connections.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Time after which a pool tries to open another connection, after the server had no more.
const SHORT_FOR: Duration = Duration::from_secs(2);
/// Pause between attempts to open the only connection.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// Session settings for short work. It uses indexes whatever the table statistics say: statements are planned once for each
/// connection. A process that hangs in a transaction delays the others by the idle time-out at most.
const QUICK_SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off; \
     SET lock_timeout = '10s'; SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '5s'; \
     SET synchronous_commit = on";
/// Session settings for long work.
const SCAN_SETTINGS: &str = "SET jit = off; SET idle_in_transaction_session_timeout = '60s'; \
     SET statement_timeout = 0; SET synchronous_commit = on";

/// Connection pools of a database, one for each lane.
pub(super) struct Lanes {
    quick: Arc<LanePool>,
    scan: Arc<LanePool>,
    tls: Kept<Tls>,
    /// Grows when all connections so far are to be replaced.
    epoch: Arc<AtomicU64>,
    _upkeep: AbortOnDropHandle<()>,
}

impl Lanes {
    /// Pools of at most `max_connections` together.
    pub(super) fn of(place: &DbLocation, max_connections: usize) -> Result<Self, StoreFault> {
        let scan = (max_connections / SCAN_SHARE).max(1);
        let quick = max_connections.saturating_sub(scan).max(1);
        let quick = Arc::new(LanePool::of(place, QUICK_SETTINGS, quick)?);
        let scan = Arc::new(LanePool::of(place, SCAN_SETTINGS, scan)?);
        let pools = [quick.clone(), scan.clone()];
        let upkeep = tokio::spawn(async move {
            loop {
                sleep(CHECK_EVERY).await;
                pools.iter().for_each(|pool| pool.close_unused());
            }
        });
        let (tls, epoch) = (place.tls.clone(), Arc::default());
        Ok(Self { quick, scan, tls, epoch, _upkeep: AbortOnDropHandle::new(upkeep) })
    }

    /// Takes a free connection of this lane.
    pub(super) async fn connection(&self, lane: Lane) -> Result<Connection, StoreFault> {
        let until = Instant::now() + MAX_WAIT;
        let epoch = self.epoch.load(Ordering::Relaxed);
        let (object, permit) = match lane {
            Lane::Relay | Lane::Health | Lane::Row => {
                // Connections for long work make room.
                let make_room = || {
                    self.scan.pool.retain(|_, _| false);
                    true
                };
                self.quick.take(until, make_room).await?
            }
            // Without one of its own, long work uses the connections for short work.
            Lane::Scan | Lane::Verification => match self.scan.take(until, || false).await {
                Err(fault) if is_short(&fault) => self.quick.take(until, || true).await?,
                taken => taken?,
            },
        };
        let cancel = object.cancel_token();
        let (tls, current) = (self.tls.clone(), self.epoch.clone());
        Ok(Connection { object: Some(object), cancel, tls, epoch, current, _permit: permit })
    }

    /// True unless the server had no more connections for short work a moment ago.
    pub(super) fn has_spare(&self) -> bool {
        self.quick.shortage.lock().last.is_none()
    }

    /// Gives back a connection whose work is finished, with the fault of that work. Replaces all connections after a fault of
    /// a server that is not the primary any more.
    pub(super) fn release(&self, conn: Connection, fault: Option<&StoreFault>) {
        if fault.is_some_and(is_read_only) {
            warn!("the database server takes no writes any more, connecting anew");
            self.epoch.fetch_add(1, Ordering::Relaxed);
            for lane in [&self.quick, &self.scan] {
                lane.pool.retain(|_, _| false);
            }
        }
        conn.give_back();
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.quick.pool.close();
        self.scan.pool.close();
    }
}

/// Connections of one lane.
struct LanePool {
    pool: Pool,
    size: usize,
    /// Permits to hold a connection: `size`, without the withheld ones.
    permits: Arc<Semaphore>,
    shortage: Arc<Mutex<Shortage>>,
}

/// Connections that the server does not have.
#[derive(Debug, Default)]
struct Shortage {
    /// Number of permits that nobody gets.
    withheld: usize,
    /// Time of the last attempt to open another connection.
    last: Option<Instant>,
}

impl LanePool {
    fn of(place: &DbLocation, settings: &'static str, size: usize) -> Result<Self, StoreFault> {
        let recycling_method = RecyclingMethod::Fast;
        let (config, connect) = (place.config.clone(), place.clone().with_settings(settings));
        let manager = Manager::from_connect(config, connect, ManagerConfig { recycling_method });
        let shortage = Arc::new(Mutex::new(Shortage::default()));
        let seen = shortage.clone();
        let replace_old =
            Hook::sync_fn(move |_, metrics: &Metrics| match is_too_old(metrics, &seen.lock()) {
                true => Err(HookError::message("it is to be replaced")),
                false => Ok(()),
            });
        let pool = Pool::builder(manager)
            .max_size(size)
            // Prefers the connection that was used last: its plans are warm.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(MAX_WAIT))
            .create_timeout(Some(MAX_WAIT))
            .recycle_timeout(Some(MAX_WAIT))
            .pre_recycle(replace_old)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| StoreFault::Unusable(format!("no connection pool can be made: {error}")))?;
        Ok(Self { pool, size, permits: Arc::new(Semaphore::new(size)), shortage })
    }

    /// Takes a connection until a time. While the server has no more, waits for one of those that the pool has. Without any,
    /// tries again if `may_wait`.
    async fn take(
        &self,
        until: Instant,
        may_wait: impl Fn() -> bool,
    ) -> Result<(Object, OwnedSemaphorePermit), StoreFault> {
        let context = "connecting to the database";
        loop {
            self.grow();
            let permit = match timeout_at(until, self.permits.clone().acquire_owned()).await {
                Ok(permit) => permit.map_err(|_| StoreFault::Closed)?,
                Err(_) => {
                    let late = format!("no connection was free within {MAX_WAIT:?}");
                    return Err(StoreFault::Database { context, source: late.into() });
                }
            };
            let error = match self.pool.get().await {
                Ok(object) => return Ok((object, permit)),
                Err(PoolError::Backend(error)) => error,
                Err(PoolError::Closed | PoolError::NoRuntimeSpecified) => return Err(StoreFault::Closed),
                Err(error @ (PoolError::Timeout(_) | PoolError::PostCreateHook(_))) => {
                    return Err(StoreFault::Database { context, source: Box::new(error) });
                }
            };
            let fault = StoreFault::Database { context, source: Box::new(error) };
            if !is_short(&fault) {
                return Err(fault);
            }
            let has_none = self.pool.status().size == 0;
            let kept = self.record_shortage(permit);
            if has_none {
                if !may_wait() || Instant::now() >= until {
                    return Err(fault);
                }
                // Others wait for the permit meanwhile: each attempt costs the server a process.
                sleep(SHORT_PAUSE).await;
            }
            drop(kept);
        }
    }

    /// Takes the permit to open another connection out of use. Returns it if it is the only one.
    fn record_shortage(&self, permit: OwnedSemaphorePermit) -> Option<OwnedSemaphorePermit> {
        let mut shortage = self.shortage.lock();
        if shortage.last.is_none() {
            warn!(
                "the database server has no more connections, going on with fewer: allow more there, or fewer here \
                 (store.max_connections)"
            );
        }
        shortage.last = Some(Instant::now());
        if shortage.withheld + 1 >= self.size {
            return Some(permit);
        }
        shortage.withheld += 1;
        permit.forget();
        None
    }

    /// Returns a withheld permit to use, if the last attempt to open another connection was some time ago.
    fn grow(&self) {
        let mut shortage = self.shortage.lock();
        if shortage.last.is_some_and(|last| last.elapsed() >= SHORT_FOR) {
            let is_over = shortage.withheld == 0;
            shortage.last = (!is_over).then(Instant::now);
            if !is_over {
                shortage.withheld -= 1;
                self.permits.add_permits(1);
            }
        }
    }

    /// Closes connections that nobody has used for some time, and old ones.
    fn close_unused(&self) {
        let shortage = self.shortage.lock();
        let idle_for = if shortage.last.is_some() { IDLE_WHEN_SHORT } else { IDLE_FOR };
        self.pool.retain(|_, metrics| metrics.last_used() < idle_for && !is_too_old(&metrics, &shortage));
    }
}

/// A connection that the server may not give again is kept.
fn is_too_old(metrics: &Metrics, shortage: &Shortage) -> bool {
    metrics.age() >= MAX_AGE && shortage.last.is_none()
}

/// Returns true if the server, the database or the role has no more connections (class 53 of
/// <https://www.postgresql.org/docs/15/errcodes-appendix.html>).
pub(super) fn is_short(fault: &StoreFault) -> bool {
    crate::store::sql_error::sql_state(fault) == Some(&SqlState::TOO_MANY_CONNECTIONS)
}

/// Connection that was taken from its pool. Dropping it cancels its work and closes it.
pub(in crate::store) struct Connection {
    object: Option<Object>,
    cancel: CancelToken,
    tls: Kept<Tls>,
    /// Epoch in which the connection was taken.
    epoch: u64,
    current: Arc<AtomicU64>,
    /// Released after the connection was given back.
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn client(&self) -> &ClientWrapper {
        // Only `drop` and `give_back` take it.
        match &self.object {
            Some(object) => object,
            None => unreachable!("a connection was used after it had been given back"),
        }
    }

    /// Returns the connection to its pool, once all its work is finished. Closes one that is to be replaced.
    pub(super) fn give_back(mut self) {
        let object = self.object.take();
        if self.current.load(Ordering::Relaxed) != self.epoch {
            drop(object.map(Object::take));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        let client = Object::take(object);
        let (cancel, tls) = (self.cancel.clone(), self.tls.current().as_ref().clone());
        // A server that is executing a statement does not notice that the connection is closed.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(MAX_WAIT, cancel.cancel_query(tls)).await;
                drop(client);
            });
        }
    }
}
