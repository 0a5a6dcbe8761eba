//! Pure: a dead letter as operators see it: in a list, and with everything known of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::contract::{DeadLettered, Delivery, LetterOrigin, OriginalMessage};
use shared::row::StoredEvent;
use shared::store::LetterStatus;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::letters::{By, Letter, LetterEvent};

/// A dead letter in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LetterItem {
    /// Its id.
    pub id: Uuid,
    /// Where it stands.
    pub status: LetterStatus,
    /// The service that parked it.
    pub service: String,
    /// The step that failed, or the kind of task.
    pub step: String,
    /// What it was.
    pub origin: LetterOrigin,
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
    /// Replays that failed.
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
    /// Grows with everything that happens to it.
    pub version: u64,
}

impl LetterItem {
    /// A letter as lists show it; `None` as long as its service has not announced it.
    #[must_use]
    pub fn of(id: Uuid, letter: &Letter) -> Option<Self> {
        let said = letter.said()?.clone();
        Some(Self {
            id,
            status: letter.status()?,
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
            redrive: letter.tag().map(|tag| tag.redrive),
            edited: letter.is_edited(),
            version: letter.version(),
        })
    }
}

/// A dead letter with everything known of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LetterDetail {
    /// The letter.
    #[serde(flatten)]
    pub letter: LetterItem,
    /// The error chain, outermost first, a link each.
    pub error_chain: Vec<String>,
    /// Where the broker had it; absent for calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// The payload, when it is JSON.
    pub payload: Value,
    /// The payload byte for byte, base64; empty when it was too large to be announced.
    pub payload_base64: String,
    /// What was parked at first; absent unless it was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMessage>,
    /// What operators wrote down, oldest first.
    pub notes: Vec<NoteView>,
    /// What happened to it, oldest first.
    pub history: Vec<Moment>,
}

/// A note.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NoteView {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Who.
    pub operator: String,
    /// What.
    pub text: String,
}

/// Something that happened to a letter.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Moment {
    /// When admin heard of it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What.
    pub what: &'static str,
    /// Who wanted it; absent for what the service said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// More.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
}

/// What a letter's history holds.
#[derive(Debug, Default)]
pub struct History {
    /// What the service said last, with the payload.
    pub announced: Option<DeadLettered>,
    notes: Vec<NoteView>,
    moments: Vec<Moment>,
}

impl History {
    /// Reads a history, oldest event first.
    ///
    /// # Errors
    /// When an event cannot be read.
    pub fn of(events: &[StoredEvent]) -> serde_json::Result<Self> {
        let mut history = Self::default();
        for event in events {
            history.take(serde_json::from_str(&event.data)?, event.recorded_at);
        }
        Ok(history)
    }

    fn take(&mut self, event: LetterEvent, at: Timestamp) {
        let (what, by, detail) = match event {
            LetterEvent::Announced(announced) => {
                let DeadLettered { service, step, reason, fingerprint, attempts, replays, .. } = &*announced;
                let what = if *replays == 0 { "parked" } else { "failed again" };
                let detail = json!({
                    "service": service, "step": step, "error": reason, "fingerprint": fingerprint,
                    "attempts": attempts, "replays": replays,
                });
                self.announced = Some(*announced);
                (what, None, Some(detail))
            }
            LetterEvent::Resolved(resolved) => {
                let detail = json!({ "message_id": resolved.message_id, "replays": resolved.replays });
                ("resolved", None, Some(detail))
            }
            LetterEvent::Replayed { by, tag, edited, .. } => {
                let redrive = tag.map(|tag| json!({ "redrive": tag.redrive, "round": tag.round }));
                match edited {
                    Some(edited) => {
                        let detail = json!({ "message_id": edited.message_id });
                        self.announced.iter_mut().for_each(|announced| announced.take_edit(&edited));
                        ("edited and replayed", Some(by), Some(detail))
                    }
                    None => ("replayed", Some(by), redrive),
                }
            }
            LetterEvent::Discarded { by, .. } => ("discarded", Some(by), None),
            LetterEvent::Restored { by } => ("restored", Some(by), None),
            LetterEvent::Noted { by, text } => {
                let (operator, detail) = (by.operator.clone(), json!({ "text": text }));
                self.notes.push(NoteView { at, operator, text });
                ("noted", Some(by), Some(detail))
            }
        };
        let (operator, reason) = by.map_or((None, None), |By { operator, reason }| (Some(operator), reason));
        self.moments.push(Moment { at, what, operator, reason, detail });
    }

    /// Everything known of the letter that has this history; `payload` is [`DeadLettered::payload_base64`],
    /// decoded. `None` as long as its service has not announced it.
    #[must_use]
    pub fn detail(self, letter: LetterItem, payload: Value) -> Option<LetterDetail> {
        let announced = self.announced?;
        Some(LetterDetail {
            letter: LetterItem { message_id: announced.message_id, ..letter },
            error_chain: announced.error_chain,
            delivery: announced.delivery,
            payload,
            payload_base64: announced.payload_base64,
            original: announced.original,
            notes: self.notes,
            history: self.moments,
        })
    }
}
