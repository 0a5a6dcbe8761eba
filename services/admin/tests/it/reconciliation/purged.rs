//! Pure: orders that some services have purged and others have not.

use admin::ledgers::rules::Rule;
use contract::manual_resolution::ManualResolution;
use contract::reconciliation::PaymentState;
use saga_engine::testing::NOON;

use super::shop::{CANCELLED, CONFIRMED, PENDING, REFUSED, Shop, id};

/// Purges the confirmed and the cancelled order in the services whose bits are set.
fn left(services: u32) -> Shop {
    let mut shop = Shop::consistent();
    let leave = |service: u32| services & (1 << service) != 0;
    let is_old = |order: &str| [CONFIRMED, CANCELLED].iter().any(|old| id(*old).to_string() == order);
    shop.orders.retain(|entry| !leave(0) || !is_old(&entry.order.to_string()));
    shop.reservations.retain(|entry| !leave(1) || !is_old(&entry.order.to_string()));
    shop.payments.retain(|entry| !leave(2) || !is_old(&entry.order.to_string()));
    shop.charges.retain(|entry| !leave(3) || !is_old(&entry.reference));
    shop.views.retain(|(saga, _)| !leave(4) || !is_old(saga));
    if leave(1) {
        // The confirmed order took two cups and a tea.
        (shop.stock[0].purged, shop.stock[2].purged) = (2, 1);
    }
    shop
}

#[test]
fn partly_purged_order_is_no_discrepancy() {
    for services in 0..32 {
        let mut shop = left(services);
        shop.left_before = Some(id(REFUSED));
        assert_eq!(shop.discrepancies(), [""; 0], "{services:b}");
        for page in 1..=8 {
            assert_eq!(shop.reconciled(page), shop.reconciled(2_000), "{services:b}, pages of {page}");
        }
        // By what has left they are told apart from what was lost.
        shop.left_before = Some(id(CANCELLED));
        let is_whole = [0, 31].contains(&services);
        assert_eq!(shop.discrepancies().is_empty(), is_whole, "{services:b}: {:?}", shop.discrepancies());
    }
}

#[test]
fn open_work_of_partly_purged_order_is_reported() {
    let mut shop = Shop::consistent();
    shop.left_before = Some(id(PENDING + 1));
    let rules = |shop: &Shop| -> Vec<String> {
        shop.reconciled(9).1.listed.into_iter().map(|found| found.rule).collect()
    };
    let all = [Rule::EveryOrderEnds, Rule::StockBack, Rule::MoneyBack].map(Rule::text);
    assert_eq!(rules(&shop), all);
    shop.orders.remove(PENDING);
    assert_eq!(rules(&shop), all[1..]);
    shop.payments[PENDING].resolved_manually = true;
    assert_eq!(rules(&shop), all[1..2]);
    shop.payments[PENDING].state = PaymentState::Captured;
    assert_eq!(rules(&shop), all[1..2]);
}

#[test]
fn stuck_saga_of_purged_order_is_reported_until_resolved() {
    let mut shop = left(0b0101);
    shop.left_before = Some(id(REFUSED));
    assert_eq!(shop.discrepancies(), [""; 0]);
    shop.dead_letter(CANCELLED, "inventory-stock-release");
    let found = shop.discrepancies();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("order 1 · the saga is COMPENSATION_STUCK and waits for a human"), "{found:?}");
    let was = shop.views[CANCELLED].1.status();
    shop.views[CANCELLED].1.manual_resolution = Some(ManualResolution {
        operator: "ada".to_owned(),
        reason: "put back by hand".to_owned(),
        at: NOON,
        was,
        accepted: vec![],
        revision: 1,
    });
    assert_eq!(shop.discrepancies(), [""; 0]);
}

#[test]
fn sold_units_of_purged_reservations_count() {
    let mut shop = left(2);
    shop.left_before = Some(id(REFUSED));
    shop.stock[0].purged -= 1;
    let found = shop.discrepancies();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("cup · sold: the product says 2, orders say 1"), "{found:?}");
}
