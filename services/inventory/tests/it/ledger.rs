//! Pure: views and ledger entries of stock and reservations.

use contract::FactType;
use contract::reconciliation::ReservationState;
use inventory::domain::{Product, ProductCommand, Reservation};
use inventory::ledger::{reservation_entry, stock_entry};
use inventory::view::ProductView;
use saga_engine::testing::NOON;

use crate::given::{ORDER, cancelled, confirmed, created, euros, of, warehouse};

#[test]
fn product_view_and_stock_entry_show_all_pieces() {
    let mut warehouse = warehouse();
    warehouse.receives(created(ORDER, &[("beans", 3)]));
    warehouse.receives(confirmed(ORDER, &[("beans", 3)]));
    warehouse.receives(created(crate::given::OTHER_ORDER, &[("beans", 2)]));
    warehouse.executes(of("beans", ProductCommand::Restock(4)));
    let product = warehouse.row::<Product>("beans");
    let entry = stock_entry("beans", 1, &product);
    assert_eq!((&entry.sku[..], entry.on_hand, entry.reserved), ("beans", 9, 2));
    assert_eq!((entry.sold, entry.supplied, entry.unit_price), (3, 14, Some(euros(1250))));
    assert_eq!(entry.revision, product.revision);
    let view = ProductView::of("beans", &product).expect("it is listed");
    assert_eq!((&view.sku[..], &view.name[..], view.unit_price), ("beans", "a product", euros(1250)));
    assert_eq!((view.on_hand, view.reserved, view.sold, view.supplied), (9, 2, 3, 14));
    assert!(view.replenish);
    assert_eq!(ProductView::of("beans", &Product::default()), None);
}

/// A released reservation shows the lines that it had.
#[test]
fn reservation_entry_shows_lines_and_published_facts() {
    let lines = [("beans", 2), ("mug", 1)];
    let (reserved, released) = (FactType::StockReserved, FactType::StockReleased);
    let (sale, cancellation) = (confirmed(ORDER, &lines), cancelled(ORDER, &lines));
    let order = || created(ORDER, &lines);
    for (facts, state, entry_lines, published) in [
        (vec![order()], ReservationState::Reserved, &lines[..], vec![reserved]),
        (vec![order(), sale], ReservationState::Sold, &lines, vec![reserved]),
        (vec![order(), cancellation.clone()], ReservationState::Free, &lines, vec![reserved, released]),
        (
            vec![created(ORDER, &[("mug", 4)])],
            ReservationState::Free,
            &[],
            vec![FactType::StockReservationFailed],
        ),
        (vec![cancellation], ReservationState::Free, &[], vec![released]),
    ] {
        let mut warehouse = warehouse();
        for fact in facts {
            warehouse.receives(fact);
        }
        let reservation = warehouse.row::<Reservation>(ORDER);
        let entry = reservation_entry(ORDER, &reservation, &warehouse.history::<Reservation>(ORDER));
        assert_eq!((entry.order, entry.state), (ORDER, state));
        let shown: Vec<_> = entry.lines.iter().map(|line| (&line.sku[..], line.quantity)).collect();
        assert_eq!(shown, entry_lines, "{state:?}");
        assert_eq!(entry.published.iter().map(|past| past.fact).collect::<Vec<_>>(), published);
        assert!(entry.published.iter().all(|past| past.at == NOON));
    }
}
