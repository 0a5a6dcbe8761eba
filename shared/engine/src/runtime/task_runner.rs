//! Shell: the way of tasks from the engine, which writes them, to what makes their calls.

use saga_core::waiting::Task;
use tokio::sync::mpsc;

use super::admission::SharedAdmission;

/// The way of tasks to what makes their calls. Cheap to clone.
#[derive(Clone)]
pub struct TaskRunner {
    tasks: mpsc::UnboundedSender<Task>,
    admission: SharedAdmission,
}

impl TaskRunner {
    /// The way, and the tasks that [`run`](super::tasks::run) will take up.
    #[must_use]
    pub fn new(admission: SharedAdmission) -> (Self, mpsc::UnboundedReceiver<Task>) {
        // Unbounded, so that the engine, which must never wait for calls that wait for the engine, finds room here
        // always. Consumers wait for slots before they take messages that may bring a task; retries and commands,
        // of which there are few, do not.
        let (tasks, waiting) = mpsc::unbounded_channel();
        (Self { tasks, admission }, waiting)
    }

    /// Takes up tasks that have just been written.
    pub fn start(&self, tasks: Vec<Task>) {
        self.take_up(tasks, false);
    }

    /// Takes up tasks that came due, and that this process has claimed. One that it holds already, because its lease
    /// lapsed meanwhile, goes on under the newer claim.
    pub fn start_due(&self, tasks: Vec<Task>) {
        self.take_up(tasks, true);
    }

    fn take_up(&self, tasks: Vec<Task>, came_due: bool) {
        for task in tasks {
            let id = task.id;
            if self.admission.hold(id, task.claim, came_due) && self.tasks.send(task).is_err() {
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
