//! Shell: the way of tasks from the engine, which writes them, to what makes their calls.

use saga_core::waiting::Task;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::admission::SharedAdmission;

/// The way of tasks to what makes their calls. Cheap to clone.
#[derive(Clone)]
pub struct TaskRunner {
    tasks: mpsc::UnboundedSender<Waiting>,
    admission: SharedAdmission,
}

/// A task that waits for its call.
#[derive(Debug)]
pub struct Waiting {
    /// The task, under a claim of this process.
    pub task: Task,
    /// When its call was last known to be wanted; `None` when that is not known.
    pub wanted_at: Option<Instant>,
}

/// Whether tasks have just been written, so that what was decided then still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsNew {
    /// The commit that wrote them is the last thing that happened.
    Yes,
    /// They come from the store.
    No,
}

impl TaskRunner {
    /// The way, and the tasks that [`run`](super::tasks::run) will take up.
    #[must_use]
    pub fn new(admission: SharedAdmission) -> (Self, mpsc::UnboundedReceiver<Waiting>) {
        // Unbounded, so that the engine, which must never wait for calls that wait for the engine, finds room here
        // always. What waits is bounded all the same: beyond the backlog tasks are left in the store.
        let (tasks, waiting) = mpsc::unbounded_channel();
        (Self { tasks, admission }, waiting)
    }

    /// Takes up tasks that this process has claimed. One that it holds already, because its lease lapsed
    /// meanwhile, goes on under the newer claim.
    pub fn start(&self, tasks: Vec<Task>, is_new: IsNew) {
        let wanted_at = (is_new == IsNew::Yes).then(Instant::now);
        for task in tasks {
            let id = task.id;
            let is_taken = self.admission.hold(id, task.claim, is_new == IsNew::No);
            if is_taken && self.tasks.send(Waiting { task, wanted_at }).is_err() {
                // Nobody makes calls any more: the lease lapses and the next life takes the task up.
                self.admission.release(id);
            }
        }
    }

    /// The admission of the calls.
    #[must_use]
    pub const fn admission(&self) -> &SharedAdmission {
        &self.admission
    }
}
