//! Pure: what open pages are told as it happens.

use jiff::Timestamp;
use saga_core::access::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::overview::Overview;
use crate::redrives::RedriveView;

/// Event of the live stream. Its name is that of the variant, in lower case; its data is the member.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LiveEvent {
    /// `overview`: sent at the start, and when something has changed.
    Overview(Box<Overview>),
    /// `redrives`: the newest ones, sent at the start, and when one of them has changed.
    Redrives(Vec<RedriveView>),
    /// `rates`: sent each second.
    Rates(LiveRates),
}

/// Sagas per second, and how long they take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveRates {
    /// Time of the event.
    pub at: Timestamp,
    /// Time at which the overview was read last; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overview_at: Option<Timestamp>,
    /// Counts of the seconds that have ended since the last event: at the start, those of the last ten minutes. Absent at a
    /// replica of admin that does not consume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Vec<SecondCounts>>,
    /// Durations of the sagas that were confirmed in the last minute; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<SagaDurations>,
    /// Durations an hour ago; absent without any, and when admin started later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_an_hour_ago: Option<SagaDurations>,
}

/// Sagas that admin has seen begin and end in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecondCounts {
    /// Start of the second, in seconds since 1970.
    pub second: i64,
    /// Number of orders placed.
    pub started: u64,
    /// Number of orders confirmed.
    pub completed: u64,
    /// Number of orders cancelled.
    pub cancelled: u64,
    /// Number of sagas compensated.
    pub compensated: u64,
}

/// Percentiles of the durations of sagas, within 2 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaDurations {
    /// Number of sagas.
    pub sagas: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
}

/// What a caller may do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Name of the token; absent where no tokens are required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Role of the token; `admin` where no tokens are required.
    #[schema(value_type = String)]
    pub role: Role,
    /// True if tokens are required.
    pub requires_token: bool,
    /// True if a change requires the name of the operator.
    pub requires_operator: bool,
    /// True if faults may be injected.
    pub faults_enabled: bool,
    /// Name of this system, as notifications call it.
    pub system: String,
    /// Base address of the runbooks.
    pub runbooks: String,
    /// Version of admin.
    pub version: String,
}
