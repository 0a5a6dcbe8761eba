//! Shell: the database of a service, as the rest of the engine uses it: a trait for each role, and two implementations.
//!
//! The [`sqlite::SqliteStore`] keeps a file that one process uses. The [`postgres::PostgresStore`] keeps a database that
//! several replicas share. Both are a `backend::Backend`. The roles are written once above it, with SQL that both execute.
//! Only batches are loaded and written by each in its own way.

mod backend;
mod cell;
mod due_work;
mod encoding;
mod fold;
mod held_rows;
mod highest_position;
mod history;
mod identity;
mod leases;
mod log_scan;
mod migrations;
mod monitoring;
mod outbox;
mod overrides;
pub mod postgres;
mod purge_batch;
mod purged;
mod queries;
mod reading;
mod replicas;
mod retention;
pub mod roles;
mod settle;
mod sql;
mod sql_error;
pub mod sqlite;
mod stored_rows;
mod trim;
mod verdict;
mod verification;
mod write_health;

use std::time::Duration;

use futures::future::BoxFuture;
pub use saga_core::outbox::OutboxItem;
use saga_core::row::RowKey;

pub use self::due_work::{Due, DueQuery, FailingTask};
pub use self::history::{Changes, RowAt};
pub use self::identity::DatabasePosition;
pub use self::leases::{Lease, RELAY_LEASE};
pub use self::monitoring::StoredDeadLetters;
pub use self::outbox::{OutboxEntry, RepublishPage};
pub use self::overrides::StoredOverrides;
pub use self::purge_batch::{PurgeBatch, PurgedEvent, PurgedRow, RetentionCutoffs, RowSnapshot, TrimCutoffs};
pub use self::purged::PurgedRows;
pub use self::replicas::{Guard, ReplicaSignal};
use self::roles::{
    DueWork, History, Leases, Monitoring, Outbox, Overrides, Queries, Replicas, Retention, Transactions,
    Verification,
};
pub use self::settle::{PublishOutcome, PublishedRun};
pub use self::verdict::VerificationReport;
pub use self::verification::{VerificationPart, VerifiedPage, VerifiedRow, VerifiedRows};

/// Failure of a store operation, by what the caller may do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The database failed; the same may succeed later.
    #[error("database: {context}")]
    Database {
        /// Operation that failed, for the error text.
        context: &'static str,
        /// Error of the database driver.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database rejects these values for good: they conflict with stored ones, or cannot be read or written.
    #[error("database: {context}")]
    Rejected {
        /// Operation that failed, for the error text.
        context: &'static str,
        /// Error of the database driver.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another transaction changed a row. The caller runs the batch again from its reads.
    #[error("row {0:?} was changed by someone else")]
    Conflict(RowKey),
    /// The database cannot be used. The text says why and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The database went back in time while it was in use. This process uses it no more.
    #[error(
        "the database has gone back in time: {0}; stop the service, restore the newest copy of the database, and start \
         the service: if data is missing even so, the start names the loss"
    )]
    DataLost(String),
    /// The work of one request panicked: a bug. Other requests go on.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The store was closed by its owner.
    #[error("the store is closed")]
    Closed,
}

impl StoreFault {
    /// True if the fault belongs to the batch, so that other batches may succeed.
    #[must_use]
    pub const fn is_caused_by_batch(&self) -> bool {
        match self {
            Self::Rejected { .. } | Self::Conflict(_) | Self::Unusable(_) | Self::Panicked(_) => true,
            Self::Database { .. } | Self::DataLost(_) | Self::Closed => false,
        }
    }
}

/// Default maximum number of connections of a process to a server.
pub const DEFAULT_MAX_CONNECTIONS: usize = 13;

/// Options for opening a database.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions<'a> {
    /// Service that must own the database; empty accepts any owner.
    pub service: &'a str,
    /// Refuses to create a database.
    pub must_exist: bool,
    /// Time limit for the check of all pages of a file.
    pub check_within: Duration,
    /// Name of an accepted data loss, as the error about that loss printed it.
    pub accept_loss: &'a str,
    /// Name of this replica; empty for none.
    pub instance: &'a str,
    /// Refuses a database that another process has open.
    pub alone: bool,
    /// Maximum wait for a server that is starting or unreachable.
    pub wait: Duration,
    /// Maximum number of connections to a server.
    pub max_connections: usize,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self {
            service: "",
            must_exist: false,
            check_within: Duration::from_secs(5),
            accept_loss: "",
            instance: "",
            alone: false,
            wait: Duration::ZERO,
            max_connections: DEFAULT_MAX_CONNECTIONS,
        }
    }
}

/// Future result of a store operation.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreFault>>;

/// Database in all its roles. Code that needs one role takes that role's trait.
///
/// Reads of single rows, of the relay and of health never wait for lists, counts or verification. A read whose future is
/// dropped is interrupted.
///
/// Replicas may share a database, if the implementation allows it. Then these guarantees hold between them:
/// - Commit order: batches commit one after the other, and positions of events and entries follow that order.
/// - Isolation: of two batches that touch one row, message or key, the second is decided on the result of the first.
/// - Tasks: one replica claims a due task. Failures reported under an outdated claim have no effect.
/// - Leases: one replica holds a lease at a time. Settlements under an outdated lease have no effect.
/// - Retries: one replica receives a due retry, and another one if the first does nothing for some seconds.
/// - Due rows: all replicas receive them, and the second to decide finds the row already processed.
/// - Retention: purging and trimming skip what a batch has locked.
pub trait Store:
    Transactions
    + Replicas
    + Leases
    + Outbox
    + DueWork
    + Queries
    + History
    + Verification
    + Retention
    + Monitoring
    + Overrides
    + 'static
{
}

impl<S> Store for S where
    S: Transactions
        + Replicas
        + Leases
        + Outbox
        + DueWork
        + Queries
        + History
        + Verification
        + Retention
        + Monitoring
        + Overrides
        + 'static
{
}
