//! Shell: interface between the roles of a store and its database: a connection for each kind of work, and transactions.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::row::RowKind;

use super::highest_position::HighestPosition;
use super::log_scan::LogScan;
use super::sql::Sql;
use super::write_health::WriteHealth;
use super::{Answer, ReplicaSignal, StoreFault};

/// Kind of read, by its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Entries that the relay publishes next.
    Relay,
    /// Statistics for readiness and metrics.
    Health,
    /// Single rows, and pages of their histories.
    Row,
    /// Lists and counts over many rows.
    Scan,
    /// Verification; one at a time.
    Verification,
}

/// Urgency and length of a write transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Committed at once, without waiting for other work.
    Immediate,
    /// May wait for another commit, for a short time at most.
    Deferrable,
    /// Committed at once, and may last for minutes.
    Long,
}

impl Urgency {
    /// True if the outcome is recorded, and a write that does not end is a problem.
    pub(super) const fn is_short(self) -> bool {
        match self {
            Self::Immediate | Self::Deferrable => true,
            Self::Long => false,
        }
    }
}

/// Work on a connection, with its arguments. A write may be run again, in another transaction.
pub(super) type Work<C, A, T> = for<'c> fn(&'c C, &'c A) -> BoxFuture<'c, Result<T, StoreFault>>;

/// Database that a store uses.
pub(super) trait Backend: Send + Sync {
    type Conn: Sql;

    /// Minimum interval between settlements of published runs.
    const MIN_SETTLE_INTERVAL: Duration;

    fn kinds(&self) -> &Arc<Kinds>;

    /// Progress of a verification in parts.
    fn log_scan(&self) -> &Arc<Mutex<Option<LogScan>>>;

    /// Highest position of the database. Every read and write fails once the database is below it.
    fn highest_position(&self) -> &HighestPosition;

    /// Reads by one statement, or by some that need no common snapshot. Dropping the future cancels it.
    fn read<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        args: A,
        work: Work<Self::Conn, A, T>,
    ) -> Answer<'_, T>;

    /// Reads in one snapshot. Dropping the future cancels it.
    fn snapshot<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        args: A,
        work: Work<Self::Conn, A, T>,
    ) -> Answer<'_, T>;

    /// Runs work in a write transaction. Dropping the future does not interrupt it.
    fn write<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        urgency: Urgency,
        args: A,
        work: Work<Self::Conn, A, T>,
    ) -> Answer<'_, T>;

    /// Notifies the other replicas of a commit.
    fn notify(&self, signal: ReplicaSignal);

    /// Runs work in a write transaction at once, and notifies the other replicas of its commit.
    fn write_and_notify<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        signal: ReplicaSignal,
        args: A,
        work: Work<Self::Conn, A, T>,
    ) -> Answer<'_, T> {
        let written = self.write(Urgency::Immediate, args, work);
        Box::pin(async move {
            let answer = written.await?;
            self.notify(signal);
            Ok(answer)
        })
    }

    /// Outcomes of the writes of this process.
    fn write_health(&self) -> &WriteHealth;

    /// Check that fails if what is written to the database would be lost. It may block, so it runs where reads run.
    fn location_check(&self) -> LocationCheck;
}

pub(super) type LocationCheck = Arc<dyn Fn() -> Result<DiskUse, StoreFault> + Send + Sync>;

/// Disk space around a database file; unknown on a server and in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DiskUse {
    /// Bytes that the file system has free for this process.
    pub(super) free: Option<u64>,
    /// Size of the write-ahead log in bytes.
    pub(super) log: Option<u64>,
}

pub(super) struct Kinds(pub(super) Vec<RowKind>);

impl Kinds {
    pub(super) fn of_name(&self, name: &str) -> Result<&RowKind, StoreFault> {
        let declared = self.0.iter().find(|declared| declared.name == name);
        declared.ok_or_else(|| StoreFault::Unusable(format!("rows of kind {name:?} are not declared")))
    }
}
