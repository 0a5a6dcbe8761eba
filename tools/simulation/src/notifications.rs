//! Shell: notifications between the instances of one service about commits. They are hints and may get lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::decision::Writes;
use saga_engine::store::ReplicaSignal;
use tokio::sync::mpsc;

use crate::sim::Sim;

/// Notifications beyond this number get lost.
const CAPACITY: usize = 32;
/// Percentage of notifications that get lost, and that arrive without detail.
const LOST_PERCENT: u8 = 10;
const UNSPECIFIC_PERCENT: u8 = 5;

/// Listeners of one service. Clones share its state.
#[derive(Clone, Default)]
pub struct Notifications(Arc<Mutex<BTreeMap<String, mpsc::Sender<ReplicaSignal>>>>);

impl Notifications {
    /// Registers a listener of this process in place of its previous one.
    pub fn listen(&self, process: &str) -> mpsc::Receiver<ReplicaSignal> {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        self.0.lock().insert(process.to_owned(), sender);
        receiver
    }

    /// Notifies all instances but `by`.
    pub fn notify(&self, sim: &Sim, by: &str, all: &[ReplicaSignal]) {
        let listeners = self.0.lock();
        for (_, listener) in listeners.iter().filter(|(process, _)| *process != by) {
            for notification in all.iter().filter(|_| !sim.chance(LOST_PERCENT)) {
                let notification =
                    if sim.chance(UNSPECIFIC_PERCENT) { ReplicaSignal::Missed } else { notification.clone() };
                let _ = listener.try_send(notification);
            }
        }
    }
}

/// Notifications that follow from a batch.
pub fn notifications_of(writes: &Writes) -> Vec<ReplicaSignal> {
    let due = writes.rows.iter().filter_map(|row| row.projected.due);
    let retries = writes.retries.iter().chain(&writes.retries_again).map(|retry| retry.next_attempt);
    let due = due.chain(retries).chain(writes.task_retries.iter().map(|retry| retry.next_attempt)).min();
    let unclaimed = writes.claim.is_none() && !writes.tasks.is_empty() || !writes.tasks_again.is_empty();
    let due = if unclaimed { Some(writes.decided_at) } else { due };
    let stored = (!writes.outbox.is_empty()).then_some(ReplicaSignal::EntriesStored);
    let changed = writes.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
    let changed = (!changed.is_empty()).then_some(ReplicaSignal::RowsChanged(changed));
    stored.into_iter().chain(due.map(ReplicaSignal::Due)).chain(changed).collect()
}
