//! Pure: redrives: replays of many dead letters with a canary, a rate and an automatic stop.

use garde::Validate;
use jiff::Timestamp;
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::dead_letters::{DeadLetterGroup, Filter};
use crate::replay_value::ReplayValues;
use crate::text::one_line;

/// Status of a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum RedriveStatus {
    /// Has replayed its canary, and waits for the outcome.
    Canary,
    /// Replays the rest.
    Running,
    /// Replays nothing until an operator resumes it.
    Paused,
    /// Has stopped automatically. An operator may start another round.
    Stopped,
    /// Was ended by an operator.
    Cancelled,
    /// Has nothing left to replay, and no replay in flight.
    Done,
}

impl RedriveStatus {
    /// True while dead letters are replayed.
    pub const fn is_sending(self) -> bool {
        matches!(self, Self::Canary | Self::Running)
    }

    /// True once nothing happens any more, unless an operator starts another round.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Cancelled | Self::Done)
    }
}

/// Request to start a redrive, or to preview one.
#[derive(Debug, Clone, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct StartRedrive {
    /// Filter of pending dead letters, with at least one member.
    pub filter: Filter,
    /// Size of the canary, which must be resolved before the rest follows: 0 to 100, default 1.
    #[garde(range(max = 100))]
    #[schema(maximum = 100)]
    #[serde(default = "one")]
    pub canary: u32,
    /// Maximum number of replays per second, 1 to 10000; unlimited by default.
    #[garde(inner(range(min = 1, max = 10_000)))]
    #[schema(minimum = 1, maximum = 10_000)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Reason, 1 to 500 characters; optional for a preview.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True to replay dead letters of which three replays have failed.
    #[serde(default)]
    pub force: bool,
    /// True to show what would be replayed, and replay nothing.
    #[serde(default)]
    pub preview: bool,
}

const fn one() -> u32 {
    1
}

/// Preview of a redrive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// Always `true`: nothing has changed.
    pub preview: bool,
    /// Number of matching dead letters.
    pub matching: u64,
    /// Number of those that would be replayed.
    pub replayable: u64,
    /// Number of those of which three replays have failed.
    pub over_limit: u64,
    /// Replay value of the matching dead letters.
    #[serde(flatten)]
    pub replay_values: ReplayValues,
    /// Largest groups of the matching dead letters.
    #[serde(default)]
    #[schema(required = true)]
    pub groups: Vec<DeadLetterGroup>,
}

/// A redrive with its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RedriveView {
    /// Id of the redrive, and of its start in the audit log.
    pub id: Uuid,
    /// Status, such as `RUNNING`.
    pub status: RedriveStatus,
    /// Cause of an automatic stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// Filter of pending dead letters.
    pub filter: Filter,
    /// Size of the canary.
    pub canary: u32,
    /// Maximum number of replays per second; unlimited without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// True if it replays dead letters of which three replays have failed.
    pub force: bool,
    /// Operator who started it.
    pub operator: String,
    /// Reason of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of the round, from 1.
    pub round: u32,
    /// Dead letters that matched at the start.
    pub matching: u64,
    /// Replayed dead letters, without those that were replayed by hand since.
    pub sent: u64,
    /// Resolved dead letters.
    pub resolved: u64,
    /// Resolved dead letters whose replay changed nothing, because their sagas had ended.
    #[serde(default)]
    #[schema(required = true)]
    pub in_vain: u64,
    /// Dead letters that failed again, or were discarded since.
    pub failed: u64,
    /// Replays without an outcome so far.
    pub in_flight: u64,
    /// Dead letters that this round has not replayed yet.
    pub remaining: u64,
    /// Dead letters that this round has replayed. The counts above are of all rounds.
    #[serde(default)]
    #[schema(required = true)]
    pub round_sent: u64,
    /// Dead letters of this round: replayed and remaining.
    #[serde(default)]
    #[schema(required = true)]
    pub round_matching: u64,
    /// Time of the start.
    pub created_at: Timestamp,
    /// Time of the last change of status.
    pub updated_at: Timestamp,
}

/// Page of redrives to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RedriveParams {
    /// Maximum number (1 to 200; default 50).
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    pub cursor: Option<Uuid>,
}

/// A page of redrives.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RedrivePage {
    /// Redrives, newest first.
    pub redrives: Vec<RedriveView>,
    /// Ids of damaged redrives of this page, which cannot be shown; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Server-sent event of a redrive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RedriveUpdate {
    /// `progress` while it moves, `end` once it is over.
    #[schema(pattern = "^(progress|end)$")]
    pub event: String,
    /// State as JSON, as `GET /api/admin/dlq/redrive/{id}` answers it.
    pub data: String,
}
