//! Pure: sagas: status, timeline and remaining steps.

use contract::manual_resolution::ManualResolution;
use contract::money::Money;
use contract::saga::SagaStatus;
use contract::saga_fact::{DeadLetterRef, SagaFact};
use contract::saga_view::Owed;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A saga in a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SagaItem {
    /// Id of the saga, which is the order's.
    pub id: String,
    /// Status, derived from the facts so far.
    pub status: SagaStatus,
    /// Next step, and the service that owes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Owed>,
    /// Customer of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Total of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Money>,
    /// Deadline of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// True if it is past its deadline and the grace period, and its compensation is not stuck.
    pub overdue: bool,
    /// Dead letters that block it, each with the step that failed; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letters: Vec<DeadLetterRef>,
    /// Reason of the cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_because: Option<String>,
    /// Time of the last fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fact_at: Option<Timestamp>,
    /// Start of the wait for the next step; absent once the saga has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since: Option<Timestamp>,
    /// End of the wait; absent without a deadline, and once the saga has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// Manual resolution, with the discrepancies that it accepts; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_resolution: Option<ManualResolution>,
}

/// Which sagas to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SagaParams {
    /// Only in this status.
    #[param(inline)]
    pub status: Option<SagaStatus>,
    /// Only past their deadline and the grace period, without those whose compensation is stuck.
    pub overdue: Option<bool>,
    /// Only with this next step.
    #[param(schema_with = steps_schema)]
    pub stuck_at: Option<String>,
    /// Only of customers whose name contains this, whatever its case.
    pub customer: Option<String>,
    /// Only with this text.
    pub text: Option<String>,
    /// Maximum number (1 to 200; default 50).
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    pub cursor: Option<Uuid>,
}

fn steps_schema() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(contract::saga::steps())).build()
}

/// A page of sagas.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SagaPage {
    /// Sagas, newest first.
    pub sagas: Vec<SagaItem>,
    /// Ids of damaged sagas of this page, which cannot be shown; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Number of sagas on all pages; absent when counting them takes long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Messages that admin has not consumed yet; absent when the broker does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconsumed: Option<u64>,
}

/// A saga with its timeline.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SagaDetail {
    /// Members that lists show too.
    #[serde(flatten)]
    pub saga: SagaItem,
    /// Facts, oldest first.
    pub timeline: Vec<TimelineEntry>,
    /// Remaining steps, and the services that owe them.
    pub remaining: Vec<Owed>,
}

/// A fact in the timeline of a saga.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// Milliseconds since the first fact.
    pub after_ms: i64,
    /// Fact with its producer and time.
    #[serde(flatten)]
    pub fact: SagaFact,
}
