//! Pure: a dead letter, its status and its stored form.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids;
use crate::trace::{TRACEPARENT, TraceContext};

/// Origin of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeadLetterOrigin {
    /// Message of a service of this system.
    Message,
    /// Foreign message: no envelope, or one that its producer does not publish there.
    Foreign,
    /// Task whose attempts all failed.
    Task,
}

impl DeadLetterOrigin {
    /// Name in tables and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Broker metadata of a delivered message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeliveryInfo {
    /// Name of the stream, e.g. `ORDER`.
    pub stream: String,
    /// Sequence number in the stream.
    pub sequence: u64,
    /// Subject, e.g. `order.created`; empty for edited messages, which were published on none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Headers of the message, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

/// Header of a fact that shares a broker message with others: its index and their number, e.g. `3/64`. On the
/// broker message itself: the number of facts.
pub const PACK_HEADER: &str = "Saga-Pack";

/// Header with the trace context of the operator's request for the newest replay.
const REPLAY_TRACE_HEADER: &str = "Saga-Replay-Trace";

impl DeliveryInfo {
    /// Records the request for a replay.
    #[must_use]
    pub(crate) fn requested_by(mut self, trace: Option<TraceContext>) -> Self {
        self.headers.retain(|(name, _)| name != REPLAY_TRACE_HEADER);
        if let Some(trace) = trace {
            self.headers.push((REPLAY_TRACE_HEADER.to_owned(), trace.to_string()));
            self.headers.sort();
        }
        self
    }

    /// Trace context of the request for the newest replay.
    #[must_use]
    pub(crate) fn replay_request(&self) -> Option<TraceContext> {
        let (_, value) = self.headers.iter().find(|(name, _)| name == REPLAY_TRACE_HEADER)?;
        TraceContext::parse(value)
    }

    /// Id for a message without a readable id, derived from the stream position and the index within the pack.
    #[must_use]
    pub(crate) fn fallback_id(&self) -> Uuid {
        match self.headers.iter().find(|(name, _)| name == PACK_HEADER) {
            Some((_, part)) => ids::of_stream_part(&self.stream, self.sequence, part),
            None => ids::of_stream_position(&self.stream, self.sequence),
        }
    }

    /// Trace context from the headers.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let (_, value) = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT))?;
        TraceContext::parse(value)
    }

    /// Marks the trace as recorded.
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

/// Message before an operator edited it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OriginalMessage {
    /// Id of the original message.
    pub message_id: Uuid,
    /// Original payload, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// Any service: an input became a dead letter. Published again, with a higher `replays`, if a replay fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLettered {
    /// Id of the dead letter, kept through replays and edits.
    pub id: Uuid,
    /// Service that owns the dead letter.
    pub service: String,
    /// Step that failed, or kind of task.
    pub step: String,
    /// Origin of the dead letter.
    pub origin: DeadLetterOrigin,
    /// Id of the message or task; of the edited message after an edit.
    pub message_id: Uuid,
    /// Type of the message, if it could be read.
    pub message_type: Option<String>,
    /// Saga of the message, if it could be read.
    pub saga: Option<Uuid>,
    /// Error chain, outermost first, in one line.
    pub reason: String,
    /// Error chain, outermost first, one entry for each error.
    pub error_chain: Vec<String>,
    /// Key that groups dead letters of one cause.
    pub fingerprint: String,
    /// Attempts made, including those of replays.
    pub attempts: u32,
    /// Time of the first failed attempt.
    pub first_failed_at: Timestamp,
    /// Time of the last failed attempt.
    pub last_failed_at: Timestamp,
    /// Number of replays that failed.
    pub replays: u32,
    /// Broker metadata; absent for tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryInfo>,
    /// Payload byte for byte, base64 (RFC 4648 §4); of the edited message after an edit.
    pub payload_base64: String,
    /// Trace context of the failed attempt, as a `traceparent` (W3C Trace Context); absent if it was not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Original message; absent unless it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMessage>,
}

impl DeadLettered {
    /// Replaces the message by an edited one. Keeps the original of the first edit.
    pub fn take_edit(&mut self, edited: &EditedMessage) {
        let payload_base64 = std::mem::replace(&mut self.payload_base64, edited.payload_base64.clone());
        let message_id = std::mem::replace(&mut self.message_id, edited.message_id);
        self.original.get_or_insert(OriginalMessage { message_id, payload_base64 });
    }
}

/// Message edited by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditedMessage {
    /// New id of the message, which its envelope carries too.
    pub message_id: Uuid,
    /// Payload, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// Dead letter, as the service that owns it stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDeadLetter {
    /// Dead letter, as it is announced.
    pub dead_letter: DeadLettered,
    /// Status after the last command or replay.
    pub status: DeadLetterStatus,
    /// Revision of the last command that had an effect.
    pub revision: u64,
    /// Id in the inbox of the step, unchanged by edits.
    pub inbox_id: Uuid,
}

/// Status of a dead letter.
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
    /// Waits for a decision of an operator.
    Pending,
    /// Replayed, and not yet processed.
    Replaying,
    /// A replay has processed it, or found nothing to do.
    Resolved,
    /// Discarded by an operator. The message is not processed.
    Discarded,
    /// Declared done by other means by an operator. The service that owns it has discarded it.
    ResolvedManually,
}

impl DeadLetterStatus {
    /// Every status, in the order of declaration.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Name in tables and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Finds the status with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}
