//! Pure: all that is known of one order, field by field, and what must hold between it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use contract::fact::FactType;
use contract::money::Money;
use contract::overview::GRACE;
use contract::reconciliation::{
    ChargeEntry, ChargeState, OrderEntry, OrderState, PaymentEntry, PaymentState, ReservationEntry,
    ReservationState, Said,
};
use contract::saga_view::SagaView;
use contract::unsaid_payment_id;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::findings::{Found, Rule};
use super::settled::{SettledItem, held_against};

/// Where a fact comes from that no history tells.
const FROM_OUTSIDE: &str = "no history says so: it came from outside, or its service has lost it";

/// What one order must be held against, beside what is said of it.
#[derive(Debug, Clone, Copy)]
pub struct Standard<'a> {
    /// What time it is for the order service, whose clock the deadlines go by.
    pub now: Timestamp,
    /// Every price that a product ever had, by sku.
    pub prices: &'a BTreeMap<String, Vec<Money>>,
    /// What was said before need not have reached the view of the sagas.
    pub heard_since: Timestamp,
}

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

/// What breaks a rule, and how.
pub type Fault = (Rule, String);

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
        self.payment.as_ref().is_some_and(|payment| payment.state == PaymentState::Open && !payment.settled)
    }

    /// Everything that does not add up.
    #[must_use]
    pub fn faults(&self, standard: Standard<'_>) -> Vec<Fault> {
        let mut faults = Faults(Vec::new());
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

    /// What is still open of an order so old that the rest of it may have left.
    #[must_use]
    pub fn open(&self) -> Vec<Found> {
        let order = self.order.as_ref().filter(|order| order.state == OrderState::Pending);
        let reservation = self.reservation.as_ref();
        let reservation = reservation.filter(|reservation| reservation.state == ReservationState::Held);
        let left = "though the order is so old that what is finished of it may have left";
        let pending =
            order.map(|_| (Rule::EveryOrderEnds, format!("neither confirmed nor cancelled, {left}")));
        let held = reservation.map(|_| (Rule::StockBack, format!("stock is held, {left}")));
        let called =
            self.has_open_call().then(|| (Rule::MoneyBack, format!("the bank is to be asked, {left}")));
        let found = |(rule, detail)| Found { since: self.since(rule), ..Found::plain(rule, detail) };
        [pending, held, called].into_iter().flatten().map(found).collect()
    }

    /// The same, each with how much and since when.
    #[must_use]
    pub fn found(&self, standard: Standard<'_>) -> Vec<Found> {
        let found = |(rule, detail): Fault| Found {
            difference: self.difference(rule),
            since: self.since(rule),
            ..Found::plain(rule, detail)
        };
        self.faults(standard).into_iter().map(found).collect()
    }

    /// The same, but for what was settled outside and stands as it was accepted, which is told apart.
    #[must_use]
    pub fn judged(&self, key: &str, standard: Standard<'_>) -> (Vec<Found>, Vec<SettledItem>) {
        let found = self.found(standard);
        match self.view.as_ref().and_then(|view| Some((view, view.settled.as_ref()?))) {
            Some((view, settlement)) => held_against(settlement, key, view, found),
            None => (found, vec![]),
        }
    }

    /// When the last thing happened that such a fault is about.
    fn since(&self, rule: Rule) -> Option<Timestamp> {
        if rule == Rule::EveryOrderEnds {
            return self.order.as_ref().map(|order| order.deadline);
        }
        let ordered = self.order.iter().flat_map(|order| &order.said);
        let reserved = self.reservation.iter().flat_map(|reservation| &reservation.said);
        let paid = self.payment.iter().flat_map(|payment| &payment.said);
        let said = ordered.chain(reserved).chain(paid).map(|said| said.at).max();
        said.or_else(|| self.view.as_ref().and_then(|view| heard(view).map(|(_, at)| at).max()))
    }

    /// How much too much there is, where it is an amount.
    fn difference(&self, rule: Rule) -> Option<String> {
        let order = self.order.as_ref()?;
        let lines = order.lines.iter().map(|line| line.unit_price.times(line.quantity));
        let captured = || self.charges.iter().flat_map(|charge| charge.captured.iter().copied().map(Some));
        let refunded = || self.charges.iter().flat_map(|charge| charge.refunded.iter().copied().map(Some));
        let (is, should) = match rule {
            Rule::TotalIsItsLines => (Some(order.total), sum(lines)),
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

    /// Charges that came to anything.
    fn moved(&self) -> impl Iterator<Item = &ChargeEntry> {
        let moved = |charge: &&ChargeEntry| {
            charge.state != ChargeState::None || !charge.captured.is_empty() || !charge.refunded.is_empty()
        };
        self.charges.iter().filter(moved)
    }

    /// Whether some service acted on an order that there is not.
    fn has_traces(&self) -> bool {
        self.reservation.is_some() || self.payment.is_some() || self.moved().count() > 0
    }

    /// Facts about an order that no service knows anything of: whoever said them is none of ours.
    fn check_strangers(&self, since: Timestamp, faults: &mut Faults) {
        let heard = self.view.iter().flat_map(heard).filter(|(_, at)| *at >= since);
        let names = in_order(heard.map(|(fact, _)| fact));
        faults.must(names.is_empty(), Rule::FactsAreOurs, || {
            format!("no service knows this order, heard {}; {FROM_OUTSIDE}", list(names))
        });
    }

    fn traces(&self) -> String {
        let reservation = self.reservation.as_ref().map(|reservation| reservation.state);
        let payment = self.payment.as_ref().map(|payment| payment.state);
        format!(
            "no order; reservation {}, payment {}, the bank captured {}, heard {}",
            named(reservation),
            named(payment),
            list(self.moved().flat_map(|charge| &charge.captured)),
            list(in_order(self.view.iter().flat_map(heard).map(|(fact, _)| fact))),
        )
    }

    fn check_order(&self, order: &OrderEntry, standard: Standard<'_>, faults: &mut Faults) {
        faults.must(!self.is_overdue(standard.now), Rule::EveryOrderEnds, || {
            format!("neither confirmed nor cancelled, and was to end by {}", order.deadline)
        });
        let mut sum: Option<Money> = None;
        let mut fits = true;
        for line in &order.lines {
            let price = line.unit_price.times(line.quantity);
            sum = price.and_then(|price| sum.map_or(Some(price), |sum| sum.plus(price)));
            fits &= sum.is_some();
        }
        faults.must(fits && sum == Some(order.total), Rule::TotalIsItsLines, || {
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

    fn check_customer_and_amounts(&self, order: &OrderEntry, faults: &mut Faults) {
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

    fn check_stock(&self, order: &OrderEntry, faults: &mut Faults) {
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

    fn check_money(&self, order: &OrderEntry, faults: &mut Faults) {
        let payment = self.payment.as_ref().map(|payment| payment.state);
        let kept = self.charges.iter().filter(|charge| charge.state == ChargeState::Captured).count();
        let detail = || format!("payment {}, {kept} charges captured at the bank", named(payment));
        let moved = self.moved().count();
        faults.must(moved <= 1, Rule::OneCharge, || format!("{moved} charges at the bank"));
        match order.state {
            OrderState::Pending => {}
            OrderState::Confirmed => {
                let is_kindness = self.payment.as_ref().is_some_and(|payment| payment.refunded_by_operator);
                let is_paid = match payment {
                    Some(PaymentState::Captured) => kept == 1,
                    Some(PaymentState::Refunded) => is_kindness && kept == 0,
                    Some(PaymentState::Open | PaymentState::None) | None => false,
                };
                faults.must(is_paid, Rule::OneCapture, detail);
            }
            OrderState::Cancelled => {
                let is_undone = matches!(payment, None | Some(PaymentState::None | PaymentState::Refunded));
                faults.must(is_undone && kept == 0, Rule::MoneyBack, detail);
            }
        }
    }

    /// Each capture and each refund, to the cent, and the references by which the two ledgers know a charge.
    fn check_bank(&self, order: &OrderEntry, faults: &mut Faults) {
        let captured: Vec<Money> = self.charges.iter().flat_map(|charge| &charge.captured).copied().collect();
        let refunded: Vec<Money> = self.charges.iter().flat_map(|charge| &charge.refunded).copied().collect();
        let bank = || format!("the bank captured {} and refunded {}", list(&captured), list(&refunded));
        // Services of an earlier build do not hear what the order says, and ask for the charge under the id it had there.
        let is_known = |charge| order.payment == Some(charge) || charge == unsaid_payment_id(order.order);
        for charge in self.moved() {
            faults.must(is_known(charge.charge), Rule::BankIsPayments, || {
                format!("charge {} is not the payment's", charge.id)
            });
        }
        let Some(payment) = &self.payment else {
            return faults
                .must(captured == refunded, Rule::BankIsPayments, || format!("no payment; {}", bank()));
        };
        let agree = match payment.state {
            // A call is under way, or its outcome is not known yet.
            PaymentState::Open => true,
            // What came unseen was reversed.
            PaymentState::None => captured == refunded && payment.captured.is_empty(),
            PaymentState::Captured => {
                (&captured, &refunded) == (&payment.captured, &payment.refunded) && refunded.is_empty()
            }
            PaymentState::Refunded => {
                (&captured, &refunded) == (&payment.captured, &payment.refunded) && captured == refunded
            }
        };
        faults.must(agree, Rule::BankIsPayments, || {
            let (came, went) = (list(&payment.captured), list(&payment.refunded));
            format!("payment {}, captured {came} and refunded {went}; {}", named(Some(payment.state)), bank())
        });
        if matches!(payment.state, PaymentState::Captured | PaymentState::Refunded) {
            let is_its_own = self.moved().any(|charge| charge.id == payment.reference);
            faults.must(is_its_own, Rule::BankIsPayments, || {
                let own = list(self.moved().map(|charge| &charge.id));
                format!("payment says {}, the bank's charges of the order are {own}", payment.reference)
            });
        }
    }

    /// Every fact that some service's history told, at its time, and no other.
    fn check_view(&self, order: &OrderEntry, since: Timestamp, faults: &mut Faults) {
        let reserved = self.reservation.iter().flat_map(|reservation| &reservation.said);
        let paid = self.payment.iter().flat_map(|payment| &payment.said);
        let said = order.said.iter().chain(reserved).chain(paid).map(|Said { fact, at }| (*fact, *at));
        let said = Times::of(said);
        let none = SagaView::default();
        let view = self.view.as_ref().unwrap_or(&none);
        let heard = Times::of(heard(view));
        for fact in FactType::ALL {
            let (said, heard) = (said.earliest(*fact), heard.earliest(*fact));
            if said.is_none() && heard.is_none() {
                continue;
            }
            // The histories keep microseconds.
            let micros = |at: &&Timestamp| at.as_microsecond();
            if said.is_none() {
                let is_accepted = heard.is_some_and(|at| *at < since);
                faults.must(is_accepted, Rule::FactsAreOurs, || {
                    format!("{} heard {}; {FROM_OUTSIDE}", fact.name(), time(heard))
                });
                continue;
            }
            let is_too_early = heard.is_none() && said.is_some_and(|at| *at < since);
            let agree = said.as_ref().map(micros) == heard.as_ref().map(micros);
            faults.must(agree || is_too_early, Rule::ViewIsWhatWasSaid, || {
                format!("{} said {}, heard {}", fact.name(), time(said), time(heard))
            });
        }
        let deadline = view.deadline.unwrap_or(order.deadline);
        faults.must(deadline == order.deadline, Rule::ViewIsWhatWasSaid, || {
            format!("deadline {}, heard {deadline}", order.deadline)
        });
        let reason = view.cancelled_because.or(order.cancelled_because);
        faults.must(reason == order.cancelled_because, Rule::ViewIsWhatWasSaid, || {
            format!("cancelled because {}, heard {}", named(order.cancelled_because), named(reason))
        });
    }
}

struct Faults(Vec<Fault>);

impl Faults {
    fn must(&mut self, holds: bool, rule: Rule, detail: impl FnOnce() -> String) {
        if !holds {
            self.0.push((rule, detail()));
        }
    }
}

/// When facts were said: one place for each type, as an account that adds up asks for nearly all of them.
struct Times([Option<Timestamp>; FactType::ALL.len()]);

impl Times {
    /// Of each the earliest of these.
    fn of(facts: impl Iterator<Item = (FactType, Timestamp)>) -> Self {
        let mut times = Self([None; FactType::ALL.len()]);
        for (fact, at) in facts {
            let first = &mut times.0[fact as usize];
            *first = Some(first.map_or(at, |first| first.min(at)));
        }
        times
    }

    const fn earliest(&self, fact: FactType) -> Option<&Timestamp> {
        self.0[fact as usize].as_ref()
    }
}

/// What the services said of the saga, each with the time; what is said of dead letters is no part of it.
fn heard(view: &SagaView) -> impl Iterator<Item = (FactType, Timestamp)> {
    view.heard.iter().filter_map(|(name, at)| Some((FactType::named(name)?, *at)))
}

/// The names of these facts, in the order of the contract.
fn in_order(facts: impl Iterator<Item = FactType>) -> Vec<&'static str> {
    facts.collect::<BTreeSet<_>>().into_iter().map(FactType::name).collect()
}

/// `None` of nothing, and of what cannot be added up.
fn sum(mut amounts: impl Iterator<Item = Option<Money>>) -> Option<Money> {
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

fn line_text(line: &contract::order::Line) -> String {
    format!("{} {} at {}", line.quantity, line.sku, line.unit_price)
}

/// A state by the name that the API has for it.
fn named(state: Option<impl Serialize>) -> String {
    match state.map(serde_json::to_value) {
        None => "none".to_owned(),
        Some(Ok(Value::String(name))) => name,
        Some(other) => other.map(|value| value.to_string()).unwrap_or_default(),
    }
}

fn time(at: Option<&Timestamp>) -> String {
    at.map_or_else(|| "never".to_owned(), ToString::to_string)
}

fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }
}
