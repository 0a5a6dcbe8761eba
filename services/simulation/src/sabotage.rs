//! Pure: faults that have been made before, by us or by others, to be planted and found.

use bytes::Bytes;
use inventory::policy::InventoryService;
use order::domain::{Order, OrderCommand};
use order::policy::OrderService;
use payment::domain::Payment;
use payment::policy::PaymentService;
use shared::contract::{CancelReason, Fact, StockReserved};
use shared::envelope::Envelope;
use shared::service::{Heard, Step};
use shared::store::{LetterStatus, Retry, Writes};

use crate::tampered::Tamper;

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
    /// A replay marks the inbox before the work: it is swallowed as a duplicate of itself.
    ReplayMarksInbox,
    /// A replay goes to everybody who hears the subject.
    ReplayToEverybody,
    /// An edited message leaves its original behind, to be handled too.
    EditLeavesOriginal,
    /// A wish of an operator counts whatever came after it.
    RevisionIgnored,
    /// What the business says no to counts as a failure of the step.
    BreakerCountsRefusals,
    /// What is away uses up the attempts of those who wait for it.
    OutageConsumesAttempts,
    /// A letter that is given up is forgotten: its message is handled after all when it comes again.
    DiscardForgets,
    /// Retries are kept in the process and go with it.
    RetryInMemory,
    /// A dead letter is parked and nobody is told.
    DeadLetterNotAnnounced,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "each fault changes one place, and no other")]
impl Sabotage {
    /// Faults of messages, orders and money.
    pub const OF_THE_SAGA: [Self; 13] = [
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

    /// Faults of retries, breakers, dead letters and replays.
    pub const OF_DEAD_LETTERS: [Self; 9] = [
        Self::ReplayMarksInbox,
        Self::ReplayToEverybody,
        Self::EditLeavesOriginal,
        Self::RevisionIgnored,
        Self::BreakerCountsRefusals,
        Self::OutageConsumesAttempts,
        Self::DiscardForgets,
        Self::RetryInMemory,
        Self::DeadLetterNotAnnounced,
    ];

    /// Every fault there is.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OF_THE_SAGA.into_iter().chain(Self::OF_DEAD_LETTERS)
    }

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
        [Self::None].into_iter().chain(Self::all()).find(|sabotage| sabotage.name() == name)
    }

    /// Plants the fault in what is delivered: whatever an operator's wish said of its age, it is the newest.
    #[must_use]
    pub fn spoil_delivery(self, payload: Bytes, newest: u64) -> Bytes {
        let renumbered = || {
            let mut envelope = Envelope::from_bytes(&payload).ok()?;
            let mut data: serde_json::Value = serde_json::from_str(envelope.data.get()).ok()?;
            *data.get_mut("revision").filter(|_| envelope.producer == admin::NAME)? = newest.into();
            envelope.data = serde_json::value::to_raw_value(&data).ok()?;
            serde_json::to_vec(&envelope).ok()
        };
        match self {
            Self::RevisionIgnored => renumbered().map_or_else(|| payload.clone(), Bytes::from),
            _ => payload,
        }
    }

    /// Plants the fault in what a batch writes.
    pub fn spoil_writes(self, writes: &mut Writes, steps: &'static [Step]) {
        let replays = |retry: &&mut Retry| retry.letter.is_some() && retry.attempts == 0;
        match self {
            Self::ReplayMarksInbox => {
                let replayed = writes.retries.iter_mut().filter(replays);
                writes.inbox.extend(replayed.filter_map(|retry| {
                    let step = steps.iter().find(|step| step.name == retry.step)?;
                    Some((step.name, retry.message_id))
                }));
            }
            Self::EditLeavesOriginal => {
                for stored in &mut writes.letters {
                    let Some(original) = stored.letter.original.take() else { continue };
                    let mut replayed = writes.retries.iter_mut().filter(replays);
                    if let Some(retry) = replayed.find(|retry| retry.letter == Some(stored.letter.id)) {
                        retry.message_id = stored.letter.message_id;
                        retry.letter = None;
                        stored.letter.message_id = original.message_id;
                        stored.letter.payload_base64 = original.payload_base64;
                        stored.status = LetterStatus::Pending;
                    }
                }
            }
            Self::DeadLetterNotAnnounced => {
                writes.outbox.retain(|entry| !entry.subject.ends_with(".dead_lettered"));
            }
            _ => {}
        }
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
