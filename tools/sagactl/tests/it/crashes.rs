//! Shell: processes killed under load, and outages.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::Value;

use crate::system::{System, order_for, wait_until};

/// Number of orders in flight.
const AT_ONCE: usize = 4;

/// Places an order, and repeats the request under the same key until it is accepted.
async fn place_stubbornly(system: &System, number: usize) -> String {
    let mut placed = None;
    wait_until("the order is taken", async || {
        let request = system.post("order", "/api/orders").timeout(Duration::from_secs(5));
        let request = request.header("Idempotency-Key", format!("stubborn-{number}"));
        let answer = request.json(&order_for(&[("pen", 1), ("ink", 1)], "tok_ok")).send().await;
        let Ok(answer) = answer else { return false };
        if answer.status() != StatusCode::ACCEPTED {
            return false;
        }
        let body: Option<Value> = answer.json().await.ok();
        placed = body.and_then(|body| Some(body["id"].as_str()?.to_owned()));
        placed.is_some()
    })
    .await;
    placed.expect("taken")
}

async fn place_all(system: &System, numbers: std::ops::Range<usize>) -> Vec<String> {
    let mut ids = Vec::new();
    let numbers: Vec<usize> = numbers.collect();
    for chunk in numbers.chunks(AT_ONCE) {
        ids.extend(join_all(chunk.iter().map(|number| place_stubbornly(system, *number))).await);
    }
    ids
}

async fn assert_all_end(system: &System, ids: &[String]) {
    for id in ids {
        wait_until("every order ends", async || {
            system.get("order", &format!("/api/orders/{id}")).await["status"] != "PENDING"
        })
        .await;
    }
}

/// Guarantees 1 to 4.
#[tokio::test]
async fn killing_each_service_under_load_loses_and_duplicates_nothing() {
    let system = System::start(&["order.service.deadline=10s"]);
    system.list("pen", 100_000).await;
    system.list("ink", 100_000).await;
    let placed = RefCell::new(Vec::new());
    let placing = async {
        loop {
            let from = placed.borrow().len();
            let ids = place_all(&system, from..from + AT_ONCE).await;
            placed.borrow_mut().extend(ids);
        }
    };
    let killing = async {
        for service in ["inventory", "payment", "order", "bank", "admin"] {
            // In the middle of the work: some orders placed since the last one died.
            let before = placed.borrow().len();
            wait_until("more orders are in flight", async || placed.borrow().len() >= before + 8).await;
            system.sagactl(&["kill", service]);
            system.sagactl(&["start", service]);
        }
    };
    tokio::select! {
        () = placing => {}
        () = killing => {}
    }
    // Orders whose answers were not awaited are requested again.
    let mut ids = placed.into_inner();
    let left = ids.len()..ids.len() + AT_ONCE;
    ids.extend(place_all(&system, left).await);
    assert_all_end(&system, &ids).await;
    let report = system.assert_reconciled().await;
    // The orders, and the two probes of the listing.
    assert_eq!(report["summary"]["orders"], ids.len() + 2, "{report:#}");
}

/// Guarantees 1 to 4 and 7.
#[test]
fn chaos_loses_and_duplicates_nothing() {
    crate::system::programs();
    let chaos = std::process::Command::new(env!("CARGO_BIN_EXE_sagactl"))
        .args(["chaos", "--seed", "3", "--for", "15s", "--rate", "5", "--json"])
        .current_dir(crate::system::workspace())
        .output()
        .expect("sagactl runs");
    let verdict: Value = serde_json::from_slice(&chaos.stdout).expect("JSON");
    let reported = String::from_utf8_lossy(&chaos.stderr);
    assert!(chaos.status.success(), "{verdict:#}\n{reported}");
    assert!(verdict["confirmed"].as_u64() > Some(0), "{verdict:#}");
    let kinds = verdict["disruptions"].as_object().expect("kinds").len();
    assert!(kinds > 1, "{verdict:#}");
}

/// Guarantee 1 beyond the broker: messages lost with its disk are published again.
#[tokio::test]
async fn messages_lost_with_the_broker_disk_are_republished() {
    let system = System::start(&["order.service.deadline=60s"]);
    system.list("pen", 1_000).await;
    system.list("ink", 1_000).await;
    assert_all_end(&system, &place_all(&system, 0..20).await).await;
    let reported = Instant::now();
    // Orders that wait for payment: what payment has not consumed is only at the broker.
    system.sagactl(&["kill", "payment"]);
    let ids = place_all(&system, 20..30).await;
    let published = async |service| {
        let text = system.http.get(system.url(service, "/metrics")).send().await.ok()?.text().await.ok()?;
        text.lines().find_map(|line| line.strip_prefix("outbox_published_total ")?.parse::<u64>().ok())
    };
    wait_until("their stock is reserved", async || {
        published("inventory").await >= Some(32) && published("order").await >= Some(50)
    })
    .await;
    let older = async || reported.elapsed() > Duration::from_secs(1);
    wait_until("published facts are older than the tolerated clock difference", older).await;
    system.sagactl(&["kill", "nats"]);
    std::fs::remove_dir_all(system.path().join("nats/jetstream")).expect("what the broker had");
    system.sagactl(&["start", "nats"]);
    system.sagactl(&["start", "payment"]);

    let one_more = place_all(&system, 30..31).await;
    for service in ["order", "inventory", "payment"] {
        wait_until("the loss is noticed", async || {
            let log = system.path().join(format!("log/{service}.log"));
            let log = std::fs::read_to_string(log).unwrap_or_default();
            log.contains(&format!("the stream of {service} was created at"))
        })
        .await;
    }
    let reported = system.sagactl(&["outbox", "republish", "--since", "1h", "--reason", "the disk is gone"]);
    for service in ["admin", "order", "inventory", "payment"] {
        assert!(reported.contains(&format!("{service} publishes ")), "{reported}");
    }
    for id in ids.iter().chain(&one_more) {
        wait_until("it is confirmed", async || {
            system.get("order", &format!("/api/orders/{id}")).await["status"] == "CONFIRMED"
        })
        .await;
    }
    system.assert_reconciled().await;
}

/// Guarantee 7. A service that accepts orders during the outage stays ready, and reports the problem.
#[tokio::test]
async fn broker_outage_delays_orders_and_loses_none() {
    let system = System::start(&["order.service.deadline=60s"]);
    system.list("pen", 1_000).await;
    system.list("ink", 1_000).await;
    system.sagactl(&["kill", "nats"]);
    let ids = place_all(&system, 0..40).await;
    let readiness = async |service| {
        let answer = system.http.get(system.url(service, "/readyz")).send().await.expect("an answer");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    };
    for service in ["order", "inventory", "payment", "admin"] {
        wait_until("the outage shows", async || readiness(service).await.1["degraded"] == true).await;
        let (status, printed) = readiness(service).await;
        let broker = &printed["checks"]["broker"];
        assert_eq!(
            (status, &printed["ready"]),
            (StatusCode::OK, &Value::Bool(true)),
            "{service}: {printed:#}"
        );
        assert_eq!(
            (&broker["state"], &broker["text"]),
            (&"degraded".into(), &"not connected".into()),
            "{printed:#}"
        );
        assert!(broker["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{printed:#}");
    }
    let services = system.get("admin", "/api/admin/services").await;
    let order = services.as_array().and_then(|all| all.iter().find(|one| one["service"] == "order"));
    assert_eq!(order.expect("it is listed")["checks"]["broker"]["text"], "not connected");
    let status = system.try_sagactl(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("degraded") && status.contains("order: check broker: not connected"), "{status}");
    system.sagactl(&["start", "nats"]);
    for id in &ids {
        let answer = system.http.get(system.url("order", &format!("/api/orders/{id}")));
        let order: Value =
            answer.header("Prefer", "wait=30").send().await.expect("an answer").json().await.expect("JSON");
        assert_eq!(order["status"], "CONFIRMED");
    }
    system.assert_reconciled().await;
    wait_until("nothing is wrong any more", async || readiness("order").await.1["degraded"] == false).await;
    assert_eq!(system.get("admin", "/api/admin/dlq/count").await["total"], 0);
}

/// Guarantee 3.
#[tokio::test]
async fn participant_that_returns_after_the_deadline_compensates_its_late_work() {
    let system = System::start(&["order.service.deadline=2s"]);
    system.list("pen", 10).await;
    system.sagactl(&["stop", "payment"]);
    let order = system.order(&[("pen", 3)], "tok_ok").await;
    assert_eq!(order["cancelled_because"], "timed_out");
    wait_until("the stock is back", async || system.stock("pen").await == (10, 0, 0)).await;
    system.sagactl(&["start", "payment"]);
    system.assert_reconciled().await;
    let status = system.payment_status(&order).await;
    assert_eq!(status, "VOID", "a cancelled order is not charged");
    assert_eq!(system.assert_reconciled().await["summary"]["captured"], 0);
}

/// A service is not ready before its broker, which an operator starts meanwhile.
#[tokio::test]
async fn broker_is_started_while_the_start_of_a_service_waits_for_it() {
    let system = System::start(&[]);
    system.sagactl(&["stop", "order"]);
    system.sagactl(&["kill", "nats"]);
    let mut starting = system.command(&["start", "order"]).spawn().expect("sagactl runs");
    wait_until("order waits for the broker", async || {
        let answer = system.http.get(system.url("order", "/readyz")).send().await;
        answer.is_ok_and(|answer| answer.status() == 503)
    })
    .await;
    system.sagactl(&["start", "nats"]);
    wait_until("the start of order has ended", async || starting.try_wait().expect("it is ours").is_some())
        .await;
    assert!(starting.wait().expect("it has ended").success());
}
