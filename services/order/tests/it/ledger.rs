//! Pure: views and ledger entries of orders and of the catalogue copy.

use contract::FactType;
use contract::order::CancelReason;
use contract::reconciliation::OrderState;
use order::catalogue::CatalogueItem;
use order::domain::Order;
use order::ledger::{copy_entry, ledger_entry};
use order::service::OrderService;
use order::view::OrderView;
use saga_engine::testing::{NOON, ServiceUnderTest};

use crate::given::{
    LINES, ORDER, TIMEOUT, cancel, euros, listed, repriced, shop, shop_with_confirmed_order,
    shop_with_pending_order,
};

#[test]
fn order_view_and_ledger_entry_show_placed_data_and_outcome() {
    let mut cancelled = shop_with_confirmed_order();
    cancelled.executes(cancel(ORDER, CancelReason::CustomerRequest));
    let (created, confirmed) = (FactType::OrderCreated, FactType::OrderConfirmed);
    let because = Some(CancelReason::CustomerRequest);
    for (shop, state, status, reason, published) in [
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
        assert_eq!(order.has_ended(), state != OrderState::Pending, "nobody waits any longer");
        let entry = ledger_entry(ORDER, &order, &shop.history::<Order>(ORDER)).expect("an entry");
        assert_eq!((entry.order, entry.state, entry.cancelled_because), (ORDER, state, reason));
        assert_eq!((&entry.customer[..], entry.total, entry.deadline), ("ada", euros(3300), NOON + TIMEOUT));
        assert_eq!(entry.published.iter().map(|past| past.fact).collect::<Vec<_>>(), published);
        assert!(entry.published.iter().all(|past| past.at == NOON));
        let view = OrderView::of(ORDER, &order).expect("a view");
        assert_eq!((view.id, &view.status[..], view.cancelled_because), (ORDER, status, reason));
        assert_eq!((&view.customer[..], view.total), ("ada", euros(3300)));
        assert_eq!((view.placed_at, view.deadline), (NOON, NOON + TIMEOUT));
        for lines in [&entry.lines, &view.lines] {
            let lines: Vec<_> = lines.iter().map(|line| (&line.sku[..], line.quantity)).collect();
            assert_eq!(lines, LINES);
        }
    }
}

#[test]
fn order_never_placed_has_no_ledger_entry() {
    assert!(!Order::New.has_ended());
    assert_eq!(ledger_entry(ORDER, &Order::New, &[]), None);
    assert_eq!(OrderView::of(ORDER, &Order::New), None);
}

/// The reconciliation accepts any price that the product ever had.
#[test]
fn copy_entry_lists_each_price_once() {
    let mut shop: ServiceUnderTest<OrderService> = shop();
    for (price, revision) in [(1300, 2), (1250, 3), (1400, 4)] {
        shop.receives(repriced("beans", euros(price), revision));
    }
    let item = shop.row::<CatalogueItem>("beans");
    let entry = copy_entry("beans", &item, &shop.history::<CatalogueItem>("beans"));
    assert_eq!((&entry.sku[..], entry.unit_price, entry.revision), ("beans", Some(euros(1400)), 4));
    assert_eq!(entry.prices, [1250, 1300, 1400].map(euros));
    shop.receives(listed("beans", euros(1), 1)).changes_nothing();
}
