//! Shell: load runs: measurements, verdict and interruption.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::system::{System, wait_until};

#[track_caller]
fn report_of(run: &Output) -> Value {
    let printed = String::from_utf8_lossy(&run.stderr);
    serde_json::from_slice(&run.stdout).unwrap_or_else(|error| panic!("{error}, {}: {printed}", run.status))
}

#[tokio::test]
async fn load_report_matches_the_reconciliation() {
    let system = System::start(&[]);
    let arguments = [
        "load",
        "--rate",
        "50",
        "--duration",
        "2s",
        "--mix",
        "happy=80,declined=10,out_of_stock=10",
        "--json",
    ];
    let run = system.try_sagactl(&arguments);
    let report = report_of(&run);
    let mut complaints = report["reasons"].as_array().expect("a list").clone();
    assert_eq!(run.status.success(), complaints.is_empty(), "{report:#}");
    // A machine with other things to do may well be too slow even for this.
    let is_of_the_machine = |complaint: &Value| {
        let text = complaint.as_str().unwrap_or_default();
        text.starts_with("the backlog grew") || text.starts_with("the generator could not keep its rate")
    };
    complaints.retain(|complaint| !is_of_the_machine(complaint));
    assert!(complaints.is_empty(), "{report:#}");
    let counts = ["started", "completed", "compensated", "failed", "unfinished", "errors", "unexpected"];
    assert_eq!(counts.map(|name| report[name].as_u64().expect("a count")), [100, 80, 20, 0, 0, 0, 0]);
    let summary = &report["reconciliation"]["summary"];
    assert_eq!((&summary["confirmed"], &summary["cancelled"]), (&80.into(), &20.into()), "{summary:#}");
}

/// A client that waits for the end of its order cannot cause a backlog, and ends with the run. Some cancel.
#[tokio::test]
async fn closed_loop_clients_have_one_order_in_flight_each() {
    let system = System::start(&[]);
    let mix = "happy=50,declined=20,out_of_stock=10,cancelled=20";
    let arguments = [
        "load",
        "--clients",
        "4",
        "--warmup",
        "500ms",
        "--duration",
        "2s",
        "--mix",
        mix,
        "--timeline",
        "--json",
    ];
    let run = system.try_sagactl(&arguments);
    let report = report_of(&run);
    assert_eq!((&report["reasons"], run.status.code()), (&Value::Array(vec![]), Some(0)), "{report:#}");
    assert_eq!((&report["valid"], &report["clients"]), (&true.into(), &4.into()), "{report:#}");
    let count = |name: &str| report[name].as_u64().expect("a count");
    assert!(count("started") > 0 && count("compensated") > 0, "{report:#}");
    assert_eq!(count("started"), count("completed") + count("compensated"), "{report:#}");
    let seconds = report["timeline"].as_array().expect("seconds");
    let in_flight = |second: &Value| second["in_flight"].as_u64().expect("a count");
    assert!(seconds.len() >= 2 && seconds.iter().all(|second| in_flight(second) <= 4), "{report:#}");
    let of_all = ["order", "inventory", "payment", "admin", "bank", "nats"];
    assert!(of_all.iter().all(|name| report["cpu_ms"][name].is_u64()), "{report:#}");
    assert!(report["generator"]["cpu_us_per_order"].as_f64() > Some(0.0), "{report:#}");
}

/// A restarted broker has lost the subscriptions; messages published meanwhile are received all the same.
#[tokio::test]
async fn load_continues_after_a_broker_restart_and_at_another_rate() {
    let system = System::start(&["order.service.deadline=10m"]);
    let arguments = [
        "load",
        "--rate",
        "20",
        "--duration",
        "3s",
        "--then",
        "5=3s",
        "--drain",
        "60s",
        "--mix",
        "happy=100",
        "--may-shed",
        "--timeline",
        "--json",
    ];
    let mut load = system.command(&arguments);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sagactl runs");
    wait_until("orders are sent", async || {
        system.sagactl_json(&["saga", "list"])["items"].as_array().is_some_and(|sagas| !sagas.is_empty())
    })
    .await;
    system.sagactl(&["kill", "nats"]);
    system.sagactl(&["start", "nats"]);
    let run = load.wait_with_output().expect("it ends");
    let report = report_of(&run);
    let started = report["started"].as_u64().expect("a count");
    assert_eq!((&report["completed"], &report["unfinished"]), (&started.into(), &0.into()), "{report:#}");
    assert_eq!(started + report["shed"].as_u64().expect("a count"), 75, "{report:#}");
}

#[tokio::test]
async fn load_fails_if_orders_are_rejected() {
    // Whatever waits to be published is too much.
    let system = System::start(&["order.service.max_outbox_age=0s", "order.service.max_outbox_entries=0"]);
    let run = system.try_sagactl(&["load", "--rate", "400", "--duration", "3s", "--json"]);
    let report = report_of(&run);
    assert!(report["errors_by_reason"]["503"].as_u64() > Some(0), "{report:#}");
    assert_eq!(run.status.code(), Some(1), "{report:#}");
    assert!(report["reasons"][0].as_str().is_some_and(|first| first.contains("rejected")), "{report:#}");
    assert_eq!((&report["valid"], &report["shed"]), (&false.into(), &report["errors"]), "{report:#}");
    // Rejections with Retry-After are tolerated with --may-shed.
    let run = system.try_sagactl(&["load", "--rate", "400", "--duration", "1s", "--may-shed", "--json"]);
    let report = report_of(&run);
    let reasons = report["reasons"].as_array().expect("a list");
    assert!(!reasons.iter().any(|reason| reason.to_string().contains("rejected")), "{report:#}");
}

#[tokio::test]
async fn interrupted_load_prints_its_result_so_far() {
    let system = System::start(&[]);
    let mut load = system.command(&["load", "--rate", "20", "--duration", "10m"]);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sagactl runs");
    wait_until("orders are sent", async || {
        system.sagactl_json(&["saga", "list"])["items"].as_array().is_some_and(|sagas| !sagas.is_empty())
    })
    .await;
    let killed = Command::new("kill").args(["-INT", &load.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let ended = load.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{printed}");
    assert!(
        printed.contains(" started: ") && printed.contains("the reconciliation was not run"),
        "{printed}"
    );
}

/// Admin is stopped here, so that the reconciliation takes long.
#[test]
fn load_interrupted_during_reconciliation_prints_its_result_so_far() {
    let system = System::start(&[]);
    let pid = std::fs::read_to_string(system.path().join("run/admin.pid")).expect("it runs");
    let is_digit = |character: &char| character.is_ascii_digit();
    let admin: String =
        pid.chars().skip_while(|character| !is_digit(character)).take_while(is_digit).collect();
    let signal = |name: &str, pid: &str| {
        let sent = Command::new("kill").args([name, pid]).status().expect("kill runs");
        assert!(sent.success(), "kill {name} {pid}");
    };
    signal("-STOP", &admin);
    let ended = |arguments: &[&str]| {
        let mut load = system.command(arguments);
        let mut load = load.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("sagactl runs");
        let mut printed = BufReader::new(load.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.starts_with("reconciling, for") {
            line.clear();
            assert_ne!(printed.read_line(&mut line).expect("text"), 0, "it ended by itself");
        }
        signal("-INT", &load.id().to_string());
        let mut rest = String::new();
        printed.read_to_string(&mut rest).expect("text");
        (load.wait().expect("it ends").code(), rest)
    };
    let (of_many, many) = ended(&["load", "--rate", "10", "--duration", "1s", "--mix", "happy=100"]);
    let (of_rest, at_rest) = ended(&["load", "--rest", "2"]);
    signal("-CONT", &admin);
    assert_eq!((of_many, of_rest), (Some(130), Some(130)), "{many}\n{at_rest}");
    assert!(
        many.contains(": 10 started: 10 completed, ") && many.contains("the reconciliation has no result"),
        "{many}"
    );
    assert!(at_rest.contains("ended after 2 of 2 orders: p50 "), "{at_rest}");
}
