//! Shell: reconciliation of a system under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::system::{System, order_for};

/// Customers who order again as soon as they have an answer.
const CUSTOMERS: usize = 12;
/// Maximum number of orders, so that a slow machine catches up in the end.
const MOST_ORDERS: u64 = 1_500;
/// Number of reconciliations under load.
const AUDITS: usize = 9;

/// Regression: ledgers that were read one after another disagreed about work in flight, and reconciliation under load reported
/// an imbalance.
#[tokio::test]
async fn reconciliation_under_load_raises_no_false_alarm_and_misses_no_discrepancy() {
    let system = System::start(&[]);
    system.list("pen", 1_000_000).await;
    system.list("ink", 1_000_000).await;
    let before = system.order(&[("pen", 1)], "tok_ok").await;
    let (is_over, orders) = (AtomicBool::new(false), AtomicU64::new(0));
    let customers = join_all((0..CUSTOMERS).map(|number| buy(&system, number, &is_over, &orders)));
    let auditor = async {
        let mut seen = Vec::new();
        for number in 0..AUDITS {
            let wait = ["", "?wait=1", "?wait=2"][number % 3];
            let report = system.get("admin", &format!("/api/admin/reconciliation{wait}")).await;
            assert_ne!(report["verdict"], "UNBALANCED", "reconciled {number}: {report:#}");
            seen.push(report["suspected_count"].as_u64().expect("a count"));
        }
        assert!(orders.load(Ordering::Relaxed) > 100, "there was traffic");

        // A second charge for an order that was settled long ago.
        let order = before["id"].as_str().expect("an id");
        let charge = json!({
            "amount": {"amount_minor": 1_000, "currency": "EUR"}, "token": "tok_ok", "reference": order,
        });
        let asked = system.post("bank", "/v1/charges").header("Idempotency-Key", Uuid::now_v7().to_string());
        assert_eq!(asked.json(&charge).send().await.expect("an answer").status(), 200);
        let until = Instant::now() + Duration::from_secs(60);
        let report = loop {
            let report = system.get("admin", "/api/admin/reconciliation?wait=10").await;
            if report["verdict"] == "UNBALANCED" || Instant::now() >= until {
                break report;
            }
        };
        assert_eq!(report["verdict"], "UNBALANCED", "{report:#}");
        let found = report["discrepancies"].as_array().expect("a list");
        assert!(found.iter().all(|found| found["subject"] == order), "{report:#}");
        assert!(found.iter().any(|found| found["rule"] == "one charge per order"), "{report:#}");
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(customers, auditor);

    let reconciled = system.try_sagactl(&["reconcile", "--wait", "20s"]);
    let text = String::from_utf8_lossy(&reconciled.stdout).into_owned();
    assert_eq!(reconciled.status.code(), Some(2), "{text}");
    assert!(text.starts_with("THE BOOKS DO NOT BALANCE"), "{text}");

    // Without the bank there is no verdict.
    system.sagactl(&["stop", "bank"]);
    let began = Instant::now();
    let reconciled = system.try_sagactl(&["reconcile", "--wait", "2s"]);
    let text = String::from_utf8_lossy(&reconciled.stdout).into_owned();
    assert_eq!(reconciled.status.code(), Some(6), "{text}");
    assert!(text.starts_with("it cannot be told yet") && text.contains("no answer from bank"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    system.sagactl(&["start", "bank"]);
}

/// Places orders: some exceed the stock, some are declined, every third is cancelled, and some are refunded.
async fn buy(system: &System, number: usize, is_over: &AtomicBool, orders: &AtomicU64) {
    for round in number.. {
        if is_over.load(Ordering::Relaxed) || orders.load(Ordering::Relaxed) >= MOST_ORDERS {
            return;
        }
        let (lines, token) = match round % 8 {
            0 => ([("pen", 1), ("ink", 10_000)], "tok_ok"),
            1 => ([("pen", 1), ("ink", 1)], "tok_declined"),
            _ => ([("pen", 1), ("ink", 2)], "tok_ok"),
        };
        let request = system.post("order", "/api/orders").header("Prefer", "wait=2");
        let Ok(answer) = request.json(&order_for(&lines, token)).send().await else { continue };
        let Ok(order) = answer.json::<Value>().await else { continue };
        let Some(id) = order["id"].as_str() else { continue };
        orders.fetch_add(1, Ordering::Relaxed);
        // What may be rejected is rejected: these come at whatever moment.
        if round % 3 == 0 {
            let _ = system.post("order", &format!("/api/orders/{id}/cancel")).send().await;
        } else if round % 7 == 0 {
            let _ = system.post("payment", &format!("/api/payments/{id}/refund")).send().await;
        }
    }
}
