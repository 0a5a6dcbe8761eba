//! Pure: properties of stock under any order and repetition of inputs.

use std::collections::{BTreeMap, BTreeSet};

use contract::FactType;
use inventory::domain::{Product, ProductCommand, Reservation};
use inventory::ledger::fact_of;
use inventory::service::InventoryService;
use proptest::prelude::*;
use saga_core::Message as _;
use uuid::Uuid;

use crate::given::{Pieces, cancelled, confirmed, created, euros, listing, of};
use crate::table::{product_commands, reservation_commands};
use saga_engine::testing::decider::any_sequence;
use saga_engine::testing::{ServiceUnderTest, Stimulus, batches_do_what_single_inputs_do};

const SKUS: [&str; 3] = ["beans", "filter", "mug"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn product_keeps_its_pieces_under_any_sequence_of_commands(
        commands in prop::collection::vec(prop::sample::select(product_commands()), 0..24),
    ) {
        any_sequence::<Product>(&commands, adds_up, |product, _| assert_pieces_add_up(product));
    }

    #[test]
    fn reservation_accepts_any_sequence_of_commands(
        commands in prop::collection::vec(prop::sample::select(reservation_commands()), 0..12),
    ) {
        let mut last = Reservation::default();
        any_sequence::<Reservation>(&commands, |_| false, |reservation, _| {
            let is_over = matches!(last, Reservation::Refused | Reservation::Released | Reservation::Void);
            assert!(!is_over || *reservation == last, "{last:?} is the end");
            last = reservation.clone();
        });
    }

    #[test]
    fn reservations_equal_reserved_stock_in_any_order_of_inputs(story in story()) {
        let mut warehouse = ServiceUnderTest::of(InventoryService);
        for stimulus in story.stimuli() {
            warehouse.takes(stimulus);
            check(&warehouse, &story.orders);
        }
        warehouse.retries();
        check(&warehouse, &story.orders);
        warehouse.store.measures_only(inventory::program().metrics);
    }

    #[test]
    fn cancellation_of_all_orders_releases_all_stock_and_answers_each(story in story()) {
        let mut warehouse = ServiceUnderTest::of(InventoryService);
        for stimulus in story.stimuli() {
            warehouse.takes(stimulus);
        }
        for order in story.orders.keys() {
            warehouse.receives(created(*order, &story.lines(order)));
            warehouse.receives(cancelled(*order, &story.lines(order)));
        }
        for _ in 0..2 {
            warehouse.retries();
        }
        check(&warehouse, &story.orders);
        for sku in SKUS {
            let product: Product = warehouse.row(sku);
            prop_assert_eq!((product.reserved, product.sold, product.on_hand), (0, 0, product.supplied));
        }
        for order in story.orders.keys() {
            let published = warehouse.published();
            let count = |wanted: FactType| {
                published.iter().filter(|fact| fact.saga() == Some(*order) && fact.fact_type() == wanted).count()
            };
            let answers = (count(FactType::StockReservationFailed), count(FactType::StockReleased));
            prop_assert!(answers == (1, 0) || answers == (0, 1), "refused or released, once: {answers:?}");
        }
        prop_assert!(warehouse.store.dead.is_empty());
    }

    #[test]
    fn batch_has_same_effect_as_single_inputs(story in story(), size in 2_usize..41, use_inbox: bool) {
        batches_do_what_single_inputs_do(|| InventoryService, &story.stimuli(), size, use_inbox);
    }
}

fn check(warehouse: &ServiceUnderTest<InventoryService>, orders: &BTreeMap<Uuid, Vec<(usize, u32)>>) {
    for (event, fact) in warehouse.store.events_with_facts::<Reservation>() {
        assert_eq!(fact, fact_of(&event).map(FactType::name), "ledger and outbox agree about {event:?}");
    }
    let (mut reserved, mut sold) = (BTreeMap::new(), BTreeMap::new());
    for order in orders.keys() {
        let reservation: Reservation = warehouse.row(order);
        let pieces = match &reservation {
            Reservation::Reserved(_) => &mut reserved,
            Reservation::Sold(_) => &mut sold,
            Reservation::New | Reservation::Refused | Reservation::Released | Reservation::Void => continue,
        };
        for line in reservation.lines() {
            *pieces.entry(line.sku.clone()).or_insert(0) += line.quantity;
        }
    }
    for sku in SKUS {
        let product: Product = warehouse.row(sku);
        assert_pieces_add_up(&product);
        let count = |pieces: &BTreeMap<String, u32>| pieces.get(sku).copied().unwrap_or(0);
        assert_eq!(
            (product.reserved, product.sold),
            (count(&reserved), count(&sold)),
            "{sku}: products = orders"
        );
    }
    let dead_lettered: BTreeSet<_> =
        warehouse.store.dead.iter().map(|dead_letter| dead_letter.step.as_str()).collect();
    assert!(
        dead_lettered.is_subset(&BTreeSet::from(["inventory-sale"])),
        "dead-lettered: {:?}",
        warehouse.store.dead
    );
}

fn assert_pieces_add_up(product: &Product) {
    let pieces = [product.on_hand, product.reserved, product.sold].map(u64::from);
    assert_eq!(pieces.iter().sum::<u64>(), u64::from(product.supplied), "{product:?}");
}

/// Commands that are not idempotent by themselves. The reservation, or an idempotency key, recognises
/// repetitions.
fn adds_up(change: &ProductCommand) -> bool {
    match change {
        ProductCommand::Restock(_)
        | ProductCommand::Replenish { .. }
        | ProductCommand::Reserve(_)
        | ProductCommand::Release(_)
        | ProductCommand::Sell(_)
        | ProductCommand::PutBack(_) => true,
        ProductCommand::List(..) | ProductCommand::ChangePrice(_) => false,
    }
}

/// A few products, a few orders of them, and a sequence of inputs.
#[derive(Debug, Clone)]
struct Story {
    stock: [u32; 3],
    orders: BTreeMap<Uuid, Vec<(usize, u32)>>,
    acts: Vec<Act>,
}

#[derive(Debug, Clone)]
enum Act {
    Created(Uuid),
    Confirmed(Uuid),
    Cancelled(Uuid),
    Asked(usize, ProductCommand),
}

impl Story {
    fn lines(&self, order: &Uuid) -> Vec<Pieces<'static>> {
        let lines = self.orders.get(order).into_iter().flatten();
        lines.map(|(sku, quantity)| (SKUS[*sku], *quantity)).collect()
    }

    fn stimuli(&self) -> Vec<Stimulus<InventoryService>> {
        let listed = self.stock.iter().enumerate();
        let listed = listed.map(|(sku, pieces)| Act::Asked(sku, ProductCommand::List(listing(), *pieces)));
        let acts = listed.chain(self.acts.iter().cloned()).enumerate();
        acts.map(|(number, act)| match act {
            Act::Created(order) => Stimulus::Fact(created(order, &self.lines(&order))),
            Act::Confirmed(order) => Stimulus::Fact(confirmed(order, &self.lines(&order))),
            Act::Cancelled(order) => Stimulus::Fact(cancelled(order, &self.lines(&order))),
            Act::Asked(sku, change) => {
                let id = Uuid::from_u128(1000 + number as u128);
                Stimulus::Command { id, saga: id, command: of(SKUS[sku], change), key: None }
            }
        })
        .collect()
    }
}

fn story() -> impl Strategy<Value = Story> {
    let lines = prop::collection::vec((0..SKUS.len(), 1_u32..4), 1..4);
    let orders = prop::collection::vec(lines, 4);
    let act = (0_u8..8, 0..4_u128, 0..SKUS.len()).prop_map(|(kind, order, sku)| {
        let order = Uuid::from_u128(order);
        match kind {
            0..=2 => Act::Created(order),
            3 | 4 => Act::Confirmed(order),
            5 => Act::Cancelled(order),
            6 => Act::Asked(sku, ProductCommand::Replenish { threshold: 2, amount: 3 }),
            _ => Act::Asked(sku, ProductCommand::ChangePrice(euros(i64::from(kind)))),
        }
    });
    let acts = prop::collection::vec(act, 0..32);
    (prop::array::uniform3(0_u32..8), orders, acts).prop_map(|(stock, orders, acts)| {
        let orders = (0..).map(Uuid::from_u128).zip(orders).collect();
        Story { stock, orders, acts }
    })
}
