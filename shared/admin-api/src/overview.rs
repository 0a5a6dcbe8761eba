//! Pure: the state of the whole system in one response.

use std::collections::BTreeMap;

use contract::bank::LedgerCheck;
use jiff::Timestamp;
use saga_core::health::Check;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

mod finding;

pub use finding::{Finding, FindingCode, Impact, UNTRUSTED};

use crate::reconciliation::ReconciliationSummary;
use crate::text::counted;

/// State of the whole system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// Time of the snapshot.
    pub at: Timestamp,
    /// True if there is a finding that is more than cleaning up.
    pub needs_human: bool,
    /// Problems that need a human, and what there is to clean up, in the order of the rules.
    pub findings: Vec<Finding>,
    /// State of every service.
    pub services: Vec<ServiceStatus>,
    /// Counts of sagas; absent when admin's own database did not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sagas: Option<SagaSummary>,
    /// Open dead letters; absent when admin's own database did not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<DeadLetterSummary>,
    /// Last conclusive reconciliation; absent before the first one, and after a manual resolution or an accepted baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciliation: Option<ReconciliationSummary>,
    /// Messages that admin has not consumed yet. Counts of sagas and dead letters lag by as much. Absent when the broker
    /// does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconsumed: Option<u64>,
    /// Parts of the overview that are missing because nobody answered in time.
    pub unavailable: Vec<Unavailable>,
}

/// A part of the overview that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unavailable {
    /// Missing part: `sagas`, `dead letters` or `reconciliation`.
    pub what: String,
    /// Error that kept it from being read.
    pub problem: String,
}

/// State of one service. A service that does not answer has only a name and a problem.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// Name, such as `order`.
    pub service: String,
    /// True if no check failed.
    pub ready: bool,
    /// True if a check found a problem that does not end readiness.
    pub degraded: bool,
    /// Error of a service that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Version of the running build, when the service reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Results of all checks, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub checks: BTreeMap<String, Check>,
    /// Checks that found a problem.
    #[serde(default)]
    pub failing_checks: Vec<FailingCheck>,
    /// Notes on the configuration that need no action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Unpublished entries; absent when the service cannot count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbox: Option<OutboxSummary>,
    /// Sagas that have begun and not ended, by the service's own data; absent for services that do not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Open calls to the outside; absent when the service cannot count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskSummary>,
    /// Messages that wait for a retry; absent when the service cannot count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// First failure of the message that has been retried for longest; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrying_since: Option<Timestamp>,
    /// Progress of the steps.
    #[serde(default)]
    pub steps: Vec<StepStatus>,
    /// Breakers that are not closed, or forced closed.
    #[serde(default)]
    pub breakers: Vec<OpenBreaker>,
    /// Injected faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultSummary>,
    /// Answer of the bank to the ledger that the service has worked with; absent while unknown, and for services that do
    /// not call the bank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank_ledger: Option<LedgerCheck>,
}

impl ServiceStatus {
    /// Describes the injected faults in one line; `None` without any.
    pub fn faults_text(&self) -> Option<String> {
        let (first, more) = self.faults.split_at(self.faults.len().min(MAX_FAULTS_NAMED));
        let named = first.iter().map(|fault| match &fault.step {
            Some(step) => format!("{} of {step}", fault.kind),
            None => fault.kind.clone(),
        });
        let more = (!more.is_empty()).then(|| format!("{} more", more.len()));
        let named = named.chain(more).collect::<Vec<_>>().join(", ");
        let count = counted(self.faults.len() as u64, "fault is injected", "faults are injected");
        (!self.faults.is_empty()).then(|| format!("{count} at {}: {named}", self.service))
    }

    /// Command that clears the injected faults, without the leading `sagactl`; `None` without any.
    pub fn clear_faults_command(&self) -> Option<String> {
        (!self.faults.is_empty()).then(|| format!("faults clear {}", self.service))
    }
}

/// Faults of one service that a line names.
const MAX_FAULTS_NAMED: usize = 3;

/// An injected fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FaultSummary {
    /// Kind, such as `pause`.
    pub kind: String,
    /// Step that the fault strikes; absent when it strikes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A check that found a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailingCheck {
    /// Name, such as `broker`.
    pub check: String,
    /// True if the service is not ready because of it, false if it is degraded.
    pub failed: bool,
    /// Problem in one sentence.
    pub text: String,
    /// Start of the problem.
    pub since: Timestamp,
}

/// Unpublished outbox entries of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutboxSummary {
    /// Number of pending entries.
    pub pending: u64,
    /// Time of the oldest pending entry; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// Entries that the broker rejected for good, and entries blocked behind them.
    pub failed: u64,
}

/// Open calls of a service to the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskSummary {
    /// Number of open calls.
    pub open: u64,
    /// Time of the oldest open call; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
}

/// Progress of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepStatus {
    /// Name, unique in the whole system.
    pub step: String,
    /// Messages that wait at the broker; absent when the broker does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Start of a consumer stall: messages wait and none is processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_since: Option<Timestamp>,
    /// True if an injected fault pauses the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// A breaker that is not closed, or forced closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenBreaker {
    /// Step or dependency that the breaker protects.
    pub name: String,
    /// `OPEN`, `HALF_OPEN`, `FORCED_OPEN` or `FORCED_CLOSED`.
    pub state: String,
    /// True if an operator forced the state.
    pub forced: bool,
    /// Time since which it has not been closed, failed probes included; of a forced one the time of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Cause of the last change of state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Counts of sagas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SagaSummary {
    /// Number of sagas in each status.
    pub by_status: BTreeMap<String, u64>,
    /// True if ended sagas are counted too. They are left out when counting them would take long.
    pub ended_counted: bool,
    /// Sagas past their deadline and the grace period, without those whose compensation is stuck.
    pub overdue: u64,
    /// Number of sagas that wait for each step, in all that have not ended.
    #[serde(default)]
    pub waiting: BTreeMap<String, u64>,
    /// Next deadline of an order; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_deadline: Option<Timestamp>,
    /// Oldest saga that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<OldestSaga>,
    /// Duration of each step in the newest sagas, in the order of the saga. Without steps that none has done.
    #[serde(default)]
    pub steps: Vec<StepDuration>,
}

/// Duration of one step in the newest sagas: from the fact that triggers it to the fact that reports its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepDuration {
    /// Step, by its name in metrics and commands.
    pub step: String,
    /// Number of the newest sagas that have done it.
    pub sagas: u64,
    /// Median of the durations in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the durations in microseconds.
    pub p99_us: u64,
}

/// The oldest saga that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OldestSaga {
    /// Id of the saga, which is the order's.
    pub id: String,
    /// Status of the saga.
    pub status: String,
    /// Next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Time of the last fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since: Option<Timestamp>,
    /// Deadline of the order; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
}

/// Open dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterSummary {
    /// Dead letters that wait for a human.
    pub pending: u64,
    /// Dead letters whose replay has not ended.
    pub replaying: u64,
    /// Replays without an outcome for longer than a replay takes, by service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overdue_replays: Vec<OverdueReplays>,
    /// Pending dead letters by cause, largest groups first.
    pub groups: Vec<GroupSummary>,
}

/// Replays at one service without an outcome for longer than a replay takes. Their requests may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverdueReplays {
    /// Service that has the dead letters.
    pub service: String,
    /// Number of these dead letters.
    pub count: u64,
    /// Time of the first request.
    pub since: Timestamp,
    /// Ids of some that a forced replay is accepted for.
    pub repeatable: Vec<Uuid>,
    /// Id of one that was edited, so that only another edit is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Uuid>,
}

/// Pending dead letters of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSummary {
    /// Fingerprint of the cause.
    pub fingerprint: String,
    /// Number of pending dead letters.
    pub count: u64,
    /// Service that has them.
    pub service: String,
    /// Step that failed, or kind of task.
    pub step: String,
    /// Error of the newest.
    pub reason: String,
    /// True for messages from outside this system: no saga waits for them, and a replay changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// Id of the newest.
    pub newest: Uuid,
    /// Time of the newest failure.
    pub newest_at: Timestamp,
    /// Time of the oldest failure of those that are pending.
    pub oldest_at: Timestamp,
    /// Dead letters that a saga still waits for.
    pub awaited: u64,
    /// Dead letters whose saga has ended without them: a replay changes nothing.
    pub ended: u64,
    /// Of the ended, those whose order was cancelled: stock is released, and a charge refunded.
    #[serde(default)]
    pub cancelled: u64,
    /// Of the ended, those whose order was confirmed all the same.
    #[serde(default)]
    pub confirmed: u64,
    /// Earliest deadline of the waiting orders; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_until: Option<Timestamp>,
    /// Latest deadline of the waiting orders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_until: Option<Timestamp>,
}
