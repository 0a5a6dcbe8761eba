//! Pure: all violations of one order, with amount and time.

use admin_api::reconciliation::ResolvedItem;
use contract::money::Money;
use contract::reconciliation::{OrderState, ReservationState};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;

use super::broken_rules::{Broken, Reference, Violations};
use super::entries::Account;
use super::goods::{of_lines, sum};
use crate::ledgers::resolved::compare;
use crate::ledgers::rules::{Rule, Violation};

impl Account {
    /// All violations, each with amount and time.
    pub fn violations(&self, reference: Reference<'_>) -> Vec<Violation> {
        let found = |(rule, detail): Broken| Violation {
            difference: self.difference(rule),
            since: self.since(rule),
            amount: self.amount(),
            ..Violation::new(rule, detail)
        };
        self.broken_rules(reference).into_iter().map(found).collect()
    }

    /// Violations, and apart from them those that a manual resolution accepts.
    pub fn judged(&self, key: &str, reference: Reference<'_>) -> (Vec<Violation>, Vec<ResolvedItem>) {
        let found = self.violations(reference);
        let resolved = self.view.as_ref().and_then(|view| Some((view, view.manual_resolution.as_ref()?)));
        let Some((view, resolution)) = resolved else { return (found, vec![]) };
        let (wrong, mut items) = compare(resolution, key, view, found);
        for item in &mut items {
            item.amount = self.amount();
            if [Rule::MoneyBack, Rule::OneCapture].iter().any(|rule| rule.text() == item.what) {
                item.check = self.possible_double_payment(key);
            }
        }
        (wrong, items)
    }

    /// Open work of an order so old that its other entries may have been purged.
    pub fn open_work(&self) -> Vec<Violation> {
        let order = self.order.as_ref().filter(|order| order.state == OrderState::Pending);
        let reservation = self.reservation.as_ref();
        let reservation = reservation.filter(|reservation| reservation.state == ReservationState::Reserved);
        let purged = "although the order is old enough to be purged";
        let pending =
            order.map(|_| (Rule::EveryOrderEnds, format!("neither confirmed nor cancelled, {purged}")));
        // Purged entries cannot show what is missing, but the saga view tells that it waits.
        let stuck = self.view.as_ref().map(SagaView::status).filter(|status| {
            pending.is_none() && matches!(status, SagaStatus::CompensationStuck | SagaStatus::DeadLettered)
        });
        let stuck = stuck.map(|status| {
            (Rule::EveryOrderEnds, format!("the saga is {} and waits for a human, {purged}", status.as_str()))
        });
        let held = reservation.map(|_| (Rule::StockBack, format!("stock is still reserved, {purged}")));
        let called =
            self.has_open_call().then(|| (Rule::MoneyBack, format!("a call to the bank is open, {purged}")));
        let found = |(rule, detail)| Violation {
            since: self.since(rule),
            amount: self.amount(),
            ..Violation::new(rule, detail)
        };
        [pending, stuck, held, called].into_iter().flatten().map(found).collect()
    }

    fn broken_rules(&self, reference: Reference<'_>) -> Vec<Broken> {
        let mut violations = Violations::default();
        match &self.order {
            None if self.has_traces() => {
                violations.require(false, Rule::EverythingHasAnOrder, || self.traces())
            }
            None => self.check_unknown_order(reference, &mut violations),
            Some(order) => {
                self.check_order(order, reference, &mut violations);
                self.check_customer_and_amounts(order, &mut violations);
                self.check_stock(order, &mut violations);
                self.check_money(order, &mut violations);
                self.check_bank(order, &mut violations);
                self.check_view(order, reference, &mut violations);
            }
        }
        violations.0
    }

    /// Money in the order, or at the bank where the order is unknown.
    fn amount(&self) -> Option<Money> {
        let of_charge = || self.charges.iter().flat_map(|charge| &charge.captured).next().copied();
        self.order.as_ref().map(|order| order.total).or_else(of_charge)
    }

    /// Time since which a violation exists: the deadline of an order that does not end, otherwise the last fact.
    fn since(&self, rule: Rule) -> Option<Timestamp> {
        if rule == Rule::EveryOrderEnds {
            return self.order.as_ref().map(|order| order.deadline);
        }
        let published = self.published_facts().map(|fact| fact.at).max();
        published.or_else(|| self.viewed_facts().map(|(_, at)| at).max())
    }

    /// Difference in money, for rules about amounts.
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
            | Rule::FactsHaveAnAuthor
            | Rule::PricesAreTheCatalogues
            | Rule::LinesAgree
            | Rule::CustomersAgree
            | Rule::OneCharge
            | Rule::OneCapture
            | Rule::BankIsPayments
            | Rule::ConfirmedIsSold
            | Rule::StockBack
            | Rule::ViewIsWhatWasPublished
            | Rule::StockAddsUp
            | Rule::StockIsReservations
            | Rule::CopyIsCatalogue
            | Rule::RowsAreFolds
            | Rule::RowsCanBeRead
            | Rule::FactsArePublished
            | Rule::MessagesAreHandled
            | Rule::ResolutionHolds => return None,
        };
        let none = Money::new(0, order.total.currency);
        let (is, should) = (is.unwrap_or(none), should.unwrap_or(none));
        let by = is.amount_minor.checked_sub(should.amount_minor)?;
        (is.currency == should.currency && by != 0).then(|| Money::new(by, is.currency).to_string())
    }
}
