//! Shell: the whole system on PostgreSQL, several replicas of each service on one database, and brokers in a cluster.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::{System, order_for, programs, wait_until};

/// Places an order under a key, and repeats the request until it is answered.
async fn place(system: &System, key: &str) -> String {
    let mut placed = None;
    wait_until("the order is taken", async || {
        let request = system.post("order", "/api/orders").header("Idempotency-Key", key);
        let Ok(answer) = request.json(&order_for(&[("pen", 1), ("ink", 1)], "tok_ok")).send().await else {
            return false;
        };
        let body: Option<Value> = answer.json().await.ok();
        placed = body.and_then(|body| Some(body["id"].as_str()?.to_owned()));
        placed.is_some()
    })
    .await;
    placed.expect("taken")
}

/// Waits until all orders have ended, and returns their states.
async fn all_end(system: &System, orders: &[String]) -> BTreeSet<String> {
    let mut ends = BTreeSet::new();
    for id in orders {
        let mut status = String::new();
        wait_until("every order ends", async || {
            let Ok(answer) = system.http.get(system.url("order", &format!("/api/orders/{id}"))).send().await
            else {
                return false;
            };
            let Ok(order) = answer.json::<Value>().await else { return false };
            status = format!("{}{}", order["status"], order["cancelled_because"]);
            !status.contains("PENDING")
        })
        .await;
        ends.insert(status);
    }
    ends
}

fn confirmed() -> BTreeSet<String> {
    ["\"CONFIRMED\"null".to_owned()].into()
}

/// Guarantees 1 to 4 on the other store.
#[tokio::test]
async fn system_works_on_postgresql() {
    let system = System::start_large(&[], &["order.service.deadline=10s"]);
    system.list("pen", 1_000).await;
    system.list("ink", 3).await;
    let confirmed = system.order(&[("pen", 2), ("ink", 1)], "tok_ok").await;
    assert_eq!(confirmed["status"], "CONFIRMED", "{confirmed:#}");
    let declined = system.order(&[("pen", 1)], "tok_declined").await;
    assert_eq!(
        (&declined["status"], &declined["cancelled_because"]),
        (&"CANCELLED".into(), &"payment_failed".into())
    );
    let rejected = system.order(&[("pen", 1), ("ink", 9)], "tok_ok").await;
    assert_eq!(rejected["status"], "CANCELLED", "{rejected:#}");
    for process in ["payment", "order", "admin", "inventory", "bank", "postgres"] {
        system.sagactl(&["kill", process]);
        system.sagactl(&["start", process]);
        let order = place(&system, &format!("behind {process}")).await;
        all_end(&system, &[order]).await;
    }
    assert_eq!(system.stock("ink").await.0, 3 - 1 - 2, "two of six were there");
    system.assert_reconciled().await;
}

/// Regression: the second page of the bank's ledger began with a text that PostgreSQL rejects.
#[tokio::test]
async fn ledgers_are_read_beyond_their_first_page() {
    let system = System::start_large(&[], &[]);
    for (service, path) in [
        ("order", "/internal/ledger"),
        ("order", "/internal/ledger/catalogue"),
        ("inventory", "/internal/ledger/reservations"),
        ("inventory", "/internal/ledger/stock"),
        ("payment", "/internal/ledger"),
        ("bank", "/v1/charges"),
    ] {
        let page = system.get(service, &format!("{path}?after=01a213fb-bbd1-7158-9dbd-08e62d4816b8")).await;
        assert!(page["entries"].is_array(), "{service}{path}: {page:#}");
    }
}

#[tokio::test]
async fn other_replicas_continue_when_one_is_killed() {
    let system =
        System::start_large(&["--replicas", "2", "--nats-nodes", "3"], &["order.service.deadline=60s"]);
    system.list("pen", 5_000).await;
    system.list("ink", 5_000).await;
    let mut placed = Vec::new();
    for number in 0..20 {
        placed.push(place(&system, &format!("all-{number}")).await);
    }
    for process in ["order-1", "inventory-2", "payment-1", "admin-1", "nats-2"] {
        system.sagactl(&["kill", process]);
    }
    for number in 0..20 {
        placed.push(place(&system, &format!("fewer-{number}")).await);
    }
    assert_eq!(all_end(&system, &placed).await, confirmed());
    for process in ["nats-2", "order-1", "inventory-2", "payment-1", "admin-1"] {
        system.sagactl(&["start", process]);
    }
    let report = system.assert_reconciled().await;
    assert_eq!(report["summary"]["orders"], placed.len() + 2, "{report:#}");
    let status = system.try_sagactl(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let leads =
        |row: &Value| row["leads"].as_array().is_some_and(|streams| streams.contains(&"ORDER".into()));
    let leaders = status["processes"].as_array().expect("a list").iter().filter(|row| leads(row)).count();
    assert_eq!(leaders, 1, "{status:#}");
    let first = |row: &Value| row["leads"].as_array().is_some_and(|led| led.contains(&"order".into()));
    let first = status["processes"].as_array().expect("a list").iter().filter(|row| first(row)).count();
    assert_eq!(first, 1, "one of the replicas is given messages first: {status:#}");
    let printed = String::from_utf8_lossy(&system.try_sagactl(&["status"]).stdout).into_owned();
    assert!(printed.contains(" leads order"), "{printed}");
    let unknown = system.try_sagactl(&["kill", "order"]);
    let printed = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && printed.contains("name one of order-1, order-2"), "{printed}");
}

/// The replica that publishes knows that the broker takes nothing. The others see that nothing is published.
#[tokio::test]
async fn every_replica_rejects_orders_while_the_broker_takes_no_messages() {
    let settings =
        ["order.readiness.max_publish_stall=1s", "order.service.max_publish_stall=2s", LONG_DEADLINE];
    let system = System::start_large(&["--replicas", "2"], &settings);
    system.list("pen", 100).await;
    system.list("ink", 100).await;
    place(&system, "before").await;
    system.assert_reconciled().await;
    let status: Value =
        serde_json::from_slice(&system.try_sagactl(&["status", "--json"]).stdout).expect("JSON");
    let rows = status["processes"].as_array().expect("a list").clone();
    let replica = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name).expect("a replica");
        format!("http://127.0.0.1:{}", row["port"])
    };
    let replicas = ["order-1", "order-2"].map(replica);

    let (client, _) = system.broker_as("order").await;
    let broker = async_nats::jetstream::new(client);
    let own = broker.get_stream("ORDER").await.expect("its own stream").cached_info().clone();
    let mut full = own.config.clone();
    full.discard = async_nats::jetstream::stream::DiscardPolicy::New;
    full.max_messages = i64::try_from(own.state.messages).expect("a few");
    broker.update_stream(full).await.expect("its own stream");

    let order = order_for(&[("pen", 1)], "tok_ok");
    let rejects = async |replica: &String| {
        let answer = system.http.post(format!("{replica}/api/orders")).json(&order).send().await;
        answer.is_ok_and(|answer| answer.status() == 503)
    };
    for replica in &replicas {
        wait_until("it rejects orders", async || rejects(replica).await).await;
    }
    let reports = async |replica: &String, check: &str| {
        let answer = system.http.get(format!("{replica}/readyz")).send().await.expect("an answer");
        let body: Value = answer.json().await.expect("JSON");
        body["checks"][check]["state"] == "degraded" && body["ready"] == true
    };
    for replica in &replicas {
        wait_until("its readiness reports it", async || {
            reports(replica, "publish_stall").await || reports(replica, "outbox").await
        })
        .await;
    }
    broker.update_stream(own.config).await.expect("its own stream");
    for replica in &replicas {
        wait_until("it takes orders again", async || !rejects(replica).await).await;
    }
    system.assert_reconciled().await;
}

#[tokio::test]
async fn replay_is_completed_by_another_replica_after_a_kill() {
    let system = System::start_large(&["--replicas", "2"], &[LONG_DEADLINE]);
    system.list("pen", 50).await;
    let mut resolved = 0;
    // The second has all of them at the latest: it is alone after the first was killed, and goes on leading.
    for process in ["payment-1", "payment-2"] {
        let orders = system.dead_letter_orders(4).await;
        // Each replica would fail the next of its own.
        system.sagactl(&["faults", "clear", "payment"]);
        system.sagactl(&["faults", "inject", "bank", "bank_latency", "--delay", "3s"]);
        let replayed = system.sagactl(&["dlq", "replay", "--step", STEP, "--reason", "a test"]);
        assert!(replayed.contains("4 replayed, 0 rejected"), "{replayed}");
        wait_until("the bank is asked for all of them", async || {
            for order in &orders {
                let payment =
                    system.http.get(system.url("payment", &format!("/api/payments/{order}"))).send().await;
                let payment: Value = payment.expect("an answer").json().await.expect("JSON");
                if payment["status"] != "CHARGING" {
                    return false;
                }
            }
            true
        })
        .await;
        system.sagactl(&["kill", process]);
        system.sagactl(&["faults", "clear", "bank"]);
        system.wait_until_confirmed(&orders).await;
        resolved += orders.len();
        wait_until("no dead letter is open", async || {
            let by_status = &system.sagactl_json(&["dlq", "count"])["by_status"];
            by_status["RESOLVED"] == resolved && by_status["REPLAYING"].as_u64().unwrap_or(0) == 0
        })
        .await;
        system.sagactl(&["start", process]);
    }
    system.assert_reconciled().await;
}

#[tokio::test]
async fn broker_cluster_resumes_after_downtime_and_refills_an_empty_broker() {
    let system = System::start_large(&["--nats-nodes", "3"], &["order.service.deadline=60s"]);
    system.list("pen", 5_000).await;
    system.list("ink", 5_000).await;
    let before = place(&system, "before").await;
    assert_eq!(all_end(&system, &[before]).await, confirmed());
    for broker in ["nats-1", "nats-2", "nats-3"] {
        system.sagactl(&["kill", broker]);
    }
    let streams = system.path().join("nats-1/jetstream");
    std::fs::remove_dir_all(&streams).expect("it is there");
    for broker in ["nats-1", "nats-2", "nats-3"] {
        system.sagactl(&["start", broker]);
    }
    let after = place(&system, "after").await;
    assert_eq!(all_end(&system, &[after]).await, confirmed());
    wait_until("it has streams again", async || has_streams(&streams)).await;
    // With the others' disks alone nothing would be left.
    system.sagactl(&["kill", "nats-2"]);
    let on_two = place(&system, "on two").await;
    assert_eq!(all_end(&system, &[on_two]).await, confirmed());
    system.sagactl(&["start", "nats-2"]);
    system.assert_reconciled().await;
}

fn has_streams(folder: &std::path::Path) -> bool {
    let entries = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let accounts =
        entries(folder.join("jetstream")).flat_map(|account| entries(account.path().join("streams")));
    accounts.filter(|stream| stream.file_name() == "ORDER").count() == 1
}

#[tokio::test]
async fn duplicate_instance_name_and_rebuild_of_a_running_service_are_rejected_in_one_line() {
    let system = System::start_large(&["--replicas", "2"], &[]);
    let port = system.url("order", "").rsplit_once(':').map(|(_, port)| port.parse::<u16>()).expect("a port");
    let database = format!("postgres://saga_order@127.0.0.1:{}/saga_order", port.expect("a port") + 5);
    let password = system.path().join("credentials/order.password");
    let order = |arguments: &[&str]| {
        let mut order = Command::new(programs().join("order"));
        order.args(["--set", &format!("store.url={database}"), "--set", "http.bind=127.0.0.1:0"]);
        order.args([
            "--set",
            &format!("store.password_file={}", password.display()),
            "--set",
            "instance=order-2",
        ]);
        order.args(arguments).output().expect("it runs")
    };
    let assert_rejected = |arguments: &[&str], why: &str| {
        let output = order(arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains(why), "{arguments:?}: {printed}");
    };
    assert_rejected(
        &[],
        "another process runs as instance order-2: give each replica a name of its own (instance)",
    );
    assert_rejected(&["verify"], "another process uses it: stop the service first, with all of its replicas");
    assert_rejected(&["rebuild", "order"], "another process uses it");
    system.sagactl(&["stop", "order-1"]);
    assert_rejected(&["verify"], "another process uses it");
    system.sagactl(&["stop", "order-2"]);
    let verified = order(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    // The name of a service means all of its replicas.
    system.sagactl(&["start", "order"]);
    assert_rejected(&["verify"], "another process uses it");
    system.sagactl(&["stop", "order"]);
    assert!(order(&["verify"]).status.success(), "both are stopped");
    system.sagactl(&["start", "order"]);
}
