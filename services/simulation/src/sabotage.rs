//! Pure: faults that have been made before, by us or by others, to be planted and found.

use inventory::policy::InventoryService;
use order::domain::{Order, OrderCommand};
use order::policy::OrderService;
use payment::domain::Payment;
use payment::policy::PaymentService;
use shared::contract::{CancelReason, Fact, StockReserved};
use shared::service::Heard;

use crate::node::Tamper;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
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
    /// Inventory does not give back what a cancelled order held.
    StockNotReleased,
    /// Tasks of a crashed process are never taken up again.
    TasksDieWithTheProcess,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
impl Sabotage {
    /// Every fault there is.
    pub const ALL: [Self; 13] = [
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
        Self::StockNotReleased,
        Self::TasksDieWithTheProcess,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    /// The fault with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::None].into_iter().chain(Self::ALL).find(|sabotage| sabotage.name() == name)
    }

    /// How it changes the order service.
    #[must_use]
    pub fn of_order(self) -> Option<Tamper<OrderService>> {
        match self {
            Self::DeadlineCancelsConfirmed => Some(|heard, unit| {
                let Heard::Message(_, message) = heard else {
                    return None;
                };
                let order = message.fact.saga()?;
                let Order::Confirmed(_) = unit.row::<Order>(order) else {
                    return None;
                };
                // Undone in its own books, and nobody is told.
                let _ = unit.decide::<Order>(order, &OrderCommand::Cancel(CancelReason::Operator));
                Some(Ok(order::policy::Reply::default()))
            }),
            _ => None,
        }
    }

    /// How it changes the inventory service.
    #[must_use]
    pub fn of_inventory(self) -> Option<Tamper<InventoryService>> {
        match self {
            Self::PartialReservation => Some(|heard, unit| {
                let Heard::Message(_, message) = heard else {
                    return None;
                };
                let Fact::OrderCreated(created) = &message.fact else {
                    return None;
                };
                let payment = created.payment.clone();
                unit.publish(Fact::StockReserved(StockReserved {
                    order: created.order,
                    lines: vec![],
                    payment,
                }));
                Some(Ok(inventory::policy::Reply::default()))
            }),
            Self::StockNotReleased => Some(|heard, _| {
                let Heard::Message(_, message) = heard else {
                    return None;
                };
                matches!(message.fact, Fact::OrderCancelled(_))
                    .then(|| Ok(inventory::policy::Reply::default()))
            }),
            _ => None,
        }
    }

    /// How it changes the payment service.
    #[must_use]
    pub fn of_payment(self) -> Option<Tamper<PaymentService>> {
        match self {
            Self::NoTombstone => Some(|heard, unit| {
                let Heard::Message(_, message) = heard else {
                    return None;
                };
                let Fact::OrderCancelled(cancelled) = &message.fact else {
                    return None;
                };
                let is_first = matches!(unit.row::<Payment>(cancelled.order), Payment::New);
                is_first.then(|| Ok(payment::policy::Reply::default()))
            }),
            Self::NoDoom => Some(|heard, unit| {
                let Heard::Message(_, message) = heard else {
                    return None;
                };
                let Fact::OrderCancelled(cancelled) = &message.fact else {
                    return None;
                };
                let is_charging = matches!(unit.row::<Payment>(cancelled.order), Payment::Charging(_));
                is_charging.then(|| Ok(payment::policy::Reply::default()))
            }),
            _ => None,
        }
    }
}
