//! Pure: data for findings that the overview does not show.

use std::collections::BTreeMap;

use admin_api::reconciliation::Unanswered;
use contract::money::Money;

/// Data for findings that the overview does not show.
#[derive(Debug, Clone, Default)]
pub struct Affected {
    /// Money in sagas whose compensation is stuck.
    pub stuck: Vec<Money>,
    /// Money in overdue sagas.
    pub overdue: Vec<Money>,
    /// Oldest saga whose compensation is stuck.
    pub stuck_order: Option<String>,
    /// True if that saga has a discarded dead letter.
    pub stuck_is_discarded: bool,
    /// Oldest overdue saga.
    pub overdue_order: Option<String>,
    /// Money in sagas that wait for a dead letter, by the step that has it.
    pub awaited: BTreeMap<String, Vec<Money>>,
    /// Money in cancelled orders that dead letters belong to, by fingerprint.
    pub cancelled: BTreeMap<String, Vec<Money>>,
    /// Questions that the last three reconciliations left unanswered.
    pub unanswered: Vec<Unanswered>,
    /// Number of dead letters that is a finding of its own.
    pub dead_letter_threshold: u64,
}
