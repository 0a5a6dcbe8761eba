//! Pure: a dead letter in full, read from its events.

use admin_api::dead_letters::{DeadLetterDetail, DeadLetterItem, HistoryEntry, NoteView};
use saga_core::dead_letter::DeadLettered;
use saga_core::row::StoredEvent;
use serde_json::{Value, json};

use super::events::DeadLetterEvent;
use admin_api::actor::Actor;

/// The events of a dead letter, as people see them.
#[derive(Debug, Default)]
pub struct History {
    /// Last report of the service, with the payload.
    pub announced: Option<DeadLettered>,
    notes: Vec<NoteView>,
    entries: Vec<HistoryEntry>,
}

impl History {
    /// Takes the next event, oldest first.
    pub fn take(&mut self, event: &StoredEvent) -> serde_json::Result<()> {
        let at = event.recorded_at;
        let (what, by, detail) = match serde_json::from_str(&event.data)? {
            DeadLetterEvent::Announced(announced) => {
                let DeadLettered { service, step, reason, fingerprint, attempts, replays, .. } = &*announced;
                let what = if *replays == 0 { "dead-lettered" } else { "failed again" };
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
            DeadLetterEvent::ResolvedManually { by, .. } => ("resolved manually", Some(by), None),
            DeadLetterEvent::ResolutionWithdrawn { by, .. } => ("resolution withdrawn", Some(by), None),
            DeadLetterEvent::Forgotten(_) => ("gone at its service", None, None),
            DeadLetterEvent::Noted { by, text } => {
                let (operator, detail) = (by.operator.clone(), json!({ "text": text }));
                self.notes.push(NoteView { at, operator, text });
                ("noted", Some(by), Some(detail))
            }
        };
        let (operator, reason) =
            by.map_or((None, None), |Actor { operator, reason }| (Some(operator), reason));
        self.entries.push(HistoryEntry { at, what: what.to_owned(), operator, reason, detail });
        Ok(())
    }

    /// Builds the full dead letter; `None` until the service has reported it. `payload` is the decoded
    /// [`DeadLettered::payload_base64`].
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
