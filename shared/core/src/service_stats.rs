//! Pure: backlog and progress of a service, for health checks, metrics, operators and reconciliation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Backlog of a service's store: outbox, retries, tasks, dead letters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Number of outbox entries to publish.
    pub outbox_pending: u64,
    /// Outbox entries that the broker rejected for good, and later entries of the same sagas, which wait for them.
    pub outbox_failed: u64,
    /// Published outbox entries that will be published again.
    pub outbox_republishing: u64,
    /// Published outbox entries that are still kept.
    pub outbox_kept: u64,
    /// Creation time of the oldest outbox entry to publish.
    pub outbox_oldest: Option<Timestamp>,
    /// Number of messages scheduled for another attempt.
    pub retries: u64,
    /// First failure of the message that has been retried for longest.
    #[serde(default)]
    pub retry_oldest: Option<Timestamp>,
    /// Open tasks: waiting, in flight or scheduled for another attempt.
    pub tasks: u64,
    /// Creation time of the oldest open task.
    pub task_oldest: Option<Timestamp>,
    /// Dead letters that are pending or being replayed.
    pub dead_letters: u64,
    /// Free bytes of the file system that has the database; `None` where it is unknown.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// Size of the database's write-ahead log in bytes; `None` where it is unknown.
    #[serde(default)]
    pub log_bytes: Option<u64>,
}

/// Message counts by subject and by step, for reconciliation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Distinct facts published, by subject.
    pub published: BTreeMap<String, u64>,
    /// Number of processed messages, by step.
    pub handled: BTreeMap<String, u64>,
    /// Messages scheduled for another attempt, by step.
    pub retrying: BTreeMap<String, u64>,
    /// Dead letters that are pending, being replayed or discarded, by step.
    pub dead: BTreeMap<String, u64>,
}

/// Position in the event history of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPosition {
    /// Id of the database, which a copy keeps.
    pub database: Uuid,
    /// Sequence number of the event.
    pub event: i64,
    /// Hash of the event; empty if there is none. Differs in a restored copy whose history diverged.
    pub event_hash: String,
}

/// Backlog and progress of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceStats {
    /// Name of the service, e.g. `payment`.
    pub service: String,
    /// Name of the answering instance.
    pub instance: String,
    /// Time at which the service answered.
    pub at: Timestamp,
    /// Backlog of the service's store.
    pub stats: StoreStats,
    /// Task calls waiting and in flight in this process.
    pub calls_open: usize,
    /// Distinct facts published, by subject.
    pub published: BTreeMap<String, u64>,
    /// Sequence number of the newest message in the service's own stream; `None` if the stream is empty or the
    /// broker does not answer.
    pub newest: Option<u64>,
    /// Time of the last loss of data that an operator accepted; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_before: Option<Timestamp>,
    /// Progress of each step, including the engine's own.
    pub steps: Vec<StepStats>,
}

/// Progress of one step of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepStats {
    /// Name of the step, unique in the whole system.
    pub step: String,
    /// Subjects that the step consumes.
    pub subjects: Vec<String>,
    /// Number of messages that the step has processed.
    pub handled: u64,
    /// Messages scheduled for another attempt.
    pub retrying: u64,
    /// Dead letters that are pending, being replayed or discarded.
    pub dead: u64,
    /// Messages not yet delivered or not yet acknowledged; `None` if the broker does not answer.
    pub waiting: Option<u64>,
    /// Highest stream sequence, by producer, up to which the step has processed or put aside every message.
    pub acknowledged: BTreeMap<String, u64>,
}

impl ServiceStats {
    /// True if the service has no work in flight.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let stats = &self.stats;
        let waits = [stats.outbox_pending, stats.outbox_republishing, stats.retries, stats.tasks];
        let is_idle = waits.iter().all(|count| *count == 0);
        is_idle && self.steps.iter().all(|step| step.waiting == Some(0))
    }
}
