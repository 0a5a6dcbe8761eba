//! Shell: the metric of the amounts of open sagas, which is computed from rows.

use std::sync::Arc;
use std::time::Duration;

use admin::service::{AdminMessage, AdminService};
use contract::Fact;
use contract::money::{Currency, Money};
use contract::order::{OrderCreated, PaymentContext};
use contract::saga_view::SagaView;
use saga_core::service::Service as _;
use saga_engine::store::sqlite::SqliteStore;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::damaged::is_damaged;
use crate::given::fact;
use crate::harness::{AdminHarness, PATIENCE};

const LOOKING: &[&str] = &["service.notifications.check_every=5ms"];

fn placed(order: u128, total: Money) -> AdminMessage {
    let AdminMessage::Fact(Fact::OrderCreated(created)) = fact("OrderCreated", Uuid::from_u128(order)) else {
        unreachable!("it is what was asked for")
    };
    let payment = PaymentContext { total, ..created.payment };
    AdminMessage::Fact(OrderCreated { payment, ..created }.into())
}

fn euros(minor: i64) -> Money {
    Money::new(minor, Currency::EUR)
}

/// Waits until the gauge has exactly these series.
#[track_caller]
fn shows(admin: &AdminHarness, wanted: &[&str]) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = admin.app.metrics.text().expect("metrics");
            let mut shown: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("saga_open_amount_minor")).collect();
            shown.sort_unstable();
            if shown == wanted {
                return;
            }
            assert!(Instant::now() < until, "waited in vain for {wanted:?}, from {caller}: {shown:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn open_amounts_are_the_same_after_a_restart() {
    let store = Arc::new(SqliteStore::in_memory(AdminService::rows()).expect("a database in memory"));
    let first = AdminHarness::over(store.clone(), LOOKING).await;
    shows(&first, &["{currency=\"EUR\"} 0.0"]).await;
    let large = 5_000_000_000;
    let totals = [
        euros(3_300),
        euros(large),
        Money::new(500, Currency::USD),
        Money::new(250, Currency::USD),
        Money::new(7, Currency::JPY),
    ];
    for (order, total) in (1..).zip(totals) {
        first.receives(&placed(order, total)).await;
    }
    // One that came to its end, one whose order nobody has heard of, one that cannot be read.
    first.receives(&placed(6, euros(11))).await;
    first.receives(&fact("OrderConfirmed", Uuid::from_u128(6))).await;
    first.receives(&fact("StockReserved", Uuid::from_u128(7))).await;
    first.receives(&placed(8, euros(13))).await;
    is_damaged::<SagaView>(&first, &Uuid::from_u128(8).to_string()).await;
    let all = ["{currency=\"EUR\"} 5000003300.0", "{currency=\"JPY\"} 7.0", "{currency=\"USD\"} 750.0"];
    shows(&first, &all).await;
    drop(first);

    let second = AdminHarness::over(store, LOOKING).await;
    shows(&second, &all).await;
    for order in [2, 5] {
        second.receives(&fact("OrderConfirmed", Uuid::from_u128(order))).await;
    }
    shows(&second, &["{currency=\"EUR\"} 3300.0", "{currency=\"USD\"} 750.0"]).await;
}

#[tokio::test]
async fn open_amounts_sum_the_thousand_oldest_sagas() {
    let admin = AdminHarness::with(LOOKING).await;
    let cheap: Vec<_> = (1..=1_000).map(|order| placed(order, euros(1))).collect();
    admin.receives(&placed(1_001, euros(1_000_000))).await;
    admin.receives_all(&cheap).await;
    shows(&admin, &["{currency=\"EUR\"} 1000.0"]).await;
    admin.receives(&fact("OrderConfirmed", Uuid::from_u128(1))).await;
    shows(&admin, &["{currency=\"EUR\"} 1000999.0"]).await;
}
