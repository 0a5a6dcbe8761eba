//! Shell: the reconciliation through its route, with fake services.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::reconciliation::PaymentState;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use saga_core::service_stats::{ServiceStats, StepStats};
use saga_engine::host::queries::Folds;
use saga_engine::store::VerificationReport;
use saga_engine::testing::NOON;
use serde_json::{Value, json};

use super::played::{Played, ReconciliationHarness, quiet_shop, step};
use super::shop::{CONFIRMED, KINDNESS, PENDING, Shop, euro, line};
use crate::harness::answered;

#[tokio::test]
async fn agreeing_quiet_services_are_balanced() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    let report = harness.reconcile().await;
    assert_eq!((&report["verdict"], &report["balanced"]), (&json!("BALANCED"), &json!(true)), "{report}");
    assert_eq!((&report["in_flight"], &report["summary"]["orders"]), (&json!([]), &json!(6)));
}

#[tokio::test]
async fn all_pages_of_all_ledgers_are_read() {
    let last = KINDNESS - 1;
    type Spoil = fn(&mut Shop, usize);
    let spoils: [(&str, Spoil); 6] = [
        ("orders", |shop, last| shop.orders[last].customer = "eve".to_owned()),
        ("reservations", |shop, last| shop.reservations[last].lines[0].quantity = 9),
        ("payments", |shop, last| shop.payments[last].customer = Some("eve".to_owned())),
        ("charges", |shop, _| shop.charges.last_mut().expect("a charge").amount = Some(euro(1))),
        ("stock", |shop, _| shop.stock.last_mut().expect("a product").supplied += 1),
        ("copies", |shop, _| shop.copies.last_mut().expect("a copy").revision += 1),
    ];
    for (what, spoil) in spoils {
        let harness = ReconciliationHarness::of(quiet_shop()).await;
        harness.played.lock().page = 1;
        assert_eq!(harness.reconcile().await["verdict"], "BALANCED", "{what}, unspoilt");
        spoil(&mut harness.played.lock().shop, last);
        assert_eq!(harness.reconcile().await["verdict"], "UNBALANCED", "{what}");
    }
}

#[tokio::test]
async fn facts_published_during_reading_make_result_inconclusive() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    harness.played.lock().publishes_meanwhile = true;
    let report = harness.reconcile().await;
    assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
    assert_eq!(whats(&report), ["facts were published during the reading"]);
}

#[tokio::test]
async fn discrepancy_with_work_in_flight_is_suspected() {
    let spoils: [fn(&mut ServiceStats); 4] = [
        |service| service.stats.outbox_pending = 1,
        |service| service.stats.retries = 1,
        |service| service.steps.push(StepStats { waiting: Some(1), ..step("some-step", &[], 0) }),
        |service| service.steps.push(StepStats { waiting: None, ..step("some-step", &[], 0) }),
    ];
    for spoil in spoils {
        let harness = ReconciliationHarness::of(quiet_shop()).await;
        spoil(harness.played.lock().service_stats.get_mut("payment").expect("it is played"));
        harness.played.lock().shop.payments[CONFIRMED].reference.clear();
        let report = harness.reconcile_within(1).await;
        assert_eq!(
            (&report["verdict"], &report["suspected_count"]),
            (&json!("IN_FLIGHT"), &json!(1)),
            "{report}"
        );
    }
}

#[tokio::test]
async fn reconciliation_waits_for_quiet_within_its_time() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    harness.played.lock().busy_looks = 3;
    let waited = answered(harness.admin.request(Method::GET, "/reconciliation?wait=30"), 200).await;
    assert_eq!(waited["verdict"], "BALANCED", "{waited}");
    harness.played.lock().busy_looks = 3;
    assert_eq!(harness.reconcile().await["verdict"], "IN_FLIGHT");
}

/// A pending order must not keep the verdict at IN_FLIGHT.
#[tokio::test]
async fn pending_order_is_in_flight_until_its_deadline() {
    let pending = |deadline: SignedDuration| {
        let mut shop = Shop::consistent();
        shop.orders[PENDING].deadline = NOON + deadline;
        shop
    };
    let harness = ReconciliationHarness::of(pending(SignedDuration::from_secs(-29))).await;
    let report = harness.reconcile().await;
    assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
    assert_eq!(whats(&report), ["order: 1 order is neither confirmed nor cancelled"]);
    assert_eq!(report["in_flight"][0]["waits_for"], "stock, payment or their deadline");

    let harness = ReconciliationHarness::of(pending(SignedDuration::from_secs(-31))).await;
    harness.played.lock().service_stats.get_mut("payment").expect("it is played").stats.tasks = 1;
    let report = harness.reconcile().await;
    assert_eq!(
        (&report["verdict"], &report["summary"]["overdue"]),
        (&json!("UNBALANCED"), &json!(1)),
        "{report}"
    );
    assert_eq!(report["discrepancies"][0]["rule"], "every order ends");
    assert_eq!(whats(&report), ["payment: 1 open call"]);
    assert_eq!(report["discrepancies"][0]["since"], "2027-01-15T07:59:29Z", "{report}");
}

/// Discrepancies of an order without work in flight are confirmed although other orders continue.
#[tokio::test]
async fn discrepancy_is_confirmed_under_traffic_after_draining() {
    for (name, corrupt) in super::corruptions::of_ended_orders() {
        let harness = ReconciliationHarness::of(quiet_shop()).await;
        corrupt(&mut harness.played.lock().shop);
        harness.played.lock().has_traffic = true;
        let report = harness.reconcile().await;
        assert_eq!(report["verdict"], "UNBALANCED", "{name}: {report}");
        assert!(report["discrepancies"][0]["advice"].as_str().is_some_and(|advice| !advice.is_empty()));
    }
}

/// Ledgers read at different moments can differ; read again, they agree.
#[tokio::test]
async fn resolved_suspicion_is_not_reported() {
    for (name, corrupt) in super::corruptions::of_ended_orders() {
        let harness = ReconciliationHarness::of(quiet_shop()).await;
        let right = harness.played.lock().shop.clone();
        corrupt(&mut harness.played.lock().shop);
        // What one row says of itself is no matter of when it is read, nor what two of one service say.
        if name.starts_with("reservation") || harness.played.lock().shop.reconciled(2_000).1.certain > 0 {
            continue;
        }
        harness.played.lock().has_traffic = true;
        harness.played.lock().mended = Some(right);
        let report = harness.reconcile().await;
        assert_eq!(report["verdict"], "IN_FLIGHT", "{name}: {report}");
        assert_eq!(report["discrepancies"], json!([]), "{name}");
    }
}

/// A message that a service has not processed yet may resolve it.
#[tokio::test]
async fn changing_order_stays_suspected() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    harness.played.lock().shop.payments[CONFIRMED].reference.clear();
    let late = |acknowledged| {
        let producers = BTreeMap::from([("order".to_owned(), acknowledged)]);
        StepStats { waiting: Some(3), acknowledged: producers, ..step("inventory-sale", &[], 0) }
    };
    harness.played.lock().service_stats.get_mut("order").expect("it is played").newest = Some(7);
    harness.played.lock().service_stats.get_mut("inventory").expect("it is played").steps = vec![late(6)];
    assert_eq!(harness.reconcile_within(1).await["verdict"], "IN_FLIGHT");
    harness.played.lock().service_stats.get_mut("inventory").expect("it is played").steps = vec![late(7)];
    assert_eq!(harness.reconcile().await["verdict"], "UNBALANCED");
}

#[tokio::test]
async fn order_with_open_call_stays_suspected_and_another_is_confirmed() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    harness.set_tasks(1);
    harness.played.lock().shop.payments[CONFIRMED].state = PaymentState::Open;
    assert_eq!(harness.reconcile_within(1).await["verdict"], "IN_FLIGHT");
    harness.played.lock().shop.payments[CONFIRMED].state = PaymentState::Captured;
    harness.played.lock().shop.payments[CONFIRMED].reference.clear();
    assert_eq!(harness.reconcile().await["verdict"], "UNBALANCED");
}

#[tokio::test]
async fn unreachable_service_is_named_and_certain_discrepancies_are_reported() {
    for is_silent in [false, true] {
        for away in ["order", "bank"] {
            let harness = ReconciliationHarness::of(quiet_shop()).await;
            harness.played.lock().away = Some((away, is_silent));
            let began = std::time::Instant::now();
            let report = harness.reconcile_within(3).await;
            assert!(began.elapsed() < Duration::from_secs(6), "{away}: {:?}", began.elapsed());
            assert_eq!(report["verdict"], "IN_FLIGHT", "{report}");
            assert_eq!(report["headline"], "it cannot be told yet whether the books balance");
            assert_eq!(report["unanswered"][0]["service"], away, "{report}");
            assert_eq!((&report["discrepancies"], &report["suspected"]), (&json!([]), &json!([])), "{away}");
            let service = if away == "order" { "payment" } else { "order" };
            let differing = vec![format!("{service}/7")];
            let folds = VerificationReport { differing, ..VerificationReport::default() };
            harness.played.lock().folds.insert(service.to_owned(), folds);
            assert_eq!(harness.reconcile_within(3).await["verdict"], "UNBALANCED", "{away}");
        }
    }
}

#[tokio::test]
async fn rows_verified_with_ledger_pages_are_not_verified_again() {
    let harness = ReconciliationHarness::of(Shop::consistent()).await;
    let rows_of_the_pages = harness.played.lock().shop.orders.len() as u64 * 3;
    let folds = Folds { kind: "order".to_owned(), rows: 3, differing: vec![] };
    (harness.played.lock().page, harness.played.lock().checked) = (1, Some(folds.clone()));
    let checked = |report: &Value| report["summary"]["rows_checked"].as_u64().expect("a number");
    assert!(checked(&harness.reconcile().await) >= rows_of_the_pages);
    let verified = std::mem::take(&mut harness.played.lock().verified);
    assert!(verified.contains(&"order: events=10000&exclude=order".to_owned()), "{verified:?}");
    assert!(verified.contains(&"payment: events=10000".to_owned()), "{verified:?}");

    harness.played.lock().checked = Some(Folds { differing: vec!["order/7".to_owned()], ..folds });
    let report = harness.reconcile().await;
    assert_eq!(report["discrepancies"][0]["rule"], "every row = fold of its events", "{report}");
}

fn assert_one_is_wrong(report: &Value) {
    let messages = (&report["verdict"], &report["discrepancy_count"]);
    assert_eq!(messages, (&json!("UNBALANCED"), &json!(1)), "{report}");
}

#[tokio::test]
async fn differing_row_of_page_is_reported_without_verification_of_others() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    let differing = vec!["order/7".to_owned()];
    harness.played.lock().checked = Some(Folds { kind: "order".to_owned(), rows: 3, differing });
    assert_eq!(harness.reconcile().await["verdict"], "UNBALANCED");
    harness.played.lock().unverified = Some("order");
    let report = harness.reconcile_within(1).await;
    assert_eq!(report["unanswered"][0]["service"], "order", "{report}");
    assert_one_is_wrong(&report);
}

#[tokio::test]
async fn differing_row_of_page_is_reported_when_later_page_has_no_result() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    let differing = vec!["order/7".to_owned()];
    {
        let mut played = harness.played.lock();
        (played.page, played.checked_pages) = (1, Some(1));
        played.checked = Some(Folds { kind: "order".to_owned(), rows: 1, differing });
        played.unverified = Some("order");
    }
    let report = harness.reconcile_within(5).await;
    assert_eq!(report["unanswered"][0]["service"], "order", "{report}");
    assert_one_is_wrong(&report);
}

#[tokio::test]
async fn page_without_result_causes_verification_of_all_rows() {
    for pages in [0, 1, 2, 5] {
        let harness = ReconciliationHarness::of(quiet_shop()).await;
        {
            let mut played = harness.played.lock();
            (played.page, played.checked_pages) = (1, Some(pages));
            played.checked = Some(Folds { kind: "order".to_owned(), rows: 1, differing: vec![] });
            let differing = vec!["order/9".to_owned()];
            played.folds.insert(
                "order".to_owned(),
                VerificationReport { differing, ..VerificationReport::default() },
            );
        }
        let report = harness.reconcile().await;
        assert_one_is_wrong(&report);
        let verified = std::mem::take(&mut harness.played.lock().verified);
        assert!(verified.contains(&"order: events=10000".to_owned()), "{pages}: {verified:?}");
    }
}

/// Reading may take long, but waiting for quiet is limited.
#[tokio::test]
async fn full_reconciliation_keeps_its_wait_when_work_never_drains() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    harness.played.lock().service_stats.get_mut("payment").expect("it is played").stats.outbox_pending = 1;
    harness.played.lock().shop.payments[CONFIRMED].reference.clear();
    for which in ["", "&full=true"] {
        let body =
            answered(harness.admin.request(Method::GET, &format!("/reconciliation?wait=1{which}")), 200);
        let report = tokio::time::timeout(Duration::from_secs(15), body).await.expect("an answer in time");
        assert_eq!(report["verdict"], "IN_FLIGHT", "{which}: {report}");
    }
}

#[tokio::test]
async fn differing_and_unreadable_rows_are_certain() {
    type Spoil = fn(&mut Played);
    let spoils: [(&str, Spoil); 4] = [
        ("every row = fold of its events", |played| {
            let differing = vec!["order/7".to_owned()];
            played.folds.insert(
                "order".to_owned(),
                VerificationReport { differing, ..VerificationReport::default() },
            );
        }),
        ("every row can be read", |played| played.unreadable = vec!["reservation/7".to_owned()]),
        ("every fact is published", |played| {
            played.service_stats.get_mut("order").expect("it is played").stats.outbox_failed = 1;
        }),
        ("total = sum of the lines", |played| played.shop.orders[CONFIRMED].lines.push(line("tea", 1, 300))),
    ];
    for (rule, spoil) in spoils {
        let harness = ReconciliationHarness::of(Shop::consistent()).await;
        spoil(&mut harness.played.lock());
        let report = harness.reconcile().await;
        assert_eq!(report["verdict"], "UNBALANCED", "{report}");
        let rules = report["discrepancies"].as_array().expect("a list").iter();
        assert!(rules.map(|found| &found["rule"]).any(|found| found == rule), "{report}");
    }
}

/// A step added later has missed older messages.
#[tokio::test]
async fn baseline_of_step_is_accepted_when_nothing_is_in_flight() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    let published = 6;
    let new = step("stock-forecast", &["order.created"], published - 4);
    harness.played.lock().service_stats.get_mut("inventory").expect("it is played").steps.push(new);
    let report = harness.reconcile().await;
    assert_eq!(report["verdict"], "UNBALANCED", "{report}");
    assert_eq!(report["discrepancies"][0]["detail"], "6 published; 2 processed + 0 retrying + 0 dead");

    let accepts = |step: &str| json!({ "step": step, "reason": "subscribed today" });
    harness.admin.post("/reconciliation/baselines", &accepts("no-such-step"), 422).await;
    harness.admin.post("/reconciliation/baselines", &json!({ "step": "stock-forecast" }), 422).await;
    harness.set_tasks(1);
    harness.admin.post("/reconciliation/baselines", &accepts("stock-forecast"), 409).await;
    harness.set_tasks(0);
    assert_eq!(harness.admin.get("/overview").await["reconciliation"]["verdict"], "UNBALANCED");
    let accepted = harness.admin.post("/reconciliation/baselines", &accepts("stock-forecast"), 200).await;
    assert_eq!(accepted["missed"], 4);
    // What the last audit said is so no more.
    assert_eq!(harness.admin.get("/overview").await["reconciliation"], Value::Null);
    let report = harness.reconcile().await;
    assert_eq!((&report["verdict"], &report["baselines"]["stock-forecast"]), (&json!("BALANCED"), &accepted));
    let log = harness.admin.get("/audit?action=reconciliation.accept_baseline").await;
    let entry = &log["entries"][0];
    assert_eq!((&entry["operator"], &entry["target"]), (&json!("ada"), &json!("stock-forecast")), "{log}");

    // What is lost from then on is found.
    harness.change_step(|step| step.handled -= 1);
    let report = harness.reconcile().await;
    assert_eq!(report["verdict"], "UNBALANCED");
    let wanted = "6 published, 4 of them accepted as missed; 1 processed + 0 retrying + 0 dead";
    assert_eq!(report["discrepancies"][0]["detail"], wanted);
}

/// The audit log is read 200 entries at a time.
#[tokio::test]
async fn newest_accepted_baseline_counts() {
    let harness = ReconciliationHarness::of(quiet_shop()).await;
    let new = step("stock-forecast", &["order.created"], 2);
    harness.played.lock().service_stats.get_mut("inventory").expect("it is played").steps.push(new);
    let accepts = json!({ "step": "stock-forecast", "reason": "subscribed today" });
    for _ in 0..200 {
        harness.admin.post("/reconciliation/baselines", &accepts, 200).await;
    }
    harness.change_step(|step| step.handled -= 1);
    assert_eq!(harness.reconcile().await["verdict"], "UNBALANCED");
    harness.admin.post("/reconciliation/baselines", &accepts, 200).await;
    assert_eq!(harness.reconcile().await["verdict"], "BALANCED");
}

/// A new database has missed old sagas.
#[tokio::test]
async fn baseline_of_saga_view_covers_facts_before_it() {
    let long_ago = Timestamp::UNIX_EPOCH;
    let harness = ReconciliationHarness::without_view(quiet_shop(), long_ago).await;
    assert_eq!(harness.reconcile().await["verdict"], "UNBALANCED");
    let accepts = json!({ "step": "admin-saga-view", "reason": "its disk was lost" });
    harness.admin.post("/reconciliation/baselines", &accepts, 200).await;
    let report = harness.reconcile().await;
    assert_eq!(report["verdict"], "BALANCED", "{report}");

    // What is said afterwards must reach it.
    let later =
        report["baselines"]["admin-saga-view"]["at"].as_str().expect("a time").parse().expect("a time");
    harness.played.lock().shop.orders[CONFIRMED].published[1].at = later;
    assert_eq!(harness.reconcile().await["discrepancies"][0]["rule"], "saga view = published facts");
}

fn whats(report: &Value) -> Vec<&str> {
    report["in_flight"].as_array().expect("a list").iter().filter_map(|one| one["what"].as_str()).collect()
}
