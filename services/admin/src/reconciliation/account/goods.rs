//! Pure: what was ordered, by whom and for how much, and the stock that is held for it.

use std::collections::BTreeMap;

use contract::money::Money;
use contract::order::Line;
use contract::reconciliation::{OrderEntry, OrderState, ReservationState};

use super::faults::{Faults, Standard, list, named};
use super::known::Account;
use crate::reconciliation::findings::Rule;

impl Account {
    pub(super) fn check_order(&self, order: &OrderEntry, standard: Standard<'_>, faults: &mut Faults) {
        faults.must(!self.is_overdue(standard.now), Rule::EveryOrderEnds, || {
            format!("neither confirmed nor cancelled, and was to end by {}", order.deadline)
        });
        faults.must(of_lines(order) == Some(order.total), Rule::TotalIsItsLines, || {
            format!("total {}, lines {}", order.total, list(order.lines.iter().map(line_text)))
        });
        for line in &order.lines {
            let is_known =
                standard.prices.get(&line.sku).is_some_and(|prices| prices.contains(&line.unit_price));
            faults.must(is_known, Rule::PricesAreTheCatalogues, || {
                format!("{} ordered for {}, a price it never had", line.sku, line.unit_price)
            });
        }
    }

    pub(super) fn check_customer_and_amounts(&self, order: &OrderEntry, faults: &mut Faults) {
        let payer = self.payment.as_ref().and_then(|payment| payment.customer.as_ref());
        let amount = self.payment.as_ref().and_then(|payment| payment.amount);
        let seen = self.view.as_ref().and_then(|view| view.customer.as_ref());
        let total = self.view.as_ref().and_then(|view| view.total);
        for (who, customer) in [("payment", payer), ("saga view", seen)] {
            faults.must(
                customer.is_none_or(|customer| *customer == order.customer),
                Rule::CustomersAgree,
                || format!("order {}, {who} {}", order.customer, customer.map_or("", String::as_str)),
            );
        }
        let charged = self.moved().map(|charge| ("bank", charge.amount));
        for (who, amount) in [("payment", amount), ("saga view", total)].into_iter().chain(charged) {
            faults.must(amount.is_none_or(|amount| amount == order.total), Rule::AmountsAgree, || {
                format!(
                    "order {}, {who} {}",
                    order.total,
                    amount.map_or_else(String::new, |it| it.to_string())
                )
            });
        }
    }

    pub(super) fn check_stock(&self, order: &OrderEntry, faults: &mut Faults) {
        let state = self.reservation.as_ref().map(|reservation| reservation.state);
        match order.state {
            OrderState::Pending => {}
            OrderState::Confirmed => {
                faults.must(state == Some(ReservationState::Sold), Rule::ConfirmedIsSold, || {
                    format!("reservation {}", named(state))
                });
            }
            OrderState::Cancelled => {
                let is_free = matches!(state, None | Some(ReservationState::Free));
                faults.must(is_free, Rule::StockBack, || format!("reservation {}", named(state)));
            }
        }
        let Some(reservation) = &self.reservation else { return };
        let ordered = order.lines.iter().map(|line| (&line.sku, line.quantity));
        let held = reservation.lines.iter().map(|line| (&line.sku, line.quantity));
        // A free one that never held anything has no lines.
        let is_never_held = reservation.state == ReservationState::Free && reservation.lines.is_empty();
        // Line by line they are the same nearly always.
        let agree = || ordered.clone().eq(held.clone()) || by_sku(ordered.clone()) == by_sku(held.clone());
        faults.must(is_never_held || agree(), Rule::LinesAgree, || {
            let (ordered, held) = (by_sku(ordered.clone()), by_sku(held.clone()));
            let (ordered, held) = (list(ordered.iter().map(pieces)), list(held.iter().map(pieces)));
            format!("ordered {ordered}; reservation {} {held}", named(state))
        });
    }
}

/// What the lines of an order come to; `None` of no lines, and of what cannot be added up.
pub(super) fn of_lines(order: &OrderEntry) -> Option<Money> {
    sum(order.lines.iter().map(|line| line.unit_price.times(line.quantity)))
}

/// `None` of nothing, and of what cannot be added up.
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
