//! Pure: detection of outages, by the times at which others were answered.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

/// Answers and failures of a dependency, as one process sees them. `at` counts from any origin. A restart forgets
/// them, which costs no task an attempt.
#[derive(Debug, Clone, Default)]
pub struct OutageDetector {
    answered_at: Option<Duration>,
    failed_at: BTreeMap<Uuid, Duration>,
}

impl OutageDetector {
    /// Records an answer, including a rejection.
    pub const fn answered(&mut self, at: Duration) {
        self.answered_at = Some(at);
    }

    /// Records a failed call. True if others were answered since the task failed before: then the failure concerns
    /// the call, not the dependency.
    pub fn failed(&mut self, task: Uuid, at: Duration) -> bool {
        let before = self.failed_at.insert(task, at);
        before.is_some_and(|before| self.answered_at.is_some_and(|answered| answered > before))
    }

    /// Forgets a task that is not tried again.
    pub fn forget(&mut self, task: Uuid) {
        self.failed_at.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn failure_is_outage_while_no_call_is_answered() {
        let mut detector = OutageDetector::default();
        detector.answered(at(1));
        assert!((2..50).all(|second| !detector.failed(TASK, at(second))));
    }

    #[test]
    fn failure_counts_if_others_were_answered_since_last_failure() {
        let mut detector = OutageDetector::default();
        assert!(!detector.failed(TASK, at(1)));
        detector.answered(at(2));
        assert!(detector.failed(TASK, at(3)));
        assert!(!detector.failed(TASK, at(4)), "no other call was answered since");
        assert!(!detector.failed(OTHER, at(5)), "its first");
    }

    #[test]
    fn forgotten_task_starts_over() {
        let mut detector = OutageDetector::default();
        detector.failed(TASK, at(1));
        detector.answered(at(2));
        detector.forget(TASK);
        assert!(!detector.failed(TASK, at(3)));
    }
}
