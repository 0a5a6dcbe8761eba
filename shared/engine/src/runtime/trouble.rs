//! Pure: a trouble that is met at every look, as a database that is away: said at once, then now and then, and when it is over.

use std::time::Duration;

/// While it lasts it is said again this often: a log of an hour's outage is read in a minute.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// One trouble of one loop. Times are on a clock that does not go back.
#[derive(Debug)]
pub(crate) struct Trouble {
    said_at: Option<Duration>,
}

impl Trouble {
    pub(crate) const fn new() -> Self {
        Self { said_at: None }
    }

    /// It is met. Whether to say so.
    pub(crate) fn is_news(&mut self, now: Duration) -> bool {
        let is_news = self.said_at.is_none_or(|said_at| now >= said_at + SAID_EVERY);
        if is_news {
            self.said_at = Some(now);
        }
        is_news
    }

    /// It is not met. Whether to say that it is over.
    pub(crate) const fn is_over(&mut self) -> bool {
        self.said_at.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_then_now_and_then_and_once_that_it_is_over() {
        let mut trouble = Trouble::new();
        assert!(!trouble.is_over());
        let said = (0..=120).filter(|half| trouble.is_news(Duration::from_millis(half * 500)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 60, 120]);
        assert!(trouble.is_over());
        assert!(!trouble.is_over());
        assert!(trouble.is_news(Duration::from_secs(61)), "another one");
    }
}
