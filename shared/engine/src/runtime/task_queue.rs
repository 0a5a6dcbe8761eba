//! Shell: the queue from the engine, which commits tasks, to the task runner, which makes their calls.

use saga_core::waiting::Task;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::admission::SharedAdmission;

/// Sending end of the queue. Clones share one queue.
#[derive(Clone)]
pub struct TaskQueue {
    tasks: mpsc::UnboundedSender<QueuedTask>,
    admission: SharedAdmission,
}

/// Task that waits for its call.
#[derive(Debug)]
pub struct QueuedTask {
    /// Task under a claim of this process.
    pub task: Task,
    /// Time at which the task was last known to be needed; `None` if that is unknown.
    pub needed_at: Option<Instant>,
}

/// Origin of queued tasks, which tells whether they need a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsNew {
    /// Written by the last commit, so certainly still needed.
    Yes,
    /// Read from the store, so possibly no longer needed.
    No,
}

impl TaskQueue {
    /// Creates a queue and its receiving end, for [`run`](super::task_runner::run).
    #[must_use]
    pub fn new(admission: SharedAdmission) -> (Self, mpsc::UnboundedReceiver<QueuedTask>) {
        // Unbounded, as the engine must never wait for calls that wait for the engine. The admission bounds what is
        // queued: tasks beyond the backlog stay in the store.
        let (tasks, waiting) = mpsc::unbounded_channel();
        (Self { tasks, admission }, waiting)
    }

    /// Queues tasks that this process has claimed. A task that is queued already, as its lease expired meanwhile,
    /// continues under the newer claim.
    pub fn start(&self, tasks: Vec<Task>, is_new: IsNew) {
        let needed_at = (is_new == IsNew::Yes).then(Instant::now);
        for task in tasks {
            let id = task.id;
            let is_taken = self.admission.hold(id, task.claim, is_new == IsNew::No);
            if is_taken && self.tasks.send(QueuedTask { task, needed_at }).is_err() {
                // The task runner has stopped: the lease expires, and the next process takes the task up.
                self.admission.release(id);
            }
        }
    }

    /// Admission of calls, which also bounds the queue.
    #[must_use]
    pub const fn admission(&self) -> &SharedAdmission {
        &self.admission
    }
}
