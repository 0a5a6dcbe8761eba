//! Pure: the lines, prices, customer and stock of an order.

use std::collections::BTreeMap;

use contract::money::Money;
use contract::order::Line;
use contract::reconciliation::{OrderEntry, OrderState, ReservationState};

use super::broken_rules::{Reference, Violations, list, named};
use super::entries::Account;
use crate::ledgers::rules::Rule;

impl Account {
    pub(super) fn check_order(
        &self,
        order: &OrderEntry,
        reference: Reference<'_>,
        violations: &mut Violations,
    ) {
        violations.require(!self.is_overdue(reference.now), Rule::EveryOrderEnds, || {
            format!("neither confirmed nor cancelled, and was to end by {}", order.deadline)
        });
        violations.require(of_lines(order) == Some(order.total), Rule::TotalIsItsLines, || {
            format!("total {}, lines {}", order.total, list(order.lines.iter().map(line_text)))
        });
        for line in &order.lines {
            let is_known =
                reference.prices.get(&line.sku).is_some_and(|prices| prices.contains(&line.unit_price));
            violations.require(is_known, Rule::PricesAreTheCatalogues, || {
                format!("{} ordered for {}, a price it never had", line.sku, line.unit_price)
            });
        }
    }

    pub(super) fn check_customer_and_amounts(&self, order: &OrderEntry, violations: &mut Violations) {
        let payer = self.payment.as_ref().and_then(|payment| payment.customer.as_ref());
        let amount = self.payment.as_ref().and_then(|payment| payment.amount);
        let seen = self.view.as_ref().and_then(|view| view.customer.as_ref());
        let total = self.view.as_ref().and_then(|view| view.total);
        for (who, customer) in [("payment", payer), ("saga view", seen)] {
            violations.require(
                customer.is_none_or(|customer| *customer == order.customer),
                Rule::CustomersAgree,
                || format!("order {}, {who} {}", order.customer, customer.map_or("", String::as_str)),
            );
        }
        let charged = self.moved().map(|charge| ("bank", charge.amount));
        for (who, amount) in [("payment", amount), ("saga view", total)].into_iter().chain(charged) {
            violations.require(amount.is_none_or(|amount| amount == order.total), Rule::AmountsAgree, || {
                format!(
                    "order {}, {who} {}",
                    order.total,
                    amount.map_or_else(String::new, |it| it.to_string())
                )
            });
        }
    }

    pub(super) fn check_stock(&self, order: &OrderEntry, violations: &mut Violations) {
        let state = self.reservation.as_ref().map(|reservation| reservation.state);
        match order.state {
            OrderState::Pending => {}
            OrderState::Confirmed => {
                violations.require(state == Some(ReservationState::Sold), Rule::ConfirmedIsSold, || {
                    format!("reservation {}", named(state))
                });
            }
            OrderState::Cancelled => {
                let is_free = matches!(state, None | Some(ReservationState::Free));
                violations.require(is_free, Rule::StockBack, || format!("reservation {}", named(state)));
            }
        }
        let Some(reservation) = &self.reservation else { return };
        let ordered = order.lines.iter().map(|line| (&line.sku, line.quantity));
        let held = reservation.lines.iter().map(|line| (&line.sku, line.quantity));
        // A free one that never held anything has no lines.
        let is_never_held = reservation.state == ReservationState::Free && reservation.lines.is_empty();
        // They are nearly always equal line by line, which is cheaper to check.
        let agree = || ordered.clone().eq(held.clone()) || by_sku(ordered.clone()) == by_sku(held.clone());
        violations.require(is_never_held || agree(), Rule::LinesAgree, || {
            let (ordered, held) = (by_sku(ordered.clone()), by_sku(held.clone()));
            let (ordered, held) = (list(ordered.iter().map(pieces)), list(held.iter().map(pieces)));
            format!("ordered {ordered}; reservation {} {held}", named(state))
        });
    }
}

/// Sums the lines of an order; `None` without lines, and when they cannot be added.
pub(super) fn of_lines(order: &OrderEntry) -> Option<Money> {
    sum(order.lines.iter().map(|line| line.unit_price.times(line.quantity)))
}

/// Returns `None` without amounts, and when they cannot be added.
pub(super) fn sum(mut amounts: impl Iterator<Item = Option<Money>>) -> Option<Money> {
    let first = amounts.next()??;
    amounts.try_fold(first, |sum, amount| sum.plus(amount?))
}

fn by_sku<'a>(lines: impl Iterator<Item = (&'a String, u32)>) -> BTreeMap<&'a str, u64> {
    let mut pieces = BTreeMap::new();
    for (sku, quantity) in lines {
        *pieces.entry(sku.as_str()).or_default() += u64::from(quantity);
    }
    pieces
}

fn pieces((sku, quantity): (&&str, &u64)) -> String {
    format!("{quantity} {sku}")
}

fn line_text(line: &Line) -> String {
    format!("{} {} at {}", line.quantity, line.sku, line.unit_price)
}
