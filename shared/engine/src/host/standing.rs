//! Shell: how the checks of this process stand, what each decides, and since when.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::http::{Check, CheckState, Readiness};

/// Every check, and what it means when it finds something wrong. A service is not ready when it does not take what it
/// promises to take, be it requests or messages. Whatever else is wrong makes it degraded: what it takes is stored, and
/// what comes of it is late.
const CHECKS: [(&str, CheckState); 9] = [
    // Nothing can be answered.
    ("store", CheckState::Failed),
    // Nothing may be begun.
    ("database", CheckState::Failed),
    // The service itself says that it refuses what it is there for.
    ("requests", CheckState::Failed),
    // What was told to it lies there, whoever tells it.
    ("steps", CheckState::Failed),
    // What is promised waits in the outbox, as it should when the broker is away or has no room.
    ("broker", CheckState::Degraded),
    ("publishing", CheckState::Degraded),
    ("outbox", CheckState::Degraded),
    // What needs what is behind an open one waits for it, and nothing else does.
    ("breakers", CheckState::Degraded),
    // Deadlines go by the broker's; but somebody should put it right.
    ("clock", CheckState::Degraded),
];

/// How each check of this process stands, and since when. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Standing(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    checks: BTreeMap<String, Check>,
    was_ready: bool,
}

impl Standing {
    /// Takes over what was found wrong, by the names of checks, of those that were made.
    pub(super) fn take(&self, found: &[(&str, Option<String>)], now: Timestamp) -> Readiness {
        let mut known = self.0.lock();
        let made = found.iter().filter_map(|(name, wrong)| {
            let (name, means) = CHECKS.iter().find(|(check, _)| check == name)?;
            let state = if wrong.is_some() { *means } else { CheckState::Ok };
            let before = known.checks.get(*name).filter(|before| before.state == state);
            let since = before.map_or(now, |before| before.since);
            let text = wrong.clone().unwrap_or_else(|| "ok".to_owned());
            Some(((*name).to_owned(), Check { state, text, since }))
        });
        let readiness = Readiness::of(made.collect());
        match (known.was_ready, readiness.ready) {
            (false, true) => info!("ready"),
            (true, false) => warn!("not ready any more: {}", readiness.complaints()),
            (false, false) | (true, true) => {}
        }
        *known = Known { checks: readiness.checks.clone(), was_ready: readiness.ready };
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
    fn only_what_breaks_a_promise_ends_readiness_and_the_rest_degrades() {
        for (name, means) in CHECKS {
            let readiness = Standing::default().take(&[(name, Some("is odd".to_owned()))], after(0));
            let expected = (means != CheckState::Failed, means == CheckState::Degraded);
            assert_eq!((readiness.ready, readiness.degraded), expected, "{name}");
            assert_eq!(readiness.complaints(), format!("{name}: is odd"));
        }
    }

    #[test]
    fn a_check_stands_as_it_does_since_its_state_changed_whatever_it_says_meanwhile() {
        let standing = Standing::default();
        let looks = [
            (0, None, CheckState::Ok, 0),
            (1, None, CheckState::Ok, 0),
            (2, Some("waits 5s"), CheckState::Degraded, 2),
            (3, Some("waits 6s"), CheckState::Degraded, 2),
            (4, None, CheckState::Ok, 4),
        ];
        for (second, wrong, state, since) in looks {
            let readiness = standing.take(&[("outbox", wrong.map(str::to_owned))], after(second));
            let text = wrong.unwrap_or("ok").to_owned();
            let check = Check { state, text, since: after(since) };
            assert_eq!(readiness.checks.get("outbox"), Some(&check), "after {second} s");
        }
    }
}
