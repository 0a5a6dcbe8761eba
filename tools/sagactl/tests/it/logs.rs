//! Shell: the logs of a local system: what stands in them, how large they get, and where the last words are.

use std::path::Path;

use serde_json::{Value, json};

use crate::system::{System, wait_until};

/// The lines of a service's log, parsed; those of its full files come first.
fn lines(system: &System, service: &str) -> Vec<Value> {
    let log = system.path().join("log").join(format!("{service}.log"));
    let full = |number: u32| log.with_extension(format!("log.{number}"));
    let files = (1..=9).rev().map(full).chain([log.clone()]);
    let text: String = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect()
}

/// What the steps of a service said of one saga.
fn said(system: &System, service: &str, saga: &Value) -> Vec<String> {
    let lines = lines(system, service);
    let own = lines.iter().filter(|line| line["correlation_id"] == *saga && line["level"] == "INFO");
    own.map(|line| {
        assert!(line["message_id"].is_string() && line["timestamp"].is_string(), "{line}");
        format!("{}: {}", line["step"].as_str().expect("a step"), line["message"].as_str().expect("words"))
    })
    .collect()
}

/// One line for each step of the saga that changed something, by the one whose step it is; repetitions leave none.
#[tokio::test]
async fn an_orders_way_stands_in_the_logs_step_by_step() {
    let system = System::start(&[]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "order", "publish_twice"]);
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    assert_eq!(order["status"], "CONFIRMED");
    wait_until("the pens are sold", async || system.stock("pen").await == (9, 0, 1)).await;
    let said = |service| said(&system, service, &order["id"]);
    wait_until("it is written", async || said("inventory").len() >= 2).await;
    assert_eq!(said("order"), ["command: order Placed", "order-confirmation: order Confirmed"]);
    let reserved = "inventory-stock-reservation: product Reserved, reservation Reserved";
    assert_eq!(said("inventory")[0], reserved);
    assert_eq!((said("inventory").len(), said("payment").len()), (2, 2));
    assert!(said("admin").is_empty(), "what it hears stands where it is said: {:?}", said("admin"));
    let confirmed = lines(&system, "order").into_iter().find(|line| line["step"] == "order-confirmation");
    let confirmed = confirmed.expect("it is there");
    assert!(confirmed["causation_id"].is_string() && confirmed["attempt"] == 1, "{confirmed}");
}

/// Nobody watches over what `up --detach` leaves behind: each process keeps its own log small.
#[tokio::test]
async fn logs_stay_small_by_themselves_and_end_with_the_last_line() {
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

/// What a process says when it has no log yet, or none any more, is found all the same.
#[tokio::test]
async fn the_last_words_of_a_process_are_found() {
    let system = System::not_started();
    let up = system.try_sagactl(&system.up(&["--detach"], &["order.retention.inbox=1h"]));
    let told = String::from_utf8_lossy(&up.stderr).into_owned();
    assert!(!up.status.success() && told.contains("order: settings: retention.inbox"), "{told}");

    system.sagactl(&system.up(&["--detach"], &[]));
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "inventory", "crash_before_ack", "--next", "1"]);
    system.place(1).await;
    let stderr = system.path().join("log/inventory.err");
    wait_until("it says so", async || {
        std::fs::read_to_string(&stderr)
            .is_ok_and(|said| said.contains("aborted by an injected fault: crash_before_ack"))
    })
    .await;
    // Whoever starts a second one on the same database is told why it ends, by its log too.
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
    assert!(logged.is_ok_and(|logged| logged.contains(why)), "the log says it, too");
}

/// However much is logged: who ordered, with which card and what else a message holds is nobody's business there.
#[tokio::test]
async fn the_logs_have_no_names_no_tokens_and_no_payloads() {
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
        let said = steps.filter_map(|line| Some(line["message"].as_str()?.to_owned()));
        let mut long = said.filter(|message| message.len() > 200);
        assert_eq!(long.next(), None, "{service}: one line to read");
    }
}
