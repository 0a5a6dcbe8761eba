//! Pure: a dead letter as lists and answers to commands show it.

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::dead_letter::{DeadLetterStatus, ReplayEffect};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::view::DeadLetterView;
use super::worth::Worth;

/// A dead letter in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterItem {
    /// Id of the dead letter; not of what was parked.
    pub id: Uuid,
    /// Whether it waits for a human, is being replayed, or is over.
    pub status: DeadLetterStatus,
    /// The service that parked it.
    pub service: String,
    /// The step that failed, or the kind of task.
    pub step: String,
    /// Whether it is a message, something that is none, or a call.
    pub origin: DeadLetterOrigin,
    /// Id of the message or task; of the edited message, once that failed too.
    pub message_id: Uuid,
    /// Type of the message, when it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// The saga it belongs to, when it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga: Option<Uuid>,
    /// The error chain, outermost first, in one line.
    pub reason: String,
    /// Groups dead letters of one cause.
    pub fingerprint: String,
    /// Attempts made, those of replays included.
    pub attempts: u32,
    /// Replays that failed; at three of them it takes force.
    pub replays: u32,
    /// When the first attempt failed.
    #[schema(value_type = String, format = DateTime)]
    pub first_failed_at: Timestamp,
    /// When the last attempt failed.
    #[schema(value_type = String, format = DateTime)]
    pub last_failed_at: Timestamp,
    /// The redrive that sent it last, unless it was replayed by hand since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redrive: Option<Uuid>,
    /// Whether an operator has edited it.
    pub edited: bool,
    /// What handling it did, once it is resolved; absent when its service did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<ReplayEffect>,
    /// What handling it would be worth; absent in the answers to commands, and once it is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<Worth>,
    /// Grows with everything that happens to it; a command may insist on it.
    pub version: u64,
}

impl DeadLetterItem {
    /// `None` as long as its service has not announced it.
    #[must_use]
    pub fn of(id: Uuid, dead_letter: &DeadLetterView) -> Option<Self> {
        let said = dead_letter.said()?.clone();
        Some(Self {
            id,
            status: dead_letter.status()?,
            service: said.service,
            step: said.step,
            origin: said.origin,
            message_id: said.message_id,
            message_type: said.message_type,
            saga: said.saga,
            reason: said.reason,
            fingerprint: said.fingerprint,
            attempts: said.attempts,
            replays: said.replays,
            first_failed_at: said.first_failed_at,
            last_failed_at: said.last_failed_at,
            redrive: dead_letter.tag().map(|tag| tag.redrive),
            edited: dead_letter.is_edited(),
            effect: dead_letter.effect().cloned(),
            worth: None,
            version: dead_letter.version(),
        })
    }
}
