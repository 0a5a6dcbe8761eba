//! Shell: the way of promises from the engine, which has committed them, to the relay, which publishes them: in memory,
//! so that what was just written need not be read. The outbox alone is what counts; whatever is lost here is read there.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::OutboxEntry;

/// Entries kept here while the relay is busy; with more it reads the outbox, as after an outage. So many wait when 4,000
/// messages per second meet a publish that takes a second.
const KEPT: usize = 4096;

/// Where the engine leaves what it has promised, and wakes the relay.
#[derive(Default)]
pub struct Handover {
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// In the order of the line, none missing between two.
    entries: VecDeque<OutboxEntry>,
    /// The outbox holds something that is not here, and nobody knows where.
    look: bool,
    /// Others have promised something: it stands in line behind what is published.
    is_more_in_line: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { entries: VecDeque::new(), look: true, is_more_in_line: false }
    }
}

/// What the relay is to publish next.
pub(super) enum Next {
    /// These, which follow each other and what was published before.
    Entries(Vec<OutboxEntry>),
    /// Whatever stands in line behind this position, up to which all is published.
    Behind(i64),
    /// Whatever the outbox says.
    Look,
}

impl Handover {
    /// Leaves what a batch has promised, as the store answered it; nothing when the store does not know its places.
    pub fn give(&self, entries: Vec<OutboxEntry>) {
        let mut state = self.state.lock();
        if entries.is_empty() || state.entries.len() + entries.len() > KEPT {
            state.entries.clear();
            state.look = true;
        } else {
            state.entries.extend(entries);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Has the relay read the outbox, in which something was changed.
    pub fn look_again(&self) {
        self.state.lock().look = true;
        self.wake.notify_one();
    }

    /// Has the relay read what stands in line behind what is published: another process has promised something.
    pub fn look_behind(&self) {
        self.state.lock().is_more_in_line = true;
        self.wake.notify_one();
    }

    /// Resolves when there may be something to publish. Arm it before looking.
    pub fn woken(&self) -> impl Future<Output = ()> + Send + '_ {
        self.wake.notified()
    }

    /// What follows `published`, the position up to which everything in line is published; at most `limit` entries.
    pub(super) fn next(&self, published: Option<i64>, limit: usize) -> Next {
        let mut state = self.state.lock();
        let Some(published) = published.filter(|_| !state.look) else {
            return Next::Look;
        };
        while state.entries.pop_front_if(|entry| entry.seq <= published).is_some() {}
        let follows = |(index, entry): (usize, &OutboxEntry)| {
            i64::try_from(index).is_ok_and(|index| entry.seq == published + 1 + index)
        };
        let count = state.entries.iter().enumerate().take(limit).take_while(|next| follows(*next)).count();
        match count {
            // Between what is published and what is here stands something of another process.
            0 if state.is_more_in_line || !state.entries.is_empty() => {
                state.is_more_in_line = false;
                Next::Behind(published)
            }
            count => Next::Entries(state.entries.drain(..count).collect()),
        }
    }

    /// The relay reads the outbox now, which holds all that is here: what changes from here on may be missed by that look.
    pub(super) fn look_now(&self) {
        let mut state = self.state.lock();
        state.entries.clear();
        (state.look, state.is_more_in_line) = (false, false);
    }
}
