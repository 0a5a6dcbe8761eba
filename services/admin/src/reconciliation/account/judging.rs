//! Pure: everything that does not add up of one order, with how much and since when.

use contract::money::Money;
use contract::reconciliation::{OrderState, ReservationState};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;

use super::faults::{Fault, Faults, Standard};
use super::goods::{of_lines, sum};
use super::known::Account;
use crate::reconciliation::findings::{Found, Rule};
use crate::reconciliation::settled::{SettledItem, held_against};

impl Account {
    /// Everything that does not add up, each with how much and since when.
    #[must_use]
    pub fn found(&self, standard: Standard<'_>) -> Vec<Found> {
        let found = |(rule, detail): Fault| Found {
            difference: self.difference(rule),
            since: self.since(rule),
            ..Found::plain(rule, detail)
        };
        self.faults(standard).into_iter().map(found).collect()
    }

    /// What was found, but for what was settled outside and stands as it was accepted, which is told apart.
    #[must_use]
    pub fn judged(&self, key: &str, standard: Standard<'_>) -> (Vec<Found>, Vec<SettledItem>) {
        let found = self.found(standard);
        match self.view.as_ref().and_then(|view| Some((view, view.manual_resolution.as_ref()?))) {
            Some((view, settlement)) => held_against(settlement, key, view, found),
            None => (found, vec![]),
        }
    }

    /// What is still open of an order so old that the rest of it may have left.
    #[must_use]
    pub fn open(&self) -> Vec<Found> {
        let order = self.order.as_ref().filter(|order| order.state == OrderState::Pending);
        let reservation = self.reservation.as_ref();
        let reservation = reservation.filter(|reservation| reservation.state == ReservationState::Reserved);
        let left = "though the order is so old that what is finished of it may have left";
        let pending =
            order.map(|_| (Rule::EveryOrderEnds, format!("neither confirmed nor cancelled, {left}")));
        // What has left cannot say what is missing; that somebody is waited for is known all the same.
        let stuck = self.view.as_ref().map(SagaView::status).filter(|status| {
            pending.is_none() && matches!(status, SagaStatus::Failed | SagaStatus::DeadLettered)
        });
        let stuck = stuck.map(|status| {
            (Rule::EveryOrderEnds, format!("the saga is {} and waits for somebody, {left}", status.as_str()))
        });
        let held = reservation.map(|_| (Rule::StockBack, format!("stock is held, {left}")));
        let called =
            self.has_open_call().then(|| (Rule::MoneyBack, format!("the bank is to be asked, {left}")));
        let found = |(rule, detail)| Found { since: self.since(rule), ..Found::plain(rule, detail) };
        [pending, stuck, held, called].into_iter().flatten().map(found).collect()
    }

    /// Everything that does not add up.
    fn faults(&self, standard: Standard<'_>) -> Vec<Fault> {
        let mut faults = Faults::default();
        match &self.order {
            None if self.has_traces() => faults.must(false, Rule::EverythingHasAnOrder, || self.traces()),
            None => self.check_strangers(standard.heard_since, &mut faults),
            Some(order) => {
                self.check_order(order, standard, &mut faults);
                self.check_customer_and_amounts(order, &mut faults);
                self.check_stock(order, &mut faults);
                self.check_money(order, &mut faults);
                self.check_bank(order, &mut faults);
                self.check_view(order, standard.heard_since, &mut faults);
            }
        }
        faults.0
    }

    /// When the last thing happened that such a fault is about.
    fn since(&self, rule: Rule) -> Option<Timestamp> {
        if rule == Rule::EveryOrderEnds {
            return self.order.as_ref().map(|order| order.deadline);
        }
        let said = self.said().map(|said| said.at).max();
        said.or_else(|| self.heard().map(|(_, at)| at).max())
    }

    /// How much too much there is, where it is an amount.
    fn difference(&self, rule: Rule) -> Option<String> {
        let order = self.order.as_ref()?;
        let captured = || self.charges.iter().flat_map(|charge| charge.captured.iter().copied().map(Some));
        let refunded = || self.charges.iter().flat_map(|charge| charge.refunded.iter().copied().map(Some));
        let (is, should) = match rule {
            Rule::TotalIsItsLines => (Some(order.total), of_lines(order)),
            Rule::AmountsAgree => (sum(captured()), Some(order.total)),
            Rule::MoneyBack => (sum(captured()), sum(refunded())),
            Rule::EveryOrderEnds
            | Rule::EverythingHasAnOrder
            | Rule::FactsAreOurs
            | Rule::PricesAreTheCatalogues
            | Rule::LinesAgree
            | Rule::CustomersAgree
            | Rule::OneCharge
            | Rule::OneCapture
            | Rule::BankIsPayments
            | Rule::ConfirmedIsSold
            | Rule::StockBack
            | Rule::ViewIsWhatWasSaid
            | Rule::StockAddsUp
            | Rule::StockIsReservations
            | Rule::CopyIsCatalogue
            | Rule::RowsAreFolds
            | Rule::RowsCanBeRead
            | Rule::FactsArePublished
            | Rule::MessagesAreHandled
            | Rule::SettledStays => return None,
        };
        let none = Money::new(0, order.total.currency);
        let (is, should) = (is.unwrap_or(none), should.unwrap_or(none));
        let by = is.amount_minor.checked_sub(should.amount_minor)?;
        (is.currency == should.currency && by != 0).then(|| Money::new(by, is.currency).to_string())
    }
}
