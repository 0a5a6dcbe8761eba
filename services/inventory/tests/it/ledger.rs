//! Pure: views and ledger entries of stock and reservations.

use contract::FactType;
use contract::reconciliation::ReservationState;
use inventory::domain::{Product, ProductCommand, Reservation};
use inventory::ledger::{reservation_entry, stock_entry};
use inventory::service::InventoryService;
use inventory::view::ProductView;
use saga_engine::testing::{NOON, ServiceUnderTest};

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
    let nothing: fn(&mut ServiceUnderTest<InventoryService>) = |_| {};
    let (reserved, released) = (FactType::StockReserved, FactType::StockReleased);
    let refused = FactType::StockReservationFailed;
    let order = move |warehouse: &mut ServiceUnderTest<InventoryService>| {
        warehouse.receives(created(ORDER, &lines));
    };
    type Then = Box<dyn Fn(&mut ServiceUnderTest<InventoryService>)>;
    let sell: Then = Box::new(move |it| drop(it.receives(confirmed(ORDER, &lines))));
    let give_up: Then = Box::new(move |it| drop(it.receives(cancelled(ORDER, &lines))));
    let mut all = Vec::new();
    for (then, state, held, said) in [
        (Box::new(nothing) as Then, ReservationState::Reserved, true, vec![reserved]),
        (sell, ReservationState::Sold, true, vec![reserved]),
        (give_up, ReservationState::Free, true, vec![reserved, released]),
    ] {
        let mut warehouse = warehouse();
        order(&mut warehouse);
        then(&mut warehouse);
        all.push((warehouse, state, held, said));
    }
    let (mut short, mut early) = (warehouse(), warehouse());
    short.receives(created(ORDER, &[("mug", 4)]));
    all.push((short, ReservationState::Free, false, vec![refused]));
    early.receives(cancelled(ORDER, &lines));
    all.push((early, ReservationState::Free, false, vec![released]));
    for (warehouse, state, is_held, said) in all {
        let reservation = warehouse.row::<Reservation>(ORDER);
        let entry = reservation_entry(ORDER, &reservation, &warehouse.history::<Reservation>(ORDER));
        assert_eq!((entry.order, entry.state), (ORDER, state));
        let held: Vec<_> = entry.lines.iter().map(|line| (&line.sku[..], line.quantity)).collect();
        assert_eq!(held, if is_held { lines.to_vec() } else { vec![] }, "{state:?}");
        assert_eq!(entry.published.iter().map(|said| said.fact).collect::<Vec<_>>(), said);
        assert!(entry.published.iter().all(|said| said.at == NOON));
    }
}
