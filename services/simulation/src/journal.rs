//! Pure: what became of every message at every step: what a database forgets and a law wants to know.

use shared::engine::{Input, Matter};
use shared::service::Service;
use uuid::Uuid;

/// What a commit made of a message.
#[derive(Debug, Clone)]
pub struct Note {
    /// The step.
    pub step: &'static str,
    /// The message.
    pub message: Uuid,
    /// The id under which the step knows it.
    pub known_as: Uuid,
    /// The outcome's name.
    pub outcome: &'static str,
}

impl Note {
    /// What is noted of an input, but for its outcome; `None` when it is no message.
    #[must_use]
    pub fn of<S: Service>(input: &Input<S>) -> Option<Self> {
        match &input.matter {
            Matter::Message { step, earlier, .. } => {
                let known_as = earlier.as_ref().map_or(input.id, |earlier| earlier.message_id);
                Some(Self { step: step.name, message: input.id, known_as, outcome: "" })
            }
            Matter::Command { .. } | Matter::Called { .. } | Matter::Due { .. } => None,
        }
    }

    /// Whether the step is done with it.
    #[must_use]
    pub fn is_handled(&self) -> bool {
        ["done", "rejected"].contains(&self.outcome)
    }
}
