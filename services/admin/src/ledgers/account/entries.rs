//! Pure: what every service has of one order.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use contract::fact::FactType;
use contract::reconciliation::{
    ChargeEntry, ChargeState, OrderEntry, OrderState, PaymentEntry, PaymentState, PublishedFact,
    ReservationEntry,
};
use contract::saga_view::SagaView;
use jiff::Timestamp;

use crate::sagas::overdue::GRACE;

/// The entries of one order in all ledgers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    pub order: Option<OrderEntry>,
    pub reservation: Option<ReservationEntry>,
    pub payment: Option<PaymentEntry>,
    /// Charges at the bank.
    pub charges: Vec<ChargeEntry>,
    /// Admin's view of the saga.
    pub view: Option<SagaView>,
}

impl Account {
    /// Number that differs, but for a rare chance, from that of any other state of the entries.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }

    /// True if the order is past its deadline and the grace period, and has not ended.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        let is_late = |order: &OrderEntry| now.duration_since(order.deadline) > GRACE;
        self.order.as_ref().is_some_and(|order| order.state == OrderState::Pending && is_late(order))
    }

    /// True if payment calls the bank, or is to, and nobody has resolved that manually.
    pub fn has_open_call(&self) -> bool {
        self.payment
            .as_ref()
            .is_some_and(|payment| payment.state == PaymentState::Open && !payment.resolved_manually)
    }

    /// True if a service acted on the order although it does not exist.
    pub(super) fn has_traces(&self) -> bool {
        self.reservation.is_some() || self.payment.is_some() || self.moved().count() > 0
    }

    /// Charges for which money moved.
    pub(super) fn moved(&self) -> impl Iterator<Item = &ChargeEntry> {
        let moved = |charge: &&ChargeEntry| {
            charge.state != ChargeState::None || !charge.captured.is_empty() || !charge.refunded.is_empty()
        };
        self.charges.iter().filter(moved)
    }

    /// Facts in the histories of the services.
    pub(super) fn published_facts(&self) -> impl Iterator<Item = &PublishedFact> {
        let ordered = self.order.iter().flat_map(|order| &order.published);
        let reserved = self.reservation.iter().flat_map(|reservation| &reservation.published);
        let paid = self.payment.iter().flat_map(|payment| &payment.published);
        ordered.chain(reserved).chain(paid)
    }

    /// Facts in the saga view with their times, without reports of dead letters.
    pub(super) fn viewed_facts(&self) -> impl Iterator<Item = (FactType, Timestamp)> {
        let facts = self.view.iter().flat_map(|view| &view.facts);
        facts.filter_map(|(name, at)| Some((FactType::named(name)?, *at)))
    }
}
