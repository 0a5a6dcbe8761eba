//! Pure: a dead letter: everything about what was parked, and where it stands.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids;
use crate::trace::{TRACEPARENT, TraceContext};

/// What a dead letter was before it was parked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeadLetterOrigin {
    /// A message of a service of this system.
    #[default]
    Message,
    /// A message that is no envelope, or one that its producer does not say there: nobody knows who sent it.
    Foreign,
    /// A call to the outside.
    Task,
}

impl DeadLetterOrigin {
    /// The name in tables and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Where the broker had a message, and what it carried beside the payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// Name of the stream, e.g. `ORDER`.
    pub stream: String,
    /// Its place there.
    pub sequence: u64,
    /// The subject on which it was said, e.g. `order.created`; empty when an earlier build wrote this down.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Headers, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

/// The header of a fact that shares its place in the stream with others: which of how many it is, e.g. `3/64`. Of the
/// message that carries them all it says how many they are.
pub const PACK_HEADER: &str = "Saga-Pack";

impl Delivery {
    /// The id of what was delivered when it has none of its own: its place is unique, and the part of it if several
    /// facts share one.
    #[must_use]
    pub(crate) fn place_id(&self) -> Uuid {
        match self.headers.iter().find(|(name, _)| name == PACK_HEADER) {
            Some((_, part)) => ids::of_stream_part(&self.stream, self.sequence, part),
            None => ids::of_stream_position(&self.stream, self.sequence),
        }
    }

    /// Where the message stands in its trace, as its header says.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let (_, value) = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT))?;
        TraceContext::parse(value)
    }

    /// The same, of a trace that is recorded from now on.
    #[must_use]
    pub(crate) fn recorded(mut self) -> Self {
        if let Some(trace) = self.trace()
            && let Some((_, value)) =
                self.headers.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT))
        {
            *value = trace.recorded().to_string();
        }
        self
    }
}

/// A message as it was before an operator edited it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OriginalMessage {
    /// The id that it had when it was parked.
    pub message_id: Uuid,
    /// Its payload, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// Any service: an input is parked for a human; again, with one more of `replays`, when a replay failed too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLettered {
    /// Id of the dead letter; stays the same through replays and edits.
    pub id: Uuid,
    /// The service that could not handle it.
    pub service: String,
    /// The step that failed, or the kind of task.
    pub step: String,
    /// What it was.
    #[serde(default)]
    pub origin: DeadLetterOrigin,
    /// Id of the message or task; of the edited message, once it was edited.
    pub message_id: Uuid,
    /// Type of the message, when it could be read.
    pub message_type: Option<String>,
    /// The saga it belongs to, when it could be read.
    pub saga: Option<Uuid>,
    /// The error chain, outermost first, in one line.
    pub reason: String,
    /// The error chain, outermost first, a link each.
    #[serde(default)]
    pub error_chain: Vec<String>,
    /// Groups dead letters of one cause.
    pub fingerprint: String,
    /// Attempts made, those of replays included.
    pub attempts: u32,
    /// When the first attempt failed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub first_failed_at: Timestamp,
    /// When the last attempt failed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub last_failed_at: Timestamp,
    /// Replays that failed.
    #[serde(default)]
    pub replays: u32,
    /// Where the broker had it; absent for tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// The payload byte for byte, base64 (RFC 4648 §4); of the edited message, once it was edited.
    pub payload_base64: String,
    /// Where the try that failed stands in its trace, as a `traceparent` (W3C Trace Context); absent when it was not
    /// traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What was parked at first; absent unless it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMessage>,
}

impl DeadLettered {
    /// From now on the dead letter is about the edited message; what was parked at first is remembered.
    pub fn take_edit(&mut self, edited: &EditedMessage) {
        let payload_base64 = std::mem::replace(&mut self.payload_base64, edited.payload_base64.clone());
        let message_id = std::mem::replace(&mut self.message_id, edited.message_id);
        self.original.get_or_insert(OriginalMessage { message_id, payload_base64 });
    }
}

/// What an operator made of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditedMessage {
    /// Its new id; the envelope inside carries it too.
    pub message_id: Uuid,
    /// Its payload, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// A dead letter as the service that parked it keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// The dead letter.
    pub dead_letter: DeadLettered,
    /// What becomes of it.
    pub status: DeadLetterStatus,
    /// The last command of an operator that had an effect.
    pub revision: u64,
    /// The id under which the step knows the message, whatever became of it since.
    pub known_as: Uuid,
}

/// What becomes of a dead letter.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum DeadLetterStatus {
    /// It waits for a human.
    Pending,
    /// It was handed back, and is being handled.
    Replaying,
    /// It was handled.
    Resolved,
    /// It was given up.
    Discarded,
    /// What it stands for was settled outside, as operators know it; the service that holds it has given it up.
    Settled,
}

impl DeadLetterStatus {
    /// Every status there is.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in tables and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The status with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}
