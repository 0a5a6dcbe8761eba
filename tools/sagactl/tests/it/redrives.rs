//! Shell: redrives: canary, stop, resume, and independence from their followers.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::{System, text};

#[tokio::test]
async fn redrive_stops_after_failed_canary_and_resumes_after_repair() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    let mut orders = system.dead_letter_orders(4).await;
    let fault =
        system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "100"]);
    assert!(fault.contains("faults clear payment"), "{fault}");

    let preview = system.sagactl_json(&["dlq", "redrive", "--step", STEP, "--preview"]);
    assert_eq!([&preview["matching"], &preview["replayable"]], [4, 4]);
    let nothing = system.try_sagactl(&["dlq", "redrive", "--service", "inventory", "--reason", "none"]);
    assert_eq!(nothing.status.code(), Some(4));
    assert!(text(&nothing.stdout).starts_with("0 match"), "{nothing:?}");
    system.assert_rejected(&["dlq", "redrive", "--reason", "all of them"], 2, "needs a filter");

    let canary = ["dlq", "redrive", "--step", STEP, "--canary", "1", "--reason", "hope"];
    system.assert_rejected(&canary, 2, "stopped");
    let redrives = system.sagactl_json(&["redrive", "list"]);
    let redrive = &redrives["items"][0];
    assert_eq!((&redrive["status"], &redrive["sent"]), (&json!("STOPPED"), &json!(1)));
    let id = redrive["id"].as_str().expect("an id");
    assert!(system.sagactl(&["redrive", "show", id]).contains("stopped because"));

    assert!(system.sagactl(&["faults", "clear"]).starts_with("cleared"));
    system.sagactl(&["redrive", "resume", id, "--reason", "repaired"]);
    let followed = system.sagactl(&["redrive", "follow", id]);
    assert!(followed.contains("DONE"), "{followed}");
    system.assert_rejected(&["redrive", "pause", id], 2, "DONE");
    system.wait_until_confirmed(&orders).await;

    orders = system.dead_letter_orders(3).await;
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
async fn redrive_continues_without_follower_and_after_admin_is_killed() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    let orders = system.dead_letter_orders(8).await;
    let slowly = ["dlq", "redrive", "--step", STEP, "--rate", "1", "--reason", "slowly"];
    let mut follower = Follower::begin(&system, &slowly);
    follower.wait_for_progress();
    follower.interrupt();
    assert_eq!(follower.end(), Some(130));
    let redrives = system.sagactl_json(&["redrive", "list"]);
    let id = redrives["items"][0]["id"].as_str().expect("an id");
    let mut follower = Follower::begin(&system, &["redrive", "follow", id]);
    follower.wait_for_progress();
    system.sagactl(&["kill", "admin"]);
    system.sagactl(&["start", "admin"]);
    assert_eq!(follower.end(), Some(0));
    let redrive = system.sagactl_json(&["redrive", "show", id]);
    assert_eq!([&redrive["resolved"], &redrive["failed"]], [8, 0]);
    system.wait_until_confirmed(&orders).await;
    system.assert_reconciled().await;
}

/// A sagactl that follows a redrive.
struct Follower(Child);

impl Follower {
    fn begin(system: &System, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sagactl"));
        command.args(arguments).args(["--operator", "ada"]).arg("--data").arg(system.path());
        Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("sagactl runs"))
    }

    /// Waits for a line of progress.
    fn wait_for_progress(&mut self) {
        let mut line = String::new();
        let errors = self.0.stderr.as_mut().expect("a pipe");
        BufReader::new(errors).read_line(&mut line).expect("a line");
        assert!(line.contains(" remaining"), "{line}");
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(self.0.id().try_into().expect("a pid"));
        kill(pid, Signal::SIGINT).expect("it runs");
    }

    fn end(&mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}
