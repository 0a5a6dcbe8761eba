//! Pure: the records of one order at each service.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Records of an order at each service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SagaRecords {
    /// Records of the services that take part, in the order of the saga.
    pub records: Vec<ServiceRecord>,
}

/// Record of an order at one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceRecord {
    /// Name of the service that has it.
    pub service: String,
    /// State now; absent if the service has none, or does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub state: Option<Value>,
    /// Events, oldest first, at most 100.
    pub events: Vec<RecordedEvent>,
    /// Reason why the service did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Event in the history of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordedEvent {
    /// Time at which it was recorded.
    pub at: Timestamp,
    /// Name of the event, such as `Reserved`.
    pub event: String,
    /// Event as JSON, without secrets.
    pub data: Value,
}
