//! Shell: notifications while admin's own database takes no writes, which may be the very problem. State and notification are
//! kept in memory. Once the database works, its state counts again, so that a notification may be repeated.

use std::sync::Arc;

use jiff::Timestamp;
use saga_core::decider::Decider as _;
use saga_core::waiting::Task;
use saga_engine::runtime::task_runner::TaskHandler;
use tracing::warn;
use uuid::Uuid;

use super::content::{NOTIFICATION_TASK, Notification};
use super::state::{Intervals, NotificationCommand, NotificationState, Observation};

/// Notifies without a database.
pub struct Storeless {
    handler: Arc<dyn TaskHandler>,
    /// State as last read, or as changed since then by notifications in its absence.
    state: NotificationState,
}

impl Storeless {
    pub fn new(handler: Arc<dyn TaskHandler>) -> Self {
        Self { handler, state: NotificationState::default() }
    }

    /// Takes over the stored state.
    pub fn follow(&mut self, stored: NotificationState) {
        self.state = stored;
    }

    /// Delivers the notification that is due, if any, and returns it.
    pub async fn observe(
        &mut self,
        seen: Observation,
        intervals: Intervals,
        now: Timestamp,
    ) -> Option<Notification> {
        let id = Uuid::now_v7();
        self.apply(NotificationCommand::Observe(seen, intervals), id, now);
        let sent = self.state.in_flight().filter(|sent| sent.id == id)?.clone();
        let task = Task {
            id,
            kind: NOTIFICATION_TASK.to_owned(),
            correlation_id: id,
            payload: serde_json::to_string(&sent).ok()?,
            attempts: 0,
            claim: 0,
            created_at: now,
            dead_letter: None,
            trace: None,
        };
        let end = match self.handler.call(&task).await {
            Ok(_) => NotificationCommand::Deliver(id),
            // Its findings are due again.
            Err(failed) => {
                warn!(notification_id = %id, "notification not delivered, while the database takes no writes: {failed}");
                NotificationCommand::GiveUp(id, failed.to_string())
            }
        };
        self.apply(end, id, now);
        Some(sent)
    }

    fn apply(&mut self, command: NotificationCommand, id: Uuid, now: Timestamp) {
        let events = self.state.decide(&(command, id, now)).unwrap_or_default();
        for event in &events {
            self.state.evolve(event);
        }
    }
}
