//! Pure: data for findings that the overview does not show.

use std::collections::BTreeMap;

use admin_api::reconciliation::Unanswered;
use contract::money::Money;

use crate::sagas::sums::SagaSums;

/// Data for findings that the overview does not show.
#[derive(Debug, Clone, Default)]
pub struct Affected {
    /// Sagas whose compensation is stuck.
    pub stuck: SagaSums,
    /// True if the oldest of them has a discarded dead letter.
    pub stuck_is_discarded: bool,
    /// Overdue sagas.
    pub overdue: SagaSums,
    /// Sagas that wait for a dead letter, by the step that has it.
    pub awaited: BTreeMap<String, SagaSums>,
    /// Money in cancelled orders that dead letters belong to, by fingerprint.
    pub cancelled: BTreeMap<String, Vec<Money>>,
    /// Questions that the last three reconciliations left unanswered.
    pub unanswered: Vec<Unanswered>,
    /// Number of dead letters that is a finding of its own.
    pub dead_letter_threshold: u64,
}
