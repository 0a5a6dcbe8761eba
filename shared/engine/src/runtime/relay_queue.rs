//! Shell: the in-memory queue of committed outbox entries from the engine to the relay.
//!
//! It saves the relay a read of what was just written. Only the outbox counts: entries lost here are read from there.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::OutboxEntry;

/// Capacity of the queue; beyond it the relay reads the outbox, as after an outage. It covers a publish that takes a
/// second at 4,000 messages per second.
const CAPACITY: usize = 4096;

/// Queue of committed outbox entries, which also wakes the relay.
#[derive(Default)]
pub struct RelayQueue {
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// Entries in outbox order, without a gap between two entries of one push.
    entries: VecDeque<OutboxEntry>,
    /// The outbox holds entries at unknown positions that are not in the queue.
    needs_scan: bool,
    /// Another process has written entries behind those that are published.
    has_tail: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { entries: VecDeque::new(), needs_scan: true, has_tail: false }
    }
}

/// Source of the entries to publish next.
pub(super) enum Next {
    /// Entries that directly follow the published ones.
    Entries(Vec<OutboxEntry>),
    /// The outbox behind this position, up to which everything is published.
    Tail(i64),
    /// The whole outbox, from its start.
    Scan,
}

impl RelayQueue {
    /// Appends the entries of a committed batch. An empty list means that the store does not return positions.
    pub fn push(&self, entries: Vec<OutboxEntry>) {
        let mut state = self.state.lock();
        if entries.is_empty() || state.entries.len() + entries.len() > CAPACITY {
            state.entries.clear();
            state.needs_scan = true;
        } else {
            state.entries.extend(entries);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Makes the relay read the whole outbox, after entries in it were changed.
    pub fn request_scan(&self) {
        self.state.lock().needs_scan = true;
        self.wake.notify_one();
    }

    /// Makes the relay read the outbox behind what is published, after another process has written to it.
    pub fn request_tail(&self) {
        self.state.lock().has_tail = true;
        self.wake.notify_one();
    }

    /// Resolves when there may be something to publish. Call it before reading the outbox.
    pub fn woken(&self) -> impl Future<Output = ()> + Send + '_ {
        self.wake.notified()
    }

    /// Takes up to `limit` entries that directly follow `published`, the position up to which everything is published.
    pub(super) fn next(&self, published: Option<i64>, limit: usize) -> Next {
        let mut state = self.state.lock();
        let Some(published) = published.filter(|_| !state.needs_scan) else {
            return Next::Scan;
        };
        while state.entries.pop_front_if(|entry| entry.seq <= published).is_some() {}
        let follows = |(index, entry): (usize, &OutboxEntry)| {
            i64::try_from(index).is_ok_and(|index| entry.seq == published + 1 + index)
        };
        let count = state.entries.iter().enumerate().take(limit).take_while(|next| follows(*next)).count();
        match count {
            // Entries of another process stand between the published ones and those in the queue.
            0 if state.has_tail || !state.entries.is_empty() => {
                state.has_tail = false;
                Next::Tail(published)
            }
            count => Next::Entries(state.entries.drain(..count).collect()),
        }
    }

    /// Empties the queue before a scan, which finds all its entries. Later changes may be missed by that scan, and are
    /// recorded from here on.
    pub(super) fn begin_scan(&self) {
        let mut state = self.state.lock();
        state.entries.clear();
        (state.needs_scan, state.has_tail) = (false, false);
    }
}
