//! Shell: how often what was published is written down. Nobody waits for that, and each time is a commit of its own here, with
//! a sync: what is published meanwhile goes into the next.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Two settlements begin at least this far apart. A relay that is killed publishes as much again, under the same ids; a commit
/// of SQLite carries a settlement no longer.
const APART: Duration = Duration::from_millis(100);

/// When the next may begin.
pub(super) struct Settlements(Mutex<Instant>);

impl Settlements {
    pub(super) const fn new(now: Instant) -> Self {
        Self(Mutex::new(now))
    }

    /// Returns when one may begin: after a rest that is at once.
    pub(super) async fn turn(&self) {
        let at = {
            let mut next = self.0.lock();
            let at = (*next).max(Instant::now());
            *next = at + APART;
            at
        };
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_after_a_rest_begins_at_once_and_the_others_are_apart() {
        let settlements = Settlements::new(Instant::now());
        let mut began = Vec::new();
        for rest in [0, 0, 40, 350, 0] {
            tokio::time::sleep(Duration::from_millis(rest)).await;
            let asked = Instant::now();
            settlements.turn().await;
            began.push(asked.elapsed().as_millis());
        }
        assert_eq!(began, [0, 100, 60, 0, 100]);
    }
}
