//! Shell: what the instances of one service tell each other of their commits; a hint, which may get lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::decision::Writes;
use saga_engine::store::Heard;
use tokio::sync::mpsc;

use crate::sim::Sim;

/// What finds no room gets lost.
const WAITING: usize = 32;
/// Percent of what is said that is not heard, and that is heard as something.
const LOST: u8 = 10;
const UNCLEAR: u8 = 5;

/// Who of the instances of one service listens. Clones are the same.
#[derive(Clone, Default)]
pub struct Sayings(Arc<Mutex<BTreeMap<String, mpsc::Sender<Heard>>>>);

impl Sayings {
    /// A life of this process listens, and no earlier one any more.
    #[must_use]
    pub fn listen(&self, process: &str) -> mpsc::Receiver<Heard> {
        let (says, heard) = mpsc::channel(WAITING);
        self.0.lock().insert(process.to_owned(), says);
        heard
    }

    /// Tells all but `by`.
    pub fn say(&self, sim: &Sim, by: &str, all: &[Heard]) {
        let listening = self.0.lock();
        for (_, says) in listening.iter().filter(|(process, _)| *process != by) {
            for heard in all.iter().filter(|_| !sim.chance(LOST)) {
                let heard = if sim.chance(UNCLEAR) { Heard::Anything } else { heard.clone() };
                let _ = says.try_send(heard);
            }
        }
    }
}

/// What is said of a batch.
#[must_use]
pub fn said_of(writes: &Writes) -> Vec<Heard> {
    let due = writes.rows.iter().filter_map(|row| row.projected.due);
    let retries = writes.retries.iter().chain(&writes.retries_again).map(|retry| retry.next_attempt);
    let due = due.chain(retries).chain(writes.task_retries.iter().map(|retry| retry.next_attempt)).min();
    let unclaimed = writes.claim.is_none() && !writes.tasks.is_empty() || !writes.tasks_again.is_empty();
    let due = if unclaimed { Some(writes.decided_at) } else { due };
    let promised = (!writes.outbox.is_empty()).then_some(Heard::Promised);
    let changed = writes.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
    let changed = (!changed.is_empty()).then_some(Heard::Changed(changed));
    promised.into_iter().chain(due.map(Heard::Due)).chain(changed).collect()
}
