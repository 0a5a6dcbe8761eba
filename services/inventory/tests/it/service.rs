//! Pure: the handlers of the inventory service.

use std::collections::BTreeSet;

use contract::Fact;
use contract::inventory::{
    PriceChanged, ProductChange, ProductChangeAudited, ProductListed, StockReplenished,
};
use inventory::domain::{
    Listing, Product, ProductCommand, ProductRejection, Reservation, ReservationRejection,
};
use inventory::service::{Command, InventoryService, Rejection};
use saga_core::row::RowKey;
use uuid::Uuid;

use crate::given::{
    ORDER, OTHER_ORDER, cancelled, confirmed, created, euros, listing, of, refused, released, reserved,
    stock, warehouse,
};
use saga_engine::testing::consumed_facts;
use saga_engine::testing::{ATTEMPTS, ServiceUnderTest, Stimulus};

/// Entries of the audit log come from the facts of the change itself: a crash loses both or none.
#[test]
fn changes_by_operators_are_audited_and_replenishment_is_not() {
    let mut warehouse = warehouse();
    for (change, audited, unit_price, quantity) in [
        (ProductCommand::List(listing(), 5), ProductChange::Listed, listing().unit_price, 5),
        (ProductCommand::Restock(2), ProductChange::Restocked, listing().unit_price, 2),
        (ProductCommand::ChangePrice(euros(9)), ProductChange::PriceChanged, euros(9), 0),
    ] {
        let (sku, operator) = ("tea".to_owned(), "oscar".to_owned());
        let then = warehouse.executes(Command {
            sku: sku.clone(),
            change: change.clone(),
            operator: Some(operator.clone()),
        });
        let fact = ProductChangeAudited { sku, change: audited, unit_price, quantity, operator };
        assert_eq!(then.facts.last(), Some(&fact.into()), "{change:?}");
    }
    let replenish = ProductCommand::Replenish { threshold: 100, amount: 1 };
    let then = warehouse.executes(of("tea", replenish));
    assert!(!then.facts.iter().any(|fact| matches!(fact, Fact::ProductChangeAudited(_))));
    let listed = ProductCommand::List(listing(), 5);
    let again = Command { sku: "tea".to_owned(), change: listed, operator: Some("oscar".to_owned()) };
    warehouse.executes(again).has_outcome("rejected").changes_nothing();
}

#[test]
fn order_is_reserved_and_payment_context_passed_on() {
    let mut warehouse = warehouse();
    let lines = [("beans", 2), ("mug", 1)];
    warehouse.receives(created(ORDER, &lines)).has_outcome("done").publishes([reserved(ORDER, &lines)]);
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((8, 2, 0), (2, 1, 0)));
}

#[test]
fn order_with_short_line_reserves_nothing() {
    let mut warehouse = warehouse();
    let then = warehouse.receives(created(ORDER, &[("beans", 2), ("mug", 4)]));
    then.records(&["Refused"]).publishes([refused(ORDER, &[("mug", 4, 3)])]);
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((10, 0, 0), (3, 0, 0)));
}

#[test]
fn two_lines_of_same_sku_share_its_stock() {
    let mut warehouse = warehouse();
    warehouse
        .receives(created(ORDER, &[("mug", 2), ("mug", 2)]))
        .publishes([refused(ORDER, &[("mug", 4, 3)])]);
    warehouse
        .receives(created(OTHER_ORDER, &[("mug", 1), ("mug", 2)]))
        .publishes([reserved(OTHER_ORDER, &[("mug", 3)])]);
    assert_eq!(stock(&warehouse, "mug"), (0, 3, 0));
}

#[test]
fn overflowing_sum_of_lines_is_out_of_stock() {
    let mut warehouse = warehouse();
    let then = warehouse.receives(created(ORDER, &[("mug", u32::MAX), ("mug", 4)]));
    then.publishes([refused(ORDER, &[("mug", u32::MAX, 3)])]);
}

#[test]
fn out_of_stock_is_event_and_not_fault() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("mug", 4)])).has_outcome("done");
    assert_eq!((warehouse.store.dead.len(), warehouse.store.retries.len()), (0, 0));
}

#[test]
fn unlisted_sku_is_out_of_stock() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("unicorn", 1)])).publishes([refused(ORDER, &[("unicorn", 1, 0)])]);
}

#[test]
fn orders_in_same_batch_share_stock_in_order() {
    let mut warehouse = warehouse();
    let orders: Vec<_> =
        (1..=5).map(|number| Stimulus::Fact(created(Uuid::from_u128(number), &[("mug", 1)]))).collect();
    let before = warehouse.published().len();
    warehouse.takes_batch(&orders);
    let names: Vec<_> = warehouse.published()[before..].iter().map(|fact| fact.fact_type().name()).collect();
    let (reserved, short) = ("StockReserved", "StockReservationFailed");
    assert_eq!(names, [reserved, reserved, reserved, short, short]);
    assert_eq!(stock(&warehouse, "mug"), (0, 3, 0));
}

#[test]
fn repeated_request_reserves_once() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("mug", 1)]));
    warehouse.receives(created(ORDER, &[("mug", 1)])).has_outcome("done").changes_nothing();
    // The answer stays the same even if the stock has changed.
    warehouse.receives(created(OTHER_ORDER, &[("mug", 9)]));
    warehouse.executes(of("mug", ProductCommand::Restock(50)));
    warehouse.receives(created(OTHER_ORDER, &[("mug", 9)])).changes_nothing();
}

#[test]
fn cancellation_releases_reservation_and_is_answered_once() {
    let mut warehouse = warehouse();
    let lines = [("beans", 2), ("mug", 1)];
    warehouse.receives(created(ORDER, &lines));
    warehouse.receives(cancelled(ORDER, &lines)).publishes([released(ORDER, &lines)]);
    warehouse.receives(cancelled(ORDER, &lines)).has_outcome("done").changes_nothing();
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((10, 0, 0), (3, 0, 0)));
}

#[test]
fn cancellation_before_request_leaves_tombstone_and_is_answered() {
    let mut warehouse = warehouse();
    let lines = [("mug", 1)];
    warehouse.receives(cancelled(ORDER, &lines)).records(&["Voided"]).publishes([released(ORDER, &[])]);
    warehouse.receives(created(ORDER, &lines)).has_outcome("done").changes_nothing();
    assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
}

#[test]
fn cancellation_of_refused_order_publishes_nothing() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("mug", 9)]));
    warehouse.receives(cancelled(ORDER, &[("mug", 9)])).has_outcome("done").changes_nothing();
}

#[test]
fn confirmation_turns_reservation_into_sale_once() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.receives(created(ORDER, &lines));
    warehouse.receives(confirmed(ORDER, &lines)).records(&["Sold", "Sold"]).publishes([]);
    warehouse.receives(confirmed(ORDER, &lines)).has_outcome("done").changes_nothing();
    assert_eq!(stock(&warehouse, "mug"), (1, 0, 2));
}

#[test]
fn cancellation_of_confirmed_order_puts_sold_stock_back() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.receives(created(ORDER, &lines));
    warehouse.receives(confirmed(ORDER, &lines));
    let then = warehouse.receives(cancelled(ORDER, &lines));
    then.records(&["PutBack", "Released"]).publishes([released(ORDER, &lines)]);
    assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
}

#[test]
fn confirmation_after_cancellation_sells_nothing() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.receives(created(ORDER, &lines));
    warehouse.receives(cancelled(ORDER, &lines));
    let rejection = warehouse.receives(confirmed(ORDER, &lines)).rejection();
    assert_eq!(rejection, Rejection::Reservation(ReservationRejection::NothingReserved));
    assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
}

#[test]
fn confirmation_without_reservation_is_retried() {
    let mut warehouse = warehouse();
    let lines = [("mug", 2)];
    warehouse.receives(confirmed(ORDER, &lines)).has_outcome("retried").changes_nothing();
    warehouse.receives(created(ORDER, &lines));
    warehouse.retries();
    assert_eq!(stock(&warehouse, "mug"), (1, 0, 2));
}

#[test]
fn confirmation_without_reservation_is_dead_lettered_at_last() {
    let mut warehouse = warehouse();
    warehouse.receives(confirmed(ORDER, &[("mug", 2)])).has_outcome("retried");
    for _ in 1..ATTEMPTS {
        warehouse.retries();
    }
    let dead_letters: Vec<_> = warehouse
        .store
        .dead
        .iter()
        .map(|dead_letter| (dead_letter.step.as_str(), dead_letter.attempts))
        .collect();
    assert_eq!(dead_letters, [("inventory-sale", ATTEMPTS)]);
}

#[test]
fn cancellation_with_other_quantities_releases_reserved_ones() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("mug", 2)]));
    warehouse
        .receives(cancelled(ORDER, &[("mug", 99), ("beans", 99)]))
        .publishes([released(ORDER, &[("mug", 2)])]);
    assert_eq!((stock(&warehouse, "beans"), stock(&warehouse, "mug")), ((10, 0, 0), (3, 0, 0)));
}

/// An operator edited the order, so later facts name other lines than those reserved.
#[test]
fn cancellation_with_other_skus_releases_reserved_ones() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("mug", 2)]));
    warehouse.receives(created(OTHER_ORDER, &[("beans", 1)]));
    let outcomes = warehouse.takes_batch(&[
        Stimulus::Fact(cancelled(ORDER, &[("poster", 2)])),
        Stimulus::Fact(cancelled(OTHER_ORDER, &[])),
    ]);
    assert_eq!(outcomes.iter().map(|outcome| outcome.name()).collect::<Vec<_>>(), ["done", "done"]);
    assert_eq!((stock(&warehouse, "mug"), stock(&warehouse, "beans")), ((3, 0, 0), (10, 0, 0)));
    assert_eq!(warehouse.row::<Reservation>(ORDER).status(), "RELEASED");
}

/// The customer gets what was confirmed, not what an edit made of it.
#[test]
fn confirmation_of_other_lines_than_reserved_is_dead_lettered_and_sells_nothing() {
    for promised in [&[("beans", 1), ("mug", 1)][..], &[("mug", 3)], &[("poster", 2)], &[]] {
        let mut warehouse = warehouse();
        warehouse.receives(created(ORDER, &[("mug", 2)]));
        warehouse.receives(confirmed(ORDER, promised)).is_dead_lettered("inventory-sale", ", but reserved: ");
        assert_eq!(stock(&warehouse, "mug"), (1, 2, 0));
        warehouse.receives(cancelled(ORDER, promised)).publishes([released(ORDER, &[("mug", 2)])]);
        assert_eq!(stock(&warehouse, "mug"), (3, 0, 0));
    }
}

#[test]
fn confirmation_may_name_sku_in_several_lines() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("mug", 1), ("mug", 1)]));
    warehouse.receives(confirmed(ORDER, &[("mug", 1), ("mug", 1)])).has_outcome("done");
    assert_eq!(stock(&warehouse, "mug"), (1, 0, 2));
}

#[test]
fn stock_that_disagrees_with_reservation_is_dead_lettered_without_partial_effect() {
    let lines = [("beans", 2), ("mug", 2)];
    for (fact, step) in
        [(confirmed(ORDER, &lines), "inventory-sale"), (cancelled(ORDER, &lines), "inventory-stock-release")]
    {
        let mut warehouse = warehouse();
        warehouse.receives(created(ORDER, &lines));
        warehouse.store.rows.remove(&RowKey::of::<Product>("mug"));
        warehouse.receives(fact).is_dead_lettered(step, "disagree");
        assert_eq!(warehouse.row::<Reservation>(ORDER).status(), "RESERVED");
        assert_eq!(stock(&warehouse, "beans"), (8, 2, 0));
    }
}

#[test]
fn listing_and_price_change_are_published_in_order() {
    let mut warehouse = ServiceUnderTest::of(InventoryService);
    let (sku, name) = ("tea".to_owned(), listing().name);
    let listed = ProductListed { sku: sku.clone(), name: name.clone(), unit_price: euros(1250), revision: 1 };
    warehouse
        .executes(of("tea", ProductCommand::List(listing(), 5)))
        .publishes([Fact::ProductListed(listed)]);
    let changed = PriceChanged { sku, name, unit_price: euros(1300), revision: 2 };
    warehouse
        .executes(of("tea", ProductCommand::ChangePrice(euros(1300))))
        .publishes([Fact::PriceChanged(changed)]);
    warehouse
        .executes(of("tea", ProductCommand::ChangePrice(euros(1300))))
        .has_outcome("done")
        .changes_nothing();
}

#[test]
fn product_is_listed_once() {
    let again = warehouse().executes(of("mug", ProductCommand::List(listing(), 50))).rejection();
    assert_eq!(again, Rejection::Product(ProductRejection::AlreadyListed));
}

#[test]
fn concurrent_replenishment_adds_pieces_once() {
    let mut warehouse = warehouse();
    let check = |number: u128| Stimulus::Command {
        id: Uuid::from_u128(number),
        saga: Uuid::from_u128(number),
        command: of("mug", ProductCommand::Replenish { threshold: 5, amount: 20 }),
        key: None,
    };
    let before = warehouse.published().len();
    warehouse.takes_batch(&[check(1), check(2), check(3)]);
    let replenished = StockReplenished { sku: "mug".to_owned(), quantity: 20, on_hand: 23 };
    assert_eq!(warehouse.published()[before..], [Fact::StockReplenished(replenished)]);
}

#[test]
fn products_without_replenishment_stay_low() {
    let mut warehouse = ServiceUnderTest::of(InventoryService);
    let listing = Listing { replenish: false, ..listing() };
    warehouse.executes(of("poster", ProductCommand::List(listing, 1)));
    let check = of("poster", ProductCommand::Replenish { threshold: 5, amount: 20 });
    warehouse.executes(check).has_outcome("done").changes_nothing();
}

#[test]
fn every_consumed_fact_is_handled() {
    let lines = [("mug", 1)];
    let facts = [created(OTHER_ORDER, &lines), confirmed(ORDER, &lines), cancelled(ORDER, &lines)];
    assert_eq!(
        facts.iter().map(|fact| fact.fact_type().name()).collect::<BTreeSet<_>>(),
        consumed_facts::<InventoryService>()
    );
    for fact in facts {
        let mut warehouse = warehouse();
        warehouse.receives(created(ORDER, &lines));
        let then = warehouse.receives(fact).has_outcome("done");
        assert_eq!(then.events.len(), 2, "of the product and of the reservation");
    }
}
