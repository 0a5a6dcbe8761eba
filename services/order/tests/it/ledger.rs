//! Pure: what people and the reconciliation get to see of orders, and of the copy of the catalogue.

use contract::FactType;
use contract::order::CancelReason;
use contract::reconciliation::OrderState;
use order::domain::{CatalogueItem, Order};
use order::policy::{OrderService, OrderView, copy_entry, ledger_entry};
use saga_engine::testing::{NOON, ServiceUnderTest};

use crate::given::{
    LINES, ORDER, PATIENCE, cancel, euros, listed, repriced, shop, shop_with_confirmed_order,
    shop_with_pending_order,
};

#[test]
fn an_order_is_seen_as_it_was_placed_with_what_became_of_it() {
    let mut cancelled = shop_with_confirmed_order();
    cancelled.is_asked(cancel(ORDER, CancelReason::CustomerRequest));
    let (created, confirmed) = (FactType::OrderCreated, FactType::OrderConfirmed);
    let because = Some(CancelReason::CustomerRequest);
    for (shop, state, status, reason, said) in [
        (shop_with_pending_order(), OrderState::Pending, "PENDING", None, vec![created]),
        (shop_with_confirmed_order(), OrderState::Confirmed, "CONFIRMED", None, vec![created, confirmed]),
        (
            cancelled,
            OrderState::Cancelled,
            "CANCELLED",
            because,
            vec![created, confirmed, FactType::OrderCancelled],
        ),
    ] {
        let order = shop.row::<Order>(ORDER);
        assert_eq!(order.is_settled(), state != OrderState::Pending, "nobody waits any longer");
        let entry = ledger_entry(ORDER, &order, &shop.history::<Order>(ORDER)).expect("an entry");
        assert_eq!((entry.order, entry.state, entry.cancelled_because), (ORDER, state, reason));
        assert_eq!((&entry.customer[..], entry.total, entry.deadline), ("ada", euros(3300), NOON + PATIENCE));
        assert_eq!(entry.published.iter().map(|said| said.fact).collect::<Vec<_>>(), said);
        assert!(entry.published.iter().all(|said| said.at == NOON));
        let view = OrderView::of(ORDER, &order).expect("a view");
        assert_eq!((view.id, &view.status[..], view.cancelled_because), (ORDER, status, reason));
        assert_eq!((&view.customer[..], view.total), ("ada", euros(3300)));
        assert_eq!((view.placed_at, view.deadline), (NOON, NOON + PATIENCE));
        for lines in [&entry.lines, &view.lines] {
            let lines: Vec<_> = lines.iter().map(|line| (&line.sku[..], line.quantity)).collect();
            assert_eq!(lines, LINES);
        }
    }
}

#[test]
fn an_order_that_nobody_placed_is_in_no_ledger() {
    assert!(!Order::New.is_settled());
    assert_eq!(ledger_entry(ORDER, &Order::New, &[]), None);
    assert_eq!(OrderView::of(ORDER, &Order::New), None);
}

/// An order may be priced by any price there ever was.
#[test]
fn the_copy_of_a_product_has_every_price_once() {
    let mut shop: ServiceUnderTest<OrderService> = shop();
    for (price, revision) in [(1300, 2), (1250, 3), (1400, 4)] {
        shop.hears(repriced("beans", euros(price), revision));
    }
    let item = shop.row::<CatalogueItem>("beans");
    let entry = copy_entry("beans", &item, &shop.history::<CatalogueItem>("beans"));
    assert_eq!((&entry.sku[..], entry.unit_price, entry.revision), ("beans", Some(euros(1400)), 4));
    assert_eq!(entry.prices, [1250, 1300, 1400].map(euros));
    shop.hears(listed("beans", euros(1), 1)).changes_nothing();
}
