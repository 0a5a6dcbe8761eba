//! Pure: a trouble that is met at every look, as a database that is away: said at once, then now and then, and when it is over.

use std::time::Duration;

/// While it lasts it is said again this often: a log of an hour's outage is read in a minute.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// One trouble of one loop. Times are on a clock that does not go back.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    said: Option<(Duration, String)>,
}

impl Trouble {
    /// It is met, and this is what it is. Whether to say so.
    pub(crate) fn met(&mut self, what: &str, now: Duration) -> bool {
        let said = self.said.as_ref();
        let is_news = said.is_none_or(|(at, said)| said != what || now >= *at + SAID_EVERY);
        if is_news {
            self.said = Some((now, what.to_owned()));
        }
        is_news
    }

    /// It is not met. Whether to say that it is over.
    pub(crate) fn ended(&mut self) -> bool {
        self.said.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_then_now_and_then_and_once_that_it_is_over() {
        let mut trouble = Trouble::default();
        assert!(!trouble.ended());
        let said = (0..=120).filter(|half| trouble.met("it is away", Duration::from_millis(half * 500)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 60, 120]);
        assert!(trouble.met("it is there and refuses", Duration::from_secs(60)), "another one");
        assert!(trouble.ended());
        assert!(!trouble.ended());
        assert!(trouble.met("it is away", Duration::from_secs(61)), "again");
    }
}
