//! Shell: databases of all services, corrupted by hand in a row, its history, or both; and the exact findings
//! of row verification and reconciliation together.

use std::fmt::Write as _;
use std::path::Path;

use admin::service::AdminService;
use bank::domain::{Charge, ChargeEvent, ChargeRequest};
use bank::service::BankService;
use contract::money::{Currency, Money};
use contract::order::{CancelReason, Line, PaymentContext, StockLine};
use contract::saga_fact::{FactDetail, SagaFact};
use contract::saga_view::{SagaEvent, SagaView};
use contract::{FactType, payment_id};
use inventory::domain::{Listing, Product, ProductEvent, Reservation, ReservationEvent};
use inventory::service::InventoryService;
use jiff::{SignedDuration, Timestamp};
use order::catalogue::{CatalogueItem, PriceUpdate};
use order::domain::{Order, OrderEvent, Placed};
use order::service::OrderService;
use payment::domain::{Payment, PaymentEvent, RefundReason};
use payment::service::PaymentService;
use rusqlite::Connection;
use saga_core::decider::Decider;
use saga_core::decision::{EventWrite, Reads, RowWrite, Writes};
use saga_core::row::{RowKey, RowKind};
use saga_core::service::Service;
use saga_engine::store::roles::Transactions as _;
use saga_engine::store::sqlite::SqliteStore;
use simulation::{Databases, reconcile};
use tempfile::TempDir;
use uuid::Uuid;

const NOON: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// Order of a tea and two cups: confirmed.
const ADA: Uuid = Uuid::from_u128(1);
/// Order of a cup: paid, cancelled, refunded.
const BOB: Uuid = Uuid::from_u128(2);

/// (service, description, SQL that changes the row, SQL that changes its history).
const CORRUPTIONS: [(&str, &str, &str, &str); 14] = [
    ("order", "a quantity", "UPDATE row_order SET state = replace(state, '\"quantity\":2', '\"quantity\":3')",
        "UPDATE event SET data = replace(data, '\"quantity\":2', '\"quantity\":3') WHERE kind = 'order'"),
    ("order", "an order lost", "DELETE FROM row_order WHERE id LIKE '%1'",
        "DELETE FROM event WHERE kind = 'order' AND row_id LIKE '%1'"),
    ("order", "a price of the copy", "UPDATE row_catalogue_item SET state = replace(state, '300', '299')",
        "UPDATE event SET data = replace(data, '300', '299') WHERE kind = 'catalogue_item'"),
    ("inventory", "supply", "UPDATE row_product SET state = replace(state, '\"supplied\":9', '\"supplied\":8')
         WHERE id = 'tea'",
        "UPDATE event SET data = replace(data, '},9]', '},8]') WHERE kind = 'product' AND row_id = 'tea'"),
    ("inventory", "a price", "UPDATE row_product SET state = replace(state, '300', '301') WHERE id = 'tea'",
        "UPDATE event SET data = replace(data, '300', '301') WHERE kind = 'product' AND row_id = 'tea'"),
    ("inventory", "another product sold", "UPDATE row_reservation SET state = replace(state, 'tea', 'cup')",
        "UPDATE event SET data = replace(data, 'tea', 'cup') WHERE kind = 'reservation'"),
    ("inventory", "a reservation lost", "DELETE FROM row_reservation WHERE id LIKE '%1'",
        "DELETE FROM event WHERE kind = 'reservation' AND row_id LIKE '%1'"),
    ("payment", "another customer", "UPDATE row_payment SET state = replace(state, 'ada', 'eve')",
        "UPDATE event SET data = replace(data, 'ada', 'eve') WHERE kind = 'payment'"),
    ("payment", "a currency", "UPDATE row_payment SET state = replace(state, 'EUR', 'USD') WHERE id LIKE '%1'",
        "UPDATE event SET data = replace(data, 'EUR', 'USD') WHERE kind = 'payment' AND row_id LIKE '%1'"),
    ("payment", "a reference", "UPDATE row_payment SET state = replace(state, 'ch_', 'cx_') WHERE id LIKE '%1'",
        "UPDATE event SET data = replace(data, 'ch_', 'cx_') WHERE kind = 'payment' AND row_id LIKE '%1'"),
    ("bank", "a cent", "UPDATE row_charge SET state = replace(state, '1300', '1301')",
        "UPDATE event SET data = replace(data, '1300', '1301') WHERE kind = 'charge'"),
    ("bank", "a refund doubled", "UPDATE row_charge SET version = 3 WHERE version = 2",
        "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at)
         SELECT kind, row_id, 3, name, data, causation_id, recorded_at FROM event WHERE kind = 'charge' AND version = 2"),
    ("admin", "a total", "UPDATE row_saga SET state = replace(state, '1300', '1299')",
        "UPDATE event SET data = replace(data, '1300', '1299') WHERE kind = 'saga'"),
    ("admin", "a saga lost", "DELETE FROM row_saga WHERE id LIKE '%1'",
        "DELETE FROM event WHERE kind = 'saga' AND row_id LIKE '%1'"),
];

#[tokio::test]
async fn corruption_of_row_history_or_both_is_found_in_each_database() {
    let whole = tempfile::tempdir().expect("a folder");
    fill(whole.path()).await;
    assert_eq!(found(whole.path()).await, Vec::<String>::new());
    let mut text = String::new();
    for (service, what, row, history) in CORRUPTIONS {
        for (part, statements) in [("row", &[row][..]), ("history", &[history]), ("both", &[row, history])] {
            let copy = copy_of(whole.path());
            by_hand(&copy.path().join(service).with_extension("db"), statements);
            let found = found(copy.path()).await;
            assert!(!found.is_empty(), "{service}, {what}, {part}: nothing was found");
            writeln!(text, "{service}, {what}: {part}\n  {}", found.join("\n  ")).expect("memory");
        }
    }
    insta::assert_snapshot!("corrupted_databases", text);
}

#[tokio::test]
async fn unreadable_row_is_found_and_other_rows_are_compared() {
    let whole = tempfile::tempdir().expect("a folder");
    fill(whole.path()).await;
    let spoil = "UPDATE row_payment SET state = '{' WHERE id LIKE '%1'";
    by_hand(&whole.path().join("payment.db"), &[spoil]);
    let found = found(whole.path()).await;
    assert!(found.contains(&format!("every row can be read · payment · payment/{ADA}")), "{found:#?}");
    assert!(found.iter().all(|found| !found.contains(&BOB.to_string())), "{found:#?}");
}

fn at(second: i64) -> Timestamp {
    NOON + SignedDuration::from_secs(second)
}

const fn euro(cents: i64) -> Money {
    Money::new(cents, Currency::EUR)
}

fn open<S: Service>(folder: &Path) -> SqliteStore {
    SqliteStore::open(&folder.join(S::NAME).with_extension("db"), S::rows()).expect("a database")
}

/// Fills the databases of five services with a confirmed and a cancelled order.
async fn fill(folder: &Path) {
    fill_orders(folder).await;
    fill_inventory(folder).await;
    fill_payments(folder).await;
    fill_sagas(folder).await;
}

fn pays(order: Uuid, customer: &str, cents: i64) -> PaymentContext {
    PaymentContext {
        customer: customer.to_owned(),
        total: euro(cents),
        token: "tok_ok".to_owned(),
        id: payment_id(order),
    }
}

async fn fill_orders(folder: &Path) {
    let line = |sku: &str, quantity, cents| Line { sku: sku.to_owned(), quantity, unit_price: euro(cents) };
    let order = open::<OrderService>(folder);
    for (sku, cents) in [("tea", 300), ("cup", 500)] {
        let update = PriceUpdate { unit_price: euro(cents), revision: 1 };
        record::<CatalogueItem>(&order, sku, &[(update, 0)]).await;
    }
    let placed = |order, customer, lines: Vec<Line>, cents| {
        let (payment, placed_at, deadline) = (pays(order, customer, cents), at(1), at(61));
        OrderEvent::Placed(Placed { lines, payment, placed_at, deadline })
    };
    let (ada, bob) = (
        placed(ADA, "ada", vec![line("tea", 1, 300), line("cup", 2, 500)], 1_300),
        placed(BOB, "bob", vec![line("cup", 1, 500)], 500),
    );
    let cancelled = OrderEvent::Cancelled(CancelReason::CustomerRequest);
    record::<Order>(&order, ADA, &[(ada, 1), (OrderEvent::Confirmed, 4)]).await;
    record::<Order>(&order, BOB, &[(bob, 1), (OrderEvent::Confirmed, 4), (cancelled, 5)]).await;
}

async fn fill_inventory(folder: &Path) {
    let stock = |sku: &str, quantity| StockLine { sku: sku.to_owned(), quantity };
    let inventory = open::<InventoryService>(folder);
    for (sku, cents, moves) in [
        ("tea", 300, vec![ProductEvent::Reserved(1), ProductEvent::Sold(1)]),
        ("cup", 500, vec![ProductEvent::Reserved(3), ProductEvent::Sold(3), ProductEvent::PutBack(1)]),
    ] {
        let listing = Listing { name: sku.to_owned(), unit_price: euro(cents), replenish: false };
        let listed = ProductEvent::Listed(listing, 9);
        let history: Vec<_> = [listed].into_iter().chain(moves).map(|event| (event, 0)).collect();
        record::<Product>(&inventory, sku, &history).await;
    }
    let reserved = |lines: &[StockLine]| (ReservationEvent::Reserved(lines.to_vec()), 2);
    let sold = (ReservationEvent::Sold, 5);
    let (ada, bob) = ([stock("cup", 2), stock("tea", 1)], [stock("cup", 1)]);
    record::<Reservation>(&inventory, ADA, &[reserved(&ada), sold.clone()]).await;
    record::<Reservation>(&inventory, BOB, &[reserved(&bob), sold, (ReservationEvent::Released, 6)]).await;
}

async fn fill_payments(folder: &Path) {
    let payment = open::<PaymentService>(folder);
    let paid = |order, context: PaymentContext| {
        let reference = bank::ledger::bank_reference(payment_id(order));
        vec![(PaymentEvent::Requested(context), 2), (PaymentEvent::Captured(reference), 3)]
    };
    let back = PaymentEvent::RefundRequested(RefundReason::OrderCancelled);
    let refunded = [paid(BOB, pays(BOB, "bob", 500)), vec![(back, 6), (PaymentEvent::Refunded, 7)]].concat();
    record::<Payment>(&payment, ADA, &paid(ADA, pays(ADA, "ada", 1_300))).await;
    record::<Payment>(&payment, BOB, &refunded).await;

    let bank = open::<BankService>(folder);
    let captured = |order: Uuid, cents| {
        let (amount, token, reference) = (euro(cents), "tok_ok".to_owned(), order.to_string());
        (ChargeEvent::Captured(ChargeRequest { amount, token, reference }), 3)
    };
    record::<Charge>(&bank, payment_id(ADA), &[captured(ADA, 1_300)]).await;
    record::<Charge>(&bank, payment_id(BOB), &[captured(BOB, 500), (ChargeEvent::Refunded, 7)]).await;
}

async fn fill_sagas(folder: &Path) {
    use FactType::{
        OrderCancelled, OrderConfirmed, OrderCreated, PaymentProcessed, PaymentRefunded, StockReleased,
        StockReserved,
    };
    let admin = open::<AdminService>(folder);
    let done = [(OrderCreated, 1), (StockReserved, 2), (PaymentProcessed, 3), (OrderConfirmed, 4)];
    let undone = [(OrderCancelled, 5), (StockReleased, 6), (PaymentRefunded, 7)];
    record::<SagaView>(&admin, ADA, &done.map(|fact| saga_event("ada", 1_300, fact))).await;
    let undone: Vec<_> = done.into_iter().chain(undone).map(|fact| saga_event("bob", 500, fact)).collect();
    record::<SagaView>(&admin, BOB, &undone).await;
}

/// A fact as admin's saga view stores it, published at this second.
fn saga_event(customer: &str, cents: i64, (fact_type, second): (FactType, i64)) -> (SagaEvent, i64) {
    let is_first = fact_type == FactType::OrderCreated;
    let detail = FactDetail {
        customer: is_first.then(|| customer.to_owned()),
        total: is_first.then_some(euro(cents)),
        deadline: is_first.then_some(at(61)),
        cancelled_because: (fact_type == FactType::OrderCancelled).then_some(CancelReason::CustomerRequest),
        ..FactDetail::default()
    };
    let fact = SagaFact {
        message_id: Uuid::from_u128(u128::try_from(second).expect("a second")),
        message_type: fact_type.name().to_owned(),
        producer: "somebody".to_owned(),
        causation_id: Uuid::nil(),
        occurred_at: at(second),
        detail,
    };
    (SagaEvent::FactRecorded(fact), second)
}

/// Writes a row by its history of events, each with the second at which it was decided.
async fn record<D: Decider>(store: &SqliteStore, id: impl ToString, history: &[(D::Event, i64)]) {
    let key = RowKey::of::<D>(id);
    let json = |event: &D::Event| serde_json::to_string(event).expect("an event has a JSON form");
    for (before, (event, second)) in history.iter().enumerate() {
        let events = history[..=before].iter().map(|(event, _)| json(event));
        let projected = RowKind::of::<D>().fold(&key.id, None, events).expect("a state has a JSON form");
        let read_version = i64::try_from(before).expect("a short history");
        let version = read_version + 1;
        let row = RowWrite { key: key.clone(), read_version, version, projected, searched_by: None };
        let (name, data, causation_id) = (D::event_name(event), json(event), Uuid::nil());
        let event = EventWrite { key: key.clone(), version, name, data, causation_id };
        let writes =
            Writes { rows: vec![row], events: vec![event], decided_at: at(*second), ..Writes::default() };
        store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("written");
    }
}

/// Findings of row verification and reconciliation.
async fn found(folder: &Path) -> Vec<String> {
    let databases = Databases {
        order: &open::<OrderService>(folder),
        inventory: &open::<InventoryService>(folder),
        payment: &open::<PaymentService>(folder),
        bank: &open::<BankService>(folder),
        admin: &open::<AdminService>(folder),
    };
    let found = reconcile(&databases, at(100)).await.finish().discrepancies.listed.into_iter();
    found.map(|found| format!("{} · {} · {}", found.rule, found.subject, found.detail)).collect()
}

fn copy_of(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for file in folder.read_dir().expect("a folder") {
        let file = file.expect("a file").path();
        std::fs::copy(&file, copy.path().join(file.file_name().expect("a name"))).expect("a copy");
    }
    copy
}

/// Executes statements on a database, past its service.
fn by_hand(database: &Path, statements: &[&str]) {
    let conn = Connection::open(database).expect("the file");
    for sql in statements {
        let changed = conn.execute(sql, []).expect("the change");
        assert!(changed > 0, "{sql} changed nothing");
    }
}
