//! Shell: signals between the replicas that share a database.

use jiff::Timestamp;
use saga_core::row::RowKey;

/// Hint about a commit of another replica. Hints may get lost: receivers poll as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaSignal {
    /// Outbox entries were stored and can be published.
    EntriesStored,
    /// Work becomes due at this time.
    Due(Timestamp),
    /// Rows of a watched kind were changed.
    RowsChanged(Vec<RowKey>),
    /// Operators changed the overrides, which must be reloaded.
    OverridesChanged,
    /// Signals were lost: any of the above may have happened.
    Missed,
}

/// Holds a resource, such as a turn or a watch, until it is dropped.
pub struct Guard(#[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Send>);

impl Guard {
    /// Guard that drops `resource` with itself.
    pub fn of(resource: impl Send + 'static) -> Self {
        Self(Box::new(resource))
    }
}
