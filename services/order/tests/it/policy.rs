//! Pure: whenever they say X, the order service does Y.

use std::collections::BTreeSet;

use contract::Fact;
use contract::money::{Currency, Money};
use contract::order::CancelReason;
use contract::payment::PaymentProcessed;
use jiff::SignedDuration;
use order::domain::{CatalogueItem, Order, OrderRejection};
use order::policy::{OrderService, Rejection};
use saga_core::input::RequestKey;
use uuid::Uuid;

use crate::given::{
    LINES, ORDER, PATIENCE, cancel, cancelled, confirmed, created, euros, extended, extension, listed, paid,
    payment_failed, place, repriced, shop, shop_with_confirmed_order, shop_with_pending_order,
    short_of_stock,
};
use saga_engine::testing::facts_heard;
use saga_engine::testing::{ATTEMPTS, NOON, ServiceUnderTest, Stimulus};

/// Somebody edited what payment was asked for: the customer is not held to another price.
#[test]
fn a_capture_of_another_amount_is_parked_and_confirms_nothing() {
    let mut shop = shop_with_pending_order();
    let Fact::PaymentProcessed(paid) = paid(ORDER) else { panic!("a payment") };
    let cheaper = PaymentProcessed { amount: euros(3299), ..paid };
    shop.hears(Fact::PaymentProcessed(cheaper)).parks("order-confirmation", "the order costs 33.00");
    assert_eq!(shop.row::<Order>(ORDER).status(), "PENDING");
}

#[test]
fn a_placed_order_is_told_with_the_catalogues_prices_and_its_deadline() {
    let mut shop = shop();
    let reply = shop.is_asked(place(ORDER, &LINES)).records(&["Placed"]).tells([created(ORDER)]).reply();
    let view = reply.order;
    assert_eq!((view.status.as_str(), view.total), ("PENDING", euros(3300)));
    assert_eq!(shop.due::<Order>(ORDER), Some(NOON + PATIENCE));
}

#[test]
fn a_paid_order_is_confirmed_and_told_once() {
    let mut shop = shop_with_pending_order();
    shop.hears(paid(ORDER)).records(&["Confirmed"]).tells([confirmed(ORDER)]);
    shop.hears(paid(ORDER)).comes_out("done").changes_nothing();
    assert_eq!(shop.row::<Order>(ORDER).status(), "CONFIRMED");
}

#[test]
fn an_order_that_is_short_of_stock_is_cancelled_at_once() {
    let mut shop = shop_with_pending_order();
    shop.hears(short_of_stock(ORDER)).tells([cancelled(ORDER, CancelReason::OutOfStock)]);
    shop.hears(short_of_stock(ORDER)).comes_out("done").changes_nothing();
}

#[test]
fn an_order_whose_payment_failed_is_cancelled() {
    let mut shop = shop_with_pending_order();
    shop.hears(payment_failed(ORDER)).tells([cancelled(ORDER, CancelReason::PaymentFailed)]);
}

#[test]
fn a_capture_that_reaches_a_cancelled_order_does_not_confirm_it() {
    let mut shop = shop_with_pending_order();
    shop.is_asked(cancel(ORDER, CancelReason::CustomerRequest));
    let already = OrderRejection::AlreadyCancelled(CancelReason::CustomerRequest);
    assert_eq!(shop.hears(paid(ORDER)).rejection(), Rejection::Order(already));
}

#[test]
fn a_deadline_that_passes_cancels_the_order() {
    let mut shop = shop_with_pending_order();
    shop.now = NOON + PATIENCE;
    shop.is_due::<Order>(ORDER, NOON + PATIENCE).tells([cancelled(ORDER, CancelReason::TimedOut)]);
    assert_eq!(shop.due::<Order>(ORDER), None);
    shop.is_due::<Order>(ORDER, NOON + PATIENCE).changes_nothing();
}

#[test]
fn a_deadline_that_fires_after_confirmation_does_nothing() {
    let mut shop = shop_with_confirmed_order();
    assert_eq!(shop.due::<Order>(ORDER), None);
    shop.now = NOON + PATIENCE;
    shop.is_due::<Order>(ORDER, NOON + PATIENCE).comes_out("done").changes_nothing();
}

#[test]
fn a_deadline_that_fires_too_early_does_nothing() {
    let mut shop = shop_with_pending_order();
    shop.now = NOON + PATIENCE - SignedDuration::from_micros(1);
    shop.is_due::<Order>(ORDER, NOON + PATIENCE).changes_nothing();
    assert_eq!(shop.due::<Order>(ORDER), Some(NOON + PATIENCE));
}

/// An operator gives it more time; what was to fire at its old deadline does nothing.
#[test]
fn an_extended_order_is_told_and_gives_up_at_its_new_deadline() {
    let mut shop = shop_with_pending_order();
    let (deadline, later) = (NOON + PATIENCE, NOON + PATIENCE + SignedDuration::from_mins(5));
    shop.hears_from("admin", extension(ORDER, later))
        .records(&["DeadlineExtended"])
        .tells([extended(ORDER, later)]);
    shop.hears_from("admin", extension(ORDER, later)).changes_nothing();
    shop.hears_from("admin", extension(ORDER, deadline)).comes_out("done").changes_nothing();
    shop.now = deadline;
    shop.is_due::<Order>(ORDER, deadline).changes_nothing();
    shop.now = later;
    shop.hears_from("admin", extension(ORDER, later + PATIENCE)).comes_out("rejected").changes_nothing();
    shop.is_due::<Order>(ORDER, later).tells([cancelled(ORDER, CancelReason::TimedOut)]);
    shop.hears_from("admin", extension(ORDER, later + PATIENCE)).comes_out("rejected").changes_nothing();
    let mut confirmed = shop_with_confirmed_order();
    confirmed.hears_from("admin", extension(ORDER, later)).comes_out("rejected").changes_nothing();
}

#[test]
fn a_customer_or_an_operator_cancels_a_pending_or_a_confirmed_order() {
    for reason in [CancelReason::CustomerRequest, CancelReason::Operator] {
        for mut shop in [shop_with_pending_order(), shop_with_confirmed_order()] {
            shop.is_asked(cancel(ORDER, reason)).tells([cancelled(ORDER, reason)]);
            shop.is_asked(cancel(ORDER, reason)).comes_out("done").changes_nothing();
        }
    }
}

#[test]
fn a_confirmed_order_is_not_cancelled_by_a_late_refusal() {
    for late in [short_of_stock(ORDER), payment_failed(ORDER)] {
        let mut shop = shop_with_confirmed_order();
        assert_eq!(shop.hears(late).rejection(), Rejection::Order(OrderRejection::AlreadyConfirmed));
    }
}

#[test]
fn a_fact_about_an_order_that_is_not_here_yet_is_tried_again() {
    let mut shop = shop();
    shop.hears(paid(ORDER)).comes_out("retried").changes_nothing();
    shop.hears(paid(ORDER)).comes_out("duplicate").changes_nothing();
    shop.is_asked(place(ORDER, &LINES));
    shop.retries();
    assert_eq!(shop.told(), [created(ORDER), confirmed(ORDER)]);
    assert!(shop.kept.retries.is_empty(), "it waits no longer");
}

#[test]
fn a_fact_about_an_order_that_never_comes_is_parked() {
    for fact in [paid(ORDER), payment_failed(ORDER), short_of_stock(ORDER)] {
        let mut shop = shop();
        shop.hears(fact).comes_out("retried");
        for _ in 1..ATTEMPTS {
            shop.retries();
        }
        assert!(shop.kept.retries.is_empty(), "it waits no longer");
        let dead_letters: Vec<_> =
            shop.kept.dead.iter().map(|dead_letter| (dead_letter.saga, dead_letter.attempts)).collect();
        assert_eq!(dead_letters, [(Some(ORDER), ATTEMPTS)]);
    }
}

#[test]
fn cancelling_an_unknown_order_is_refused() {
    let unknown = shop().is_asked(cancel(ORDER, CancelReason::CustomerRequest)).rejection();
    assert_eq!(unknown, Rejection::Order(OrderRejection::Unknown));
}

#[test]
fn an_older_price_heard_late_is_ignored() {
    let mut shop = ServiceUnderTest::of(OrderService);
    shop.hears(repriced("beans", euros(1300), 2)).records(&["PriceHeard"]).tells([]);
    shop.hears(listed("beans", euros(1250), 1)).comes_out("done").changes_nothing();
    shop.hears(repriced("beans", euros(1300), 2)).comes_out("done").changes_nothing();
    assert_eq!(shop.row::<CatalogueItem>("beans").unit_price, Some(euros(1300)));
}

#[test]
fn an_order_keeps_the_prices_it_was_placed_at() {
    let mut shop = shop_with_pending_order();
    shop.hears(repriced("beans", euros(9900), 2));
    let placed = shop.row::<Order>(ORDER);
    assert_eq!(placed.placed().map(|placed| placed.payment.total), Some(euros(3300)));
}

#[test]
fn two_lines_of_one_sku_are_both_charged() {
    let mut shop = shop();
    let reply = shop.is_asked(place(ORDER, &[("mug", 1), ("mug", 2)])).reply();
    let order = reply.order;
    assert_eq!((order.total, order.lines.len()), (euros(2400), 2));
}

#[test]
fn an_order_that_cannot_be_priced_names_its_line_and_leaves_no_trace() {
    let mut shop = shop();
    shop.hears(listed("gold", euros(i64::MAX), 1));
    shop.hears(listed("tea", Money::new(900, Currency::USD), 1));
    let mut rejection_of = |lines: &[(&str, u32)]| shop.is_asked(place(ORDER, lines)).rejection();

    let unknown = Rejection::UnknownSku { line: 1, sku: "unicorn".to_owned() };
    assert_eq!(rejection_of(&[("mug", 1), ("unicorn", 1)]), unknown);
    assert_eq!(rejection_of(&[("mug", 1), ("beans", 1), ("tea", 1)]), Rejection::MixedCurrencies { line: 2 });
    assert_eq!(rejection_of(&[("mug", 1), ("gold", 1)]), Rejection::TotalTooLarge { line: 1 });
    assert_eq!(rejection_of(&[("gold", 2)]), Rejection::TotalTooLarge { line: 0 });
    assert_eq!(shop.row::<Order>(ORDER), Order::New);
}

#[test]
fn one_order_comes_of_one_key_posted_fifty_times_at_once() {
    let mut shop = shop();
    let posts: Vec<_> = (1..=50).map(|number| post(Uuid::from_u128(number), "same")).collect();
    let outcomes = shop.takes_batch(&posts);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.name() == "replayed").count(), 49);
    assert_eq!(shop.told(), [created(ORDER)]);
    shop.takes(post(Uuid::from_u128(51), "another request")).comes_out("key_reused").changes_nothing();
}

#[test]
fn a_refused_request_keeps_no_answer_under_its_key() {
    let mut shop = ServiceUnderTest::of(OrderService);
    shop.takes(post(ORDER, "same")).rejection();
    shop.hears(listed("beans", euros(1250), 1));
    shop.hears(listed("mug", euros(800), 1));
    shop.takes(post(ORDER, "same")).comes_out("done").tells([created(ORDER)]);
}

#[test]
fn every_fact_that_a_step_hears_is_understood() {
    let (new, newer) = (listed("tea", euros(1), 1), repriced("tea", euros(2), 2));
    let extension = extension(ORDER, NOON + PATIENCE + PATIENCE);
    let facts = [paid(ORDER), payment_failed(ORDER), short_of_stock(ORDER), new, newer, extension];
    assert_eq!(
        facts.iter().map(|fact| fact.fact_type().name()).collect::<BTreeSet<_>>(),
        facts_heard::<OrderService>()
    );
    for fact in facts {
        let then = shop_with_pending_order().hears(fact).comes_out("done");
        assert_eq!(then.events.len(), 1);
    }
}

/// A post of an order under a key, as HTTP hands it in: each time under an id of its own.
fn post(order: Uuid, fingerprint: &str) -> Stimulus<OrderService> {
    let key = RequestKey { key: "orders/k1".to_owned(), fingerprint: fingerprint.to_owned() };
    Stimulus::Command { id: order, saga: order, command: place(order, &LINES), key: Some(key) }
}
