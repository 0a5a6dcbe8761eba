//! Pure: the situations that a run reached. Seeds that never reach a situation prove nothing about it.

use std::collections::BTreeMap;
use std::fmt;

use strum::{Display, EnumIter, IntoEnumIterator as _};

/// A situation that some seeds must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub enum CoveragePoint {
    Confirmed,
    OutOfStock,
    PaymentFailed,
    TimedOut,
    CustomerRequest,
    /// A reservation was cancelled before it was requested.
    StockVoid,
    /// A payment was cancelled before it was captured.
    PaymentVoid,
    /// A payment was cancelled during the call to the bank, and its capture was refunded.
    DoomedAndRefunded,
    /// The capture of a cancelled order was refunded.
    Refunded,
    /// A charge was reversed because the bank gave no clear answer.
    Reversed,
    /// A charge of an ended order was never sent.
    Withdrawn,
    /// A charge of an ended order may have been sent, and was reversed.
    ReversedUnwanted,
    Retried,
    Rejected,
    DeadLettered,
    /// An unreadable message was dead-lettered.
    PoisonDeadLettered,
    RefundDeadLettered,
    /// A command of an operator was dead-lettered itself.
    OperatorCommandDeadLettered,
    /// A message reached the broker's delivery limit and was dead-lettered.
    MaxDeliveriesReached,
    Replayed,
    /// Two operators replayed the same dead letter at once, and one was rejected.
    SecondOperatorRejected,
    ReplayForced,
    ReplayResolved,
    ReplayFailed,
    EditedAndResolved,
    Discarded,
    Restored,
    /// A dead letter was resolved manually, with its saga.
    ResolvedManually,
    /// A redrive replayed a dead letter.
    Redriven,
    RedriveDone,
    RedriveStopped,
    BreakerOpened,
    HalfOpenProbe,
    BreakerClosed,
    /// The bank was away as long as faults were on, and every order ended.
    BankOutageSurvived,
    /// The broker was away as long as faults were on, and every order ended.
    BrokerOutageSurvived,
    /// A saga failed, and was completed by operators.
    SagaRepaired,
    Crashed,
    StoreFaultSurvived,
    /// A batch was committed, and the reply was lost.
    CommitReplyLost,
    /// A commit failed after its batch was decided.
    CommitFailed,
    Trimmed,
    Republished,
    /// Entries rejected by the broker were retried.
    RejectedEntryRetried,
    /// More than one instance of a service committed.
    WorkShared,
    /// A relay was paused until another took over, and was fenced off.
    FencedOff,
    /// Loss of the broker by one replica of each service, in whose place the others published.
    ReplicaCutOff,
    Extended,
    /// A charge that had ended at its deadline was repeated, as the deadline was extended.
    ChargeRepeated,
    /// A deadline fired under a clock that was seconds off.
    ClockSkewSurvived,
    /// The broker's clock jumped days ahead for seconds.
    BrokerClockJumped,
    /// A deadline fired after such a jump.
    TimedOutAfterJump,
    CallTimedOut,
    CallFailed,
    PublishedTwice,
    /// Several facts were published in one message.
    PackPublished,
    /// The broker did not accept a pack, and its facts were published one by one.
    PackRejected,
    BreakerForced,
    /// A command shared a batch with inputs of other kinds.
    CommandInMixedBatch,
    /// A task result shared a batch with inputs of other kinds.
    ResultInMixedBatch,
    /// A due row shared a batch with inputs of other kinds.
    DueInMixedBatch,
    /// A retry shared a batch with inputs of other kinds.
    RetryInMixedBatch,
    ThreeKindsInOneBatch,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<CoveragePoint, u64>);

impl Coverage {
    pub fn count_many(&mut self, point: CoveragePoint, times: u64) {
        if times > 0 {
            *self.0.entry(point).or_default() += times;
        }
    }

    pub fn of(&self, point: CoveragePoint) -> u64 {
        self.0.get(&point).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(point, times)| self.count_many(*point, *times));
    }

    pub fn missing(&self) -> Vec<CoveragePoint> {
        CoveragePoint::iter().filter(|point| self.of(*point) == 0).collect()
    }
}

/// Prints a line per reached situation, and the names of the others.
impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (point, times) in &self.0 {
            writeln!(out, "{times:>12}  {point}")?;
        }
        let missing: Vec<_> = self.missing().iter().map(CoveragePoint::to_string).collect();
        write!(
            out,
            "never reached: {}",
            if missing.is_empty() { "nothing".to_owned() } else { missing.join(", ") }
        )
    }
}
