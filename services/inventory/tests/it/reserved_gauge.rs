//! Shell: the gauge of reserved units in the running program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::order::StockLine;
use inventory::domain::{Reservation, ReservationEvent};
use jiff::Timestamp;
use saga_core::decision::Writes;
use saga_engine::testing::histories::has_history;
use saga_engine::testing::program::{Folder, Running};
use uuid::Uuid;

use crate::database::write;

/// Configuration without a reachable broker: no message changes the reservations.
const CONFIG: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n";

#[test]
fn reserved_gauge_is_restored_after_restart() {
    let (folder, mut writes) = (Arc::new(Folder::new()), nothing());
    reserves(&mut writes, 1, &[2, 3], None);
    reserves(&mut writes, 2, &[u32::MAX], None);
    reserves(&mut writes, 3, &[100], Some(ReservationEvent::Sold));
    reserves(&mut writes, 4, &[100], Some(ReservationEvent::Released));
    reserves(&mut writes, 5, &[100], None);
    if let Some(damaged) = writes.rows.last_mut() {
        damaged.projected.state = "damaged".to_owned();
    }
    write(&folder, writes);
    for _ in 0..2 {
        let inventory = Running::start_in(&folder, env!("CARGO_BIN_EXE_inventory"), CONFIG);
        shows(&inventory, "stock_reserved_units 4294967300.0");
    }
}

#[test]
fn reserved_gauge_counts_thousand_oldest_reservations() {
    let (folder, mut writes) = (Arc::new(Folder::new()), nothing());
    for order in 1..=1_000 {
        reserves(&mut writes, order, &[1], None);
    }
    reserves(&mut writes, 1_001, &[1_000_000], None);
    write(&folder, writes);
    shows(
        &Running::start_in(&folder, env!("CARGO_BIN_EXE_inventory"), CONFIG),
        "stock_reserved_units 1000.0",
    );
}

fn nothing() -> Writes {
    Writes { decided_at: Timestamp::UNIX_EPOCH, ..Writes::default() }
}

/// Writes a reservation with these quantities, and the event that followed.
fn reserves(writes: &mut Writes, order: u128, quantities: &[u32], then: Option<ReservationEvent>) {
    let line = |quantity: &u32| StockLine { sku: "mug".to_owned(), quantity: *quantity };
    let reserved = ReservationEvent::Reserved(quantities.iter().map(line).collect());
    let events = [reserved].into_iter().chain(then);
    let history: Vec<_> = events.map(|event| serde_json::to_string(&event).expect("JSON")).collect();
    has_history::<Reservation>(writes, Uuid::from_u128(order), &history);
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "there is no runtime here to hold up")]
fn shows(inventory: &Running, line: &str) {
    let began = Instant::now();
    loop {
        let metrics = inventory.get("/metrics").text;
        if metrics.lines().any(|shown| shown == line) {
            return;
        }
        let reserved = metrics.lines().find(|shown| shown.starts_with("stock_reserved_units "));
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain for {line}: {reserved:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
