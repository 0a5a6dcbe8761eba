//! Shell: redrives: what stops them, and that nobody has to watch.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::operator::{PATIENT, STEP};
use crate::system::System;

#[tokio::test]
async fn a_redrive_stops_when_its_canary_fails_and_is_resumed_when_that_is_mended() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    let mut orders = system.park(4).await;
    let fault =
        system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "100"]);
    assert!(fault.contains("faults clear payment"), "{fault}");

    let preview = system.sagactl_json(&["dlq", "redrive", "--step", STEP, "--preview"]);
    assert_eq!([&preview["matching"], &preview["replayable"]], [4, 4]);
    let nothing = system.sagactl(&["dlq", "redrive", "--service", "inventory", "--reason", "none"]);
    assert!(nothing.starts_with("0 match"), "{nothing}");
    system.refused(&["dlq", "redrive", "--reason", "all of them"], 2, "say which dead letters");

    let canary = ["dlq", "redrive", "--step", STEP, "--canary", "1", "--reason", "hope"];
    system.refused(&canary, 2, "stopped");
    let redrives = system.sagactl_json(&["redrive", "list"]);
    let redrive = &redrives["items"][0];
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
    let (_, dead_letter) = system.dead_letter();
    let fingerprint = dead_letter["fingerprint"].as_str().expect("a fingerprint");
    let redriven = system.sagactl_json(&[
        "dlq",
        "redrive",
        "--fingerprint",
        fingerprint,
        "--rate",
        "100",
        "--reason",
        "again",
    ]);
    assert_eq!((&redriven["status"], &redriven["resolved"]), (&json!("DONE"), &json!(3)));
    system.wait_until_confirmed(&orders).await;
    system.assert_reconciled().await;
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
    let redrives = system.sagactl_json(&["redrive", "list"]);
    let id = redrives["items"][0]["id"].as_str().expect("an id");
    let mut watching = Watching::begin(&system, &["redrive", "follow", id]);
    watching.hear();
    system.sagactl(&["kill", "admin"]);
    system.sagactl(&["start", "admin"]);
    assert_eq!(watching.end(), Some(0));
    let redrive = system.sagactl_json(&["redrive", "show", id]);
    assert_eq!([&redrive["resolved"], &redrive["failed"]], [8, 0]);
    system.wait_until_confirmed(&orders).await;
    system.assert_reconciled().await;
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
