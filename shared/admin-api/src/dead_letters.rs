//! Pure: dead letters of all services.

use std::collections::BTreeMap;

use garde::Validate;
use jiff::Timestamp;
use saga_core::dead_letter::{
    DeadLetterOrigin, DeadLetterStatus, DeliveryInfo, OriginalMessage, ReplayEffect,
};
use saga_core::text::{trimmed, trimmed_if_any};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::replay_value::{ReplayValue, ReplayValues};
use crate::text::one_line;

/// Filter of dead letters. Absent members match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Fingerprint of the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub fingerprint: Option<String>,
    /// Service that has the dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub service: Option<String>,
    /// Step that failed, or kind of task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub step: Option<String>,
    /// Type of the message.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub message_type: Option<String>,
    /// Saga that the message belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga: Option<Uuid>,
    /// Earliest time of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_after: Option<Timestamp>,
    /// End of the period of the last failure, exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<Timestamp>,
    /// Text in the error or the type. Case of ASCII letters does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub text: Option<String>,
}

impl Filter {
    /// True if it matches every dead letter.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Statuses of dead letters that a replay by filter takes. Only force repeats a replay, which may be lost.
#[must_use]
pub const fn replayable_statuses(force: bool) -> &'static [DeadLetterStatus] {
    match force {
        true => &[DeadLetterStatus::Pending, DeadLetterStatus::Replaying],
        false => &[DeadLetterStatus::Pending],
    }
}

/// A dead letter in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterItem {
    /// Id of the dead letter, not of the message.
    pub id: Uuid,
    /// Status, such as `PENDING`.
    pub status: DeadLetterStatus,
    /// Service that has the dead letter.
    pub service: String,
    /// Step that failed, or kind of task.
    pub step: String,
    /// Message, call, or foreign payload.
    pub origin: DeadLetterOrigin,
    /// Id of the message or task; of the edited message, once that failed too.
    pub message_id: Uuid,
    /// Type of the message, when it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// Saga that the message belongs to, when it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga: Option<Uuid>,
    /// Error chain in one line, outermost error first.
    pub reason: String,
    /// Fingerprint, equal for dead letters of one cause.
    pub fingerprint: String,
    /// Number of attempts, replays included.
    pub attempts: u32,
    /// Number of failed replays. After three a replay needs force.
    pub replays: u32,
    /// Time of the first failure.
    pub first_failed_at: Timestamp,
    /// Time of the last failure.
    pub last_failed_at: Timestamp,
    /// Redrive that replayed it last, unless it was replayed by hand since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive: Option<Uuid>,
    /// True if an operator has edited the message.
    pub edited: bool,
    /// Effect of the replay, once it is resolved and the service reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<ReplayEffect>,
    /// Replay value; absent in responses to commands, and once it is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_value: Option<ReplayValue>,
    /// Version, which grows with every change. Commands may require it.
    pub version: u64,
}

/// A dead letter with its message and history.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterDetail {
    /// Members that lists show too.
    #[serde(flatten)]
    pub item: DeadLetterItem,
    /// Errors, outermost first.
    #[serde(default)]
    #[schema(required = true)]
    pub error_chain: Vec<String>,
    /// Position at the broker; absent for calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryInfo>,
    /// `traceparent` (W3C Trace Context) of the last failed attempt; absent when it was not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Message, when it is JSON. Card tokens are `***`.
    #[serde(default)]
    #[schema(required = true)]
    pub payload: Value,
    /// Message in base64, without card tokens; empty when it was too large to be published.
    pub payload_base64: String,
    /// First message; absent unless it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMessage>,
    /// Notes of operators, oldest first.
    #[serde(default)]
    #[schema(required = true)]
    pub notes: Vec<NoteView>,
    /// Changes, oldest first.
    #[serde(default)]
    #[schema(required = true)]
    pub history: Vec<HistoryEntry>,
}

/// A note of an operator.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NoteView {
    /// Time of the note.
    pub at: Timestamp,
    /// Name of the operator.
    pub operator: String,
    /// Note, 1 to 2000 characters.
    pub text: String,
}

/// A change of a dead letter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Time at which admin recorded it.
    pub at: Timestamp,
    /// Change in the past tense, such as `dead-lettered`, `replayed` or `failed again`.
    pub what: String,
    /// Operator who asked for it; absent for reports of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Reason of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details: the error, the redrive, the text of the note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only in one of these statuses, separated by commas: PENDING, REPLAYING, RESOLVED, DISCARDED, RESOLVED_MANUALLY.
    #[param(
        pattern = "^(PENDING|REPLAYING|RESOLVED|DISCARDED|RESOLVED_MANUALLY)(,(PENDING|REPLAYING|RESOLVED|DISCARDED|RESOLVED_MANUALLY))*$"
    )]
    pub status: Option<String>,
    /// Only of this service.
    #[param(min_length = 1, max_length = 200)]
    pub service: Option<String>,
    /// Only of this step, or kind of task.
    #[param(min_length = 1, max_length = 200)]
    pub step: Option<String>,
    /// Only of this type of message.
    #[serde(rename = "type")]
    #[param(rename = "type", min_length = 1, max_length = 200)]
    pub message_type: Option<String>,
    /// Only of this cause.
    #[param(min_length = 1, max_length = 200)]
    pub fingerprint: Option<String>,
    /// Only of this saga.
    pub saga: Option<Uuid>,
    /// Only with a last failure at this time or later.
    pub failed_after: Option<Timestamp>,
    /// Only with a last failure before this time.
    pub failed_before: Option<Timestamp>,
    /// Only with this text in the error or the type. Case of ASCII letters does not matter.
    #[param(min_length = 1, max_length = 200)]
    pub text: Option<String>,
    /// Maximum number (1 to 200; default 50).
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// A page of dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterPage {
    /// Dead letters, latest failure first.
    pub dead_letters: Vec<DeadLetterItem>,
    /// Ids of damaged dead letters of this page, which cannot be shown; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Number of dead letters on all pages; absent with `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Messages that admin has not consumed yet; absent when the broker does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconsumed: Option<u64>,
}

/// Counts of dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterCounts {
    /// Dead letters that are pending or being replayed.
    pub total: u64,
    /// All dead letters, by status.
    pub by_status: BTreeMap<String, u64>,
    /// Dead letters that are pending or being replayed, by service.
    #[serde(default)]
    #[schema(required = true)]
    pub by_service: BTreeMap<String, u64>,
}

/// Which dead letters to group.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GroupParams {
    /// Only in one of these statuses, separated by commas; default PENDING.
    #[param(
        pattern = "^(PENDING|REPLAYING|RESOLVED|DISCARDED|RESOLVED_MANUALLY)(,(PENDING|REPLAYING|RESOLVED|DISCARDED|RESOLVED_MANUALLY))*$"
    )]
    pub status: Option<String>,
    /// Only of this service.
    #[param(min_length = 1, max_length = 200)]
    pub service: Option<String>,
    /// Only of this step, or kind of task.
    #[param(min_length = 1, max_length = 200)]
    pub step: Option<String>,
    /// Only of this type of message.
    #[serde(rename = "type")]
    #[param(rename = "type", min_length = 1, max_length = 200)]
    pub message_type: Option<String>,
    /// Maximum number of groups (1 to 200; default 50).
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<usize>,
}

/// Dead letters by cause.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterGroups {
    /// Groups, largest first.
    pub groups: Vec<DeadLetterGroup>,
}

/// Dead letters of one cause.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterGroup {
    /// Fingerprint of the cause.
    pub fingerprint: String,
    /// Number of dead letters.
    pub count: u64,
    /// Service that has them.
    pub service: String,
    /// Step that failed, or kind of task.
    pub step: String,
    /// Messages, calls, or foreign payloads.
    pub origin: DeadLetterOrigin,
    /// Type of the messages, when it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// Error of the latest.
    pub reason: String,
    /// Earliest time of a last failure.
    pub first_failed_at: Timestamp,
    /// Latest time of a last failure.
    pub last_failed_at: Timestamp,
    /// Id of the latest, as a sample.
    pub sample: Uuid,
    /// Replay value of the group.
    #[serde(flatten)]
    pub replay_values: ReplayValues,
}

/// Request to replay one dead letter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ReplayOne {
    /// True to replay it after three failed replays, or while a replay may be lost. Needs a reason.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Required version of the dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Request to edit a message and replay it. Needs either `data` or `payload`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct EditDeadLetter {
    /// New `data` of the envelope. A card token that is `***` stays what it was.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// New envelope. Its id is replaced, and a card token that is `***` stays what it was.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Reason, 1 to 500 characters; kept in the audit log. Optional for a preview.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True to show the changes without replaying the message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
    /// True to replay it after three failed replays, or while a replay may be lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Required version of the dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A dead letter, and the changes of an edit.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EditedDeadLetter {
    /// Dead letter after the edit.
    #[serde(flatten)]
    pub dead_letter: DeadLetterItem,
    /// Changed members; empty when only the id changes.
    pub changes: Vec<EditedMember>,
}

/// A changed member of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedMember {
    /// Path in the envelope, such as `data.lines[0].quantity`; empty for a message that was no JSON.
    pub path: String,
    /// Old value; absent when there was none. A card token is `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// New value; absent when the member is removed. A card token is `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// Request to add a note.
#[derive(Debug, Clone, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNote {
    /// Note, 1 to 2000 characters.
    #[garde(length(chars, min = 1, max = 2000), custom(one_line))]
    #[schema(min_length = 1, max_length = 2000, format = "trimmed-line")]
    #[serde(deserialize_with = "trimmed")]
    pub text: String,
}
