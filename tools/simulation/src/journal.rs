//! Pure: the effects of each batch and the inputs it combined, which laws need and databases purge.

use std::collections::{BTreeMap, BTreeSet};

use contract::order::CancelReason;
use jiff::Timestamp;
use order::domain::{Order, OrderEvent};
use saga_core::dead_letter::{DeadLetterOrigin, DeadLetterStatus};
use saga_core::decider::Decider as _;
use saga_core::decision::{InboxState, Loaded, Reads, Writes};
use uuid::Uuid;

/// Commits of one service's instances, in order. Crashes do not lose it.
#[derive(Debug, Default)]
pub struct Journal {
    /// (step, inbox id) of each processed message.
    pub handled: Vec<(&'static str, Uuid)>,
    /// Number of committed inputs, by instance.
    pub inputs: BTreeMap<String, u64>,
    /// Number of injected failures of past faults.
    pub injected: u64,
    /// Deadline with which each order was placed.
    pub deadlines: BTreeMap<String, Timestamp>,
    /// Tokens of committed batches, by which a lost reply is found out.
    pub tokens: BTreeSet<Uuid>,
    /// True once a batch could not be stored.
    pub has_store_failed: bool,
}

/// Number of inputs of each kind in one batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchInputs {
    pub commands: u64,
    /// Messages delivered by the broker.
    pub messages: u64,
    /// Messages that had failed before.
    pub retries: u64,
    pub results: u64,
    pub due: u64,
}

impl BatchInputs {
    pub fn kinds(&self) -> usize {
        self.counts().into_iter().filter(|count| *count > 0).count()
    }

    pub fn inputs(&self) -> u64 {
        self.counts().into_iter().sum()
    }

    const fn counts(&self) -> [u64; 5] {
        [self.commands, self.messages, self.retries, self.results, self.due]
    }

    /// Counts messages and retries, which only the reads distinguish.
    pub fn count_messages(&mut self, reads: &Reads, loaded: &Loaded) {
        let retries = loaded.inbox.values().filter(|state| **state == InboxState::Retrying).count() as u64;
        self.retries = retries;
        self.messages = reads.inbox.len() as u64 - retries;
    }
}

#[derive(Debug, Default)]
pub struct BatchEffects {
    /// (step, inbox id) of each processed message.
    pub handled: Vec<(&'static str, Uuid)>,
    pub retried: Vec<String>,
    /// Orders placed with their deadlines, and orders cancelled at theirs.
    pub placed: Vec<(String, Timestamp)>,
    pub timed_out: Vec<String>,
    /// (step, origin, reason) of each new dead letter, and of each that failed again.
    pub dead_lettered: Vec<(String, DeadLetterOrigin, String)>,
}

impl BatchEffects {
    /// Extracts the effects from the writes.
    pub fn of(writes: &Writes) -> Self {
        let mut entry = Self { handled: writes.inbox.clone(), ..Self::default() };
        for event in writes.events.iter().filter(|event| event.key.kind == Order::KIND) {
            match serde_json::from_str(&event.data) {
                Ok(OrderEvent::Placed(placed)) => entry.placed.push((event.key.id.clone(), placed.deadline)),
                Ok(OrderEvent::Cancelled(CancelReason::TimedOut)) => {
                    entry.timed_out.push(event.key.id.clone());
                }
                Ok(_) | Err(_) => {}
            }
        }
        entry.retried.extend(
            writes.retries.iter().filter(|retry| retry.attempts > 0).map(|retry| retry.last_error.clone()),
        );
        entry.retried.extend(writes.task_retries.iter().map(|retry| retry.last_error.clone()));
        let again =
            writes.changed_dead_letters.iter().filter(|stored| stored.status == DeadLetterStatus::Pending);
        // A replayed dead letter is new only if it failed in this batch.
        let again = again
            .map(|stored| &stored.dead_letter)
            .filter(|dead_letter| dead_letter.last_failed_at == writes.decided_at);
        for dead_letter in writes.new_dead_letters.iter().chain(again) {
            let reason = dead_letter.reason.clone();
            entry.dead_lettered.push((dead_letter.step.clone(), dead_letter.origin, reason));
        }
        // Messages from outside the system leave no inbox mark.
        let is_foreign = |(step, id): &&(&str, Uuid)| {
            writes.changed_dead_letters.iter().any(|stored| {
                let dead_letter = &stored.dead_letter;
                let is_same = dead_letter.step == *step && stored.inbox_id == *id;
                is_same
                    && stored.status == DeadLetterStatus::Resolved
                    && dead_letter.origin == DeadLetterOrigin::Foreign
            })
        };
        entry.handled.extend(writes.retries_done.iter().filter(is_foreign));
        entry
    }
}
