//! Pure: a dead letter with everything known of it, read from its history.

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLettered, DeliveryInfo, OriginalMessage};
use saga_core::row::StoredEvent;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::events::DeadLetterEvent;
use super::item::DeadLetterItem;
use crate::request::By;

/// A dead letter with everything known of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DeadLetterDetail {
    /// What lists show of it.
    #[serde(flatten)]
    pub item: DeadLetterItem,
    /// The error chain, outermost first, a link each.
    pub error_chain: Vec<String>,
    /// Where the broker had it; absent for calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryInfo>,
    /// Where the try that failed last stands in its trace, as a `traceparent` (W3C Trace Context); absent when it was not
    /// traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The payload, when it is JSON; a card token in it is `***`.
    pub payload: Value,
    /// The payload byte for byte, base64, but for card tokens; empty when it was too large to be announced.
    pub payload_base64: String,
    /// What was parked at first; absent unless it was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMessage>,
    /// What operators wrote down, oldest first.
    pub notes: Vec<NoteView>,
    /// What happened to it, oldest first.
    pub history: Vec<HistoryEntry>,
}

/// What an operator wrote down about a dead letter.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NoteView {
    /// When it was written down.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The name of the operator who did.
    pub operator: String,
    /// The note, 1 to 2000 characters.
    pub text: String,
}

/// Something that happened to a dead letter.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HistoryEntry {
    /// When admin heard of it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `parked`, `replayed`, `failed again` and the like, in the past tense.
    pub what: &'static str,
    /// Who wanted it; absent for what the service said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Why the operator wanted it, when there is a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What else is known: the error, the redrive, the text of the note.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
}

/// What the history of a dead letter holds.
#[derive(Debug, Default)]
pub struct History {
    /// What the service said last, with the payload.
    pub announced: Option<DeadLettered>,
    notes: Vec<NoteView>,
    entries: Vec<HistoryEntry>,
}

impl History {
    /// Takes the next event, oldest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn take(&mut self, event: &StoredEvent) -> serde_json::Result<()> {
        let at = event.recorded_at;
        let (what, by, detail) = match serde_json::from_str(&event.data)? {
            DeadLetterEvent::Announced(announced) => {
                let DeadLettered { service, step, reason, fingerprint, attempts, replays, .. } = &*announced;
                let what = if *replays == 0 { "parked" } else { "failed again" };
                let detail = json!({
                    "service": service, "step": step, "error": reason, "fingerprint": fingerprint,
                    "attempts": attempts, "replays": replays,
                });
                self.announced = Some(*announced);
                (what, None, Some(detail))
            }
            DeadLetterEvent::Resolved(resolved) => {
                let detail = json!({ "message_id": resolved.message_id, "replays": resolved.replays });
                ("resolved", None, Some(detail))
            }
            DeadLetterEvent::Replayed { by, tag, edited, .. } => {
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
            DeadLetterEvent::Discarded { by, .. } => ("discarded", Some(by), None),
            DeadLetterEvent::Restored { by, .. } => ("restored", Some(by), None),
            DeadLetterEvent::Settled { by, .. } => ("settled outside", Some(by), None),
            DeadLetterEvent::Unsettled { by, .. } => ("no longer settled", Some(by), None),
            DeadLetterEvent::Forgotten(_) => ("forgotten by its service", None, None),
            DeadLetterEvent::Noted { by, text } => {
                let (operator, detail) = (by.operator.clone(), json!({ "text": text }));
                self.notes.push(NoteView { at, operator, text });
                ("noted", Some(by), Some(detail))
            }
        };
        let (operator, reason) = by.map_or((None, None), |By { operator, reason }| (Some(operator), reason));
        self.entries.push(HistoryEntry { at, what, operator, reason, detail });
        Ok(())
    }

    /// Everything known of the dead letter that has this history; `payload` is [`DeadLettered::payload_base64`],
    /// decoded. `None` as long as its service has not announced it.
    #[must_use]
    pub fn detail(self, item: DeadLetterItem, payload: Value) -> Option<DeadLetterDetail> {
        let announced = self.announced?;
        Some(DeadLetterDetail {
            item: DeadLetterItem { message_id: announced.message_id, ..item },
            error_chain: announced.error_chain,
            delivery: announced.delivery,
            trace: announced.trace,
            payload,
            payload_base64: announced.payload_base64,
            original: announced.original,
            notes: self.notes,
            history: self.entries,
        })
    }
}
