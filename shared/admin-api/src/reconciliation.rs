//! Pure: reconciliation: whether orders, stock, money, messages and rows of all services agree.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::money::Money;
use garde::Validate;
use jiff::Timestamp;
use saga_core::text::trimmed_if_any;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::text::one_line;

/// Time limit of a full verification, beyond the wait that the client asks for. Clients wait a little longer.
pub const FULL_VERIFICATION_TIMEOUT: Duration = Duration::from_mins(10);

/// Result of a reconciliation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// All ledgers agree, and nothing is in flight.
    Balanced,
    /// Inconclusive: something is in flight, or a service does not answer.
    #[default]
    InFlight,
    /// Ledgers disagree, and nothing in flight can resolve it.
    Unbalanced,
}

impl Verdict {
    /// Describes the verdict for people.
    pub const fn headline(self) -> &'static str {
        match self {
            Self::Balanced => "the books balance",
            Self::InFlight => "it cannot be told yet whether the books balance",
            Self::Unbalanced => "THE BOOKS DO NOT BALANCE",
        }
    }
}

/// Result of the last reconciliation, as the overview shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReconciliationSummary {
    /// `BALANCED`, `IN_FLIGHT` or `UNBALANCED`.
    pub verdict: Verdict,
    /// Time of the reconciliation.
    pub at: Timestamp,
    /// Number of discrepancies.
    pub discrepancies: u64,
    /// Number of manually resolved discrepancies to check, as money may have been returned twice.
    #[serde(default)]
    pub resolved_to_check: u64,
}

impl ReconciliationSummary {
    /// True if the ledgers disagreed for certain.
    pub fn is_unbalanced(&self) -> bool {
        self.verdict == Verdict::Unbalanced
    }
}

/// Options of a reconciliation.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReconcileParams {
    /// Time limit of the answer in seconds (0 to 30; values below 1 count as 1). Up to half of it is spent waiting for work
    /// in flight. Without it a busy system is judged as it is. A full verification may take ten minutes more.
    #[param(maximum = 30)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// True for a full verification, which reads everything and not only changes since the last checkpoint. Only that finds
    /// rows that were changed without an event.
    #[serde(default)]
    pub full: bool,
}

/// Report of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// True if the verdict is `BALANCED`.
    pub balanced: bool,
    /// Result.
    pub verdict: Verdict,
    /// Result in words.
    pub headline: String,
    /// Work in flight; empty when the system is at rest.
    pub in_flight: Vec<InFlight>,
    /// Services that did not answer, or not every question.
    pub unanswered: Vec<Unanswered>,
    /// Totals of the services that answered.
    pub summary: Summary,
    /// Discrepancies counted by rule, with the money in the affected orders. The lists below are samples.
    #[serde(default)]
    pub by_rule: Vec<RuleCount>,
    /// Sample of the certain discrepancies, at most 200.
    pub discrepancies: Vec<Discrepancy>,
    /// Number of certain discrepancies.
    pub discrepancy_count: u64,
    /// Sample of the discrepancies that work in flight may still resolve, at most 200.
    pub suspected: Vec<Discrepancy>,
    /// Number of such discrepancies.
    pub suspected_count: u64,
    /// Discrepancies that an operator resolved manually, at most 200, those to check first.
    pub resolved: Vec<ResolvedItem>,
    /// Number of such discrepancies.
    pub resolved_count: u64,
    /// Number of those to check, as money may have been returned twice.
    #[serde(default)]
    pub resolved_to_check: u64,
    /// Accepted baselines, by step.
    pub baselines: BTreeMap<String, Baseline>,
    /// Extent of the verification.
    #[serde(default)]
    pub scope: Scope,
    /// Time at which all services had answered.
    pub checked_at: Timestamp,
}

/// Extent of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scope {
    /// True for a full verification. An incremental one reads changes since the last checkpoint, and carries the totals of
    /// the rest forward. A checkpoint is set when all ledgers agree and nothing is in flight.
    pub full: bool,
    /// Orders that an incremental verification read.
    #[serde(default)]
    pub orders_read: u64,
    /// Time of the checkpoint that an incremental verification started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Time of the last checkpoint after a full verification; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_at: Option<Timestamp>,
}

/// Unfinished work of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InFlight {
    /// Service and amount of work.
    pub what: String,
    /// Start of the oldest; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Event that completes the work.
    pub waits_for: String,
}

impl InFlight {
    /// Describes work whose start is unknown.
    pub fn new(what: impl Into<String>, waits_for: &str) -> Self {
        Self { what: what.into(), since: None, waits_for: waits_for.to_owned() }
    }
}

/// A service that did not answer, or not every question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unanswered {
    /// Name of the service.
    pub service: String,
    /// Question and error.
    pub why: String,
}

/// Totals of all ledgers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Orders in any state.
    pub orders: u64,
    /// Orders that are neither confirmed nor cancelled.
    pub pending: u64,
    /// Pending orders past their deadline and the grace period.
    pub overdue: u64,
    /// Confirmed orders.
    pub confirmed: u64,
    /// Cancelled orders.
    pub cancelled: u64,
    /// Charges that the bank has captured.
    pub captured: u64,
    /// Charges that the bank has refunded.
    pub refunded: u64,
    /// Available pieces in stock.
    pub on_hand: u64,
    /// Pieces reserved for pending orders.
    pub reserved: u64,
    /// Pieces sold with confirmed orders.
    pub sold: u64,
    /// Pieces that ever came in.
    pub supplied: u64,
    /// Distinct facts that all services have published.
    pub facts_published: u64,
    /// Dead letters that are pending or being replayed.
    pub dead_letters: u64,
    /// Rows that were compared with the fold of their events.
    pub rows_checked: u64,
}

/// Number of discrepancies of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleCount {
    /// Violated rule.
    pub rule: String,
    /// Number of certain discrepancies.
    pub certain: u64,
    /// Number of discrepancies that work in flight may still resolve.
    pub suspected: u64,
    /// Money in the affected orders, one amount for each currency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<Money>,
}

/// A disagreement between ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Discrepancy {
    /// Violated rule.
    pub rule: String,
    /// Order, product, step or service.
    pub subject: String,
    /// Actual and expected values.
    pub detail: String,
    /// Amount or pieces too many, with a minus for too few; absent where nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// Time of the last event that it is about; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Money in the affected order; absent where no order is affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// Next steps for an operator.
    #[serde(default)]
    pub advice: String,
    /// True if nothing in flight can resolve it.
    #[serde(skip)]
    pub certain: bool,
}

/// A discrepancy that an operator resolved manually.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolvedItem {
    /// Id of the order.
    pub subject: String,
    /// Violated rule, or the status of the saga when no rule is violated.
    pub what: String,
    /// Actual and expected values; empty when no rule is violated.
    pub detail: String,
    /// Amount or pieces too many, with a minus for too few; absent where nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// Money in the order; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// Reason for a person to check the resolution: the customer may have been paid twice. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// Operator who resolved it.
    pub operator: String,
    /// Reason of the operator.
    pub reason: String,
    /// Time of the resolution.
    pub since: Timestamp,
}

/// An accepted difference between the messages published for a step and those that it processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Baseline {
    /// Published messages that the step never processed, because it or its database did not exist yet; negative when it
    /// processed more than its producers remember.
    pub missed: i64,
    /// Time of the acceptance. Facts before it are not looked for in the saga view.
    pub at: Timestamp,
}

/// Request to accept a baseline.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AcceptBaseline {
    /// Name of the step, as the report has it.
    #[garde(length(bytes, min = 1, max = 200))]
    #[schema(required = true, min_length = 1, max_length = 200)]
    pub step: String,
    /// Reason, 1 to 500 characters; kept in the audit log. Required.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
