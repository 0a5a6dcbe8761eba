//! Pure: what became of every message at every step, and what stood together in one batch: what a database
//! forgets and a law wants to know.

use std::collections::BTreeMap;

use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decision::{InboxState, Loaded, Reads, Writes};
use uuid::Uuid;

/// What the instances of one service have committed, in the order of the commits. No crash forgets it.
#[derive(Debug, Default)]
pub struct Journal {
    /// Messages that a step is done with, under the ids by which it knows them.
    pub handled: Vec<(&'static str, Uuid)>,
    /// Inputs that each instance has committed.
    pub inputs: BTreeMap<String, u64>,
    /// How often injected faults struck that are over.
    pub injected: u64,
    /// Whether a batch could not be stored.
    pub has_store_failed: bool,
}

/// How many inputs of each kind stood in one batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch {
    pub commands: u64,
    /// Messages that the broker delivered.
    pub messages: u64,
    /// Messages that had failed before.
    pub retries: u64,
    pub results: u64,
    /// Rows whose time had come.
    pub due: u64,
}

impl Batch {
    /// How many kinds there are.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.counts().into_iter().filter(|count| *count > 0).count()
    }

    /// How many inputs there are.
    #[must_use]
    pub fn inputs(&self) -> u64 {
        self.counts().into_iter().sum()
    }

    const fn counts(&self) -> [u64; 5] {
        [self.commands, self.messages, self.retries, self.results, self.due]
    }

    /// Takes from the reads what the service is not told: which messages are there, and which of them had failed.
    pub fn count_messages(&mut self, reads: &Reads, loaded: &Loaded) {
        let waited = loaded.inbox.values().filter(|state| **state == InboxState::Waiting).count() as u64;
        self.retries = waited;
        self.messages = reads.inbox.len() as u64 - waited;
    }
}

/// What a batch came to, as the laws want to know it.
#[derive(Debug, Default)]
pub struct Entry {
    /// Messages that a step is done with.
    pub handled: Vec<(&'static str, Uuid)>,
    /// Why messages and calls are tried again.
    pub retried: Vec<String>,
    /// Why inputs are parked, each with its step, origin, and whether it had been replayed.
    pub parked: Vec<(String, DeadLetterOrigin, String)>,
}

impl Entry {
    /// What these writes come to.
    #[must_use]
    pub fn of(writes: &Writes) -> Self {
        let mut entry = Self { handled: writes.inbox.clone(), ..Self::default() };
        entry.retried.extend(
            writes.retries.iter().filter(|retry| retry.attempts > 0).map(|retry| retry.last_error.clone()),
        );
        entry.retried.extend(writes.task_retries.iter().map(|retry| retry.last_error.clone()));
        let again = writes.dead_letters.iter().filter(|stored| stored.status == DeadLetterStatus::Pending);
        // A dead letter that was taken up again says nothing new: only one that failed at this very moment does.
        let again = again
            .map(|stored| &stored.dead_letter)
            .filter(|dead_letter| dead_letter.last_failed_at == writes.decided_at);
        for dead_letter in writes.parked.iter().chain(again) {
            let reason = dead_letter.reason.clone();
            entry.parked.push((dead_letter.step.clone(), dead_letter.origin, reason));
        }
        // What nobody of this system sent leaves no mark.
        let is_foreign = |(step, id): &&(&str, Uuid)| {
            writes.dead_letters.iter().any(|stored| {
                let dead_letter = &stored.dead_letter;
                let is_it = dead_letter.step == *step && stored.known_as == *id;
                is_it
                    && stored.status == DeadLetterStatus::Resolved
                    && dead_letter.origin == DeadLetterOrigin::Foreign
            })
        };
        entry.handled.extend(writes.retries_done.iter().filter(is_foreign));
        entry
    }
}
