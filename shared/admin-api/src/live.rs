//! Pure: events of the live stream, and the session of a caller.

use jiff::Timestamp;
use saga_core::access::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Server-sent event of the live stream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LiveUpdate {
    /// `overview` and `redrives` at the start and when something has changed; `rates` each second.
    #[schema(pattern = "^(overview|redrives|rates)$")]
    pub event: String,
    /// JSON of an `Overview`, of the newest `RedriveView`s, or of `LiveRates`.
    pub data: String,
    /// Second of `rates`, to go on after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Sagas per second, and how long they take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveRates {
    /// Time at which the event was sent.
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
    /// Number of orders placed in it.
    pub started: u64,
    /// Number of orders confirmed in it.
    pub completed: u64,
    /// Number of orders cancelled in it.
    pub cancelled: u64,
    /// Number of sagas fully compensated in it.
    pub compensated: u64,
}

/// Percentiles of the durations of sagas, within 2 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaDurations {
    /// Number of sagas that were measured.
    pub sagas: u64,
    /// Median of the durations in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the durations in microseconds.
    pub p99_us: u64,
}

/// Role of a caller, and the settings that limit what it may do.
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
    /// Version of the running admin.
    pub version: String,
}
