//! Pure: how far a service has come with everything it was told: what health, metrics, operators and the
//! reconciliation want to know of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The state of the machinery, for health, metrics and the operator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Entries that wait to be published.
    pub outbox_pending: u64,
    /// Entries that the broker refused for good, and those of their sagas that are held behind them.
    pub outbox_failed: u64,
    /// Entries that were published and are to be published once more.
    #[serde(default)]
    pub outbox_republishing: u64,
    /// Entries that were published and are kept.
    #[serde(default)]
    pub outbox_kept: u64,
    /// When the oldest waiting entry was written.
    pub outbox_oldest: Option<Timestamp>,
    /// Retries that wait.
    pub retries: u64,
    /// Tasks that are not settled: waiting, under way, or to be tried again.
    pub tasks: u64,
    /// When the oldest open task was written: one that is never answered shows here.
    #[serde(default)]
    pub task_oldest: Option<Timestamp>,
    /// Dead letters that wait for a human or are being replayed.
    pub dead_letters: u64,
}

/// Counts by subject and by step, for the reconciliation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Distinct facts published, by subject.
    pub published: BTreeMap<String, u64>,
    /// Messages handled, by step.
    pub handled: BTreeMap<String, u64>,
    /// Messages that wait for another try, by step.
    pub retrying: BTreeMap<String, u64>,
    /// Messages that are parked or given up, by step.
    pub dead: BTreeMap<String, u64>,
}

/// A place in the history of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPosition {
    /// Which database it is: its id.
    pub database: Uuid,
    /// The position of the event there.
    pub event: i64,
    /// A hash of that event: in a copy that went another way since, another stands there. Empty when none does.
    pub of: String,
}

/// The machinery of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServiceStats {
    /// Name of the service, e.g. `payment`.
    pub service: String,
    /// Which of its instances answers.
    pub instance: String,
    /// When it was asked.
    pub at: Timestamp,
    /// What its store says.
    pub stats: StoreStats,
    /// Calls waiting and in flight in this process.
    pub calls_open: usize,
    /// Distinct facts it has published, by subject.
    pub published: BTreeMap<String, u64>,
    /// The place of the newest message in its own stream; `None` when the broker does not say, or it has none.
    #[serde(default)]
    pub newest: Option<u64>,
    /// Each of its steps, the engine's own included.
    pub steps: Vec<StepStats>,
}

/// One step of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepStats {
    /// Name of the step, unique in the whole system.
    pub step: String,
    /// Subjects it hears.
    pub subjects: Vec<String>,
    /// Messages it has handled.
    pub handled: u64,
    /// Messages that wait for another try.
    pub retrying: u64,
    /// Messages that are parked.
    pub dead: u64,
    /// Messages that the broker still has for it, or waits to hear of; `None` when the broker does not answer.
    pub waiting: Option<u64>,
    /// How far it has come with the stream of each producer that it hears: it has handled, or put aside, everything
    /// up to this place.
    #[serde(default)]
    pub come_to: BTreeMap<String, u64>,
}

impl ServiceStats {
    /// Whether nothing is under way in this service.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let stats = &self.stats;
        let is_idle = stats.outbox_pending == 0 && stats.retries == 0 && stats.tasks == 0;
        is_idle && self.steps.iter().all(|step| step.waiting == Some(0))
    }

    /// What is not quiet, for people.
    #[must_use]
    pub fn what_is_under_way(&self) -> String {
        let (service, stats) = (&self.service, &self.stats);
        let heard = |step: &StepStats| match step.waiting {
            Some(0) => None,
            Some(count) => Some(format!(", {count} for {}", step.step)),
            None => Some(format!(", {} does not reach the broker", step.step)),
        };
        let steps: String = self.steps.iter().filter_map(heard).collect();
        let (outbox, retries, tasks) = (stats.outbox_pending, stats.retries, stats.tasks);
        format!("{service}: {outbox} to publish, {retries} to try again, {tasks} calls open{steps}")
    }
}
