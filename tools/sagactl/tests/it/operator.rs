//! Shell: breakers, faults and exit codes of the operator's commands.

use std::process::Command;

use serde_json::Value;

use crate::system::{System, order_for, wait_until};

/// Deadline that does not pass while an operator repairs.
pub const LONG_DEADLINE: &str = "order.service.deadline=5m";
/// Id of no order, dead letter or redrive.
pub const UNKNOWN_ID: &str = "01890000-0000-7000-8000-000000000001";
/// Step at which faults are injected.
pub const STEP: &str = "payment-processing";

impl System {
    /// Runs sagactl with `--json`. It must succeed.
    #[track_caller]
    pub fn sagactl_json(&self, arguments: &[&str]) -> Value {
        let text = self.sagactl(&[arguments, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1, "one line: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs sagactl. It must fail with this code, and with one error that contains this text.
    #[track_caller]
    pub fn assert_rejected(&self, arguments: &[&str], code: i32, because: &str) {
        let output = self.try_sagactl(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("sagactl: ")).collect();
        assert!(lines.len() == 1 && errors.contains(because), "{arguments:?}: {errors}");
    }

    /// Places orders whose payment is dead-lettered, and waits for the dead letters.
    pub async fn dead_letter_orders(&self, orders: usize) -> Vec<String> {
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
        wait_until("the messages are dead-lettered", async || {
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

    /// Returns the latest dead letter, with its id.
    pub fn dead_letter(&self) -> (String, Value) {
        let page = self.sagactl_json(&["dlq", "list", "--since", "10m", "--status", "all"]);
        let dead_letter = page["items"][0].clone();
        (dead_letter["id"].as_str().expect("an id").to_owned(), dead_letter)
    }
}

#[test]
fn change_without_an_operator_is_announced_once_as_anonymous() {
    let system = System::start(&[]);
    let run = |arguments: &[&str], named: Option<(&str, &str)>| {
        let mut command = system.command(arguments);
        command.env_remove("USER").env_remove("SAGA_OPERATOR").envs(named);
        let output = command.output().expect("sagactl runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).matches("anonymous").count()
    };
    let inject = ["faults", "inject", "payment", "pause", "--step", STEP];
    assert_eq!(run(&inject, None), 1);
    assert_eq!(run(&["faults", "clear"], None), 1, "of several requests only the first");
    assert_eq!(run(&["faults"], None), 0, "nothing is changed");
    assert_eq!(run(&inject, Some(("SAGA_OPERATOR", "ada"))), 0);
    assert_eq!(run(&["faults", "clear", "--operator", "ada"], None), 0);
    let log = |name: &str| system.sagactl_json(&["log", "--by", name])["items"].as_array().map(Vec::len);
    assert!(log("anonymous") > Some(0) && log("ada") > Some(0));
}

#[tokio::test]
async fn forced_open_breaker_rejects_calls_until_reset() {
    // What waits is counted in messages, of which one may carry several facts.
    let system = System::start(&[LONG_DEADLINE, "inventory.bus.max_pack=1"]);
    system.list("pen", 10).await;
    let breaker = format!("payment/{STEP}");
    assert!(system.sagactl(&["breakers"]).contains(&breaker));
    system.sagactl(&["breakers", "open", &breaker, "--reason", "the bank's maintenance"]);
    let orders = system.place(5).await;
    wait_until("all wait at the broker", async || waiting(&system).await == Some(5)).await;
    // Admin may consume the facts later than payment.
    let stuck = async || system.sagactl_json(&["saga", "list", "--stuck-at", STEP]);
    wait_until("admin lists all", async || stuck().await["items"].as_array().map(Vec::len) == Some(5)).await;
    let is_open =
        |text: &str| text.lines().any(|line| line.contains(&breaker) && line.contains("FORCED_OPEN"));
    assert!(is_open(&system.sagactl(&["breakers"])));
    system.sagactl(&["breakers", "reset", &breaker]);
    system.wait_until_confirmed(&orders).await;
    assert!(!is_open(&system.sagactl(&["breakers"])));
    system.assert_rejected(&["breakers", "open", "payment/nothing", "--reason", "x"], 4, "nothing");
    system.assert_reconciled().await;
}

/// Messages that wait for payment's step at the broker.
async fn waiting(system: &System) -> Option<u64> {
    let service_stats = system.get("payment", "/internal/stats").await;
    let step = service_stats["steps"].as_array()?.iter().find(|step| step["step"] == STEP)?;
    step["waiting"].as_u64()
}

#[tokio::test]
async fn faults_are_injected_listed_and_cleared() {
    let system = System::start(&["inventory.faults.enabled=false"]);
    system.list("pen", 10).await;
    assert!(system.sagactl(&["faults"]).starts_with("no active faults"));
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
    assert_eq!(
        system.sagactl(&["faults", "clear", "order", "--reason", "seen"]),
        "cleared 2 faults of order\n"
    );
    assert!(system.sagactl(&["faults", "clear"]).starts_with("cleared 1"));
    assert_eq!(system.sagactl_json(&["faults"])["items"], Value::Array(vec![]));

    system.assert_rejected(&["faults", "clear", "bank", "4711"], 4, "4711");
    system.assert_rejected(&["faults", "clear", "paymnt"], 2, "'payment'");
    system.assert_rejected(&["faults", "inject", "paymnt", "delay"], 2, "'payment'");
    system.assert_rejected(
        &["faults", "inject", "payment", "delay", "--delay", "1s", "--step", "nope"],
        2,
        STEP,
    );
    system.assert_rejected(&["saga", "list", "--stuck-at", "nope"], 2, STEP);
    system.assert_rejected(&["reconcile", "--accept", "nope", "--reason", "x"], 2, STEP);
    system.assert_rejected(&["faults", "inject", "payment", "bank_hang"], 2, "kind");
    system.assert_rejected(&["faults", "inject", "payment", "delay", "--step", STEP], 2, "--delay");
    system.assert_rejected(&["faults", "inject", "payment", "dealy"], 2, "'delay'");
    system.assert_rejected(&["faults", "inject", "bank", "delay"], 2, "bank_latency");
    system.assert_rejected(&["faults", "inject", "inventory", "pause"], 2, "faults.enabled");
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    system.assert_reconciled().await;
}

#[test]
fn unreachable_service_does_not_keep_others_from_republishing() {
    let system = System::start(&[]);
    system.sagactl(&["kill", "inventory"]);
    let output = system.try_sagactl(&["outbox", "republish", "--since", "1h", "--reason", "x", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let items = answer["items"].as_array().expect("a list").iter();
    let services: std::collections::BTreeSet<_> = items.filter_map(|item| item["service"].as_str()).collect();
    assert_eq!(services, ["admin", "order", "payment"].into(), "{answer}");
    assert_eq!(answer["rejected"][0]["id"], "inventory", "{answer}");
    system.sagactl(&["start", "inventory"]);
}

#[tokio::test]
async fn not_found_and_unreachable_have_their_own_exit_codes() {
    let system = System::start(&[]);
    let unknown: [&[&str]; 7] = [
        &["dlq", "show", UNKNOWN_ID],
        &["dlq", "replay", UNKNOWN_ID],
        &["dlq", "restore", UNKNOWN_ID],
        &["dlq", "note", UNKNOWN_ID, "x"],
        &["redrive", "show", UNKNOWN_ID],
        &["redrive", "follow", UNKNOWN_ID],
        &["saga", "show", UNKNOWN_ID],
    ];
    for arguments in unknown {
        system.assert_rejected(arguments, 4, "there is no");
    }
    system.assert_rejected(&["dlq", "show", "seven"], 2, "seven");
    system.assert_rejected(&["dlq", "list", "--limit", "201"], 2, "limit");
    system.assert_rejected(&["dlq", "list", "--cursor", "x"], 2, "cursor");
    // The facts about its first products were published; they are settled a little later.
    let is_empty = async || system.sagactl(&["outbox"]) == "no unpublished entries\n";
    wait_until("the outbox is empty", is_empty).await;
    assert!(system.sagactl(&["outbox", "retry", "order", "--reason", "repaired"]).contains("order"));
    system.assert_rejected(&["outbox", "retry", "order", "99999"], 4, "99999");
    system.assert_rejected(&["outbox", "retry", "order"], 2, "--reason");

    // Another admin needs no data folder; one that is not there is no success.
    let remote = |address: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        command.args(["dlq", "count", "--json", "--data", "/nowhere", "--admin", address]);
        command.output().expect("sagactl runs")
    };
    assert!(remote(&system.url("admin", "")).status.success());
    let silent = remote("http://127.0.0.1:1");
    assert_eq!(silent.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&silent.stderr).starts_with("sagactl: nothing answers at"));
    // --data precedes the environment.
    let with_variable = |address: &str, data: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        command.args(["dlq", "discard", UNKNOWN_ID, "--reason", "x", "--data"]).arg(data);
        let output = command.env("SAGA_ADMIN", address).output().expect("sagactl runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, printed) = with_variable("http://127.0.0.1:1", system.path());
    assert!(code == Some(4) && printed.contains("there is no"), "{printed}");
    let empty = tempfile::tempdir().expect("a folder");
    let (code, printed) = with_variable(&system.url("admin", ""), empty.path());
    assert!(code == Some(1) && printed.contains(&empty.path().display().to_string()), "{printed}");
    // A service that is no admin.
    assert_ne!(remote(&system.url("bank", "")).status.code(), Some(0));
}
