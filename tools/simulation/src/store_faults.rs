//! Shell: planted faults in what a process reads from its database and writes there.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decision::{InboxState, Loaded, Writes};
use saga_core::message::Envelope;
use saga_core::service::Step;
use saga_core::waiting::Retry;
use saga_engine::store::{Due, DueQuery};
use uuid::Uuid;

use crate::bus::SharedBroker;
use crate::planted_fault::PlantedFault;

/// A planted fault in one life of a process. Clones share its state.
#[derive(Clone)]
pub struct StoreFaults {
    planted_fault: PlantedFault,
    steps: Arc<Vec<&'static Step>>,
    memory: Arc<Mutex<Memory>>,
    /// Messages of discarded dead letters that steps have forgotten. Crashes do not restore them.
    forgotten: Forgotten,
}

/// (step, inbox id) of messages that a service has forgotten.
pub type Forgotten = Arc<Mutex<Vec<(&'static str, Uuid)>>>;

/// State lost in a crash.
#[derive(Default)]
struct Memory {
    /// Retries that are not in the database.
    retries: Vec<Retry>,
    /// Replays to publish to all consumers.
    replays: Vec<Retry>,
    /// True after a commit whose reply was lost.
    is_reply_lost: bool,
}

impl StoreFaults {
    pub fn new(planted_fault: PlantedFault, steps: Vec<&'static Step>, forgotten: Forgotten) -> Self {
        Self { planted_fault, steps: Arc::new(steps), memory: Arc::default(), forgotten }
    }

    /// True if a planted fault concerns lost replies, for which each batch must be found out about.
    pub fn misjudges_lost_replies(&self) -> bool {
        [PlantedFault::LostReplyRepeatsWork, PlantedFault::LostReplyIgnored].contains(&self.planted_fault)
    }

    /// Records whether the reply to the last commit was lost.
    pub fn set_reply_lost(&self, is_reply_lost: bool) {
        self.memory.lock().is_reply_lost = is_reply_lost;
    }

    /// Alters the answer to whether a batch was committed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
    pub const fn judge_lost_reply(&self, is_committed: bool) -> bool {
        match self.planted_fault {
            PlantedFault::LostReplyRepeatsWork => false,
            PlantedFault::LostReplyIgnored => true,
            _ => is_committed,
        }
    }

    /// Alters what a batch has read.
    pub fn alter_loaded(&self, loaded: &mut Loaded) {
        if self.planted_fault == PlantedFault::LostReplyRepeatsWork && self.memory.lock().is_reply_lost {
            loaded.inbox.clear();
        }
        for retry in &self.memory.lock().retries {
            let key = self.step(&retry.step).map(|step| (step, retry.message_id));
            loaded.inbox.extend(key.map(|key| (key, InboxState::Retrying)));
        }
        let forgotten = self.forgotten.lock();
        loaded.inbox.retain(|key, state| *state != InboxState::DeadLettered || !forgotten.contains(key));
    }

    /// Alters what a batch writes.
    #[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
    pub fn alter_writes(&self, writes: &mut Writes) {
        match self.planted_fault {
            PlantedFault::ReplayMarksInbox => {
                let replayed = writes.retries.iter().filter(|retry| is_replay(retry));
                writes
                    .inbox
                    .extend(replayed.filter_map(|retry| Some((self.step(&retry.step)?, retry.message_id))));
            }
            PlantedFault::ReplayToAllConsumers => {
                let replayed = writes.retries.iter().filter(|retry| is_replay(retry));
                self.memory.lock().replays.extend(replayed.cloned());
            }
            PlantedFault::EditLeavesOriginal => writes.changed_dead_letters.iter_mut().for_each(|stored| {
                leave_original(stored, &mut writes.retries);
            }),
            PlantedFault::VoidNotPublished => {
                writes.outbox.retain(|entry| !entry.subject.ends_with(".voided"))
            }
            PlantedFault::DeadLetterNotAnnounced => {
                writes.outbox.retain(|entry| !entry.subject.ends_with(".dead_lettered"));
            }
            PlantedFault::DiscardForgets => {
                let is_discarded = |stored: &&StoredDeadLetter| stored.status == DeadLetterStatus::Discarded;
                let key =
                    |stored: &StoredDeadLetter| Some((self.step(&stored.dead_letter.step)?, stored.inbox_id));
                let discarded = writes.changed_dead_letters.iter().filter(is_discarded);
                self.forgotten.lock().extend(discarded.filter_map(key));
            }
            PlantedFault::RetryInMemory => {
                let retries = &mut self.memory.lock().retries;
                let is_over = |retry: &Retry, writes: &Writes| {
                    let is_same = |(step, id): &(&str, Uuid)| *step == retry.step && *id == retry.message_id;
                    let newer = |new: &Retry| new.step == retry.step && new.message_id == retry.message_id;
                    writes.retries_done.iter().any(is_same) || writes.retries.iter().any(newer)
                };
                retries.retain(|retry| !is_over(retry, writes));
                retries.append(&mut writes.retries);
            }
            _ => {}
        }
    }

    /// Alters what has come due.
    #[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
    pub fn alter_due(&self, due: &mut Due, query: &DueQuery) {
        match self.planted_fault {
            PlantedFault::NoDeadline => due.rows.clear(),
            PlantedFault::TasksNotRecovered => due.tasks.clear(),
            PlantedFault::RetryInMemory => {
                let memory = self.memory.lock();
                let is_due =
                    |retry: &&Retry| retry.next_attempt <= query.now && query.steps.contains(&retry.step);
                due.retries.extend(memory.retries.iter().filter(is_due).cloned());
                let next = memory.retries.iter().map(|retry| retry.next_attempt);
                let later = next.filter(|at| *at > query.now);
                due.next = due.next.into_iter().chain(later).min().filter(|at| *at < Timestamp::MAX);
            }
            _ => {}
        }
    }

    /// Publishes replays to all consumers of the subject.
    pub fn publish_replays(&self, broker: &SharedBroker) {
        for retry in std::mem::take(&mut self.memory.lock().replays) {
            let index = retry.delivery.map(|delivery| usize::try_from(delivery.sequence));
            let Some(Ok(index)) = index else { continue };
            let subject = broker.lock().messages()[index].subject.clone();
            let id = Envelope::from_bytes(&retry.payload).map_or(Uuid::nil(), |envelope| envelope.id);
            broker.store(id, &subject, Bytes::clone(&retry.payload), true);
        }
    }

    fn step(&self, name: &str) -> Option<&'static str> {
        self.steps.iter().find(|step| step.name == name).map(|step| step.name)
    }
}

fn is_replay(retry: &Retry) -> bool {
    retry.dead_letter.is_some() && retry.attempts == 0
}

/// Processes the edited message beside the original, which stays.
fn leave_original(stored: &mut StoredDeadLetter, retries: &mut [Retry]) {
    let Some(original) = stored.dead_letter.original.take() else { return };
    let is_own = |retry: &&mut Retry| is_replay(retry) && retry.dead_letter == Some(stored.dead_letter.id);
    if let Some(retry) = retries.iter_mut().find(is_own) {
        retry.message_id = stored.dead_letter.message_id;
        retry.dead_letter = None;
        stored.dead_letter.message_id = original.message_id;
        stored.dead_letter.payload_base64 = original.payload_base64;
        stored.status = DeadLetterStatus::Pending;
    }
}
