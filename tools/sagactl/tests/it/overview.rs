//! Shell: `status` and `doctor`: problems with causes and commands.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::{System, programs, text, wait_until, workspace};

/// Exit code of `sagactl status` and `sagactl doctor` if a human is needed.
const HUMAN_NEEDED: Option<i32> = Some(5);

#[tokio::test]
async fn first_dead_letter_is_shown_within_seconds_with_cause_and_command() {
    let system = System::start(&[LONG_DEADLINE]);
    system.list("pen", 10).await;
    let status = system.sagactl(&["status"]);
    assert!(status.starts_with("no human is needed"), "{status}");
    assert!(system.sagactl(&["doctor"]).starts_with("no human is needed"));

    system.sagactl(&["faults", "inject", "payment", "fail_permanently", "--step", STEP, "--next", "1"]);
    let placed = Instant::now();
    system.place(1).await;
    wait_until("a human is needed", async || system.try_sagactl(&["status"]).status.code() == HUMAN_NEEDED)
        .await;
    assert!(placed.elapsed() < Duration::from_secs(5), "{:?}", placed.elapsed());

    let (_, dead_letter) = system.dead_letter();
    let [fingerprint, reason, id] =
        ["fingerprint", "reason", "id"].map(|name| dead_letter[name].as_str().expect("text").to_owned());
    let doctor = system.try_sagactl(&["doctor"]);
    let printed = text(&doctor.stdout);
    assert_eq!(doctor.status.code(), HUMAN_NEEDED);
    for named in [&fingerprint, &reason, "1 is awaited by its saga", &format!("dlq show {id}")] {
        assert!(printed.contains(named), "{named} is not in:\n{printed}");
    }
    // The suggested commands work from any folder.
    let commands = printed.lines().filter(|line| line.contains("dlq show") || line.contains("--preview"));
    for command in commands.map(str::trim) {
        let output = Command::new("sh").args(["-c", command]).current_dir("/").output().expect("a shell");
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    }

    let admin = system.url("admin", "");
    let remote = system.try_sagactl(&["status", "--json", "--admin", &admin]);
    assert_eq!(remote.status.code(), HUMAN_NEEDED);
    let reported: Value = serde_json::from_slice(&remote.stdout).expect("JSON");
    assert_eq!((&reported["needs_human"], &reported["processes"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(reported["overview"]["findings"][0]["key"], format!("dead_letters:{fingerprint}"));

    system.sagactl(&["dlq", "replay", &id]);
    wait_until("no human is needed", async || system.try_sagactl(&["status"]).status.success()).await;
    system.sagactl(&["reconcile", "--wait", "10s"]);
    let status = system.sagactl(&["status"]);
    assert!(status.contains("BALANCED") && status.contains("COMPLETED 1"), "{status}");
    let steps = status.lines().skip_while(|line| !line.starts_with("duration of each step"));
    assert!(steps.skip(1).any(|line| line.contains(STEP)), "{status}");
}

#[tokio::test]
async fn stopped_service_is_reported_in_time_with_the_rest() {
    let system = System::start(&[]);
    system.sagactl(&["kill", "payment"]);
    let began = Instant::now();
    let status = system.try_sagactl(&["status"]);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let printed = text(&status.stdout);
    assert_eq!(status.status.code(), HUMAN_NEEDED, "{printed}");
    assert!(printed.contains("payment does not run") && printed.contains("sagas:"), "{printed}");
    assert!(!printed.contains("payment does not answer"), "reported once:\n{printed}");
    let doctor = text(&system.try_sagactl(&["doctor"]).stdout);
    let start = doctor.lines().find(|line| line.ends_with("start payment")).expect("how to start it").trim();
    let output = Command::new("sh").args(["-c", start]).current_dir("/").output().expect("a shell");
    assert!(output.status.success(), "{start}: {}", text(&output.stderr));

    // Without admin the state is unknown, and processes are shown.
    system.sagactl(&["stop", "admin"]);
    let status = system.try_sagactl(&["status", "--json"]);
    assert_eq!(status.status.code(), HUMAN_NEEDED);
    let reported: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!((&reported["needs_human"], &reported["overview"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(reported["processes"].as_array().map(Vec::len), Some(6));
    let remote = Command::new(programs().join("sagactl"))
        .args(["doctor", "--admin", &system.url("admin", "")])
        .current_dir(workspace())
        .output()
        .expect("sagactl runs");
    assert_eq!(remote.status.code(), Some(1));
    assert_eq!(text(&remote.stderr).lines().count(), 1, "{}", text(&remote.stderr));
}

/// A fault is shown at once. It needs a human once an injected pause holds messages back.
#[tokio::test]
async fn injected_pause_needs_a_human_once_messages_wait() {
    let system = System::start(&[LONG_DEADLINE, "payment.readiness.max_consumer_stall=500ms"]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", STEP]);
    let named = "1 fault is injected at payment: pause of payment-processing; `";
    for command in ["status", "doctor"] {
        let printed = system.sagactl(&[command]);
        assert!(printed.starts_with("no human is needed") && printed.contains(named), "{printed}");
        assert!(printed.contains(" faults clear payment` clears it"), "{printed}");
    }
    system.place(2).await;
    // One may stand for long enough before the other comes.
    let held = "2 messages wait, paused by an injected fault";
    let mut doctor = String::new();
    wait_until("a human is needed, for both", async || {
        let output = system.try_sagactl(&["doctor"]);
        doctor = text(&output.stdout);
        output.status.code() == HUMAN_NEEDED && doctor.contains(held)
    })
    .await;
    assert!(doctor.contains("payment-processing of payment is stalled: "), "{doctor}");
    assert_eq!(system.try_sagactl(&["status"]).status.code(), HUMAN_NEEDED);
    // The suggested command ends the problem.
    let clear = doctor.lines().map(str::trim).find(|line| line.ends_with(" faults clear payment"));
    let clear = clear.expect("how to end it");
    let output = Command::new("sh").args(["-c", clear]).current_dir("/").output().expect("a shell");
    assert!(output.status.success(), "{clear}: {}", text(&output.stderr));
    wait_until("no human is needed, nor is anything injected", async || {
        let output = system.try_sagactl(&["doctor"]);
        output.status.success() && !text(&output.stdout).contains("injected")
    })
    .await;
    assert!(system.try_sagactl(&["status"]).status.success());
}
