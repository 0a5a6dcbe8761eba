//! Pure: all that is known of one order.

use contract::fact::FactType;
use contract::overview::GRACE;
use contract::reconciliation::{
    ChargeEntry, ChargeState, OrderEntry, OrderState, PaymentEntry, PaymentState, PublishedFact,
    ReservationEntry,
};
use contract::saga_view::SagaView;
use jiff::Timestamp;

/// All that is known of one order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// What the order service says.
    pub order: Option<OrderEntry>,
    /// What the inventory service says.
    pub reservation: Option<ReservationEntry>,
    /// What the payment service says.
    pub payment: Option<PaymentEntry>,
    /// Every charge that the bank has for it.
    pub charges: Vec<ChargeEntry>,
    /// What admin heard of it.
    pub view: Option<SagaView>,
}

impl Account {
    /// Whether the order should have ended by `now`, and has not.
    #[must_use]
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        let is_late = |order: &OrderEntry| now.duration_since(order.deadline) > GRACE;
        self.order.as_ref().is_some_and(|order| order.state == OrderState::Pending && is_late(order))
    }

    /// Whether payment asks the bank for something, or is to, that nobody has settled.
    #[must_use]
    pub fn has_open_call(&self) -> bool {
        self.payment
            .as_ref()
            .is_some_and(|payment| payment.state == PaymentState::Open && !payment.resolved_manually)
    }

    /// Whether some service acted on an order that there is not.
    pub(super) fn has_traces(&self) -> bool {
        self.reservation.is_some() || self.payment.is_some() || self.moved().count() > 0
    }

    /// Charges that came to anything.
    pub(super) fn moved(&self) -> impl Iterator<Item = &ChargeEntry> {
        let moved = |charge: &&ChargeEntry| {
            charge.state != ChargeState::None || !charge.captured.is_empty() || !charge.refunded.is_empty()
        };
        self.charges.iter().filter(moved)
    }

    /// What the services say that they said of it.
    pub(super) fn said(&self) -> impl Iterator<Item = &PublishedFact> {
        let ordered = self.order.iter().flat_map(|order| &order.published);
        let reserved = self.reservation.iter().flat_map(|reservation| &reservation.published);
        let paid = self.payment.iter().flat_map(|payment| &payment.published);
        ordered.chain(reserved).chain(paid)
    }

    /// What admin heard of it, each fact with the time; what is said of dead letters is no part of it.
    pub(super) fn heard(&self) -> impl Iterator<Item = (FactType, Timestamp)> {
        let heard = self.view.iter().flat_map(|view| &view.facts);
        heard.filter_map(|(name, at)| Some((FactType::named(name)?, *at)))
    }
}
