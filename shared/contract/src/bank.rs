//! Pure: problems, ledger and faults of the simulated bank, which publishes nothing.

use saga_core::fault::FaultKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// Type of the problem when a charge to be refunded does not exist. A 404 of this type is the bank's own: no proxy has lost
/// the route.
pub const UNKNOWN_CHARGE: &str = "/problems/unknown-charge";

/// Header with the id of the ledger that a merchant has worked with. Another ledger rejects the request with the status
/// 421: it lacks the charges of the first one, and would capture them again.
pub const LEDGER_ID: &str = "ledger-id";

/// Answer of the bank to the ledger that payment has worked with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerCheck {
    /// Ledger that payment names; absent before its first call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<Uuid>,
    /// Rejection by a bank with another ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<LedgerRejection>,
}

/// Rejection of a ledger by a bank that has another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerRejection {
    /// Ledger of the bank, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Uuid>,
    /// Reason of the bank, with the command that accepts the loss.
    pub why: String,
}

/// Charge at the bank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChargeView {
    /// The bank's id of the charge.
    pub id: String,
    /// `CAPTURED`, `REFUSED`, `REFUNDED`, `FAILED_ONCE` or `BLOCKED`.
    pub status: String,
    /// Requested amount; absent for `FAILED_ONCE` and `BLOCKED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// Purpose, in the merchant's words; absent for `FAILED_ONCE` and `BLOCKED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The bank answers 503 and does nothing.
pub const ERROR: FaultKind = FaultKind::new("bank_error", "the bank answers 503 and does nothing");
/// The bank delays each answer.
pub const LATENCY: FaultKind = FaultKind::new("bank_latency", "the bank answers --delay later").with_delay();
/// The bank accepts requests and never answers.
pub const HANG: FaultKind = FaultKind::new("bank_hang", "the bank never answers");
/// The bank declines a charge.
pub const DECLINE: FaultKind = FaultKind::new("bank_decline", "the bank declines charges");
/// The bank does what it is asked, and answers 500.
pub const LOSE_ANSWER: FaultKind =
    FaultKind::new("bank_lose_answer", "the bank does what it is asked, and answers 500");
/// The bank rejects every refund.
pub const REFUSE_REFUND: FaultKind = FaultKind::new("bank_refuse_refund", "the bank rejects refunds");

/// Every fault of the bank.
pub const FAULTS: [FaultKind; 6] = [ERROR, LATENCY, HANG, DECLINE, LOSE_ANSWER, REFUSE_REFUND];
