//! Pure: the facts that services tell each other. All they share is in this file.
//!
//! A new fact is a new variant of [`Fact`] and a new line in [`FactType::ALL`]; the compiler
//! names every place that has to decide about it. A change that old readers cannot
//! take is a new version. `shared/tests/it/wire.rs` holds the JSON of each against a golden file.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::money::Money;

/// One line of an order, priced by the order service's catalogue copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// Stock keeping unit.
    #[schema(example = "coffee-beans-1kg")]
    pub sku: String,
    /// Pieces, 1 or more.
    #[schema(example = 2)]
    pub quantity: u32,
    /// Price of one piece when the order was placed.
    pub unit_price: Money,
}

/// A quantity of one sku.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StockLine {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces.
    pub quantity: u32,
}

/// What a line asked for and what was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortage {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces asked for.
    pub requested: u32,
    /// Pieces that were free.
    pub available: u32,
}

/// What payment needs to charge an order; inventory passes it on unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentContext {
    /// The customer who pays.
    pub customer: String,
    /// The whole order's total.
    pub total: Money,
    /// The card token that the bank understands.
    pub token: String,
}

/// Why an order was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Inventory could not reserve every line.
    OutOfStock,
    /// The payment was declined or could not be made.
    PaymentFailed,
    /// The deadline passed before the order was confirmed.
    TimedOut,
    /// The customer asked for it.
    CustomerRequest,
    /// An operator asked for it.
    Operator,
}

impl CancelReason {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfStock => "out_of_stock",
            Self::PaymentFailed => "payment_failed",
            Self::TimedOut => "timed_out",
            Self::CustomerRequest => "customer_request",
            Self::Operator => "operator",
        }
    }
}

/// Why a payment failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentFailure {
    /// The bank refused the card.
    Declined,
    /// The account does not hold the amount.
    InsufficientFunds,
    /// The amount is over the bank's limit.
    LimitExceeded,
    /// The bank gave no clear answer in all attempts; the charge is being reversed.
    Exhausted,
}

impl PaymentFailure {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declined => "declined",
            Self::InsufficientFunds => "insufficient_funds",
            Self::LimitExceeded => "limit_exceeded",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Order: an order was accepted and waits for its stock and its payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCreated {
    /// The order; also the saga.
    pub order: Uuid,
    /// Its lines.
    pub lines: Vec<Line>,
    /// What payment will need.
    pub payment: PaymentContext,
    /// When the order gives up.
    pub deadline: Timestamp,
}

/// Inventory: every line is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReserved {
    /// The order.
    pub order: Uuid,
    /// What was set aside.
    pub lines: Vec<StockLine>,
    /// Passed on from [`OrderCreated`].
    pub payment: PaymentContext,
}

/// Inventory: not every line could be reserved, so none is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReservationFailed {
    /// The order.
    pub order: Uuid,
    /// The lines that were short.
    pub shortages: Vec<Shortage>,
}

/// Payment: the money was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentProcessed {
    /// The order.
    pub order: Uuid,
    /// The payment.
    pub payment: Uuid,
    /// What was captured.
    pub amount: Money,
    /// The bank's id of the charge.
    pub bank_reference: String,
}

/// Payment: no money will come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentFailed {
    /// The order.
    pub order: Uuid,
    /// The payment.
    pub payment: Uuid,
    /// Why.
    pub reason: PaymentFailure,
}

/// Order: stock and money are there; the order stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderConfirmed {
    /// The order.
    pub order: Uuid,
    /// Its lines.
    pub lines: Vec<StockLine>,
}

/// Order: the one compensation fact. Every participant undoes its own part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCancelled {
    /// The order.
    pub order: Uuid,
    /// Its lines: the keys of the rows that inventory needs. The amounts to undo are its own.
    pub lines: Vec<StockLine>,
    /// Why.
    pub reason: CancelReason,
}

/// Inventory: what the order held is free again. `lines` is empty when it held nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReleased {
    /// The order.
    pub order: Uuid,
    /// What was put back.
    pub lines: Vec<StockLine>,
}

/// Payment: the captured money went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRefunded {
    /// The order.
    pub order: Uuid,
    /// The payment.
    pub payment: Uuid,
    /// What went back.
    pub amount: Money,
}

/// Inventory: a product can be ordered, at this price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductListed {
    /// Stock keeping unit.
    pub sku: String,
    /// What people call it.
    pub name: String,
    /// Price of one piece.
    pub unit_price: Money,
    /// Grows with every change of the product: the older of two facts is ignored.
    pub revision: u64,
}

/// Inventory: a product's price changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceChanged {
    /// Stock keeping unit.
    pub sku: String,
    /// What people call it.
    pub name: String,
    /// The new price of one piece.
    pub unit_price: Money,
    /// Grows with every change of the product: the older of two facts is ignored.
    pub revision: u64,
}

/// Inventory: new stock came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockReplenished {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces that came in.
    pub quantity: u32,
    /// Pieces on hand now, reserved ones not counted.
    pub on_hand: u32,
}

/// What a dead letter was before it was parked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LetterOrigin {
    /// A message of a service of this system.
    #[default]
    Message,
    /// A message that is no envelope: nobody knows who sent it.
    Foreign,
    /// A call to the outside.
    Task,
}

impl LetterOrigin {
    /// The name in tables and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Foreign => "foreign",
            Self::Task => "task",
        }
    }
}

/// Where the broker had a message, and what it carried beside the payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Stream.
    pub stream: String,
    /// Its place there.
    pub sequence: u64,
    /// Headers, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

/// A message as it was before an operator edited it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OriginalMessage {
    /// Its id.
    pub message_id: Uuid,
    /// Its payload, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// Any service: an input is parked for a human; again, with one more of `replays`, when a replay failed too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLettered {
    /// Id of the dead letter; stays the same through replays and edits.
    pub id: Uuid,
    /// The service that could not handle it.
    pub service: String,
    /// The step that failed, or the kind of task.
    pub step: String,
    /// What it was.
    #[serde(default)]
    pub origin: LetterOrigin,
    /// Id of the message or task; of the edited message, once it was edited.
    pub message_id: Uuid,
    /// Type of the message, when it could be read.
    pub message_type: Option<String>,
    /// The saga it belongs to, when it could be read.
    pub saga: Option<Uuid>,
    /// The error chain, outermost first, in one line.
    pub reason: String,
    /// The error chain, outermost first, a link each.
    #[serde(default)]
    pub error_chain: Vec<String>,
    /// Groups dead letters of one cause.
    pub fingerprint: String,
    /// Attempts made, those of replays included.
    pub attempts: u32,
    /// When the first attempt failed.
    #[schema(value_type = String, format = DateTime)]
    pub first_failed_at: Timestamp,
    /// When the last attempt failed.
    #[schema(value_type = String, format = DateTime)]
    pub last_failed_at: Timestamp,
    /// Replays that failed.
    #[serde(default)]
    pub replays: u32,
    /// Where the broker had it; absent for tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// The payload byte for byte, base64 (RFC 4648 §4); of the edited message, once it was edited.
    pub payload_base64: String,
    /// What was parked at first; absent unless it was edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMessage>,
}

impl DeadLettered {
    /// From now on the letter is about the edited message; what was parked at first is remembered.
    pub fn take_edit(&mut self, edited: &EditedMessage) {
        let payload_base64 = std::mem::replace(&mut self.payload_base64, edited.payload_base64.clone());
        let message_id = std::mem::replace(&mut self.message_id, edited.message_id);
        self.original.get_or_insert(OriginalMessage { message_id, payload_base64 });
    }
}

/// Any service: a dead letter was replayed and is handled now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterResolved {
    /// The dead letter.
    pub letter: Uuid,
    /// The service that handled it.
    pub service: String,
    /// The step that failed before.
    pub step: String,
    /// The saga it belongs to, when that is known.
    pub saga: Option<Uuid>,
    /// Id of the message or task that was handled.
    pub message_id: Uuid,
    /// Replays it took, this one counted.
    pub replays: u32,
}

/// Admin: a dead letter goes back to the step that failed, and to nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayRequested {
    /// The dead letter.
    pub letter: Uuid,
    /// The service that holds it: the only one that hears this.
    pub service: String,
    /// Grows with each request concerning this letter; an older one has no effect.
    pub revision: u64,
    /// The message to handle in place of the one that was parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<EditedMessage>,
}

/// What an operator made of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedMessage {
    /// Its new id; the envelope inside carries it too.
    pub message_id: Uuid,
    /// Its payload, base64 (RFC 4648 §4).
    pub payload_base64: String,
}

/// Admin: a dead letter is given up. It stays known, so that the message is not handled after all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterDiscarded {
    /// The dead letter.
    pub letter: Uuid,
    /// The service that holds it: the only one that hears this.
    pub service: String,
    /// As in [`ReplayRequested`].
    pub revision: u64,
}

/// Admin: a dead letter that was given up waits for a human again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterRestored {
    /// The dead letter.
    pub letter: Uuid,
    /// The service that holds it: the only one that hears this.
    pub service: String,
    /// As in [`ReplayRequested`].
    pub revision: u64,
}

/// What an operator wishes of a dead letter.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The dead letter.
    pub letter: Uuid,
    /// The service that holds it.
    pub service: &'a str,
    /// Grows with each wish concerning this letter; an older one has no effect.
    pub revision: u64,
    /// What.
    pub kind: WishKind<'a>,
}

/// What can be wished.
#[derive(Debug, Clone, Copy)]
pub enum WishKind<'a> {
    /// To handle it again, or this in its place.
    Replay(Option<&'a EditedMessage>),
    /// To give it up.
    Discard,
    /// To let it wait for a human again.
    Restore,
}

/// Everything that services tell each other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum Fact {
    OrderCreated(OrderCreated),
    OrderConfirmed(OrderConfirmed),
    OrderCancelled(OrderCancelled),
    StockReserved(StockReserved),
    StockReservationFailed(StockReservationFailed),
    StockReleased(StockReleased),
    StockReplenished(StockReplenished),
    ProductListed(ProductListed),
    PriceChanged(PriceChanged),
    PaymentProcessed(PaymentProcessed),
    PaymentFailed(PaymentFailed),
    PaymentRefunded(PaymentRefunded),
    DeadLettered(Box<DeadLettered>),
    DeadLetterResolved(DeadLetterResolved),
    ReplayRequested(ReplayRequested),
    DeadLetterDiscarded(DeadLetterDiscarded),
    DeadLetterRestored(DeadLetterRestored),
}

/// The type of a fact, as the envelope names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is documented at its struct")]
pub enum FactType {
    OrderCreated,
    OrderConfirmed,
    OrderCancelled,
    StockReserved,
    StockReservationFailed,
    StockReleased,
    StockReplenished,
    ProductListed,
    PriceChanged,
    PaymentProcessed,
    PaymentFailed,
    PaymentRefunded,
    DeadLettered,
    DeadLetterResolved,
    ReplayRequested,
    DeadLetterDiscarded,
    DeadLetterRestored,
}

impl FactType {
    /// Every type there is.
    pub const ALL: [Self; 17] = [
        Self::OrderCreated,
        Self::OrderConfirmed,
        Self::OrderCancelled,
        Self::StockReserved,
        Self::StockReservationFailed,
        Self::StockReleased,
        Self::StockReplenished,
        Self::ProductListed,
        Self::PriceChanged,
        Self::PaymentProcessed,
        Self::PaymentFailed,
        Self::PaymentRefunded,
        Self::DeadLettered,
        Self::DeadLetterResolved,
        Self::ReplayRequested,
        Self::DeadLetterDiscarded,
        Self::DeadLetterRestored,
    ];

    /// The name in the envelope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderCreated => "OrderCreated",
            Self::OrderConfirmed => "OrderConfirmed",
            Self::OrderCancelled => "OrderCancelled",
            Self::StockReserved => "StockReserved",
            Self::StockReservationFailed => "StockReservationFailed",
            Self::StockReleased => "StockReleased",
            Self::StockReplenished => "StockReplenished",
            Self::ProductListed => "ProductListed",
            Self::PriceChanged => "PriceChanged",
            Self::PaymentProcessed => "PaymentProcessed",
            Self::PaymentFailed => "PaymentFailed",
            Self::PaymentRefunded => "PaymentRefunded",
            Self::DeadLettered => "DeadLettered",
            Self::DeadLetterResolved => "DeadLetterResolved",
            Self::ReplayRequested => "ReplayRequested",
            Self::DeadLetterDiscarded => "DeadLetterDiscarded",
            Self::DeadLetterRestored => "DeadLetterRestored",
        }
    }

    /// The last part of the subject; the first is the service that speaks.
    #[must_use]
    pub const fn subject_suffix(self) -> &'static str {
        match self {
            Self::OrderCreated => "created",
            Self::OrderConfirmed => "confirmed",
            Self::OrderCancelled => "cancelled",
            Self::StockReserved => "stock_reserved",
            Self::StockReservationFailed => "stock_reservation_failed",
            Self::StockReleased => "stock_released",
            Self::StockReplenished => "stock_replenished",
            Self::ProductListed => "product_listed",
            Self::PriceChanged => "price_changed",
            Self::PaymentProcessed => "processed",
            Self::PaymentFailed => "failed",
            Self::PaymentRefunded => "refunded",
            Self::DeadLettered => "dead_lettered",
            Self::DeadLetterResolved => "dead_letter_resolved",
            Self::ReplayRequested => "replay_requested",
            Self::DeadLetterDiscarded => "dead_letter_discarded",
            Self::DeadLetterRestored => "dead_letter_restored",
        }
    }

    /// The version that this build writes and reads.
    #[must_use]
    pub const fn version(self) -> u32 {
        1
    }

    /// The subject of this fact when `producer` says it to `listener`. Only what is addressed to one service
    /// has that service in its subject: the others never see it.
    #[must_use]
    pub fn subject(self, producer: &str, listener: &str) -> String {
        let suffix = self.subject_suffix();
        if self.is_addressed() {
            format!("{producer}.{suffix}.{listener}")
        } else {
            format!("{producer}.{suffix}")
        }
    }

    /// Whether it is said to one service alone.
    #[must_use]
    pub const fn is_addressed(self) -> bool {
        match self {
            Self::ReplayRequested | Self::DeadLetterDiscarded | Self::DeadLetterRestored => true,
            Self::OrderCreated
            | Self::OrderConfirmed
            | Self::OrderCancelled
            | Self::StockReserved
            | Self::StockReservationFailed
            | Self::StockReleased
            | Self::StockReplenished
            | Self::ProductListed
            | Self::PriceChanged
            | Self::PaymentProcessed
            | Self::PaymentFailed
            | Self::PaymentRefunded
            | Self::DeadLettered
            | Self::DeadLetterResolved => false,
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fact_type| fact_type.name() == name)
    }
}

impl Fact {
    /// The type of this fact.
    #[must_use]
    pub const fn fact_type(&self) -> FactType {
        match self {
            Self::OrderCreated(_) => FactType::OrderCreated,
            Self::OrderConfirmed(_) => FactType::OrderConfirmed,
            Self::OrderCancelled(_) => FactType::OrderCancelled,
            Self::StockReserved(_) => FactType::StockReserved,
            Self::StockReservationFailed(_) => FactType::StockReservationFailed,
            Self::StockReleased(_) => FactType::StockReleased,
            Self::StockReplenished(_) => FactType::StockReplenished,
            Self::ProductListed(_) => FactType::ProductListed,
            Self::PriceChanged(_) => FactType::PriceChanged,
            Self::PaymentProcessed(_) => FactType::PaymentProcessed,
            Self::PaymentFailed(_) => FactType::PaymentFailed,
            Self::PaymentRefunded(_) => FactType::PaymentRefunded,
            Self::DeadLettered(_) => FactType::DeadLettered,
            Self::DeadLetterResolved(_) => FactType::DeadLetterResolved,
            Self::ReplayRequested(_) => FactType::ReplayRequested,
            Self::DeadLetterDiscarded(_) => FactType::DeadLetterDiscarded,
            Self::DeadLetterRestored(_) => FactType::DeadLetterRestored,
        }
    }

    /// The subject when `producer` says it.
    #[must_use]
    pub fn subject(&self, producer: &str) -> String {
        self.fact_type().subject(producer, self.addressee().unwrap_or_default())
    }

    /// The one service that it is said to, when it is said to one.
    #[must_use]
    pub fn addressee(&self) -> Option<&str> {
        self.wish().map(|wish| wish.service)
    }

    /// What an operator wishes of a dead letter, when it is that.
    #[must_use]
    pub fn wish(&self) -> Option<Wish<'_>> {
        let (letter, service, revision, kind) = match self {
            Self::ReplayRequested(fact) => {
                (fact.letter, &fact.service, fact.revision, WishKind::Replay(fact.edited.as_ref()))
            }
            Self::DeadLetterDiscarded(fact) => (fact.letter, &fact.service, fact.revision, WishKind::Discard),
            Self::DeadLetterRestored(fact) => (fact.letter, &fact.service, fact.revision, WishKind::Restore),
            Self::OrderCreated(_)
            | Self::OrderConfirmed(_)
            | Self::OrderCancelled(_)
            | Self::StockReserved(_)
            | Self::StockReservationFailed(_)
            | Self::StockReleased(_)
            | Self::StockReplenished(_)
            | Self::ProductListed(_)
            | Self::PriceChanged(_)
            | Self::PaymentProcessed(_)
            | Self::PaymentFailed(_)
            | Self::PaymentRefunded(_)
            | Self::DeadLettered(_)
            | Self::DeadLetterResolved(_) => return None,
        };
        Some(Wish { letter, service, revision, kind })
    }

    /// The saga that this fact belongs to, when it belongs to one.
    #[must_use]
    pub const fn saga(&self) -> Option<Uuid> {
        match self {
            Self::OrderCreated(fact) => Some(fact.order),
            Self::OrderConfirmed(fact) => Some(fact.order),
            Self::OrderCancelled(fact) => Some(fact.order),
            Self::StockReserved(fact) => Some(fact.order),
            Self::StockReservationFailed(fact) => Some(fact.order),
            Self::StockReleased(fact) => Some(fact.order),
            Self::PaymentProcessed(fact) => Some(fact.order),
            Self::PaymentFailed(fact) => Some(fact.order),
            Self::PaymentRefunded(fact) => Some(fact.order),
            Self::DeadLettered(fact) => fact.saga,
            Self::DeadLetterResolved(fact) => fact.saga,
            Self::StockReplenished(_)
            | Self::ProductListed(_)
            | Self::PriceChanged(_)
            | Self::ReplayRequested(_)
            | Self::DeadLetterDiscarded(_)
            | Self::DeadLetterRestored(_) => None,
        }
    }

    /// The fact as JSON, without its envelope.
    ///
    /// # Errors
    /// None in practice: every field of every fact has a JSON form.
    pub fn to_json(&self) -> serde_json::Result<Box<serde_json::value::RawValue>> {
        use serde_json::value::to_raw_value;
        match self {
            Self::OrderCreated(fact) => to_raw_value(fact),
            Self::OrderConfirmed(fact) => to_raw_value(fact),
            Self::OrderCancelled(fact) => to_raw_value(fact),
            Self::StockReserved(fact) => to_raw_value(fact),
            Self::StockReservationFailed(fact) => to_raw_value(fact),
            Self::StockReleased(fact) => to_raw_value(fact),
            Self::StockReplenished(fact) => to_raw_value(fact),
            Self::ProductListed(fact) => to_raw_value(fact),
            Self::PriceChanged(fact) => to_raw_value(fact),
            Self::PaymentProcessed(fact) => to_raw_value(fact),
            Self::PaymentFailed(fact) => to_raw_value(fact),
            Self::PaymentRefunded(fact) => to_raw_value(fact),
            Self::DeadLettered(fact) => to_raw_value(fact),
            Self::DeadLetterResolved(fact) => to_raw_value(fact),
            Self::ReplayRequested(fact) => to_raw_value(fact),
            Self::DeadLetterDiscarded(fact) => to_raw_value(fact),
            Self::DeadLetterRestored(fact) => to_raw_value(fact),
        }
    }

    /// The fact of type `fact_type` that `json` holds. Fields it does not know are passed over,
    /// so that a producer may add some.
    ///
    /// # Errors
    /// When `json` is not of that type; the message names the field.
    pub fn from_json(fact_type: FactType, json: &str) -> serde_json::Result<Self> {
        use serde_json::from_str;
        Ok(match fact_type {
            FactType::OrderCreated => Self::OrderCreated(from_str(json)?),
            FactType::OrderConfirmed => Self::OrderConfirmed(from_str(json)?),
            FactType::OrderCancelled => Self::OrderCancelled(from_str(json)?),
            FactType::StockReserved => Self::StockReserved(from_str(json)?),
            FactType::StockReservationFailed => Self::StockReservationFailed(from_str(json)?),
            FactType::StockReleased => Self::StockReleased(from_str(json)?),
            FactType::StockReplenished => Self::StockReplenished(from_str(json)?),
            FactType::ProductListed => Self::ProductListed(from_str(json)?),
            FactType::PriceChanged => Self::PriceChanged(from_str(json)?),
            FactType::PaymentProcessed => Self::PaymentProcessed(from_str(json)?),
            FactType::PaymentFailed => Self::PaymentFailed(from_str(json)?),
            FactType::PaymentRefunded => Self::PaymentRefunded(from_str(json)?),
            FactType::DeadLettered => Self::DeadLettered(from_str(json)?),
            FactType::DeadLetterResolved => Self::DeadLetterResolved(from_str(json)?),
            FactType::ReplayRequested => Self::ReplayRequested(from_str(json)?),
            FactType::DeadLetterDiscarded => Self::DeadLetterDiscarded(from_str(json)?),
            FactType::DeadLetterRestored => Self::DeadLetterRestored(from_str(json)?),
        })
    }
}
