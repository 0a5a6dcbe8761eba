//! Shell: known mistakes, planted to prove that the laws find them. Mistakes inside a loop are patches: see
//! `planted/` and `scripts/planted-faults.sh`.

use std::time::Duration;

use bytes::Bytes;
use contract::Fact;
use contract::inventory::StockReserved;
use contract::order::{CancelReason, PaymentContext, StockLine};
use inventory::domain::{Product, ProductCommand, Reservation, ReservationCommand};
use inventory::service::InventoryService;
use order::domain::{Order, OrderCommand};
use order::service::OrderService;
use payment::domain::{Payment, PaymentCommand};
use payment::extension::Extension;
use payment::service::PaymentService;
use saga_core::UnitOfWork;
use saga_core::message::{Envelope, Message as _, Received};
use saga_core::service::{HandlerError, HandlerResult};
use strum::{Display, EnumIter, EnumString, IntoEnumIterator as _};

use crate::instrumented::HandlerOverride;

/// A fault that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum PlantedFault {
    None,
    /// Messages are acknowledged before they are durable; a crash between loses them.
    AcknowledgeBeforeCommit,
    /// Facts are published before they are durable; a crash between publishes facts that never happened.
    PublishBeforeCommit,
    /// The inbox is marked before the work; after a crash between, the message is never processed.
    InboxBeforeWork,
    /// Outbox entries are settled although the broker did not accept them.
    SettleWithoutPublish,
    /// Payment ignores a cancellation that arrives first.
    NoTombstone,
    /// Payment ignores a cancellation during the call to the bank.
    NoDoom,
    /// Payment does not repeat an expired charge when the deadline is extended.
    NoSecondCharge,
    NoDeadline,
    /// A late deadline cancels a confirmed order.
    DeadlineCancelsConfirmed,
    /// The bank treats each repetition as a new charge.
    BankIgnoresKey,
    /// A refund is recorded without calling the bank.
    RefundNotSent,
    /// Inventory reserves nothing and publishes that it did.
    PartialReservation,
    /// Inventory swaps the quantities of two products; the sum is the same.
    QuantitiesSwapped,
    /// Payment charges a cent less than the total.
    WrongAmount,
    WrongCustomer,
    /// Inventory does not release the stock of a cancelled order.
    StockNotReleased,
    /// Tasks of a crashed process are never run again.
    TasksNotRecovered,
    /// A replay marks the inbox before the work, so that it is discarded as its own duplicate.
    ReplayMarksInbox,
    /// A replay reaches all consumers of the subject.
    ReplayToAllConsumers,
    /// An edited message is processed, and its original stays and is processed too.
    EditLeavesOriginal,
    /// Commands of operators take effect also if a newer one came before.
    RevisionIgnored,
    /// A discarded dead letter is forgotten, so its message is processed when redelivered.
    DiscardForgets,
    /// Retries are kept in memory and lost in a crash.
    RetryInMemory,
    /// A dead letter is stored but not announced.
    DeadLetterNotAnnounced,
    /// An advisory about the delivery limit is acknowledged before the dead letter is stored; a crash between
    /// loses it.
    AdvisoryAcknowledgedFirst,
    /// Inbox marks are purged while redeliveries still need them.
    InboxTrimmedTooEarly,
    /// A batch that could not be stored counts as stored.
    StoreFaultIgnored,
    /// A batch whose commit reply was lost is repeated without a look at the inbox.
    LostReplyRepeatsWork,
    /// A batch whose commit reply was lost counts as committed.
    LostReplyIgnored,
    /// The last fact of a pack is lost when the pack is split.
    PackLosesLastFact,
    /// Each time that the broker tells is believed.
    JumpsBelieved,
    /// Rows are purged by the machine's clock before the broker has told its time.
    PurgedByMachineClock,
    /// Idempotency keys are purged while clients still repeat them.
    KeyForgottenTooEarly,
    /// A call is made although its order has ended.
    UnneededCallMade,
    /// Payment does not publish that a cancelled order had no charge.
    VoidNotPublished,
    /// A cancellation loads the rows that the message names, not those that are recorded.
    AdditionalRowsIgnored,
    /// Messages that the broker lost with its disk are not republished.
    LossNotRepublished,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
impl PlantedFault {
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter().filter(|fault| *fault != Self::None)
    }

    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Alters a delivered message: gives a command of admin the newest revision.
    pub fn alter_delivery(self, payload: Bytes, age: Duration) -> Bytes {
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

    /// Override in the order service.
    pub fn of_order(self) -> Option<HandlerOverride<OrderService>> {
        match self {
            Self::DeadlineCancelsConfirmed => Some(|message, work| {
                let order = message.fact.saga()?;
                let Order::Confirmed(_) = work.row::<Order>(order) else { return None };
                // Cancelled in the order's own ledger only.
                let _ = work.decide::<Order>(order, &OrderCommand::Cancel(CancelReason::Operator));
                Some(Ok(()))
            }),
            _ => None,
        }
    }

    /// Override in the inventory service.
    pub fn of_inventory(self) -> Option<HandlerOverride<InventoryService>> {
        match self {
            Self::PartialReservation => Some(|message, work| {
                let Fact::OrderCreated(created) = &message.fact else { return None };
                let (order, lines, payment) = (created.order, vec![], created.payment.clone());
                work.publish(StockReserved { order, lines, payment, deadline: created.deadline });
                Some(Ok(()))
            }),
            Self::QuantitiesSwapped => Some(|message, work| {
                let Fact::OrderCreated(created) = &message.fact else { return None };
                let [one, other] = created.lines.as_slice() else { return None };
                if *work.row::<Reservation>(created.order) != Reservation::New || one.sku == other.sku {
                    return None;
                }
                let swapped = [(one, other.quantity), (other, one.quantity)];
                let swapped = swapped.map(|(line, quantity)| StockLine { sku: line.sku.clone(), quantity });
                if swapped.iter().any(|line| work.row::<Product>(&line.sku).on_hand < line.quantity) {
                    return None;
                }
                for line in &swapped {
                    let _ = work.decide::<Product>(&line.sku, &ProductCommand::Reserve(line.quantity));
                }
                let reserve = ReservationCommand::Reserve(swapped.to_vec());
                let _ = work.decide::<Reservation>(created.order, &reserve);
                Some(Ok(()))
            }),
            Self::StockNotReleased => {
                Some(|message, _| matches!(message.fact, Fact::OrderCancelled(_)).then_some(Ok(())))
            }
            _ => None,
        }
    }

    /// Override in the payment service.
    pub fn of_payment(self) -> Option<HandlerOverride<PaymentService>> {
        match self {
            Self::WrongAmount => {
                Some(|message, work| charge_as(message, work, |context| context.total.amount_minor -= 1))
            }
            Self::WrongCustomer => {
                Some(|message, work| charge_as(message, work, |context| context.customer = "eve".to_owned()))
            }
            Self::NoTombstone => Some(|message, work| {
                let Fact::OrderCancelled(cancelled) = &message.fact else { return None };
                matches!(work.row::<Payment>(cancelled.order), Payment::New).then_some(Ok(()))
            }),
            Self::NoDoom => Some(|message, work| {
                let Fact::OrderCancelled(cancelled) = &message.fact else { return None };
                matches!(work.row::<Payment>(cancelled.order), Payment::Charging(_)).then_some(Ok(()))
            }),
            Self::NoSecondCharge => Some(|message, work| {
                let Fact::DeadlineExtended(extended) = &message.fact else { return None };
                let Payment::Expired { .. } = work.row::<Payment>(extended.order) else { return None };
                let Ok(_) = work.decide::<Extension>(extended.order, &extended.deadline);
                Some(Ok(()))
            }),
            _ => None,
        }
    }
}

/// Charges an order with a changed context.
fn charge_as(
    message: &Received<Fact>,
    work: &mut UnitOfWork<'_, Fact>,
    change: fn(&mut PaymentContext),
) -> Option<HandlerResult<PaymentService>> {
    let Fact::StockReserved(reserved) = &message.fact else { return None };
    let mut context = reserved.payment.clone();
    change(&mut context);
    Some(
        work.decide::<Payment>(reserved.order, &PaymentCommand::Charge(context))
            .map(drop)
            .map_err(HandlerError::from),
    )
}
