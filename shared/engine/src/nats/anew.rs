//! Shell: noticing that a stream starts anew, as after the loss of the broker's disk: what was published is not in it.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::error;

use super::atomic_batch::BATCH_FROM;
use crate::store::Store;

/// Where the stream stood when a message was last put into it.
pub(super) struct Anew {
    store: Arc<dyn Store>,
    last: Mutex<Option<u64>>,
}

impl Anew {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: Mutex::default() }
    }

    /// Looks at the place that a new message of `service` was given. Says, once, when others must have been there before
    /// it that are not.
    pub(super) async fn look(&self, service: &str, sequence: u64) {
        let last = self.last.lock().replace(sequence);
        let missing = match last {
            // Messages that are published one by one overtake each other by no more than this.
            Some(last) => sequence + (BATCH_FROM as u64) <= last,
            // The first since the start: what is kept as published has to be there.
            None => self.store.stats().await.is_ok_and(|stats| sequence <= stats.outbox_kept),
        };
        if missing {
            error!(
                sequence,
                "the stream of {service} starts anew, what was published before is not in it: if the broker has lost \
                 its data, have it published again: sagactl outbox republish {service} --since TIME"
            );
        }
    }
}
