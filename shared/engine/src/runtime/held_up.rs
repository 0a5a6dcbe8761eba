//! Shell: publishing that is held up: the broker is connected, and takes no messages.
//!
//! A broker that is away is another matter: it comes back by itself, and the connection tells.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::signed;
use crate::store::PublishOutcome;

/// Since when publishing is held up, and why. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct HeldUp(Arc<Mutex<Option<Since>>>);

#[derive(Debug)]
struct Since {
    at: Timestamp,
    why: String,
}

impl HeldUp {
    /// Takes over what became of a batch that was published to a broker that is connected, and judged.
    pub fn published(&self, published: &PublishOutcome, now: Timestamp) {
        let Some((_, why)) = &published.delayed else { return self.clear() };
        if !published.done.is_empty() {
            self.clear();
        }
        self.hold(why, now);
    }

    /// The broker, in its own words, does not take what it is given; it may have been so for a while.
    pub fn hold(&self, why: &str, now: Timestamp) {
        let mut since = self.0.lock();
        let at = since.as_ref().map_or(now, |since| since.at);
        *since = Some(Since { at, why: why.to_owned() });
    }

    /// It takes messages, or is not there.
    pub fn clear(&self) {
        self.0.lock().take();
    }

    /// Since when and why, when that is longer than `limit` ago.
    #[must_use]
    pub fn in_words(&self, limit: Duration, now: Timestamp) -> Option<String> {
        let since = self.0.lock();
        let since = since.as_ref().filter(|since| now.duration_since(since.at) > signed(limit))?;
        Some(format!("the broker takes no messages since {:.0}: {}", since.at, since.why))
    }
}
