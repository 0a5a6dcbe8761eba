//! Pure: one change to many dead letters, or to the sagas behind them.

use garde::Validate;
use jiff::Timestamp;
use saga_core::text::{trimmed, trimmed_if_any};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::dead_letters::Filter;
use crate::text::one_line;

/// Maximum time by which an order may be extended, in seconds: a day.
pub const MAX_EXTENSION_S: u32 = 86_400;

/// Rejections that a response lists.
const MAX_LISTED: usize = 1_000;

/// Request to replay many dead letters at once.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ReplayMany {
    /// Ids of 1 to 1000 dead letters.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<Uuid>>,
    /// Filter with at least one member. At most 1000 dead letters may match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True to replay dead letters of which three replays have failed, and, by id, those whose replay may be lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Request to discard, restore or resolve many dead letters, or to withdraw their resolution.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ChangeMany {
    /// Ids of 1 to 1000 dead letters.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<Uuid>>,
    /// Filter with at least one member. At most 100000 dead letters may match; 1000 of those to resolve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Request to add the same note to many dead letters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct NoteMany {
    /// Ids of 1 to 1000 dead letters.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<Uuid>>,
    /// Filter with at least one member. At most 100000 dead letters may match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Note, 1 to 2000 characters.
    #[garde(length(chars, min = 1, max = 2000), custom(one_line))]
    #[schema(required = true, min_length = 1, max_length = 2000, format = "trimmed-line")]
    #[serde(deserialize_with = "trimmed")]
    pub text: String,
}

/// Request to extend the deadlines of many orders, by exactly one of `ids`, `filter` and `stuck_at`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ExtendMany {
    /// Ids of 1 to 1000 dead letters.
    #[garde(inner(length(min = 1, max = 1000)))]
    #[schema(min_items = 1, max_items = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<Uuid>>,
    /// Filter of dead letters with at least one member. At most 100000 dead letters may match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Step: all orders that wait for it, with or without a dead letter. At most 100000 may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_at: Option<String>,
    /// New time limit from now on, in seconds: 1 to 86400, a day.
    #[garde(range(min = 1, max = MAX_EXTENSION_S))]
    #[schema(required = true, minimum = 1, maximum = 86_400)]
    pub seconds: u32,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Request to extend the deadline of one order.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExtendOne {
    /// New time limit from now on, in seconds: 1 to 86400, a day.
    #[garde(range(min = 1, max = MAX_EXTENSION_S))]
    #[schema(required = true, minimum = 1, maximum = 86_400)]
    pub seconds: u32,
    /// Reason, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Outcome of a change to many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkOutcome {
    /// New deadline of extended orders; absent for other changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Number of changed dead letters or sagas.
    pub done: u64,
    /// Rejections, at most 1000.
    pub rejected: Vec<Rejected>,
    /// Number of rejections that are not listed; absent without any.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub more_rejected: u64,
    /// Unlisted rejections because the saga had ended; absent without any.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub more_ended: u64,
}

/// A rejected change to one of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rejected {
    /// Id of the dead letter or saga.
    pub id: Uuid,
    /// Reason of the rejection.
    pub detail: String,
    /// True if the saga had ended, so that the change is not needed any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_ended: bool,
}

impl BulkOutcome {
    /// Counts the outcome for one more.
    pub fn add<E: ToString>(&mut self, id: Uuid, outcome: Result<(), E>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(why) => self.reject(Rejected { id, detail: why.to_string(), has_ended: false }),
        }
    }

    /// Counts one more rejection.
    pub fn reject(&mut self, rejected: Rejected) {
        if self.rejected.len() >= MAX_LISTED {
            self.more_rejected += 1;
            self.more_ended += u64::from(rejected.has_ended);
        } else {
            self.rejected.push(rejected);
        }
    }

    /// Adds the outcome of another part of the same change.
    pub fn add_all(&mut self, part: Self) {
        self.done += part.done;
        self.more_rejected += part.more_rejected;
        self.more_ended += part.more_ended;
        for rejected in part.rejected {
            self.reject(rejected);
        }
    }

    /// Number of dead letters or sagas that the change was about.
    pub fn total(&self) -> u64 {
        self.done + self.more_rejected + self.rejected.len() as u64
    }

    /// Listed rejections of what still needed the change.
    pub fn failures(&self) -> impl Iterator<Item = &Rejected> {
        self.rejected.iter().filter(|rejected| !rejected.has_ended)
    }

    /// Number of rejections of what still needed the change.
    pub fn failed(&self) -> u64 {
        self.failures().count() as u64 + self.more_rejected.saturating_sub(self.more_ended)
    }

    /// Number of rejections because the saga had ended.
    pub fn ended(&self) -> u64 {
        (self.rejected.len() - self.failures().count()) as u64 + self.more_ended
    }
}
