//! Shell: logs of a local system: content, size, and the last output of a process.

use std::path::Path;

use serde_json::{Value, json};

use crate::system::{System, wait_until};

/// Parsed lines of a service's log, rotated files first.
fn lines(system: &System, service: &str) -> Vec<Value> {
    let log = system.path().join("log").join(format!("{service}.log"));
    let full = |number: u32| log.with_extension(format!("log.{number}"));
    let files = (1..=9).rev().map(full).chain([log.clone()]);
    let text: String = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect()
}

/// Log lines of a service about one saga.
fn step_lines(system: &System, service: &str, saga: &Value) -> Vec<String> {
    let lines = lines(system, service);
    let own = lines.iter().filter(|line| line["correlation_id"] == *saga && line["level"] == "INFO");
    own.map(|line| {
        assert!(line["message_id"].is_string() && line["timestamp"].is_string(), "{line}");
        format!("{}: {}", line["step"].as_str().expect("a step"), line["message"].as_str().expect("words"))
    })
    .collect()
}

/// Lines are written for each step that changed something, and not for duplicates.
#[tokio::test]
async fn logs_of_an_order_have_one_line_per_step() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.first_charge("pen").await;
    system.sagactl(&["faults", "inject", "order", "publish_twice"]);
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    assert_eq!(order["status"], "CONFIRMED");
    wait_until("the pens are sold", async || system.stock("pen").await == (8, 0, 2)).await;
    let lines_of = |service| step_lines(&system, service, &order["id"]);
    wait_until("it is written", async || lines_of("inventory").len() >= 2).await;
    assert_eq!(lines_of("order"), ["command: order Placed", "order-confirmation: order Confirmed"]);
    let reserved = "inventory-stock-reservation: product Reserved, reservation Reserved";
    assert_eq!(lines_of("inventory")[0], reserved);
    assert_eq!((lines_of("inventory").len(), lines_of("payment").len()), (2, 2));
    assert!(
        lines_of("admin").is_empty(),
        "consumed facts are logged by their producers: {:?}",
        lines_of("admin")
    );
    let confirmed = lines(&system, "order").into_iter().find(|line| line["step"] == "order-confirmation");
    let confirmed = confirmed.expect("it is there");
    assert!(confirmed["causation_id"].is_string() && confirmed["attempt"] == 1, "{confirmed}");
}

#[tokio::test]
async fn logs_are_rotated_and_keep_the_last_line() {
    let small = ["order.log.max_bytes=4096", "order.log.keep=2", "order.log.filter=debug"];
    let system = System::start(&small);
    system.list("pen", 100).await;
    let folder = system.path().join("log");
    let oldest = folder.join("order.log.2");
    for _ in 0..3 {
        system.order(&[("pen", 1)], "tok_ok").await;
    }
    wait_until("it has begun anew twice", async || {
        system.order(&[("pen", 1)], "tok_ok").await;
        oldest.exists()
    })
    .await;
    system.sagactl(&["stop", "order"]);
    let sizes = ["order.log", "order.log.1", "order.log.2"].map(|name| size(&folder.join(name)));
    assert!(sizes.iter().all(|size| *size <= 4096), "{sizes:?}");
    assert!(!folder.join("order.log.3").exists());
    let lines = lines(&system, "order");
    let is_said = lines.iter().any(|line| line["message"] == "stopping");
    assert!(is_said, "nothing is lost on a normal stop");
    assert!(size(&folder.join("nats.log")) > 0, "the broker writes its own");
    system.sagactl(&["start", "order"]);
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).expect("it is there").len()
}

/// Output of a process without a log is found too.
#[tokio::test]
async fn last_output_of_a_process_is_reported() {
    let system = System::not_started();
    let up = system.try_sagactl(&system.up(&["--detach"], &["order.retention.inbox=1h"]));
    let reported = String::from_utf8_lossy(&up.stderr).into_owned();
    assert!(!up.status.success() && reported.contains("order: settings: retention.inbox"), "{reported}");

    system.sagactl(&system.up(&["--detach"], &[]));
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "inventory", "crash_before_ack", "--next", "1"]);
    system.place(1).await;
    let stderr = system.path().join("log/inventory.err");
    wait_until("the problem is logged", async || {
        std::fs::read_to_string(&stderr)
            .is_ok_and(|printed| printed.contains("aborted by an injected fault: crash_before_ack"))
    })
    .await;
    // The error of a second process on the same database is in its log too.
    system.sagactl(&["start", "inventory"]);
    let database = system.path().join("order/order.db");
    let log = system.path().join("second.log");
    let second = std::process::Command::new(crate::system::programs().join("order"))
        .args(["--set", &format!("store.url=sqlite:{}", database.display())])
        .args(["--set", &format!("log.file={}", log.display()), "--set", "http.bind=127.0.0.1:0"])
        .output()
        .expect("it runs");
    let (stderr, logged) = (String::from_utf8_lossy(&second.stderr), std::fs::read_to_string(log));
    let why = "another process holds it";
    assert!(stderr.starts_with("order: ") && stderr.contains(why), "{stderr}");
    assert!(logged.is_ok_and(|logged| logged.contains(why)), "the error is in the log");
}

#[tokio::test]
async fn logs_have_no_customer_names_tokens_or_payloads() {
    const CUSTOMER: &str = "Grace Brewster";
    const SERVICES: [&str; 5] = ["order", "inventory", "payment", "admin", "bank"];
    let loud = SERVICES.map(|service| format!("{service}.log.filter=debug"));
    let system = System::start(&loud.each_ref().map(String::as_str));
    system.list("pen", 10).await;
    for (token, status) in [("tok_ok", "CONFIRMED"), ("tok_declined", "CANCELLED")] {
        let order = json!({
            "customer": CUSTOMER, "lines": [{"sku": "pen", "quantity": 1}], "payment": {"token": token},
        });
        let request = system.post("order", "/api/orders").header("Prefer", "wait=10").json(&order);
        let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        assert_eq!(answer["status"], status);
    }
    wait_until("the logs are written", async || {
        lines(&system, "inventory").iter().any(|line| line["step"] == "inventory-stock-release")
    })
    .await;
    for service in SERVICES {
        let log = std::fs::read_to_string(system.path().join(format!("log/{service}.log"))).expect("a log");
        for secret in [CUSTOMER, "tok_ok", "tok_declined", "unit_price", "\\\"lines\\\""] {
            assert!(!log.contains(secret), "{service} logs {secret}");
        }
        let steps = lines(&system, service).into_iter().filter(|line| line["correlation_id"].is_string());
        let printed = steps.filter_map(|line| Some(line["message"].as_str()?.to_owned()));
        let mut long = printed.filter(|message| message.len() > 200);
        assert_eq!(long.next(), None, "{service}: one line to read");
    }
}
