//! Shell: throttles the log of an error that repeats at each attempt, such as a database that is down.

use std::time::Duration;

use saga_core::retry::error_chain;
use tokio::time::Instant;

use crate::store::StoreFault;

/// Interval at which a lasting error is logged again. The log of an hour's outage stays short.
const REPEAT_EVERY: Duration = Duration::from_secs(30);

/// Last logged error of one loop.
#[derive(Debug, Default)]
pub(crate) struct ErrorThrottle {
    logged: Option<(Instant, String)>,
}

impl ErrorThrottle {
    /// Records a failed attempt. Returns the text to log, or `None` if it was logged a short time ago.
    pub(crate) fn failed(&mut self, fault: &StoreFault) -> Option<String> {
        let (text, now) = (error_chain(fault), Instant::now());
        let logged = self.logged.as_ref();
        let is_due = logged.is_none_or(|(at, logged)| *logged != text || now >= *at + REPEAT_EVERY);
        is_due.then(|| {
            self.logged = Some((now, text.clone()));
            text
        })
    }

    /// Records a successful attempt. True if it ends an error that was logged.
    pub(crate) fn recovered(&mut self) -> bool {
        self.logged.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(what: &str) -> StoreFault {
        StoreFault::Unusable(what.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn lasting_error_is_logged_at_once_then_at_intervals_and_its_end_once() {
        let mut errors = ErrorThrottle::default();
        assert!(!errors.recovered());
        let mut logged = Vec::new();
        for half in 0..=120 {
            if let Some(text) = errors.failed(&fault("it is down")) {
                logged.push((half, text));
            }
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(logged, [0, 60, 120].map(|half| (half, "it is down".to_owned())));
        assert!(errors.failed(&fault("it is up and rejects")).is_some(), "another error");
        assert!(errors.recovered());
        assert!(!errors.recovered());
        assert!(errors.failed(&fault("it is down")).is_some(), "a new outage");
    }
}
