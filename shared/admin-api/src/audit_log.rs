//! Pure: the audit log: who changed what, when and why.

use std::fmt;

use garde::Validate;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::actor::Actor;
use crate::text::one_line;

/// Outcome of an entry whose change has not ended.
pub const ASKED: &str = "asked";

/// Maximum number of dead letters or orders of one change whose sagas its entry lists.
pub const MAX_LISTED_SAGAS: usize = 1_000;

/// Outcome of a completed change.
pub const DONE: &str = "done";

/// Kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Action {
    #[serde(rename = "dlq.replay")]
    Replay,
    #[serde(rename = "dlq.edit")]
    Edit,
    #[serde(rename = "dlq.discard")]
    Discard,
    #[serde(rename = "dlq.restore")]
    Restore,
    #[serde(rename = "dlq.note")]
    Note,
    #[serde(rename = "dlq.replay_many")]
    ReplayMany,
    #[serde(rename = "dlq.discard_many")]
    DiscardMany,
    #[serde(rename = "dlq.restore_many")]
    RestoreMany,
    #[serde(rename = "dlq.note_many")]
    NoteMany,
    #[serde(rename = "dlq.resolve")]
    Resolve,
    #[serde(rename = "dlq.withdraw_resolution")]
    WithdrawResolution,
    #[serde(rename = "dlq.resolve_many")]
    ResolveMany,
    #[serde(rename = "dlq.withdraw_resolution_many")]
    WithdrawResolutionMany,
    #[serde(rename = "saga.extend")]
    SagaExtend,
    #[serde(rename = "saga.resolve")]
    SagaResolve,
    #[serde(rename = "saga.withdraw_resolution")]
    SagaWithdrawResolution,
    #[serde(rename = "redrive.start")]
    RedriveStart,
    #[serde(rename = "redrive.pause")]
    RedrivePause,
    #[serde(rename = "redrive.resume")]
    RedriveResume,
    #[serde(rename = "redrive.cancel")]
    RedriveCancel,
    #[serde(rename = "redrive.stop")]
    RedriveStop,
    #[serde(rename = "breaker.open")]
    BreakerOpen,
    #[serde(rename = "breaker.closed")]
    BreakerClosed,
    #[serde(rename = "breaker.reset")]
    BreakerReset,
    #[serde(rename = "fault.inject")]
    FaultInject,
    #[serde(rename = "fault.clear")]
    FaultClear,
    #[serde(rename = "fault.clear_all")]
    FaultClearAll,
    #[serde(rename = "outbox.retry")]
    OutboxRetry,
    #[serde(rename = "outbox.republish")]
    OutboxRepublish,
    #[serde(rename = "reconciliation.accept_baseline")]
    AcceptBaseline,
    #[serde(rename = "notifications.test")]
    NotificationTest,
    #[serde(rename = "finding.acknowledge")]
    FindingAcknowledge,
    #[serde(rename = "payment.refund")]
    PaymentRefund,
    #[serde(rename = "product.list")]
    ProductList,
    #[serde(rename = "product.price")]
    ProductPrice,
    #[serde(rename = "product.restock")]
    ProductRestock,
    #[serde(rename = "process.start")]
    ProcessStart,
    #[serde(rename = "process.stop")]
    ProcessStop,
    #[serde(rename = "process.kill")]
    ProcessKill,
    #[serde(rename = "token.create")]
    TokenCreate,
    #[serde(rename = "token.revoke")]
    TokenRevoke,
}

/// Prints the name that the API uses.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Time of the request. A service is called after it.
    pub at: Timestamp,
    /// Author and reason.
    #[serde(flatten)]
    pub by: Actor,
    /// Kind of change.
    pub action: Action,
    /// Subject of the change: id of a dead letter, redrive or order; a product; a service; a process; a token; a step; a breaker as `service/name`. Of
    /// many dead letters their fingerprint, their number, or `a filter`.
    pub target: String,
    /// Details, as members of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
    /// `done` (of many with their number: `done: 3 of 5`), `asked` while the outcome is unknown, or the reason of the
    /// rejection.
    pub outcome: String,
}

/// Age up to which admin accepts the id of a [`ProcessChange`]. It waits in the data folder of a local system while that is down.
pub const MAX_ID_AGE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Start, stop or kill of a process of a local system, or a change of its tokens. `sagactl` records it where it happens, as
/// admin itself may be down, and sends it later, perhaps repeatedly.
#[derive(Debug, Clone, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct ProcessChange {
    /// Id of the entry, a UUIDv7 of at most a year ago.
    pub id: Uuid,
    /// Time of the change. It counts within the last hour.
    pub at: Timestamp,
    /// Name of the operator, 1 to 100 characters. Where tokens are on, the holder of the token is the operator, and this name is
    /// in the detail.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    pub operator: String,
    /// Kind of change.
    pub change: ProcessChangeKind,
    /// Name of the process, such as `order-2`, or of the token.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    pub process: String,
    /// Command that made the change, such as `down`.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    pub command: String,
    /// Expiry of a new token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// `done`, `asked` while it is unknown, or why it failed.
    #[garde(length(chars, min = 1, max = 500), custom(one_line))]
    #[schema(min_length = 1, max_length = 500, format = "one-line")]
    pub outcome: String,
}

/// Kind of change of a process or token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ProcessChangeKind {
    Start,
    Stop,
    Kill,
    TokenCreate,
    TokenRevoke,
}

impl From<ProcessChangeKind> for Action {
    fn from(kind: ProcessChangeKind) -> Self {
        match kind {
            ProcessChangeKind::Start => Self::ProcessStart,
            ProcessChangeKind::Stop => Self::ProcessStop,
            ProcessChangeKind::Kill => Self::ProcessKill,
            ProcessChangeKind::TokenCreate => Self::TokenCreate,
            ProcessChangeKind::TokenRevoke => Self::TokenRevoke,
        }
    }
}

/// Filter of the audit log.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogParams {
    /// Only changes by operators whose name, or reported name, contains this, whatever its case.
    pub operator: Option<String>,
    /// Only this kind of change.
    #[param(inline)]
    pub action: Option<Action>,
    /// Only this subject: a dead letter, a redrive, a service, a step, a breaker as `service/name`. The id of an order also finds
    /// changes of its dead letters, and of up to 1000 dead letters or orders at once. It does not find those of redrives, nor
    /// those of its dead letters by older versions.
    pub target: Option<String>,
    /// Only changes from this time on.
    pub since: Option<Timestamp>,
    /// Only changes before this time.
    pub until: Option<Timestamp>,
    /// Only with this text in target, reason, detail or outcome, whatever its case.
    pub text: Option<String>,
    /// Maximum number of entries (1 to 200; default 50).
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    pub cursor: Option<Uuid>,
}

/// One change with its id.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LogEntry {
    /// Id, a UUIDv7. The entry of a redrive's start has the id of the redrive.
    pub id: String,
    /// Change with author and outcome.
    #[serde(flatten)]
    pub entry: Entry,
}

/// A page of the audit log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// Entries, newest first.
    pub entries: Vec<LogEntry>,
    /// Ids of damaged entries of this page, which cannot be shown; absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last. A page may have fewer entries than `limit`, or none, before the whole log
    /// is searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
