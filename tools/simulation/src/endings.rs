//! Pure: everything that a run can come to, and how often it did: a world in which something never happens
//! proves nothing about it.

use std::collections::BTreeMap;
use std::fmt;

use strum::{Display, EnumIter, IntoEnumIterator as _};

/// Something that a run can come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub enum Ending {
    /// An order was confirmed.
    Confirmed,
    /// An order was cancelled for want of stock.
    OutOfStock,
    /// An order was cancelled because the payment failed.
    PaymentFailed,
    /// An order was cancelled by its deadline.
    TimedOut,
    /// An order was cancelled by its customer.
    CustomerRequest,
    /// A reservation's cancellation came first.
    StockVoid,
    /// A payment's cancellation came first.
    PaymentVoid,
    /// A payment was cancelled while the bank was asked, and its capture went back.
    DoomedAndRefunded,
    /// The capture of a cancelled order went back.
    Refunded,
    /// A charge was reversed because the bank never answered clearly.
    Reversed,
    /// A charge of an order that was over was never sent.
    Withdrawn,
    /// A charge of an order that was over had perhaps been sent, and was reversed.
    ReversedUnwanted,
    /// Something was tried again.
    Retried,
    /// The business said no.
    Rejected,
    /// Something was parked for a human.
    Parked,
    /// Something was parked that nobody can read.
    PoisonParked,
    /// Money owed was parked.
    RefundParked,
    /// A command of an operator was parked itself.
    CommandParked,
    /// The broker gave a message up, and it was parked.
    GivenUpByBroker,
    /// An operator handed a dead letter back.
    Replayed,
    /// Two operators wanted the same dead letter at once, and one was refused.
    SecondOperatorRefused,
    /// A replay was forced.
    ReplayForced,
    /// A replay was handled.
    ReplayResolved,
    /// A replay failed again.
    ReplayFailed,
    /// A dead letter was edited, and the edited message was handled.
    EditedAndResolved,
    /// A dead letter was given up.
    Discarded,
    /// A dead letter that had been given up was taken up again.
    Restored,
    /// A dead letter was settled outside, and its saga with it.
    Settled,
    /// A redrive handed a dead letter back.
    Redriven,
    /// A redrive had nothing left to do.
    RedriveDone,
    /// A redrive stopped by itself.
    RedriveStopped,
    /// A breaker opened.
    BreakerOpened,
    /// A breaker let a probe through.
    HalfOpenProbe,
    /// A breaker closed again.
    BreakerClosed,
    /// The bank was away as long as the world was rough, and every order ended all the same.
    BankOutageSurvived,
    /// The broker was away as long as the world was rough, and every order ended all the same.
    BrokerOutageSurvived,
    /// A saga failed, and was mended.
    SagaMended,
    /// A process died.
    Died,
    /// A database failed, and the service went on.
    StoreFaultSurvived,
    /// Finished entries were trimmed.
    Trimmed,
    /// What was published was published again.
    Republished,
    /// What the broker had refused was tried again.
    RefusedAndRetried,
    /// More than one instance of a service committed.
    WorkShared,
    /// A relay stood still until another went on, and was fenced off.
    FencedOff,
    /// An order was given more time.
    Extended,
    /// A deadline fired while the clock that read it was seconds off.
    ClockSkewSurvived,
    /// A call ended with its caller's patience.
    CallTimedOut,
    /// A call failed.
    CallFailed,
    /// A message was stored twice.
    PublishedTwice,
    /// An operator forced a breaker.
    BreakerForced,
    /// A command was decided in one batch with inputs of other kinds.
    CommandInMixedBatch,
    /// The result of a call was.
    ResultInMixedBatch,
    /// A due row was.
    DueInMixedBatch,
    /// A retry was.
    RetryInMixedBatch,
    /// One batch had inputs of three kinds or more.
    ThreeKindsInOneBatch,
}

/// How often each ending was reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endings(BTreeMap<Ending, u64>);

impl Endings {
    /// Reached once more.
    pub fn count(&mut self, ending: Ending) {
        self.count_many(ending, 1);
    }

    /// Reached so many times more.
    pub fn count_many(&mut self, ending: Ending, times: u64) {
        if times > 0 {
            *self.0.entry(ending).or_default() += times;
        }
    }

    /// How often it was reached.
    #[must_use]
    pub fn of(&self, ending: Ending) -> u64 {
        self.0.get(&ending).copied().unwrap_or(0)
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(ending, times)| self.count_many(*ending, *times));
    }

    /// Endings that were never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<Ending> {
        Ending::iter().filter(|ending| self.of(*ending) == 0).collect()
    }
}

/// A line for each that was reached, and one that names those that were not.
impl fmt::Display for Endings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ending, times) in &self.0 {
            writeln!(out, "{times:>12}  {ending}")?;
        }
        let missing: Vec<_> = self.missing().iter().map(Ending::to_string).collect();
        write!(
            out,
            "never reached: {}",
            if missing.is_empty() { "nothing".to_owned() } else { missing.join(", ") }
        )
    }
}
