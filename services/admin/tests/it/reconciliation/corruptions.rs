//! Pure: every corruption of the ledgers, and the discrepancies that it causes.

use admin::ledgers::discrepancies::Discrepancies;
use admin::ledgers::rules::Rule;
use admin::ledgers::totals::Ledgers;
use admin_api::reconciliation::Summary;
use contract::money::{Currency, Money};
use contract::order::CancelReason;
use contract::reconciliation::{ChargeState, OrderState, PaymentState, ReservationState, StockEntry};
use contract::{FactType, payment_id};
use jiff::SignedDuration;
use uuid::Uuid;

use super::shop::{
    CANCELLED, CONFIRMED, DECLINED, KINDNESS, PENDING, REFUSED, REVERSED, Shop, at, euro, id, line,
};

/// Description of a corruption, and the change.
pub type Corruption = (&'static str, fn(&mut Shop));

#[test]
fn consistent_ledgers_have_no_discrepancy_for_any_page_size() {
    let shop = Shop::consistent();
    let whole = shop.reconciled(2_000);
    let wanted = Summary {
        orders: 7,
        pending: 1,
        confirmed: 2,
        cancelled: 4,
        captured: 1,
        refunded: 3,
        on_hand: 14,
        reserved: 1,
        sold: 5,
        supplied: 20,
        facts_published: 7,
        ..Summary::default()
    };
    assert_eq!(whole, (wanted, Discrepancies::default()));
    for page in 1..=8 {
        assert_eq!(shop.reconciled(page), whole, "pages of {page}");
    }
}

#[test]
fn every_corruption_is_found_and_named() {
    let mut text = String::new();
    for (name, corrupt) in corruptions() {
        let mut shop = Shop::consistent();
        corrupt(&mut shop);
        let found = shop.discrepancies();
        assert!(!found.is_empty(), "{name}: nothing was found");
        text += &format!("{name}\n  {}\n", found.join("\n  "));
        // A page is a matter of memory, not of what is found.
        let whole = shop.reconciled(2_000);
        for page in 1..=8 {
            assert_eq!(shop.reconciled(page), whole, "{name}, pages of {page}");
        }
    }
    insta::assert_snapshot!("corruptions", text);
}

#[test]
fn order_is_overdue_after_the_grace_period() {
    let mut shop = Shop::consistent();
    shop.now = shop.orders[PENDING].deadline + SignedDuration::from_secs(30);
    assert_eq!(shop.discrepancies(), [""; 0]);
    shop.now += SignedDuration::from_micros(1);
    assert_eq!(broken(&shop), [Rule::EveryOrderEnds.text()]);
}

#[test]
fn money_that_both_ledgers_agree_on_is_compared_with_the_order() {
    type Corrupt = fn(&mut Shop);
    let corrupt: [(&str, Corrupt); 4] = [
        ("a cent less was captured", |shop| {
            shop.payments[CONFIRMED].captured = vec![euro(1_299)];
            shop.charges[0].captured = vec![euro(1_299)];
        }),
        ("a hundred times as much was captured", |shop| {
            shop.payments[CONFIRMED].captured = vec![euro(130_000)];
            shop.charges[0].captured = vec![euro(130_000)];
        }),
        ("it was captured twice", |shop| {
            shop.payments[CONFIRMED].captured.push(euro(1_300));
            shop.charges[0].captured.push(euro(1_300));
        }),
        ("nothing was captured", |shop| {
            shop.payments[CONFIRMED].captured.clear();
            shop.charges[0].captured.clear();
        }),
    ];
    let unfound: Vec<_> = corrupt
        .into_iter()
        .filter(|(_, corrupt)| {
            let mut shop = Shop::consistent();
            corrupt(&mut shop);
            broken(&shop).is_empty()
        })
        .map(|(name, _)| name)
        .collect();
    assert_eq!(unfound, [""; 0], "the ledgers agree");
}

fn broken(shop: &Shop) -> Vec<String> {
    shop.reconciled(9).1.listed.into_iter().map(|found| found.rule).collect()
}

#[test]
fn discrepancies_are_listed_up_to_a_limit_and_all_counted() {
    let mut findings = Discrepancies::default();
    for number in 0..201 {
        findings.report(Rule::OneCharge, &number.to_string(), String::new());
    }
    assert_eq!((findings.count, findings.counts()[0].suspected), (201, 201));
    assert_eq!(findings.samples().1.len(), 200);
}

#[test]
fn summary_adds_up_all_ledgers() {
    let mut shop = Shop::consistent();
    for service in &mut shop.service_stats {
        service.stats.dead_letters = 2;
        service.published = [("something".to_owned(), 3)].into();
    }
    let services = shop.service_stats.len() as u64;
    let mut ledgers = Ledgers::new(shop.now, shop.baselines.clone());
    ledgers.rows("order", 3, &[]);
    ledgers.rows("payment", 4, &[]);
    ledgers.messages(&shop.service_stats);
    let summary = ledgers.finish().summary;
    assert_eq!(summary.rows_checked, 7);
    assert_eq!((summary.dead_letters, summary.facts_published), (2 * services, 3 * services));
}

#[test]
fn overflowing_line_total_is_a_discrepancy() {
    let mut shop = Shop::consistent();
    shop.orders[CONFIRMED].lines.insert(0, line("gem", u32::MAX, i64::MAX));
    assert!(broken(&shop).contains(&Rule::TotalIsItsLines.text().to_owned()));
}

/// The bank keeps declined calls.
#[test]
fn charge_without_money_is_no_trace_of_an_unknown_order() {
    let traces = |state, captured: &[Money], refunded: &[Money]| {
        let mut shop = Shop::consistent();
        shop.charge(PENDING, state, captured.to_vec(), refunded.to_vec());
        let mut stray = shop.charges.pop().expect("a charge");
        stray.reference = id(99).to_string();
        shop.charges.push(stray);
        broken(&shop)
    };
    assert_eq!(traces(ChargeState::None, &[], &[]), [""; 0]);
    for (state, captured, refunded) in [
        (ChargeState::Captured, &[][..], &[][..]),
        (ChargeState::None, &[euro(300)], &[]),
        (ChargeState::None, &[], &[euro(300)]),
    ] {
        assert_eq!(traces(state, captured, refunded), [Rule::EverythingHasAnOrder.text()], "{state:?}");
    }
}

/// Each rule between ledgers, and each that holds whatever is in flight, has an example.
#[test]
fn every_rule_is_broken_by_some_corruption() {
    let mut broken = Vec::new();
    let mut certain = 0;
    for (_, corrupt) in corruptions() {
        let mut shop = Shop::consistent();
        corrupt(&mut shop);
        let findings = shop.reconciled(2_000).1;
        broken.extend(findings.listed.into_iter().map(|found| found.rule));
        certain += findings.certain;
    }
    for rule in [
        Rule::EveryOrderEnds,
        Rule::EverythingHasAnOrder,
        Rule::TotalIsItsLines,
        Rule::PricesAreTheCatalogues,
        Rule::LinesAgree,
        Rule::CustomersAgree,
        Rule::AmountsAgree,
        Rule::OneCharge,
        Rule::OneCapture,
        Rule::ConfirmedIsSold,
        Rule::StockBack,
        Rule::MoneyBack,
        Rule::BankIsPayments,
        Rule::ViewIsWhatWasPublished,
        Rule::StockAddsUp,
        Rule::StockIsReservations,
        Rule::CopyIsCatalogue,
        Rule::FactsArePublished,
        Rule::MessagesAreHandled,
    ] {
        assert!(broken.iter().any(|broken| broken == rule.text()), "{}", rule.text());
    }
    assert!(certain > 0);
}

/// Corruptions of ended orders.
pub fn of_ended_orders() -> Vec<Corruption> {
    let of_pending = |name: &str| {
        [
            "pending",
            "overdue",
            "deadline",
            "lost",
            "reversal",
            "history",
            "kindness",
            "at another time",
            "a fact",
        ]
        .iter()
        .any(|word| name.contains(word))
    };
    let all = of_orders().into_iter().chain(of_money()).chain(of_stock());
    all.filter(|(name, _)| !of_pending(name)).filter(|(name, _)| !name.contains("product")).collect()
}

fn corruptions() -> impl Iterator<Item = Corruption> {
    of_orders().into_iter().chain(of_stock()).chain(of_money()).chain(of_views()).chain(of_messages())
}

fn of_orders() -> Vec<Corruption> {
    vec![
        ("order: lost", |shop| drop(shop.orders.remove(CONFIRMED))),
        ("order: lost, and it was pending", |shop| drop(shop.orders.remove(PENDING))),
        ("order: a line's price", |shop| shop.orders[CONFIRMED].lines[0].unit_price = euro(301)),
        ("order: a line's price, and the total with it", |shop| {
            shop.orders[CONFIRMED].lines[0].unit_price = euro(301);
            shop.orders[CONFIRMED].total = euro(1_301);
        }),
        ("order: the prices of two lines swapped", |shop| {
            shop.orders[CONFIRMED].lines = vec![line("tea", 1, 500), line("cup", 2, 400)];
        }),
        ("order: a line's quantity", |shop| shop.orders[CONFIRMED].lines[0].quantity = 2),
        ("order: a line's sku", |shop| shop.orders[CONFIRMED].lines[0].sku = "cup".to_owned()),
        ("order: a line lost", |shop| drop(shop.orders[CONFIRMED].lines.remove(0))),
        ("order: a line doubled", |shop| {
            let again = shop.orders[CONFIRMED].lines[0].clone();
            shop.orders[CONFIRMED].lines.push(again);
        }),
        ("order: all lines lost", |shop| shop.orders[CONFIRMED].lines.clear()),
        ("order: another currency in one line", |shop| {
            shop.orders[CONFIRMED].lines[1].unit_price = Money::new(500, Currency::USD);
        }),
        ("order: total", |shop| shop.orders[CONFIRMED].total = euro(1_200)),
        ("order: total of a cancelled one", |shop| shop.orders[REFUSED].total = euro(1_200)),
        ("order: customer", |shop| shop.orders[CONFIRMED].customer = "eve".to_owned()),
        ("order: confirmed one is cancelled", |shop| {
            shop.orders[CONFIRMED].state = OrderState::Cancelled;
            shop.orders[CONFIRMED].cancelled_because = Some(CancelReason::Operator);
        }),
        ("order: cancelled one is confirmed", |shop| {
            shop.orders[CANCELLED].state = OrderState::Confirmed;
            shop.orders[CANCELLED].cancelled_because = None;
        }),
        ("order: refused one is confirmed", |shop| shop.orders[REFUSED].state = OrderState::Confirmed),
        ("order: another reason of its cancellation", |shop| {
            shop.orders[CANCELLED].cancelled_because = Some(CancelReason::TimedOut);
        }),
        ("order: a fact of its history lost", |shop| shop.orders[CONFIRMED].published.truncate(1)),
        ("order: a fact of its history at another time", |shop| {
            shop.orders[CONFIRMED].published[1].at = at(CONFIRMED, 9);
        }),
        ("order: deadline", |shop| shop.orders[PENDING].deadline = at(PENDING, 3_600)),
        ("order: overdue", |shop| shop.now = at(PENDING, 60) + SignedDuration::from_secs(31)),
    ]
}

fn of_stock() -> Vec<Corruption> {
    vec![
        ("reservation: lost", |shop| drop(shop.reservations.remove(CONFIRMED))),
        ("reservation: another product sold than ordered", |shop| {
            shop.reservations[CONFIRMED].lines[1].sku = "tea".to_owned();
        }),
        ("reservation: another product sold than ordered, and the stock with it", |shop| {
            shop.reservations[CONFIRMED].lines[1].sku = "tea".to_owned();
            (shop.stock[0].sold, shop.stock[0].on_hand) = (0, 6);
            (shop.stock[2].sold, shop.stock[2].on_hand) = (5, 7);
        }),
        ("reservation: quantity", |shop| shop.reservations[CONFIRMED].lines[0].quantity = 2),
        ("reservation: sold one is held", |shop| {
            shop.reservations[CONFIRMED].state = ReservationState::Reserved;
        }),
        ("reservation: sold one is free", |shop| {
            shop.reservations[CONFIRMED].state = ReservationState::Free;
        }),
        ("reservation: a cancelled order's is held", |shop| {
            shop.reservations[CANCELLED].state = ReservationState::Reserved;
        }),
        ("reservation: history of a free one", |shop| {
            shop.reservations[CANCELLED].lines[0].sku = "cup".to_owned();
        }),
        ("reservation: of no order", |shop| {
            let mut stray = shop.reservations[CONFIRMED].clone();
            stray.order = id(9);
            shop.reservations.push(stray);
        }),
        ("product: lost", |shop| drop(shop.stock.remove(2))),
        ("product: invented", |shop| {
            shop.stock.push(StockEntry { sku: "van".to_owned(), ..shop.stock[0].clone() });
        }),
        ("product: pieces on hand", |shop| shop.stock[0].on_hand += 1),
        ("product: supply", |shop| shop.stock[0].supplied = 7),
        ("product: pieces held by nobody", |shop| {
            (shop.stock[0].on_hand, shop.stock[0].reserved) = (3, 1);
        }),
        ("product: sold pieces of one taken for another's", |shop| {
            (shop.stock[0].sold, shop.stock[0].on_hand) = (3, 3);
            (shop.stock[2].sold, shop.stock[2].on_hand) = (2, 10);
        }),
        ("product: price", |shop| shop.stock[2].unit_price = Some(euro(301))),
        ("product: currency", |shop| {
            shop.stock[2].unit_price = Some(Money::new(300, Currency::USD));
        }),
        ("product: revision", |shop| shop.stock[0].revision = 3),
        ("catalogue copy: price", |shop| shop.copies[2].unit_price = Some(euro(299))),
        ("catalogue copy: lost", |shop| drop(shop.copies.remove(1))),
        ("catalogue copy: of no product", |shop| {
            let mut copy = shop.copies[0].clone();
            copy.sku = "van".to_owned();
            shop.copies.push(copy);
        }),
        ("catalogue copy: its history lost", |shop| shop.copies[0].prices.truncate(0)),
    ]
}

fn of_money() -> Vec<Corruption> {
    vec![
        ("payment: lost", |shop| drop(shop.payments.remove(CONFIRMED))),
        ("payment: another customer", |shop| {
            shop.payments[CONFIRMED].customer = Some("bob".to_owned());
        }),
        ("payment: amount", |shop| shop.payments[CONFIRMED].amount = Some(euro(1_299))),
        ("payment: currency", |shop| {
            shop.payments[CONFIRMED].amount = Some(Money::new(1_300, Currency::USD));
        }),
        ("payment: another order's charge", |shop| {
            shop.payments[CONFIRMED].reference = "ch_1".to_owned();
        }),
        ("payment: no reference", |shop| shop.payments[CONFIRMED].reference.clear()),
        ("payment: captured one is refunded", |shop| {
            shop.payments[CONFIRMED].state = PaymentState::Refunded;
        }),
        ("payment: refunded one is captured", |shop| {
            shop.payments[CANCELLED].state = PaymentState::Captured;
        }),
        ("payment: captured one is still open", |shop| {
            shop.payments[CONFIRMED].state = PaymentState::Open;
        }),
        ("payment: failed one has captured", |shop| {
            shop.payments[DECLINED].captured = vec![euro(500)];
        }),
        ("payment: a refund out of kindness was nobody's", |shop| {
            shop.payments[KINDNESS].refunded_by_operator = false;
        }),
        ("payment: a capture doubled in its history", |shop| {
            shop.payments[CONFIRMED].captured.push(euro(1_300));
        }),
        ("payment: a refund doubled in its history", |shop| {
            shop.payments[CANCELLED].refunded.push(euro(1_200));
        }),
        ("charge: lost", |shop| drop(shop.charges.remove(0))),
        ("charge: not given back", |shop| {
            shop.charges[1].state = ChargeState::Captured;
            shop.charges[1].refunded.clear();
        }),
        ("charge: of no order", |shop| {
            shop.charges[0].reference = id(9).to_string();
            shop.charges.sort_by_key(|charge| charge.reference.clone());
        }),
        ("charge: for something else", |shop| {
            let mut stray = shop.charges[0].clone();
            (stray.charge, stray.reference) = (Uuid::from_u128(7), "a van".to_owned());
            shop.charges.push(stray);
        }),
        ("charge: a second one for an order", |shop| {
            let mut again = shop.charges[0].clone();
            (again.charge, again.id) = (Uuid::from_u128(7), "ch_7".to_owned());
            shop.charges.insert(1, again);
        }),
        ("charge: a second one, which was given back", |shop| {
            let mut again = shop.charges[0].clone();
            (again.charge, again.id) = (Uuid::from_u128(7), "ch_7".to_owned());
            (again.state, again.refunded) = (ChargeState::Refunded, vec![euro(1_300)]);
            shop.charges.insert(1, again);
        }),
        ("charge: amount", |shop| {
            (shop.charges[0].amount, shop.charges[0].captured) = (Some(euro(1_299)), vec![euro(1_299)]);
        }),
        ("charge: currency", |shop| shop.charges[0].amount = Some(Money::new(1_300, Currency::USD))),
        ("charge: a cent more in its history", |shop| shop.charges[0].captured = vec![euro(1_301)]),
        ("charge: a refund doubled", |shop| shop.charges[1].refunded.push(euro(1_200))),
        ("charge: a refund a cent short", |shop| shop.charges[1].refunded = vec![euro(1_199)]),
        ("charge: a reversal that gave nothing back", |shop| {
            let reversed = shop.charges.iter_mut().find(|charge| charge.charge == payment_id(id(REVERSED)));
            reversed.expect("its charge").refunded.clear();
        }),
        ("charge: under another key", |shop| shop.charges[0].charge = Uuid::from_u128(7)),
        ("charge: the charges of two orders swapped", |shop| {
            let (one, other) = (shop.charges[0].reference.clone(), shop.charges[1].reference.clone());
            (shop.charges[0].reference, shop.charges[1].reference) = (other, one);
            shop.charges.swap(0, 1);
        }),
    ]
}

fn of_views() -> Vec<Corruption> {
    vec![
        ("saga view: lost", |shop| drop(shop.views.remove(REFUSED))),
        ("saga view: of no order", |shop| {
            let view = shop.views[REFUSED].1.clone();
            shop.views.push((id(9).to_string(), view));
        }),
        ("saga view: a fact lost", |shop| {
            shop.views[CONFIRMED].1.facts.retain(|fact, _| fact != "PaymentProcessed")
        }),
        ("saga view: a fact invented", |shop| {
            let mut view = shop.views[CONFIRMED].1.clone();
            shop.receives(&mut view, CONFIRMED, FactType::StockReleased, 9);
            shop.views[CONFIRMED].1 = view;
        }),
        ("saga view: a fact at another time", |shop| {
            shop.views[CONFIRMED].1.facts.insert("OrderConfirmed".to_owned(), at(CONFIRMED, 9));
        }),
        ("saga view: customer", |shop| shop.views[CONFIRMED].1.customer = Some("eve".to_owned())),
        ("saga view: total", |shop| shop.views[CONFIRMED].1.total = Some(euro(1_299))),
        ("saga view: deadline", |shop| shop.views[CONFIRMED].1.deadline = Some(at(CONFIRMED, 61))),
        ("saga view: another reason", |shop| {
            shop.views[CANCELLED].1.cancelled_because = Some(CancelReason::TimedOut);
        }),
    ]
}

fn of_messages() -> Vec<Corruption> {
    vec![
        ("messages: one lost", |shop| shop.service_stats[1].steps[0].handled -= 1),
        ("messages: one handled that nobody published", |shop| shop.service_stats[1].steps[0].handled += 1),
        ("messages: one published that never came", |shop| {
            *shop.service_stats[0].published.get_mut("order.created").expect("a subject") += 1;
        }),
        ("messages: a dead one forgotten", |shop| shop.service_stats[1].steps[0].dead = 0),
        ("messages: a retry forgotten", |shop| shop.service_stats[1].steps[0].retrying = 0),
        ("messages: the broker refused one", |shop| shop.service_stats[0].stats.outbox_failed = 1),
    ]
}
