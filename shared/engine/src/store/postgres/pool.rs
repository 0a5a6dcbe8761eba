//! Shell: connection pools for short and for long statements. Work whose future is dropped is cancelled, and no connection
//! returns to its pool with unfinished work.

use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod, Runtime,
};
use tokio_postgres::{CancelToken, Config};

use super::db_location::{DbLocation, Tls, add_options};
use crate::store::StoreFault;
use crate::store::backend::Lane;

/// Number of connections for short work. A batch holds one while it is written.
const QUICK: usize = 8;
/// Number of connections for long work.
const SCAN: usize = 4;

/// Maximum wait for a free or new connection.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Server options for short work. It uses indexes whatever the table statistics say: statements are planned once for each
/// connection. A process that hangs in a transaction delays the others by the idle time-out at most.
const QUICK_OPTIONS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
     -c enable_mergejoin=off -c enable_bitmapscan=off -c jit=off -c lock_timeout=10s -c statement_timeout=30s \
     -c idle_in_transaction_session_timeout=5s -c synchronous_commit=on";
/// Server options for long work.
const SCAN_OPTIONS: &str =
    "-c jit=off -c idle_in_transaction_session_timeout=60s -c statement_timeout=0 -c synchronous_commit=on";

/// Connection pools of a database, one for each lane.
pub(super) struct Lanes {
    quick: Pool,
    scan: Pool,
    tls: Tls,
}

impl Lanes {
    pub(super) fn of(place: &DbLocation) -> Result<Self, StoreFault> {
        let pool = |options: &str, size: usize| {
            let mut config: Config = place.config.clone();
            add_options(&mut config, options);
            let recycling_method = RecyclingMethod::Fast;
            let manager = Manager::from_config(config, place.tls.clone(), ManagerConfig { recycling_method });
            let pool = Pool::builder(manager)
                .max_size(size)
                // Prefers the connection that was used last: its plans are warm.
                .queue_mode(QueueMode::Lifo)
                .wait_timeout(Some(MAX_WAIT))
                .create_timeout(Some(MAX_WAIT))
                .recycle_timeout(Some(MAX_WAIT))
                .runtime(Runtime::Tokio1)
                .build();
            pool.map_err(|error| StoreFault::Unusable(format!("no connection pool can be made: {error}")))
        };
        Ok(Self {
            quick: pool(QUICK_OPTIONS, QUICK)?,
            scan: pool(SCAN_OPTIONS, SCAN)?,
            tls: place.tls.clone(),
        })
    }

    /// Takes a free connection of this lane.
    pub(super) async fn connection(&self, lane: Lane) -> Result<Connection, StoreFault> {
        let pool = match lane {
            Lane::Relay | Lane::Health | Lane::Row => &self.quick,
            Lane::Scan | Lane::Verification => &self.scan,
        };
        let context = "connecting to the database";
        let object = pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => StoreFault::Database { context, source: Box::new(error) },
            PoolError::Closed | PoolError::NoRuntimeSpecified => StoreFault::Closed,
            error @ (PoolError::Timeout(_) | PoolError::PostCreateHook(_)) => {
                StoreFault::Database { context, source: Box::new(error) }
            }
        })?;
        let cancel = object.cancel_token();
        Ok(Connection { object: Some(object), cancel, tls: self.tls.clone() })
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.quick.close();
        self.scan.close();
    }
}

/// Connection that was taken from its pool. Dropping it cancels its work and closes it.
pub(in crate::store) struct Connection {
    object: Option<Object>,
    cancel: CancelToken,
    tls: Tls,
}

impl Connection {
    pub(super) fn client(&self) -> &ClientWrapper {
        // Only `drop` and `give_back` take it.
        match &self.object {
            Some(object) => object,
            None => unreachable!("a connection was used after it had been given back"),
        }
    }

    /// Returns the connection to its pool, once all its work is finished.
    pub(super) fn give_back(mut self) {
        self.object = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        let client = Object::take(object);
        let (cancel, tls) = (self.cancel.clone(), self.tls.clone());
        // A server that is executing a statement does not notice that the connection is closed.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(MAX_WAIT, cancel.cancel_query(tls)).await;
                drop(client);
            });
        }
    }
}
