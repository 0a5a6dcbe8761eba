//! Shell: connections: those that must be quick, and those for what takes long; what nobody waits for any more is
//! cancelled, and no connection goes back with work half done.

use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod, Runtime,
};
use tokio_postgres::{CancelToken, Config};

use super::connect::{Place, Tls, add_options};
use crate::store::StoreFault;

/// What is read or written, by how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Batches, the relay, single rows, and how much waits.
    Quick,
    /// Lists, counts, and whatever reads all rows.
    Scan,
}

/// Connections of the lanes. A batch holds one while it is written, and a few of the others are read beside it.
const QUICK: usize = 8;
const SCAN: usize = 4;

/// A connection is made, or comes free, within this time, or what needs it fails and is tried again.
const WAITS_FOR: Duration = Duration::from_secs(5);

/// What is quick finds its rows by their index, whatever the server has heard of how many there are: plans are made once
/// for each connection. A process that stands still within a transaction holds the others up for so long at most.
const QUICK_OPTIONS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
     -c enable_mergejoin=off -c enable_bitmapscan=off -c jit=off -c lock_timeout=10s -c statement_timeout=30s \
     -c idle_in_transaction_session_timeout=5s -c synchronous_commit=on";
const SCAN_OPTIONS: &str =
    "-c jit=off -c idle_in_transaction_session_timeout=60s -c statement_timeout=0 -c synchronous_commit=on";

/// All connections to one database.
pub(super) struct Lanes {
    quick: Pool,
    scan: Pool,
    tls: Tls,
}

impl Lanes {
    pub(super) fn of(place: &Place) -> Result<Self, StoreFault> {
        let pool = |options: &str, size: usize| {
            let mut config: Config = place.config.clone();
            add_options(&mut config, options);
            let recycling_method = RecyclingMethod::Fast;
            let manager = Manager::from_config(config, place.tls.clone(), ManagerConfig { recycling_method });
            let pool = Pool::builder(manager)
                .max_size(size)
                // The one that was used last: its plans and pages are at hand.
                .queue_mode(QueueMode::Lifo)
                .wait_timeout(Some(WAITS_FOR))
                .create_timeout(Some(WAITS_FOR))
                .recycle_timeout(Some(WAITS_FOR))
                .runtime(Runtime::Tokio1)
                .build();
            pool.map_err(|error| StoreFault::Unusable(format!("no connections can be held: {error}")))
        };
        Ok(Self {
            quick: pool(QUICK_OPTIONS, QUICK)?,
            scan: pool(SCAN_OPTIONS, SCAN)?,
            tls: place.tls.clone(),
        })
    }

    /// A connection that is free.
    pub(super) async fn connection(&self, lane: Lane) -> Result<Connection, StoreFault> {
        let pool = match lane {
            Lane::Quick => &self.quick,
            Lane::Scan => &self.scan,
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

/// A connection of one's own. Dropped before it is given back, what it does is cancelled, and it is closed.
pub(super) struct Connection {
    object: Option<Object>,
    cancel: CancelToken,
    tls: Tls,
}

impl Connection {
    pub(super) fn client(&self) -> &ClientWrapper {
        // It is taken when this is dropped, and not before.
        match &self.object {
            Some(object) => object,
            None => unreachable!("a connection was used after it had been given back"),
        }
    }

    /// Nothing is under way any more: others may use it.
    pub(super) fn give_back(mut self) {
        self.object = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        let client = Object::take(object);
        let (cancel, tls) = (self.cancel.clone(), self.tls.clone());
        // Closing alone is not seen by a server that is working.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(WAITS_FOR, cancel.cancel_query(tls)).await;
                drop(client);
            });
        }
    }
}
