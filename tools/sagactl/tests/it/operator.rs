//! Shell: what operators do with the command line: look, replay, edit, discard, redrive, plant faults.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::system::{System, order_for, wait_until};

/// Orders wait here until an operator helps: their deadline must not come first.
const PATIENT: &str = "order.service.deadline=5m";
const NOBODY: &str = "01890000-0000-7000-8000-000000000001";

impl System {
    /// Runs sagactl, which must succeed and answer JSON.
    #[track_caller]
    fn told(&self, arguments: &[&str]) -> Value {
        let text = self.sagactl(&[arguments, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1, "one line: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs sagactl, which must end with this code, and with one line that contains this.
    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, because: &str) {
        let output = self.try_sagactl(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("sagactl: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(because), "{arguments:?}: {errors}");
    }

    /// Places orders that the next step of payment will fail at, and waits until all are parked.
    async fn park(&self, orders: usize) -> Vec<String> {
        let next = orders.to_string();
        self.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", &next]);
        let ids = self.place(orders).await;
        self.wait_for_letters(orders).await;
        ids
    }

    async fn place(&self, orders: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..orders {
            let request = self.http.post(self.url("order", "/api/orders"));
            let answer = request.json(&order_for(&[("pen", 1)], "tok_ok")).send().await.expect("an answer");
            let order: Value = answer.json().await.expect("JSON");
            ids.push(order["id"].as_str().expect("an id").to_owned());
        }
        ids
    }

    async fn wait_for_letters(&self, letters: usize) {
        wait_until("the messages are parked", async || {
            self.told(&["dlq", "count"])["by_status"]["PENDING"] == letters
        })
        .await;
    }

    async fn wait_until_confirmed(&self, orders: &[String]) {
        for id in orders {
            wait_until("the order is confirmed", async || {
                self.get("order", &format!("/api/orders/{id}")).await["status"] == "CONFIRMED"
            })
            .await;
        }
    }

    fn letter(&self) -> (String, Value) {
        let page = self.told(&["dlq", "list", "--since", "10m"]);
        let letter = page["dead_letters"][0].clone();
        (letter["id"].as_str().expect("an id").to_owned(), letter)
    }
}

const STEP: &str = "payment-processing";

#[tokio::test]
async fn a_dead_letter_is_found_shown_and_replayed() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    assert_eq!(system.sagactl(&["dlq", "list"]), "no dead letters\n");
    assert_eq!(system.told(&["dlq", "count"])["total"], 0);
    assert_eq!(system.sagactl(&["dlq", "groups"]), "no dead letters\n");

    let orders = system.park(1).await;
    let (id, letter) = system.letter();
    assert_eq!([&letter["service"], &letter["step"], &letter["saga"]], ["payment", STEP, &orders[0]]);
    assert!(system.sagactl(&["dlq", "list", "--status", "pending", "--step", STEP]).contains(&id));
    assert_eq!(system.sagactl(&["dlq", "list", "--service", "inventory"]), "no dead letters\n");
    let fingerprint = letter["fingerprint"].as_str().expect("a fingerprint");
    assert!(system.sagactl(&["dlq", "groups"]).contains(fingerprint));
    assert!(system.sagactl(&["saga", "list", "--stuck-at", STEP]).contains(&orders[0]));

    system.sagactl(&["dlq", "note", &id, "asked the bank"]);
    let shown = system.sagactl(&["dlq", "show", &id]);
    for wanted in [STEP, fingerprint, &orders[0], "StockReserved", "asked the bank"] {
        assert!(shown.contains(wanted), "{wanted} is not in: {shown}");
    }
    assert!(!shown.contains("tok_ok") && shown.contains("\"***\""), "the card token is hidden: {shown}");

    let replayed = system.sagactl(&["dlq", "replay", &id, "--operator", "ada", "--reason", "bank is back"]);
    assert!(replayed.contains(&format!("{id} is REPLAYING")), "{replayed}");
    system.wait_until_confirmed(&orders).await;
    wait_until("it is resolved", async || system.told(&["dlq", "show", &id])["status"] == "RESOLVED").await;
    system.refused(&["dlq", "replay", &id], 2, "RESOLVED");
    let timeline = system.sagactl(&["saga", "show", &orders[0]]);
    assert!(timeline.contains("OrderConfirmed") && timeline.contains("nobody owes anything"), "{timeline}");
    let log = system.told(&["log", "--operator", "ada", "--action", "dlq.replay"]);
    assert_eq!([&log["entries"][0]["target"], &log["entries"][0]["reason"]], [id.as_str(), "bank is back"]);
    system.assert_books_balance().await;
}

#[tokio::test]
async fn a_dead_letter_is_discarded_restored_and_edited() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    let orders = system.park(1).await;
    let (id, _) = system.letter();

    system.sagactl(&["dlq", "discard", &id, "--reason", "a test"]);
    system.refused(&["dlq", "discard", &id], 2, "DISCARDED");
    system.refused(&["dlq", "replay", &id], 2, "DISCARDED");
    system.sagactl(&["dlq", "restore", &id]);
    system.refused(&["dlq", "restore", &id], 2, "PENDING");
    // What is refused does not keep the rest from being done.
    system.refused(&["dlq", "discard", NOBODY, &id], 4, NOBODY);
    assert_eq!(system.told(&["dlq", "show", &id])["status"], "DISCARDED");
    system.sagactl(&["dlq", "restore", &id]);

    let mut data = system.told(&["dlq", "show", &id])["payload"]["data"].clone();
    assert_eq!(data["payment"]["token"], "tok_ok");
    data["payment"]["token"] = "***".into();
    system.refused(&["dlq", "edit", &id, "--reason", "a test"], 2, "--new-data");
    system.refused(&["dlq", "edit", &id, "--reason", "a test", "--new-data", "{}"], 2, "data");
    let file = system.path().join("data.json");
    std::fs::write(&file, data.to_string()).expect("written");
    system.sagactl(&["dlq", "edit", &id, "--reason", "as it was", "--file", &file.display().to_string()]);
    // The token that was hidden is the old one again: with any other the bank would decline.
    system.wait_until_confirmed(&orders).await;
    assert_eq!(system.told(&["dlq", "show", &id])["edited"], true);
    system.assert_books_balance().await;
}

#[tokio::test]
async fn a_redrive_stops_when_its_canary_fails_and_is_resumed_when_that_is_mended() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    let mut orders = system.park(4).await;
    let fault =
        system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "100"]);
    assert!(fault.contains("faults clear payment"), "{fault}");

    let preview = system.told(&["dlq", "redrive", "--step", STEP, "--preview"]);
    assert_eq!([&preview["matching"], &preview["replayable"]], [4, 4]);
    let nothing = system.sagactl(&["dlq", "redrive", "--service", "inventory", "--reason", "none"]);
    assert!(nothing.starts_with("0 match"), "{nothing}");
    system.refused(&["dlq", "redrive", "--reason", "all of them"], 2, "say which dead letters");

    let canary = ["dlq", "redrive", "--step", STEP, "--canary", "1", "--reason", "hope"];
    system.refused(&canary, 2, "stopped");
    let redrives = system.told(&["redrive", "list"]);
    let redrive = &redrives["redrives"][0];
    assert_eq!((&redrive["status"], &redrive["sent"]), (&json!("STOPPED"), &json!(1)));
    let id = redrive["id"].as_str().expect("an id");
    assert!(system.sagactl(&["redrive", "show", id]).contains("stopped because"));

    assert!(system.sagactl(&["faults", "clear"]).starts_with("cleared"));
    system.sagactl(&["redrive", "resume", id, "--reason", "mended"]);
    let followed = system.sagactl(&["redrive", "follow", id]);
    assert!(followed.contains("DONE"), "{followed}");
    system.refused(&["redrive", "pause", id], 2, "DONE");
    system.wait_until_confirmed(&orders).await;

    orders = system.park(3).await;
    let (_, letter) = system.letter();
    let fingerprint = letter["fingerprint"].as_str().expect("a fingerprint");
    let redriven =
        system.told(&["dlq", "redrive", "--fingerprint", fingerprint, "--rate", "100", "--reason", "again"]);
    assert_eq!((&redriven["status"], &redriven["resolved"]), (&json!("DONE"), &json!(3)));
    system.wait_until_confirmed(&orders).await;
    system.assert_books_balance().await;
}

#[tokio::test]
async fn a_redrive_goes_on_when_nobody_watches_and_when_admin_dies() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    let orders = system.park(8).await;
    let slowly = ["dlq", "redrive", "--step", STEP, "--rate", "1", "--reason", "slowly"];
    let mut watching = Watching::begin(&system, &slowly);
    watching.hear();
    watching.interrupt();
    assert_eq!(watching.end(), Some(130));
    let redrives = system.told(&["redrive", "list"]);
    let id = redrives["redrives"][0]["id"].as_str().expect("an id");
    let mut watching = Watching::begin(&system, &["redrive", "follow", id]);
    watching.hear();
    system.sagactl(&["kill", "admin"]);
    system.sagactl(&["start", "admin"]);
    assert_eq!(watching.end(), Some(0));
    let redrive = system.told(&["redrive", "show", id]);
    assert_eq!([&redrive["resolved"], &redrive["failed"]], [8, 0]);
    system.wait_until_confirmed(&orders).await;
    system.assert_books_balance().await;
}

/// A sagactl that watches a redrive.
struct Watching(Child);

impl Watching {
    fn begin(system: &System, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        command.args(arguments).arg("--data").arg(system.path());
        Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("sagactl runs"))
    }

    /// Waits for a line of its progress.
    fn hear(&mut self) {
        let mut line = String::new();
        let errors = self.0.stderr.as_mut().expect("a pipe");
        BufReader::new(errors).read_line(&mut line).expect("a line");
        assert!(line.contains("to come"), "{line}");
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(self.0.id().try_into().expect("a pid"));
        kill(pid, Signal::SIGINT).expect("it runs");
    }

    fn end(&mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

#[tokio::test]
async fn what_was_replayed_too_often_needs_force() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "4"]);
    let orders = system.place(1).await;
    system.wait_for_letters(1).await;
    let (id, letter) = system.letter();
    let fingerprint = letter["fingerprint"].as_str().expect("a fingerprint");
    for replays in 1..=3 {
        let replay = ["dlq", "replay", "--fingerprint", fingerprint, "--reason", "hope"];
        assert_eq!(system.sagactl(&replay), "1 replayed, 0 refused\n");
        wait_until("it has failed again", async || {
            let letter = system.told(&["dlq", "show", &id]);
            (&letter["status"], &letter["replays"]) == (&json!("PENDING"), &json!(replays))
        })
        .await;
    }
    system.refused(&["dlq", "replay", &id], 2, "force");
    system.refused(&["dlq", "replay", "--fingerprint", fingerprint, "--reason", "hope"], 2, &id);
    system.refused(&["dlq", "redrive", "--step", STEP, "--reason", "hope"], 2, "--force");
    system.sagactl(&["dlq", "replay", &id, "--force", "--reason", "mended"]);
    system.wait_until_confirmed(&orders).await;
    system.assert_books_balance().await;
}

#[tokio::test]
async fn a_breaker_that_is_held_open_lets_nothing_through_until_it_is_reset() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    let breaker = format!("payment/{STEP}");
    assert!(system.sagactl(&["breakers"]).contains(&breaker));
    system.sagactl(&["breakers", "open", &breaker, "--reason", "the bank's maintenance"]);
    let orders = system.place(5).await;
    wait_until("all wait at the broker", async || waiting(&system).await == Some(5)).await;
    let stuck = system.told(&["saga", "list", "--stuck-at", STEP]);
    assert_eq!(stuck["sagas"].as_array().map(Vec::len), Some(5));
    let is_open =
        |text: &str| text.lines().any(|line| line.contains(&breaker) && line.contains("FORCED_OPEN"));
    assert!(is_open(&system.sagactl(&["breakers"])));
    system.sagactl(&["breakers", "reset", &breaker]);
    system.wait_until_confirmed(&orders).await;
    assert!(!is_open(&system.sagactl(&["breakers"])));
    system.refused(&["breakers", "open", "payment/nothing", "--reason", "x"], 4, "nothing");
    system.assert_books_balance().await;
}

/// What the broker still has for payment's step.
async fn waiting(system: &System) -> Option<u64> {
    let machinery = system.get("payment", "/internal/machinery").await;
    let step = machinery["steps"].as_array()?.iter().find(|step| step["step"] == STEP)?;
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
    let faults = system.told(&["faults", "list"]);
    assert_eq!(faults["faults"].as_array().map(Vec::len), Some(2), "{faults:#}");
    assert_eq!(faults["seeds"]["payment"], 7);
    let shown = system.sagactl(&["faults"]);
    assert!(shown.contains("bank_latency") && shown.contains("50 ms"), "{shown}");
    let of_bank =
        faults["faults"].as_array().expect("faults").iter().find(|fault| fault["service"] == "bank");
    let id = of_bank.expect("the bank's")["id"].to_string();
    system.sagactl(&["faults", "clear", "bank", &id]);
    assert!(system.sagactl(&["faults", "clear"]).starts_with("cleared 1"));
    assert_eq!(system.told(&["faults"])["faults"], Value::Array(vec![]));

    system.refused(&["faults", "clear", "bank", "4711"], 4, "4711");
    system.refused(&["faults", "inject", "payment", "bank_hang"], 2, "kind");
    system.refused(&["faults", "inject", "payment", "delay", "--step", STEP], 2, "--delay");
    system.refused(&["faults", "inject", "payment", "explode"], 2, "faults kinds");
    system.refused(&["faults", "inject", "inventory", "pause"], 2, "faults.enabled");
    assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
    system.assert_books_balance().await;
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
    assert_eq!(system.sagactl(&["outbox"]), "nothing waits to be published\n");
    assert!(system.sagactl(&["outbox", "retry", "order"]).contains("order"));

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
    // A service that is no admin.
    assert_ne!(elsewhere(&system.url("bank", "")).status.code(), Some(0));
}
