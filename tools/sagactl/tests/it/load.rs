//! Shell: what a load run measures, and what it makes of it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::system::{System, order_for, wait_until};

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
    let mut complaints = report["complaints"].as_array().expect("a list").clone();
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
    assert!(report["complaints"][0].as_str().is_some_and(|first| first.contains("not taken")), "{report:#}");
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

/// The longest part of a short run may be the audit after it.
#[tokio::test]
async fn a_run_that_somebody_ends_while_the_books_are_asked_ends_at_once() {
    let system = System::start(&[]);
    system.list("mug", 1).await;
    // As long as an order waits, it cannot be told whether the books balance.
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", "payment-processing"]);
    let order = order_for(&[("mug", 1)], "tok_ok");
    let answer = system.post("order", "/api/orders").json(&order).send().await.expect("an answer");
    assert_eq!(answer.status(), 202, "it waits");
    let mut load = system.command(&[
        "load",
        "--rate",
        "20",
        "--duration",
        "1s",
        "--warmup",
        "0s",
        "--mix",
        "out_of_stock=100",
    ]);
    let mut load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sagactl runs");
    let mut said = BufReader::new(load.stderr.take().expect("it is piped")).lines();
    assert!(said.any(|line| line.expect("text").contains("asking whether the books balance")));
    let asked = Instant::now();
    let killed = Command::new("kill").args(["-INT", &load.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let said = said.map(|line| line.expect("text")).collect::<Vec<_>>().join("\n");
    assert_eq!(load.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?}", asked.elapsed());
    assert!(said.contains(" started: ") && said.contains("the books were not asked"), "{said}");
}
