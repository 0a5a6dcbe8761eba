//! Pure: the handlers of the order service.

use std::collections::BTreeSet;

use contract::Fact;
use contract::metrics::{AMOUNT, ORDER_DURATION, PLACED};
use contract::money::{Currency, Money};
use contract::order::CancelReason;
use contract::payment::PaymentProcessed;
use jiff::SignedDuration;
use order::catalogue::CatalogueItem;
use order::domain::{Order, OrderRejection};
use order::service::{Command, OrderService, Rejection};
use saga_core::input::RequestKey;
use saga_core::metric::Measurement;
use uuid::Uuid;

use crate::given::{
    LINES, ORDER, TIMEOUT, cancel, cancelled, confirmed, created, euros, extended, extension, listed, paid,
    payment_failed, place, repriced, shop, shop_with_confirmed_order, shop_with_pending_order,
    short_of_stock,
};
use saga_engine::testing::consumed_facts;
use saga_engine::testing::{ATTEMPTS, NOON, ServiceUnderTest, Stimulus};

/// An operator edited the request to payment: the customer is not bound to another price.
#[test]
fn capture_of_other_amount_is_dead_lettered_and_confirms_nothing() {
    let mut shop = shop_with_pending_order();
    let Fact::PaymentProcessed(paid) = paid(ORDER) else { panic!("a payment") };
    let cheaper = PaymentProcessed { amount: euros(3299), ..paid };
    shop.receives(Fact::PaymentProcessed(cheaper))
        .is_dead_lettered("order-confirmation", "the order costs 33.00");
    assert_eq!(shop.row::<Order>(ORDER).status(), "PENDING");
}

#[test]
fn placed_order_is_published_with_catalogue_prices_and_deadline() {
    let mut shop = shop();
    let reply = shop.executes(place(ORDER, &LINES)).records(&["Placed"]).publishes([created(ORDER)]).reply();
    let view = reply.order;
    assert_eq!((view.status.as_str(), view.total), ("PENDING", euros(3300)));
    assert_eq!(shop.due::<Order>(ORDER), Some(NOON + TIMEOUT));
}

#[test]
fn paid_order_is_confirmed_and_published_once() {
    let mut shop = shop_with_pending_order();
    shop.receives(paid(ORDER)).records(&["Confirmed"]).publishes([confirmed(ORDER)]);
    shop.receives(paid(ORDER)).has_outcome("done").changes_nothing();
    assert_eq!(shop.row::<Order>(ORDER).status(), "CONFIRMED");
}

#[test]
fn order_is_measured_by_amount_and_time_until_it_ends() {
    let mut shop = shop_with_pending_order();
    shop.now = NOON + SignedDuration::from_secs(2);
    shop.receives(paid(ORDER));
    shop.executes(cancel(ORDER, CancelReason::Operator));
    let amount = |event| Measurement::more(&AMOUNT, &["EUR", event], 3300);
    let took = Measurement::took(&ORDER_DURATION, &["confirmed"], SignedDuration::from_secs(2));
    let placed = [Measurement::more(&PLACED, &[], 1), amount("placed")];
    assert_eq!(
        shop.store.measured,
        [&placed[..], &[took, amount("confirmed"), amount("taken_back")]].concat()
    );
}

#[test]
fn order_short_of_stock_is_cancelled() {
    let mut shop = shop_with_pending_order();
    shop.receives(short_of_stock(ORDER)).publishes([cancelled(ORDER, CancelReason::OutOfStock)]);
    shop.receives(short_of_stock(ORDER)).has_outcome("done").changes_nothing();
}

#[test]
fn order_with_failed_payment_is_cancelled() {
    let mut shop = shop_with_pending_order();
    shop.receives(payment_failed(ORDER)).publishes([cancelled(ORDER, CancelReason::PaymentFailed)]);
}

#[test]
fn capture_after_cancellation_does_not_confirm_order() {
    let mut shop = shop_with_pending_order();
    shop.executes(cancel(ORDER, CancelReason::CustomerRequest));
    let already = OrderRejection::AlreadyCancelled(CancelReason::CustomerRequest);
    assert_eq!(shop.receives(paid(ORDER)).rejection(), Rejection::Order(already));
}

#[test]
fn passed_deadline_cancels_order() {
    let mut shop = shop_with_pending_order();
    shop.now = NOON + TIMEOUT;
    shop.is_due::<Order>(ORDER, NOON + TIMEOUT).publishes([cancelled(ORDER, CancelReason::TimedOut)]);
    assert_eq!(shop.due::<Order>(ORDER), None);
    shop.is_due::<Order>(ORDER, NOON + TIMEOUT).changes_nothing();
}

#[test]
fn deadline_after_confirmation_has_no_effect() {
    let mut shop = shop_with_confirmed_order();
    assert_eq!(shop.due::<Order>(ORDER), None);
    shop.now = NOON + TIMEOUT;
    shop.is_due::<Order>(ORDER, NOON + TIMEOUT).has_outcome("done").changes_nothing();
}

#[test]
fn early_deadline_has_no_effect() {
    let mut shop = shop_with_pending_order();
    shop.now = NOON + TIMEOUT - SignedDuration::from_micros(1);
    shop.is_due::<Order>(ORDER, NOON + TIMEOUT).changes_nothing();
    assert_eq!(shop.due::<Order>(ORDER), Some(NOON + TIMEOUT));
}

/// The order may have been confirmed before the loss.
#[test]
fn deadline_after_accepted_loss_holds_order_until_others_have_answered() {
    let (deadline, lost) = (NOON + TIMEOUT, NOON + SignedDuration::from_secs(30));
    let held = lost + SignedDuration::from_mins(10);
    let mut shop = shop_with_pending_order();
    (shop.now, shop.lost_before) = (deadline, Some(lost));
    shop.is_due::<Order>(ORDER, deadline).records(&["DeadlineExtended"]).publishes([extended(ORDER, held)]);
    shop.is_due::<Order>(ORDER, deadline).changes_nothing();
    shop.receives(paid(ORDER)).publishes([confirmed(ORDER)]);

    let mut shop = shop_with_pending_order();
    (shop.now, shop.lost_before) = (held, Some(lost));
    shop.is_due::<Order>(ORDER, deadline).publishes([cancelled(ORDER, CancelReason::TimedOut)]);
}

/// The due time of the old deadline has no effect.
#[test]
fn extended_order_is_published_and_cancelled_at_new_deadline() {
    let mut shop = shop_with_pending_order();
    let (deadline, later) = (NOON + TIMEOUT, NOON + TIMEOUT + SignedDuration::from_mins(5));
    shop.receives_from("admin", extension(ORDER, later))
        .records(&["DeadlineExtended"])
        .publishes([extended(ORDER, later)]);
    shop.receives_from("admin", extension(ORDER, later)).changes_nothing();
    shop.receives_from("admin", extension(ORDER, deadline)).has_outcome("done").changes_nothing();
    shop.now = deadline;
    shop.is_due::<Order>(ORDER, deadline).changes_nothing();
    shop.now = later;
    shop.receives_from("admin", extension(ORDER, later + TIMEOUT)).has_outcome("rejected").changes_nothing();
    shop.is_due::<Order>(ORDER, later).publishes([cancelled(ORDER, CancelReason::TimedOut)]);
    shop.receives_from("admin", extension(ORDER, later + TIMEOUT)).has_outcome("rejected").changes_nothing();
    let mut confirmed = shop_with_confirmed_order();
    confirmed.receives_from("admin", extension(ORDER, later)).has_outcome("rejected").changes_nothing();
}

/// The order service was down when the operator asked.
#[test]
fn extension_that_was_requested_in_time_counts_although_it_arrives_late() {
    let mut shop = shop_with_pending_order();
    let (deadline, later) = (NOON + TIMEOUT, NOON + TIMEOUT + SignedDuration::from_mins(5));
    let request = Stimulus::FactOf("admin".to_owned(), extension(ORDER, later), NOON);
    shop.now = deadline + SignedDuration::from_secs(1);
    shop.takes(request).records(&["DeadlineExtended"]).publishes([extended(ORDER, later)]);
}

#[test]
fn customer_or_operator_cancels_pending_or_confirmed_order() {
    for reason in [CancelReason::CustomerRequest, CancelReason::Operator] {
        for mut shop in [shop_with_pending_order(), shop_with_confirmed_order()] {
            shop.executes(cancel(ORDER, reason)).publishes([cancelled(ORDER, reason)]);
            shop.executes(cancel(ORDER, reason)).has_outcome("done").changes_nothing();
        }
    }
}

#[test]
fn confirmed_order_is_not_cancelled_by_late_failure() {
    for late in [short_of_stock(ORDER), payment_failed(ORDER)] {
        let mut shop = shop_with_confirmed_order();
        assert_eq!(shop.receives(late).rejection(), Rejection::Order(OrderRejection::AlreadyConfirmed));
    }
}

#[test]
fn fact_about_unknown_order_is_retried() {
    let mut shop = shop();
    shop.receives(paid(ORDER)).has_outcome("retried").changes_nothing();
    shop.receives(paid(ORDER)).has_outcome("duplicate").changes_nothing();
    shop.executes(place(ORDER, &LINES));
    shop.retries();
    assert_eq!(shop.published(), [created(ORDER), confirmed(ORDER)]);
    assert!(shop.store.retries.is_empty(), "it waits no longer");
}

#[test]
fn fact_about_order_that_never_arrives_is_dead_lettered() {
    for fact in [paid(ORDER), payment_failed(ORDER), short_of_stock(ORDER)] {
        let mut shop = shop();
        shop.receives(fact).has_outcome("retried");
        for _ in 1..ATTEMPTS {
            shop.retries();
        }
        assert!(shop.store.retries.is_empty(), "it waits no longer");
        let dead_letters: Vec<_> =
            shop.store.dead.iter().map(|dead_letter| (dead_letter.saga, dead_letter.attempts)).collect();
        assert_eq!(dead_letters, [(Some(ORDER), ATTEMPTS)]);
    }
}

#[test]
fn cancellation_of_unknown_order_is_rejected() {
    let unknown = shop().executes(cancel(ORDER, CancelReason::CustomerRequest)).rejection();
    assert_eq!(unknown, Rejection::Order(OrderRejection::Unknown));
}

#[test]
fn older_price_received_late_is_ignored() {
    let mut shop = ServiceUnderTest::of(OrderService);
    shop.receives(repriced("beans", euros(1300), 2)).records(&["PriceUpdated"]).publishes([]);
    shop.receives(listed("beans", euros(1250), 1)).has_outcome("done").changes_nothing();
    shop.receives(repriced("beans", euros(1300), 2)).has_outcome("done").changes_nothing();
    assert_eq!(shop.row::<CatalogueItem>("beans").unit_price, Some(euros(1300)));
}

#[test]
fn order_keeps_prices_of_its_placing() {
    let mut shop = shop_with_pending_order();
    shop.receives(repriced("beans", euros(9900), 2));
    let placed = shop.row::<Order>(ORDER);
    assert_eq!(placed.placed().map(|placed| placed.payment.total), Some(euros(3300)));
}

#[test]
fn two_lines_of_same_sku_are_both_charged() {
    let mut shop = shop();
    let reply = shop.executes(place(ORDER, &[("mug", 1), ("mug", 2)])).reply();
    let order = reply.order;
    assert_eq!((order.total, order.lines.len()), (euros(2400), 2));
}

#[test]
fn unpriceable_order_is_rejected_with_line_and_writes_nothing() {
    let mut shop = shop();
    shop.receives(listed("gold", euros(i64::MAX), 1));
    shop.receives(listed("tea", Money::new(900, Currency::USD), 1));
    let mut rejection_of = |lines: &[(&str, u32)]| shop.executes(place(ORDER, lines)).rejection();

    let unknown = Rejection::UnknownSku { line: 1, sku: "unicorn".to_owned() };
    assert_eq!(rejection_of(&[("mug", 1), ("unicorn", 1)]), unknown);
    assert_eq!(rejection_of(&[("mug", 1), ("beans", 1), ("tea", 1)]), Rejection::MixedCurrencies { line: 2 });
    assert_eq!(rejection_of(&[("mug", 1), ("gold", 1)]), Rejection::TotalTooLarge { line: 1 });
    assert_eq!(rejection_of(&[("gold", 2)]), Rejection::TotalTooLarge { line: 0 });
    assert_eq!(shop.row::<Order>(ORDER), Order::New);
}

#[test]
fn idempotency_key_posted_fifty_times_places_single_order() {
    let mut shop = shop();
    let posts: Vec<_> = (1..=50).map(|number| post(Uuid::from_u128(number), "same")).collect();
    let outcomes = shop.takes_batch(&posts);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.name() == "replayed").count(), 49);
    assert_eq!(shop.published(), [created(ORDER)]);
    shop.takes(post(Uuid::from_u128(51), "another request")).has_outcome("key_reused").changes_nothing();
}

/// While new orders are rejected, a request with a key may only repeat.
#[test]
fn repetition_without_stored_answer_is_rejected_and_leaves_its_key_unused() {
    let mut shop = shop();
    shop.takes(repeat("k1")).has_outcome("rejected").changes_nothing();
    shop.takes(post(ORDER, "k1")).has_outcome("done");
    shop.takes(repeat("k1")).has_outcome("replayed").changes_nothing();
}

#[test]
fn rejected_request_stores_no_answer_under_its_key() {
    let mut shop = ServiceUnderTest::of(OrderService);
    shop.takes(post(ORDER, "same")).rejection();
    shop.receives(listed("beans", euros(1250), 1));
    shop.receives(listed("mug", euros(800), 1));
    shop.takes(post(ORDER, "same")).has_outcome("done").publishes([created(ORDER)]);
}

#[test]
fn every_consumed_fact_is_handled() {
    let (new, newer) = (listed("tea", euros(1), 1), repriced("tea", euros(2), 2));
    let extension = extension(ORDER, NOON + TIMEOUT + TIMEOUT);
    let facts = [paid(ORDER), payment_failed(ORDER), short_of_stock(ORDER), new, newer, extension];
    assert_eq!(
        facts.iter().map(|fact| fact.fact_type().name()).collect::<BTreeSet<_>>(),
        consumed_facts::<OrderService>()
    );
    for fact in facts {
        let then = shop_with_pending_order().receives(fact).has_outcome("done");
        assert_eq!(then.events.len(), 1);
    }
}

/// Request with an idempotency key, each time with a fresh order id, as the HTTP route sends it.
fn post(order: Uuid, fingerprint: &str) -> Stimulus<OrderService> {
    let key = RequestKey { key: "orders/k1".to_owned(), fingerprint: fingerprint.to_owned() };
    Stimulus::Command { id: order, saga: order, command: place(order, &LINES), key: Some(key) }
}

/// Repetition of [`post`] that places nothing.
fn repeat(fingerprint: &str) -> Stimulus<OrderService> {
    let key = RequestKey { key: "orders/k1".to_owned(), fingerprint: fingerprint.to_owned() };
    let id = Uuid::from_u128(77);
    Stimulus::Command { id, saga: id, command: Command::Repeat, key: Some(key) }
}
