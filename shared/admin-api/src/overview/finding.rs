//! Pure: a problem that needs a human.

use contract::money::Money;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::notifications::Acknowledgement;
use crate::text::{counted, listed};

/// Words in the text of a finding about a certificate that the calling side does not trust. A restart does not help.
pub const UNTRUSTED: &str = "is not trusted here";

/// Orders and money that a problem affects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Impact {
    /// Number of orders that wait while it lasts; absent without any, and while they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<u64>,
    /// True if there may be more of them, of which admin has not heard.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orders_partial: bool,
    /// Number of cancelled orders that are not undone while it lasts; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_orders: Option<u64>,
    /// Money in affected orders, one amount for each currency, where it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<Money>,
    /// True if there is more money than that: only the oldest orders are summed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub amounts_partial: bool,
    /// Next deadline of an affected order, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

impl Impact {
    /// Lists the waiting orders, the money and the first deadline, which `time` formats; empty without any.
    pub fn text(&self, time: impl FnOnce(Timestamp) -> String) -> String {
        let at_least = if self.orders_partial { "at least " } else { "" };
        let orders = self.orders.filter(|orders| *orders > 0);
        let orders =
            orders.map(|orders| format!("{at_least}{}", counted(orders, "order waits", "orders wait")));
        let cancelled = self.cancelled_orders.map(|orders| {
            format!("{} not undone", counted(orders, "cancelled order is", "cancelled orders are"))
        });
        let deadline = self.deadline.map(|deadline| format!("first deadline {}", time(deadline)));
        let parts = [orders, cancelled, self.money(), deadline];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Lists the money, and says where there is more than that; `None` without any.
    pub fn money(&self) -> Option<String> {
        let at_least = if self.amounts_partial { "at least " } else { "" };
        (!self.amounts.is_empty()).then(|| format!("{at_least}{}", listed(&self.amounts)))
    }
}

/// A problem that does not resolve itself: what is wrong, how much depends on it, and how to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Kind of problem. Stable: programs may depend on it.
    pub code: FindingCode,
    /// Identity of the problem, the same in every overview while it lasts, such as `breaker:payment/bank`.
    pub key: String,
    /// Service that has the problem; absent for problems of sagas or of the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Problem in one line.
    pub text: String,
    /// Consequences and likely causes.
    pub explanation: String,
    /// Start of the problem, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Number of affected sagas, dead letters, entries, calls or discrepancies at this time, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Orders and money that it affects.
    #[serde(flatten)]
    pub impact: Impact,
    /// Commands to go on with, in this order, without the leading `sagactl`. `ORDER` stands for the id of an order.
    pub commands: Vec<String>,
    /// True if orders or money are at risk now, and not only delayed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub urgent: bool,
    /// True if nobody waits for it any more, and only cleaning up is left. It needs no human now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_clean_up: bool,
    /// Acknowledgement by somebody who works on it; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
    /// True for problems that a restart causes too. Notifications report them after a grace period.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_pass: bool,
}

impl Finding {
    /// Starts a finding about a subject, such as `payment/bank`; of the whole system with an empty one.
    pub fn new(code: FindingCode, subject: &str, text: String) -> Self {
        let key = if subject.is_empty() { code.to_string() } else { format!("{code}:{subject}") };
        Self {
            code,
            key,
            service: None,
            text,
            explanation: String::new(),
            since: None,
            count: None,
            impact: Impact::default(),
            commands: vec![],
            urgent: false,
            to_clean_up: false,
            acknowledged: None,
            may_pass: false,
        }
    }

    /// Adds the explanation, and the commands to go on with.
    #[must_use]
    pub fn explained(self, explanation: impl Into<String>, commands: &[&str]) -> Self {
        let commands = commands.iter().map(|&command| command.to_owned()).collect();
        Self { explanation: explanation.into(), commands, ..self }
    }
}

/// Kinds of problems that need a human.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FindingCode {
    /// A service does not answer.
    Unreachable,
    /// A check of a service failed.
    NotReady,
    /// Services do not reach the broker, or it takes no messages.
    BrokerUnavailable,
    /// Messages wait for a step, and none is processed.
    ConsumerStall,
    /// A compensation is dead-lettered or discarded: stock or money is not back.
    CompensationStuck,
    /// Dead letters of one cause wait.
    DeadLetters,
    /// Dead letters of more causes wait than the overview lists.
    MoreDeadLetters,
    /// Dead letters in all have reached the notification threshold.
    ManyDeadLetters,
    /// Replays of dead letters have had no outcome for too long.
    ReplaysOverdue,
    /// The broker rejected messages for good.
    MessagesRejected,
    /// A breaker has not closed for a minute, or is forced.
    BreakerOpen,
    /// A call to the outside has been open for too long.
    TasksOverdue,
    /// The bank has another ledger than the one that payment has worked with, and rejects its calls.
    BankLedgerRejected,
    /// A message has failed for too long, and is still retried.
    RetriesOverdue,
    /// The disk of a service's database is getting full, or the log of the database grows.
    DiskSpaceLow,
    /// The processes of a service crash again and again.
    CrashLoop,
    /// Breakers and faults as operators left them cannot be read.
    OverridesUnreadable,
    /// Sagas are past their deadline and the grace period.
    SagasOverdue,
    /// The last reconciliation found discrepancies that nothing in flight can resolve.
    LedgersUnbalanced,
    /// Three reconciliations in a row lacked the answer of a service.
    ReconciliationIncomplete,
    /// A part of the overview could not be read.
    Unavailable,
}

impl FindingCode {
    /// Every code, in the order of declaration.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}
