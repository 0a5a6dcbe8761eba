//! Pure: what the simulated bank can be told to do wrong. It publishes nothing.

use saga_core::fault::FaultKind;

/// It answers 503 and does nothing.
pub const ERROR: FaultKind = FaultKind::new("bank_error", "it answers 503 and does nothing");
/// It takes longer.
pub const LATENCY: FaultKind = FaultKind::new("bank_latency", "it answers --delay later").with_delay();
/// It never answers.
pub const HANG: FaultKind = FaultKind::new("bank_hang", "it never answers");
/// It declines a charge.
pub const DECLINE: FaultKind = FaultKind::new("bank_decline", "it declines the charge");
/// It does what it is asked, and answers 500.
pub const LOSE_ANSWER: FaultKind =
    FaultKind::new("bank_lose_answer", "it does what it is asked, and answers 500");
/// It refuses to give money back.
pub const REFUSE_REFUND: FaultKind = FaultKind::new("bank_refuse_refund", "it refuses to give money back");

/// All of them.
pub const FAULTS: [FaultKind; 6] = [ERROR, LATENCY, HANG, DECLINE, LOSE_ANSWER, REFUSE_REFUND];
