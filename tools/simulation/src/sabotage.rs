//! Shell: faults that have been made before, by us or by others, to be planted and found. Those that no wrapper can
//! plant, because they are inside a loop, are patches: see `planted/` and `scripts/planted-faults.sh`.

use std::time::Duration;

use bytes::Bytes;
use contract::Fact;
use contract::inventory::StockReserved;
use contract::order::{CancelReason, PaymentContext, StockLine};
use inventory::domain::{Product, ProductCommand, Reservation, ReservationCommand};
use inventory::policy::InventoryService;
use order::domain::{Order, OrderCommand};
use order::policy::OrderService;
use payment::domain::{Payment, PaymentCommand};
use payment::policy::PaymentService;
use saga_core::UnitOfWork;
use saga_core::message::{Envelope, Message as _, Received};
use saga_core::service::{HandlerError, HandlerResult};
use strum::{Display, EnumString};

use crate::tampered::Tamper;

/// A fault that can be planted, to see it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Sabotage {
    /// Nothing is planted.
    None,
    /// Messages are acknowledged before their effect is durable; a crash between loses them.
    AcknowledgeBeforeCommit,
    /// Facts are published before they are durable; a crash between leaves facts that never were.
    PublishBeforeCommit,
    /// The inbox is marked before the work; a crash between leaves a message that is never handled.
    InboxBeforeWork,
    /// Outbox entries are settled although the broker did not take them.
    SettleWithoutPublish,
    /// Payment forgets a cancellation that comes first.
    NoTombstone,
    /// Payment forgets a cancellation that comes while the bank is asked.
    NoDoom,
    /// Deadlines never fire.
    NoDeadline,
    /// A deadline that fires late cancels what is confirmed.
    DeadlineCancelsConfirmed,
    /// The bank takes every repetition for a new charge.
    BankIgnoresKey,
    /// A refund is noted as done without asking the bank.
    RefundOnPaperOnly,
    /// Inventory reserves what is there and says that all is.
    PartialReservation,
    /// Inventory takes the quantities of two products for each other's: the pieces are as many in all.
    QuantitiesSwapped,
    /// Payment charges a cent less than the order costs.
    AnotherAmount,
    /// Payment takes somebody else for the customer.
    AnotherCustomer,
    /// Inventory does not give back what a cancelled order held.
    StockNotReleased,
    /// Tasks of a crashed process are never taken up again.
    TasksDieWithTheProcess,
    /// A replay marks the inbox before the work: it is swallowed as a duplicate of itself.
    ReplayMarksInbox,
    /// A replay goes to everybody who hears the subject.
    ReplayToEverybody,
    /// An edited message leaves its original behind, to be handled too.
    EditLeavesOriginal,
    /// What an operator asks counts whatever came after it.
    RevisionIgnored,
    /// A dead letter that is given up is forgotten: its message is handled after all when it comes again.
    DiscardForgets,
    /// Retries are kept in the process and go with it.
    RetryInMemory,
    /// A dead letter is parked and nobody is told.
    DeadLetterNotAnnounced,
    /// What the broker gave up on is acknowledged before it is parked; a crash between loses it.
    AdvisoryAcknowledgedFirst,
    /// Inbox marks are trimmed that a redelivery still needs.
    InboxTrimmedTooEarly,
    /// A batch that could not be stored counts as stored.
    StoreFaultPassedOver,
    /// Idempotency keys are forgotten while clients still repeat them.
    KeyForgottenTooEarly,
    /// A call is made although its order is over by then.
    CallWhateverHappened,
    /// Payment does not say that a cancelled order had nothing to give back.
    VoidNotTold,
    /// What a cancellation undoes is looked for where the fact says, not where it is.
    RowsByTheFactAlone,
    /// What the broker lost with its disk is not published again.
    LossNotMadeGood,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
impl Sabotage {
    /// Faults of messages, orders and money.
    pub const OF_THE_SAGA: [Self; 24] = [
        Self::AcknowledgeBeforeCommit,
        Self::PublishBeforeCommit,
        Self::InboxBeforeWork,
        Self::SettleWithoutPublish,
        Self::NoTombstone,
        Self::NoDoom,
        Self::NoDeadline,
        Self::DeadlineCancelsConfirmed,
        Self::BankIgnoresKey,
        Self::RefundOnPaperOnly,
        Self::PartialReservation,
        Self::QuantitiesSwapped,
        Self::AnotherAmount,
        Self::AnotherCustomer,
        Self::StockNotReleased,
        Self::TasksDieWithTheProcess,
        Self::AdvisoryAcknowledgedFirst,
        Self::InboxTrimmedTooEarly,
        Self::StoreFaultPassedOver,
        Self::KeyForgottenTooEarly,
        Self::CallWhateverHappened,
        Self::VoidNotTold,
        Self::RowsByTheFactAlone,
        Self::LossNotMadeGood,
    ];

    /// Faults of retries, dead letters and replays.
    pub const OF_DEAD_LETTERS: [Self; 7] = [
        Self::ReplayMarksInbox,
        Self::ReplayToEverybody,
        Self::EditLeavesOriginal,
        Self::RevisionIgnored,
        Self::DiscardForgets,
        Self::RetryInMemory,
        Self::DeadLetterNotAnnounced,
    ];

    /// Every fault there is.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OF_THE_SAGA.into_iter().chain(Self::OF_DEAD_LETTERS)
    }

    /// The fault with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Plants the fault in what is delivered: whatever an operator's command said of its age, it is the newest.
    #[must_use]
    pub fn spoil_delivery(self, payload: Bytes, age: Duration) -> Bytes {
        let renumbered = || {
            let mut envelope = Envelope::from_bytes(&payload).ok()?;
            let mut data: serde_json::Value = serde_json::from_str(envelope.data.get()).ok()?;
            let newest = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
            *data.get_mut("revision").filter(|_| envelope.producer == admin::NAME)? = newest.into();
            envelope.data = serde_json::value::to_raw_value(&data).ok()?;
            serde_json::to_vec(&envelope).ok()
        };
        match self {
            Self::RevisionIgnored => renumbered().map_or_else(|| payload.clone(), Bytes::from),
            _ => payload,
        }
    }

    /// How it changes the order service.
    #[must_use]
    pub fn of_order(self) -> Option<Tamper<OrderService>> {
        match self {
            Self::DeadlineCancelsConfirmed => Some(|message, work| {
                let order = message.fact.saga()?;
                let Order::Confirmed(_) = work.row::<Order>(order) else {
                    return None;
                };
                // Undone in its own ledger, and nobody is told.
                let _ = work.decide::<Order>(order, &OrderCommand::Cancel(CancelReason::Operator));
                Some(Ok(()))
            }),
            _ => None,
        }
    }

    /// How it changes the inventory service.
    #[must_use]
    pub fn of_inventory(self) -> Option<Tamper<InventoryService>> {
        match self {
            Self::PartialReservation => Some(|message, work| {
                let Fact::OrderCreated(created) = &message.fact else {
                    return None;
                };
                let (order, lines, payment) = (created.order, vec![], created.payment.clone());
                work.publish(StockReserved { order, lines, payment, deadline: created.deadline });
                Some(Ok(()))
            }),
            Self::QuantitiesSwapped => Some(|message, work| {
                let Fact::OrderCreated(created) = &message.fact else {
                    return None;
                };
                let [one, other] = created.lines.as_slice() else { return None };
                if *work.row::<Reservation>(created.order) != Reservation::New || one.sku == other.sku {
                    return None;
                }
                let held = [(one, other.quantity), (other, one.quantity)];
                let held = held.map(|(line, quantity)| StockLine { sku: line.sku.clone(), quantity });
                if held.iter().any(|line| work.row::<Product>(&line.sku).on_hand < line.quantity) {
                    return None;
                }
                for line in &held {
                    let _ = work.decide::<Product>(&line.sku, &ProductCommand::Reserve(line.quantity));
                }
                let _ = work.decide::<Reservation>(created.order, &ReservationCommand::Hold(held.to_vec()));
                Some(Ok(()))
            }),
            Self::StockNotReleased => {
                Some(|message, _| matches!(message.fact, Fact::OrderCancelled(_)).then_some(Ok(())))
            }
            _ => None,
        }
    }

    /// How it changes the payment service.
    #[must_use]
    pub fn of_payment(self) -> Option<Tamper<PaymentService>> {
        match self {
            Self::AnotherAmount => {
                Some(|message, work| charge_as(message, work, |context| context.total.amount_minor -= 1))
            }
            Self::AnotherCustomer => {
                Some(|message, work| charge_as(message, work, |context| context.customer = "eve".to_owned()))
            }
            Self::NoTombstone => Some(|message, work| {
                let Fact::OrderCancelled(cancelled) = &message.fact else {
                    return None;
                };
                matches!(work.row::<Payment>(cancelled.order), Payment::New).then_some(Ok(()))
            }),
            Self::NoDoom => Some(|message, work| {
                let Fact::OrderCancelled(cancelled) = &message.fact else {
                    return None;
                };
                matches!(work.row::<Payment>(cancelled.order), Payment::Charging(_)).then_some(Ok(()))
            }),
            _ => None,
        }
    }
}

/// Charges an order as another one would be.
fn charge_as(
    message: &Received<Fact>,
    work: &mut UnitOfWork<'_, Fact>,
    change: fn(&mut PaymentContext),
) -> Option<HandlerResult<PaymentService>> {
    let Fact::StockReserved(reserved) = &message.fact else {
        return None;
    };
    let mut context = reserved.payment.clone();
    change(&mut context);
    Some(
        work.decide::<Payment>(reserved.order, &PaymentCommand::Charge(context))
            .map(drop)
            .map_err(HandlerError::from),
    )
}
