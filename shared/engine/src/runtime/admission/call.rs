//! Shell: admission of calls: permits for calls, and room for the tasks that messages create.

use std::time::Duration;

use saga_core::admission::CallResult;
use saga_core::breaker::Permit;
use saga_core::retry::FailureKind;
use uuid::Uuid;

use super::SharedAdmission;

/// Slot for the task that a message may create, until the message is processed.
#[must_use]
pub struct TaskSlot {
    shared: SharedAdmission,
}

impl TaskSlot {
    pub(super) const fn new(shared: SharedAdmission) -> Self {
        Self { shared }
    }
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        if self.shared.with(|admission, _| admission.return_slot()) {
            self.shared.0.timers.notify_one();
        }
    }
}

/// Permit for one call, which also measures it. Dropped without an end it counts as a failure: the call was cut off.
#[must_use]
pub struct CallPermit {
    shared: SharedAdmission,
    permit: Option<Permit>,
    began: Duration,
    is_open: bool,
}

impl CallPermit {
    pub(super) const fn new(shared: SharedAdmission, permit: Option<Permit>, began: Duration) -> Self {
        Self { shared, permit, began, is_open: true }
    }

    /// Reports the end of the call of `task`. Returns the kind of failure that a failed call is.
    pub fn end(mut self, task: Uuid, end: CallResult) -> FailureKind {
        self.is_open = false;
        let (permit, began) = (self.permit.take(), self.began);
        self.shared.with(|admission, at| admission.end_call(task, permit, end, at.saturating_sub(began), at))
    }

    /// Lets no call of this process begin for `time`, as the dependency asked.
    pub fn pause_calls(&self, time: Duration) {
        self.shared.with(|admission, at| admission.pause_calls(at.saturating_add(time)));
    }

    /// Returns the permit without a call.
    pub fn give_back(mut self) {
        self.is_open = false;
        let permit = self.permit.take();
        self.shared.with(|admission, at| admission.return_call(permit, at));
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if self.is_open {
            let (permit, began) = (self.permit.take(), self.began);
            self.shared.with(|admission, at| admission.abort_call(permit, at.saturating_sub(began), at));
        }
    }
}
