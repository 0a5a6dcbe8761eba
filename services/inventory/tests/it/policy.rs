//! Pure: whenever they say X, the inventory service does Y.

use std::collections::BTreeSet;

use contract::Fact;
use contract::inventory::{PriceChanged, ProductListed, StockReplenished};
use inventory::domain::{
    Listing, Product, ProductCommand, ProductRejection, Reservation, ReservationRejection,
};
use inventory::policy::{InventoryService, Rejection};
use saga_core::row::RowKey;
use uuid::Uuid;

use crate::given::{
    ORDER, OTHER_ORDER, cancelled, confirmed, created, euros, listing, of, refused, released, reserved,
    stock, warehouse,
};
use saga_engine::testing::facts_heard;
use saga_engine::testing::{ATTEMPTS, ServiceUnderTest, Stimulus};

#[test]
fn an_order_is_reserved_and_what_payment_needs_passed_on_unchanged() {
    let mut warehouse = warehouse();
    let lines = [("beans", 2), ("mug", 1)];
    warehouse.hears(created(ORDER, &lines)).comes_out("done").tells([reserved(ORDER, &lines)]);
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((8, 2, 0), (2, 1, 0)));
}

#[test]
fn an_order_with_one_short_line_reserves_nothing() {
    let mut warehouse = warehouse();
    let then = warehouse.hears(created(ORDER, &[("beans", 2), ("mug", 4)]));
    then.records(&["Refused"]).tells([refused(ORDER, &[("mug", 4, 3)])]);
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((10, 0, 0), (3, 0, 0)));
}

#[test]
fn two_lines_of_one_sku_share_its_stock() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 2), ("mug", 2)])).tells([refused(ORDER, &[("mug", 4, 3)])]);
    warehouse
        .hears(created(OTHER_ORDER, &[("mug", 1), ("mug", 2)]))
        .tells([reserved(OTHER_ORDER, &[("mug", 3)])]);
    assert_eq!(stock(&warehouse, "mug"), (0, 3, 0));
}

#[test]
fn lines_that_overflow_together_are_out_of_stock() {
    let mut warehouse = warehouse();
    let then = warehouse.hears(created(ORDER, &[("mug", u32::MAX), ("mug", 4)]));
    then.tells([refused(ORDER, &[("mug", u32::MAX, 3)])]);
}

#[test]
fn out_of_stock_is_an_event_not_a_fault() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 4)])).comes_out("done");
    assert_eq!((warehouse.kept.dead.len(), warehouse.kept.retries.len()), (0, 0));
}

#[test]
fn a_sku_that_nobody_listed_is_out_of_stock() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("unicorn", 1)])).tells([refused(ORDER, &[("unicorn", 1, 0)])]);
}

#[test]
fn orders_of_one_batch_share_the_stock_in_their_order() {
    let mut warehouse = warehouse();
    let orders: Vec<_> =
        (1..=5).map(|number| Stimulus::Fact(created(Uuid::from_u128(number), &[("mug", 1)]))).collect();
    let before = warehouse.told().len();
    warehouse.takes_batch(&orders);
    let names: Vec<_> = warehouse.told()[before..].iter().map(|fact| fact.fact_type().name()).collect();
    let (held, short) = ("StockReserved", "StockReservationFailed");
    assert_eq!(names, [held, held, held, short, short]);
    assert_eq!(stock(&warehouse, "mug"), (0, 3, 0));
}

#[test]
fn a_repeated_request_reserves_once() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 1)]));
    warehouse.hears(created(ORDER, &[("mug", 1)])).comes_out("done").changes_nothing();
    // Not even when the stock has changed: the answer was given.
    warehouse.hears(created(OTHER_ORDER, &[("mug", 9)]));
    warehouse.is_asked(of("mug", ProductCommand::Restock(50)));
    warehouse.hears(created(OTHER_ORDER, &[("mug", 9)])).changes_nothing();
}

#[test]
fn a_cancellation_frees_what_is_held_and_says_so_once() {
    let mut warehouse = warehouse();
    let lines = [("beans", 2), ("mug", 1)];
    warehouse.hears(created(ORDER, &lines));
    warehouse.hears(cancelled(ORDER, &lines)).tells([released(ORDER, &lines)]);
    warehouse.hears(cancelled(ORDER, &lines)).comes_out("done").changes_nothing();
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((10, 0, 0), (3, 0, 0)));
}

#[test]
fn a_cancellation_that_comes_first_leaves_a_tombstone_and_is_answered() {
    let mut warehouse = warehouse();
    let lines = [("mug", 1)];
    warehouse.hears(cancelled(ORDER, &lines)).records(&["Voided"]).tells([released(ORDER, &[])]);
    warehouse.hears(created(ORDER, &lines)).comes_out("done").changes_nothing();
    assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
}

#[test]
fn a_cancellation_of_a_refused_order_has_nothing_to_say() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 9)]));
    warehouse.hears(cancelled(ORDER, &[("mug", 9)])).comes_out("done").changes_nothing();
}

#[test]
fn a_confirmation_turns_the_reservation_into_a_sale_once() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.hears(created(ORDER, &lines));
    warehouse.hears(confirmed(ORDER, &lines)).records(&["Sold", "Sold"]).tells([]);
    warehouse.hears(confirmed(ORDER, &lines)).comes_out("done").changes_nothing();
    assert_eq!(stock(&warehouse, "mug"), (1, 0, 2));
}

#[test]
fn a_confirmed_order_that_is_cancelled_puts_sold_stock_back() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.hears(created(ORDER, &lines));
    warehouse.hears(confirmed(ORDER, &lines));
    let then = warehouse.hears(cancelled(ORDER, &lines));
    then.records(&["PutBack", "Released"]).tells([released(ORDER, &lines)]);
    assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
}

#[test]
fn a_confirmation_that_comes_after_the_cancellation_sells_nothing() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.hears(created(ORDER, &lines));
    warehouse.hears(cancelled(ORDER, &lines));
    let rejection = warehouse.hears(confirmed(ORDER, &lines)).rejection();
    assert_eq!(rejection, Rejection::Reservation(ReservationRejection::NothingHeld));
    assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
}

#[test]
fn a_confirmation_without_its_reservation_is_tried_again() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.hears(confirmed(ORDER, &lines)).comes_out("retried").changes_nothing();
    warehouse.hears(created(ORDER, &lines));
    warehouse.retries();
    assert_eq!(stock(&warehouse, "mug"), (1, 0, 2));
}

#[test]
fn a_confirmation_whose_reservation_never_comes_is_parked() {
    let mut warehouse = warehouse();
    warehouse.hears(confirmed(ORDER, &[("mug", 2)])).comes_out("retried");
    for _ in 1..ATTEMPTS {
        warehouse.retries();
    }
    let dead_letters: Vec<_> = warehouse
        .kept
        .dead
        .iter()
        .map(|dead_letter| (dead_letter.step.as_str(), dead_letter.attempts))
        .collect();
    assert_eq!(dead_letters, [("inventory-sale", ATTEMPTS)]);
}

#[test]
fn the_pieces_to_free_are_its_own_whatever_the_cancellation_says() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 2)]));
    warehouse.hears(cancelled(ORDER, &[("mug", 99), ("beans", 99)])).tells([released(ORDER, &[("mug", 2)])]);
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((10, 0, 0), (3, 0, 0)));
}

/// The order was edited on its way here: what its later facts name is not what it holds.
#[test]
fn a_cancellation_frees_the_skus_of_the_reservation_whatever_it_names() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 2)]));
    warehouse.hears(created(OTHER_ORDER, &[("beans", 1)]));
    let outcomes = warehouse.takes_batch(&[
        Stimulus::Fact(cancelled(ORDER, &[("poster", 2)])),
        Stimulus::Fact(cancelled(OTHER_ORDER, &[])),
    ]);
    assert_eq!(outcomes.iter().map(|outcome| outcome.name()).collect::<Vec<_>>(), ["done", "done"]);
    assert_eq!((stock(&warehouse, "mug"), stock(&warehouse, "beans")), ((3, 0, 0), (10, 0, 0)));
    assert_eq!(warehouse.row::<Reservation>(ORDER).status(), "RELEASED");
}

/// Two teas are no tea and a cup: what the customer was promised is confirmed, not what an edit made of it.
#[test]
fn a_confirmation_of_other_pieces_than_are_held_is_parked_and_sells_nothing() {
    for promised in [&[("beans", 1), ("mug", 1)][..], &[("mug", 3)], &[("poster", 2)], &[]] {
        let mut warehouse = warehouse();
        warehouse.hears(created(ORDER, &[("mug", 2)]));
        warehouse.hears(confirmed(ORDER, promised)).parks("inventory-sale", ", and the order holds ");
        assert_eq!(stock(&warehouse, "mug"), (1, 2, 0));
        warehouse.hears(cancelled(ORDER, promised)).tells([released(ORDER, &[("mug", 2)])]);
        assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
    }
}

#[test]
fn a_confirmation_may_name_a_sku_in_several_lines() {
    let mut warehouse = warehouse();
    warehouse.hears(created(ORDER, &[("mug", 1), ("mug", 1)]));
    warehouse.hears(confirmed(ORDER, &[("mug", 1), ("mug", 1)])).comes_out("done");
    assert_eq!(stock(&warehouse, "mug"), (1, 0, 2));
}

#[test]
fn stock_that_disagrees_with_its_reservation_is_parked_and_nothing_is_half_done() {
    let lines = [("beans", 2), ("mug", 2)];
    for (fact, step) in
        [(confirmed(ORDER, &lines), "inventory-sale"), (cancelled(ORDER, &lines), "inventory-stock-release")]
    {
        let mut warehouse = warehouse();
        warehouse.hears(created(ORDER, &lines));
        warehouse.kept.rows.remove(&RowKey::of::<Product>("mug"));
        warehouse.hears(fact).parks(step, "disagree");
        assert_eq!(warehouse.row::<Reservation>(ORDER).status(), "HELD");
        assert_eq!(stock(&warehouse, "beans"), (8, 2, 0));
    }
}

#[test]
fn a_listed_product_and_its_new_price_are_told_in_order() {
    let mut warehouse = ServiceUnderTest::of(InventoryService);
    let (sku, name) = ("tea".to_owned(), listing().name);
    let told = ProductListed { sku: sku.clone(), name: name.clone(), unit_price: euros(1250), revision: 1 };
    warehouse.is_asked(of("tea", ProductCommand::List(listing(), 5))).tells([Fact::ProductListed(told)]);
    let told = PriceChanged { sku, name, unit_price: euros(1300), revision: 2 };
    warehouse.is_asked(of("tea", ProductCommand::ChangePrice(euros(1300)))).tells([Fact::PriceChanged(told)]);
    warehouse
        .is_asked(of("tea", ProductCommand::ChangePrice(euros(1300))))
        .comes_out("done")
        .changes_nothing();
}

#[test]
fn a_product_is_listed_once() {
    let again = warehouse().is_asked(of("mug", ProductCommand::List(listing(), 50))).rejection();
    assert_eq!(again, Rejection::Product(ProductRejection::AlreadyListed));
}

#[test]
fn the_monitor_brings_in_once_however_often_it_asks_at_once() {
    let mut warehouse = warehouse();
    let look = |number: u128| Stimulus::Command {
        id: Uuid::from_u128(number),
        saga: Uuid::from_u128(number),
        command: of("mug", ProductCommand::Replenish { threshold: 5, amount: 20 }),
        key: None,
    };
    let before = warehouse.told().len();
    warehouse.takes_batch(&[look(1), look(2), look(3)]);
    let replenished = StockReplenished { sku: "mug".to_owned(), quantity: 20, on_hand: 23 };
    assert_eq!(warehouse.told()[before..], [Fact::StockReplenished(replenished)]);
}

#[test]
fn the_monitor_leaves_products_alone_that_shall_run_out() {
    let mut warehouse = ServiceUnderTest::of(InventoryService);
    let listing = Listing { replenish: false, ..listing() };
    warehouse.is_asked(of("poster", ProductCommand::List(listing, 1)));
    let look = of("poster", ProductCommand::Replenish { threshold: 5, amount: 20 });
    warehouse.is_asked(look).comes_out("done").changes_nothing();
}

#[test]
fn every_fact_that_a_step_hears_is_understood() {
    let lines = [("mug", 1)];
    let facts = [created(OTHER_ORDER, &lines), confirmed(ORDER, &lines), cancelled(ORDER, &lines)];
    assert_eq!(
        facts.iter().map(|fact| fact.fact_type().name()).collect::<BTreeSet<_>>(),
        facts_heard::<InventoryService>()
    );
    for fact in facts {
        let mut warehouse = warehouse();
        warehouse.hears(created(ORDER, &lines));
        let then = warehouse.hears(fact).comes_out("done");
        assert_eq!(then.events.len(), 2, "of the product and of the reservation");
    }
}
