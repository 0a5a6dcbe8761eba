//! Shell: a message that ends its process each time: the crash loop is reported, and ends with a dead letter.

use std::process::Output;

use serde_json::Value;

use crate::system::{System, order_for, text, wait_until};

fn is_running(system: &System, process: &str) -> bool {
    let status = system.try_sagactl(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let processes = status["processes"].as_array().expect("processes");
    processes.iter().any(|one| one["name"] == process && !one["pid"].is_null())
}

/// Waits until payment has crashed, and starts it again.
async fn crashes_and_starts(system: &System) {
    wait_until("payment has crashed", async || !is_running(system, "payment")).await;
    // It may crash again before it is ready.
    let _: Output = system.try_sagactl(&["start", "payment"]);
}

async fn place(system: &System) -> String {
    let order = system.post("order", "/api/orders").json(&order_for(&[("pen", 1)], "tok_ok"));
    let order: Value = order.send().await.expect("an answer").json().await.expect("JSON");
    order["id"].as_str().expect("an id").to_owned()
}

async fn is_confirmed(system: &System, order: &str) -> bool {
    system.get("order", &format!("/api/orders/{order}")).await["status"] == "CONFIRMED"
}

/// Law 2: the message is dead-lettered, and those that died with it are processed.
#[tokio::test]
async fn message_that_kills_its_process_is_dead_lettered_and_others_go_on() {
    let system = System::start(&["order.service.deadline=10m"]);
    system.list("pen", 100).await;
    let poison = ["faults", "inject", "payment", "crash", "--step", "payment-processing"];
    system.sagactl(&poison);
    let mut orders = vec![];
    for _ in 0..8 {
        orders.push(place(&system).await);
    }
    // Twice in a batch, perhaps once in a trial with others, and twice alone.
    let is_dead_lettered = async || system.get("admin", "/api/admin/dlq/count").await["total"] == 1;
    let mut crashes = 0;
    loop {
        let has_crashed = || !is_running(&system, "payment");
        wait_until("payment crashes or goes on", async || has_crashed() || is_dead_lettered().await).await;
        if !has_crashed() {
            break;
        }
        crashes += 1;
        assert!(crashes <= 5, "not dead-lettered after {crashes} crashes");
        // It may crash again before it is ready.
        let _: Output = system.try_sagactl(&["start", "payment"]);
    }
    assert!(crashes >= 4, "{crashes} crashes");
    let dead = system.get("admin", "/api/admin/dlq").await["dead_letters"][0].clone();
    assert_eq!(dead["step"], "payment-processing", "{dead:#}");
    let reason = dead.to_string();
    assert!(reason.contains("the process has died 2 times of this message alone"), "{reason}");
    let killer = dead["saga"].as_str().expect("its order").to_owned();
    assert!(orders.contains(&killer), "{dead:#}");
    for order in orders.iter().filter(|order| **order != killer) {
        wait_until("the others are confirmed", async || is_confirmed(&system, order).await).await;
    }
    let status = text(&system.try_sagactl(&["status"]).stdout);
    let finding = format!("payment crashes: it ended {crashes} times without a stop since");
    assert!(status.contains(&finding) && status.contains("which is dead-lettered now"), "{status}");

    // Without the fault, a replay is processed, and an orderly stop ends the finding.
    system.sagactl(&["faults", "clear", "payment"]);
    system.sagactl(&["dlq", "replay", dead["id"].as_str().expect("an id")]);
    wait_until("it is confirmed", async || is_confirmed(&system, &killer).await).await;
    system.sagactl(&["stop", "payment"]);
    system.sagactl(&["start", "payment"]);
    wait_until("the crash loop is over", async || {
        !text(&system.try_sagactl(&["status"]).stdout).contains("payment crashes")
    })
    .await;
    system.assert_reconciled().await;
}

#[tokio::test]
async fn limited_crash_counts_across_restarts() {
    let system = System::start(&["order.service.deadline=10m"]);
    system.list("pen", 100).await;
    let poison = ["faults", "inject", "payment", "crash", "--step", "payment-processing", "--next", "2"];
    system.sagactl(&poison);
    let order = place(&system).await;
    for _ in 0..2 {
        crashes_and_starts(&system).await;
    }
    wait_until("it is confirmed", async || is_confirmed(&system, &order).await).await;
    assert_eq!(system.get("admin", "/api/admin/dlq/count").await["total"], 0);
    let faults = system.get("admin", "/api/admin/faults").await;
    assert_eq!(faults["faults"], serde_json::json!([]), "{faults:#}");
}

/// The report of a dead letter is never dead-lettered itself. It waits unprocessed, so that admin goes on.
#[tokio::test]
async fn report_that_kills_admin_waits_and_admin_goes_on() {
    let system = System::start(&["order.service.deadline=10m"]);
    system.list("pen", 100).await;
    system.sagactl(&["faults", "inject", "admin", "crash", "--step", "admin-dead-letters"]);
    let fail = ["fail_permanently", "--step", "payment-processing", "--next", "1"];
    system.sagactl(&[&["faults", "inject", "payment"], &fail[..]].concat());
    place(&system).await;
    let waits = "it died 2 times of message";
    let mut crashes = 0;
    loop {
        let has_crashed = || !is_running(&system, "admin");
        let is_blamed = || text(&system.try_sagactl(&["doctor"]).stdout).contains(waits);
        wait_until("admin crashes or goes on", async || has_crashed() || is_blamed()).await;
        if !has_crashed() {
            break;
        }
        crashes += 1;
        assert!(crashes <= 6, "admin goes on crashing");
        let _: Output = system.try_sagactl(&["start", "admin"]);
    }
    let other = place(&system).await;
    wait_until("another order is confirmed", async || is_confirmed(&system, &other).await).await;
    let is_shown = async || {
        let path = format!("/api/admin/sagas/{other}");
        system.get("admin", &path).await["status"] == "COMPLETED"
    };
    wait_until("admin follows it", is_shown).await;
    let printed = text(&system.try_sagactl(&["doctor"]).stdout);
    assert!(printed.contains(waits) && !printed.contains("which is dead-lettered now"), "{printed}");
    assert_eq!(system.get("admin", "/api/admin/dlq/count").await["total"], 0, "not yet reported");

    system.sagactl(&["faults", "clear", "admin"]);
    system.sagactl(&["stop", "admin"]);
    system.sagactl(&["start", "admin"]);
    wait_until("it is reported", async || system.get("admin", "/api/admin/dlq/count").await["total"] == 1)
        .await;
}
