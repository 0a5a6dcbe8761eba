//! Shell: what operators do with the command line beside mending: breakers, faults, exit codes.

use std::process::Command;

use serde_json::Value;

use crate::system::{System, order_for, wait_until};

/// Orders wait here until an operator helps: their deadline must not come first.
pub const PATIENT: &str = "order.service.deadline=5m";
/// What no order, dead letter or redrive has.
pub const NOBODY: &str = "01890000-0000-7000-8000-000000000001";
/// The step that faults are injected at.
pub const STEP: &str = "payment-processing";

impl System {
    /// Runs sagactl, which must succeed and answer JSON.
    #[track_caller]
    pub fn sagactl_json(&self, arguments: &[&str]) -> Value {
        let text = self.sagactl(&[arguments, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1, "one line: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs sagactl, which must end with this code, and with one complaint that contains this.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], code: i32, because: &str) {
        let output = self.try_sagactl(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("sagactl: ")).collect();
        assert!(lines.len() == 1 && errors.contains(because), "{arguments:?}: {errors}");
    }

    /// Places orders that the next step of payment will fail at, and waits until all are parked.
    pub async fn park(&self, orders: usize) -> Vec<String> {
        let next = orders.to_string();
        self.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", &next]);
        let ids = self.place(orders).await;
        self.wait_for_dead_letters(orders).await;
        ids
    }

    pub async fn place(&self, orders: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..orders {
            let request = self.post("order", "/api/orders");
            let answer = request.json(&order_for(&[("pen", 1)], "tok_ok")).send().await.expect("an answer");
            let order: Value = answer.json().await.expect("JSON");
            ids.push(order["id"].as_str().expect("an id").to_owned());
        }
        ids
    }

    pub async fn wait_for_dead_letters(&self, count: usize) {
        wait_until("the messages are parked", async || {
            self.sagactl_json(&["dlq", "count"])["by_status"]["PENDING"] == count
        })
        .await;
    }

    pub async fn wait_until_confirmed(&self, orders: &[String]) {
        for id in orders {
            wait_until("the order is confirmed", async || {
                self.get("order", &format!("/api/orders/{id}")).await["status"] == "CONFIRMED"
            })
            .await;
        }
    }

    /// The only one, or the last to fail.
    pub fn dead_letter(&self) -> (String, Value) {
        let page = self.sagactl_json(&["dlq", "list", "--since", "10m", "--status", "all"]);
        let dead_letter = page["items"][0].clone();
        (dead_letter["id"].as_str().expect("an id").to_owned(), dead_letter)
    }
}

#[tokio::test]
async fn a_breaker_that_is_held_open_lets_nothing_through_until_it_is_reset() {
    // What waits is counted in messages, of which one may carry several facts.
    let system = System::start(&[PATIENT, "inventory.bus.max_pack=1"]);
    system.list("pen", 10).await;
    let breaker = format!("payment/{STEP}");
    assert!(system.sagactl(&["breakers"]).contains(&breaker));
    system.sagactl(&["breakers", "open", &breaker, "--reason", "the bank's maintenance"]);
    let orders = system.place(5).await;
    wait_until("all wait at the broker", async || waiting(&system).await == Some(5)).await;
    // Admin hears of them on a way of its own, which may be the longer one.
    let stuck = async || system.sagactl_json(&["saga", "list", "--stuck-at", STEP]);
    wait_until("admin tells all", async || stuck().await["items"].as_array().map(Vec::len) == Some(5)).await;
    let is_open =
        |text: &str| text.lines().any(|line| line.contains(&breaker) && line.contains("FORCED_OPEN"));
    assert!(is_open(&system.sagactl(&["breakers"])));
    system.sagactl(&["breakers", "reset", &breaker]);
    system.wait_until_confirmed(&orders).await;
    assert!(!is_open(&system.sagactl(&["breakers"])));
    system.refused(&["breakers", "open", "payment/nothing", "--reason", "x"], 4, "nothing");
    system.assert_reconciled().await;
}

/// What the broker still has for payment's step.
async fn waiting(system: &System) -> Option<u64> {
    let service_stats = system.get("payment", "/internal/stats").await;
    let step = service_stats["steps"].as_array()?.iter().find(|step| step["step"] == STEP)?;
    step["waiting"].as_u64()
}

#[tokio::test]
async fn faults_are_planted_listed_and_cleared() {
    let system = System::start(&["inventory.faults.enabled=false"]);
    system.list("pen", 10).await;
    assert!(system.sagactl(&["faults"]).starts_with("no faults are planted"));
    system.sagactl(&["faults", "inject", "bank", "bank_latency", "--delay", "50ms", "--probability", "50"]);
    system
        .sagactl(&["faults", "inject", "payment", "delay", "--step", STEP, "--delay", "1ms", "--seed", "7"]);
    let faults = system.sagactl_json(&["faults", "list"]);
    assert_eq!(faults["items"].as_array().map(Vec::len), Some(2), "{faults:#}");
    assert_eq!(faults["seeds"]["payment"], 7);
    let shown = system.sagactl(&["faults"]);
    assert!(shown.contains("bank_latency") && shown.contains("50 ms"), "{shown}");
    let of_bank = faults["items"].as_array().expect("faults").iter().find(|fault| fault["service"] == "bank");
    let id = of_bank.expect("the bank's")["id"].to_string();
    system.sagactl(&["faults", "clear", "bank", &id]);
    for seed in ["1", "2"] {
        system.sagactl(&[
            "faults",
            "inject",
            "order",
            "pause",
            "--step",
            "order-confirmation",
            "--seed",
            seed,
        ]);
    }
    assert_eq!(system.sagactl(&["faults", "clear", "order", "--reason", "seen"]), "cleared 2 at order\n");
    assert!(system.sagactl(&["faults", "clear"]).starts_with("cleared 1"));
    assert_eq!(system.sagactl_json(&["faults"])["items"], Value::Array(vec![]));

    system.refused(&["faults", "clear", "bank", "4711"], 4, "4711");
    system.refused(&["faults", "clear", "nobody"], 4, "nobody");
    system.refused(&["faults", "inject", "payment", "delay", "--delay", "1s", "--step", "nope"], 2, STEP);
    system.refused(&["saga", "list", "--stuck-at", "nope"], 2, STEP);
    system.refused(&["faults", "inject", "payment", "bank_hang"], 2, "kind");
    system.refused(&["faults", "inject", "payment", "delay", "--step", STEP], 2, "--delay");
    system.refused(&["faults", "inject", "payment", "explode"], 2, "faults kinds");
    system.refused(&["faults", "inject", "inventory", "pause"], 2, "faults.enabled");
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    system.assert_reconciled().await;
}

#[test]
fn a_service_that_does_not_answer_keeps_no_other_from_publishing_again() {
    let system = System::start(&[]);
    system.sagactl(&["kill", "inventory"]);
    let output = system.try_sagactl(&["outbox", "republish", "--since", "1h", "--reason", "x", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let items = answer["items"].as_array().expect("a list").iter();
    let services: std::collections::BTreeSet<_> = items.filter_map(|item| item["service"].as_str()).collect();
    assert_eq!(services, ["admin", "order", "payment"].into(), "{answer}");
    assert_eq!(answer["refused"][0]["id"], "inventory", "{answer}");
    system.sagactl(&["start", "inventory"]);
}

#[tokio::test]
async fn what_is_not_there_and_who_does_not_answer_have_exit_codes_of_their_own() {
    let system = System::start(&[]);
    let unknown: [&[&str]; 7] = [
        &["dlq", "show", NOBODY],
        &["dlq", "replay", NOBODY],
        &["dlq", "restore", NOBODY],
        &["dlq", "note", NOBODY, "x"],
        &["redrive", "show", NOBODY],
        &["redrive", "follow", NOBODY],
        &["saga", "show", NOBODY],
    ];
    for arguments in unknown {
        system.refused(arguments, 4, "there is no");
    }
    system.refused(&["dlq", "show", "seven"], 2, "seven");
    system.refused(&["dlq", "list", "--limit", "201"], 2, "limit");
    system.refused(&["dlq", "list", "--cursor", "x"], 2, "cursor");
    // The products that it began with were announced; that they were is written down a little later.
    let is_empty = async || system.sagactl(&["outbox"]) == "nothing waits to be published\n";
    wait_until("nothing waits to be published", is_empty).await;
    assert!(system.sagactl(&["outbox", "retry", "order", "--reason", "mended"]).contains("order"));
    system.refused(&["outbox", "retry", "order", "99999"], 4, "99999");
    system.refused(&["outbox", "retry", "order"], 2, "--reason");

    // Another admin needs no data folder; one that is not there is no success.
    let elsewhere = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        command.args(["dlq", "count", "--json", "--data", "/nowhere", "--admin", address]);
        command.output().expect("sagactl runs")
    };
    assert!(elsewhere(&system.url("admin", "")).status.success());
    let silent = elsewhere("http://127.0.0.1:1");
    assert_eq!(silent.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&silent.stderr).starts_with("sagactl: nobody answers at"));
    // Whoever names a folder means the system in it, whatever the environment says.
    let with_variable = |address: &str, data: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        command.args(["dlq", "discard", NOBODY, "--reason", "x", "--data"]).arg(data);
        let output = command.env("SAGA_ADMIN", address).output().expect("sagactl runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = with_variable("http://127.0.0.1:1", system.path());
    assert!(code == Some(4) && said.contains("there is no"), "{said}");
    let empty = tempfile::tempdir().expect("a folder");
    let (code, said) = with_variable(&system.url("admin", ""), empty.path());
    assert!(code == Some(1) && said.contains(&empty.path().display().to_string()), "{said}");
    // A service that is no admin.
    assert_ne!(elsewhere(&system.url("bank", "")).status.code(), Some(0));
}
