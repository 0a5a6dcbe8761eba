//! Shell: health checks of this process: severity, latest state, and since when.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::http::{Check, CheckState, Readiness};

/// Every check with its state while it finds a problem. A service that cannot accept its requests or process its messages
/// is not ready. Any other problem only delays work that is already stored, and degrades the service.
const CHECKS: [(&str, CheckState); 15] = [
    // Requests cannot be answered, or nothing can be stored.
    ("store", CheckState::Failed),
    // The database went back in time: nobody uses it.
    ("database", CheckState::Failed),
    // Nothing may begin before database and broker were compared.
    ("startup", CheckState::Failed),
    // It stops, and load balancers must choose others.
    ("stopping", CheckState::Failed),
    // Messages wait for a step that processes none.
    ("consumer_stall", CheckState::Failed),
    // Outbox entries wait, which is what the outbox is for.
    ("broker", CheckState::Degraded),
    ("publish_stall", CheckState::Degraded),
    ("outbox", CheckState::Degraded),
    // The service rejects new work, says when to come again, and does all else. Without it, reads, cancellations and that
    // very answer would be gone, and other replicas reject new work for the same reason.
    ("overload", CheckState::Degraded),
    // Its database has little disk space left. What is in flight goes on.
    ("disk", CheckState::Degraded),
    // The processes before have crashed, again and again. This one works.
    ("crashes", CheckState::Degraded),
    // Those that were last read stay in force, but a restart loses them.
    ("overrides", CheckState::Degraded),
    // Only steps and tasks behind an open breaker wait.
    ("breakers", CheckState::Degraded),
    // A renewed file cannot be used. The last good one is, until it expires.
    ("files", CheckState::Degraded),
    // Deadlines go by the broker's clock, but this machine's should be corrected.
    ("clock", CheckState::Degraded),
];

/// State of each check of this process, and since when. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CheckHistory(Arc<Mutex<Latest>>);

#[derive(Debug, Default)]
struct Latest {
    checks: BTreeMap<String, Check>,
    was_ready: bool,
}

impl CheckHistory {
    /// Records the problem that each check found, if any. Logs when readiness begins or ends.
    pub(super) fn record(&self, found: &[(&str, Option<String>)], now: Timestamp) -> Readiness {
        let mut latest = self.0.lock();
        let checks = found.iter().filter_map(|(name, problem)| {
            let (name, severity) = CHECKS.iter().find(|(check, _)| check == name)?;
            let state = if problem.is_some() { *severity } else { CheckState::Ok };
            let before = latest.checks.get(*name).filter(|before| before.state == state);
            let since = before.map_or(now, |before| before.since);
            let text = problem.clone().unwrap_or_else(|| "ok".to_owned());
            Some(((*name).to_owned(), Check { state, text, since }))
        });
        let readiness = Readiness::of(checks.collect());
        match (latest.was_ready, readiness.ready) {
            (false, true) => info!("ready"),
            (true, false) => warn!("not ready any more: {}", readiness.problems()),
            (false, false) | (true, true) => {}
        }
        // Checks that could not be evaluated keep their last state.
        latest.checks.extend(readiness.checks.clone());
        latest.was_ready = readiness.ready;
        readiness
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn after(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn failed_checks_end_readiness_and_degraded_checks_do_not() {
        for (name, severity) in CHECKS {
            let readiness = CheckHistory::default().record(&[(name, Some("is odd".to_owned()))], after(0));
            let expected = (severity != CheckState::Failed, severity == CheckState::Degraded);
            assert_eq!((readiness.ready, readiness.degraded), expected, "{name}");
            assert_eq!(readiness.problems(), format!("{name}: is odd"));
        }
    }

    #[test]
    fn time_of_check_is_unchanged_until_its_state_changes() {
        let history = CheckHistory::default();
        let records = [
            (0, None, CheckState::Ok, 0),
            (1, None, CheckState::Ok, 0),
            (2, Some("waits 5s"), CheckState::Degraded, 2),
            (3, Some("waits 6s"), CheckState::Degraded, 2),
            (4, None, CheckState::Ok, 4),
        ];
        for (second, problem, state, since) in records {
            let readiness = history.record(&[("outbox", problem.map(str::to_owned))], after(second));
            let text = problem.unwrap_or("ok").to_owned();
            let check = Check { state, text, since: after(since) };
            assert_eq!(readiness.checks.get("outbox"), Some(&check), "after {second} s");
        }
    }

    #[test]
    fn check_that_is_not_evaluated_for_a_moment_keeps_its_time() {
        let history = CheckHistory::default();
        let long = || Some("waits".to_owned());
        history.record(&[("outbox", long()), ("broker", None)], after(1));
        history.record(&[("broker", None)], after(2));
        let readiness = history.record(&[("outbox", long()), ("broker", None)], after(3));
        assert_eq!(readiness.checks["outbox"].since, after(1));
    }
}
