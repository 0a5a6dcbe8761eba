//! Pure: who was answered when: what tells a call that fails from a dependency that is away.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

/// What one process has seen of a dependency. Time is an argument: `at` counts from an arbitrary origin. A restart
/// forgets it, which costs nobody an attempt.
#[derive(Debug, Clone, Default)]
pub struct OutageDetector {
    answered_at: Option<Duration>,
    failed_at: BTreeMap<Uuid, Duration>,
}

impl OutageDetector {
    /// Somebody got an answer, a refusal included.
    pub const fn answered(&mut self, at: Duration) {
        self.answered_at = Some(at);
    }

    /// The call of a task failed. Answers whether others were answered since it failed before: only then is it
    /// about the call, and not about whom it calls.
    pub fn failed(&mut self, task: Uuid, at: Duration) -> bool {
        let before = self.failed_at.insert(task, at);
        before.is_some_and(|before| self.answered_at.is_some_and(|answered| answered > before))
    }

    /// The task is not tried again.
    pub fn settled(&mut self, task: Uuid) {
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
    fn while_nobody_is_answered_no_failure_counts() {
        let mut detector = OutageDetector::default();
        detector.answered(at(1));
        assert!((2..50).all(|second| !detector.failed(TASK, at(second))));
    }

    #[test]
    fn a_failure_counts_when_others_were_answered_since_the_one_before() {
        let mut detector = OutageDetector::default();
        assert!(!detector.failed(TASK, at(1)));
        detector.answered(at(2));
        assert!(detector.failed(TASK, at(3)));
        assert!(!detector.failed(TASK, at(4)), "nobody was answered since");
        assert!(!detector.failed(OTHER, at(5)), "its first");
    }

    #[test]
    fn a_settled_task_begins_anew() {
        let mut detector = OutageDetector::default();
        detector.failed(TASK, at(1));
        detector.answered(at(2));
        detector.settled(TASK);
        assert!(!detector.failed(TASK, at(3)));
    }
}
