//! Pure: notifications: what people are told of findings, and whether it was delivered.

use garde::Validate;
use jiff::Timestamp;
use saga_core::breaker::BreakerView;
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::actor::Actor;
use crate::text::one_line;

/// State of the notifications.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NotificationsView {
    /// Scheme, host and port of the receiver; absent for standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Breaker of the receiver. While it is open, notifications wait; none is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerView>,
    /// Id of the notification that is being delivered; absent without one. The next one waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<Uuid>,
    /// Findings that are open, or were until a moment ago.
    pub open: Vec<OpenFinding>,
    /// Last notifications, newest first, at most 20.
    pub notifications: Vec<SentNotification>,
}

/// A finding with the state of its notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenFinding {
    /// Key of the finding, such as `breaker_open:payment/bank`.
    pub key: String,
    /// Problem in one line, as it was first seen.
    pub text: String,
    /// Time at which it was first seen.
    pub since: Timestamp,
    /// Time of the last delivered notification of it; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified_at: Option<Timestamp>,
    /// Time since which it is gone; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared_at: Option<Timestamp>,
    /// Acknowledgement by somebody who works on it; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

/// Maximum time for which a finding may be acknowledged, in seconds: a week.
pub const MAX_ACKNOWLEDGEMENT_S: u32 = 7 * 86_400;

/// Statement that somebody works on a finding. Until it ends, nobody is reminded of the finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Acknowledgement {
    /// Person who works on it, with a note as the reason.
    #[serde(flatten)]
    pub by: Actor,
    /// Time at which it was made.
    pub at: Timestamp,
    /// Time at which it ends.
    pub until: Timestamp,
}

impl Acknowledgement {
    /// Describes who works on the finding, until when and how. `time` formats a time.
    pub fn text(&self, time: impl FnOnce(Timestamp) -> String) -> String {
        let note = self.by.reason.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        format!("{} works on it until {}{note}", self.by.operator, time(self.until))
    }
}

/// Request to acknowledge a finding, or to end its acknowledgement.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Acknowledge {
    /// Key of the finding, such as `breaker_open:payment/bank`.
    pub key: String,
    /// Time for which it is acknowledged, in seconds: 0 to 604800, a week. 0 ends an acknowledgement.
    #[garde(range(max = MAX_ACKNOWLEDGEMENT_S))]
    #[schema(maximum = 604_800)]
    pub seconds: u32,
    /// Note, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Kind of notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NotificationKind {
    /// There is a finding that was not reported before.
    NeedsHuman,
    /// A finding that was reported long ago is still open.
    Reminder,
    /// No finding is open any more.
    Recovered,
    /// An operator tests the delivery.
    Test,
}

/// A notification and its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SentNotification {
    /// Id of the notification, also its `webhook-id`.
    pub id: Uuid,
    /// Kind, such as `needs_human`.
    pub kind: NotificationKind,
    /// Content in one line.
    pub text: String,
    /// Time of the decision to send it.
    pub at: Timestamp,
    /// Time of the delivery; absent before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// Cause of a permanent failure. Its content is sent again with the next notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
    /// Error of the last attempt; absent after the delivery, and before the first attempt has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Timestamp>,
}

/// A test notification that is being delivered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TestNotification {
    /// Id of the notification, also its `webhook-id`.
    pub id: Uuid,
    /// Time of the decision to send it.
    pub at: Timestamp,
}
