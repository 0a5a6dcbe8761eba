//! Shell: a trouble that is met at every look, as a database that is away: said at once, then now and then, and when it is over.

use std::time::Duration;

use saga_core::retry::error_chain;
use tokio::time::Instant;

use crate::store::StoreFault;

/// While it lasts it is said again this often: a log of an hour's outage is read in a minute.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// One trouble of one loop.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    said: Option<(Instant, String)>,
}

impl Trouble {
    /// It is met. What to say of it, when that is news.
    pub(crate) fn met(&mut self, fault: &StoreFault) -> Option<String> {
        let (what, now) = (error_chain(fault), Instant::now());
        let said = self.said.as_ref();
        let is_news = said.is_none_or(|(at, said)| *said != what || now >= *at + SAID_EVERY);
        is_news.then(|| {
            self.said = Some((now, what.clone()));
            what
        })
    }

    /// It is not met. Whether to say that it is over.
    pub(crate) fn ended(&mut self) -> bool {
        self.said.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(what: &str) -> StoreFault {
        StoreFault::Unusable(what.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_said_at_once_then_now_and_then_and_once_that_it_is_over() {
        let mut trouble = Trouble::default();
        assert!(!trouble.ended());
        let mut said = Vec::new();
        for half in 0..=120 {
            if let Some(what) = trouble.met(&fault("it is away")) {
                said.push((half, what));
            }
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(said, [0, 60, 120].map(|half| (half, "it is away".to_owned())));
        assert!(trouble.met(&fault("it is there and refuses")).is_some(), "another one");
        assert!(trouble.ended());
        assert!(!trouble.ended());
        assert!(trouble.met(&fault("it is away")).is_some(), "again");
    }
}
