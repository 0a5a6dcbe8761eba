//! Shell: what a load run measures, and what it makes of it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::system::{System, wait_until};

#[track_caller]
fn report_of(run: &Output) -> Value {
    let said = String::from_utf8_lossy(&run.stderr);
    serde_json::from_slice(&run.stdout).unwrap_or_else(|error| panic!("{error}, {}: {said}", run.status))
}

/// Orders, their kinds and their ends, counted against what the system says.
#[tokio::test]
async fn a_run_counts_what_the_system_did_and_is_good() {
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
    complaints.retain(|complaint| {
        report["backlog_grew"] == false || complaint != "orders piled up: the system did not keep up"
    });
    assert!(complaints.is_empty(), "{report:#}");
    let counts = ["started", "completed", "compensated", "failed", "unfinished", "errors", "unexpected"];
    assert_eq!(counts.map(|name| report[name].as_u64().expect("a count")), [100, 80, 20, 0, 0, 0, 0]);
    let summary = &report["audit"]["summary"];
    assert_eq!((&summary["confirmed"], &summary["cancelled"]), (&80.into(), &20.into()), "{summary:#}");
}

/// A system that refuses every order is not a quick one.
#[tokio::test]
async fn a_run_whose_orders_are_refused_is_not_good() {
    // Whatever waits to be published is too much.
    let system = System::start(&["order.service.shed_lag=0s", "order.service.shed_pending=0"]);
    let run = system.try_sagactl(&["load", "--rate", "400", "--duration", "3s", "--json"]);
    let report = report_of(&run);
    assert!(report["errors_by_reason"]["503"].as_u64() > Some(0), "{report:#}");
    assert_eq!(run.status.code(), Some(1), "{report:#}");
    assert!(report["reasons"][0].as_str().is_some_and(|first| first.contains("not taken")), "{report:#}");
}

#[tokio::test]
async fn a_run_that_somebody_ends_says_what_it_knows() {
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
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains(" started: ") && said.contains("the books were not asked"), "{said}");
}

/// Admin takes its time: here it has been stopped.
#[test]
fn a_run_that_somebody_ends_while_the_books_are_asked_says_what_it_knows() {
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
        let mut said = BufReader::new(load.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.starts_with("asking whether the books balance") {
            line.clear();
            assert_ne!(said.read_line(&mut line).expect("text"), 0, "it ended by itself");
        }
        signal("-INT", &load.id().to_string());
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("text");
        (load.wait().expect("it ends").code(), rest)
    };
    let (of_many, many) = ended(&["load", "--rate", "10", "--duration", "1s", "--mix", "happy=100"]);
    let (of_rest, at_rest) = ended(&["load", "--rest", "2"]);
    signal("-CONT", &admin);
    assert_eq!((of_many, of_rest), (Some(130), Some(130)), "{many}\n{at_rest}");
    assert!(
        many.contains(": 10 started: 10 completed, ") && many.contains("the books have not answered"),
        "{many}"
    );
    assert!(at_rest.contains("ended after 2 of 2 orders: p50 "), "{at_rest}");
}
