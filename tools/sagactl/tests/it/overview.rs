//! Shell: one look tells whether a human is needed, and the doctor says what to do.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::operator::{PATIENT, STEP};
use crate::system::{System, programs, wait_until, workspace};

/// `sagactl status` and `sagactl doctor` end with this when somebody is needed.
const HUMAN_NEEDED: Option<i32> = Some(5);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_first_dead_letter_shows_within_seconds_and_the_doctor_names_cause_and_command() {
    let system = System::start(&[PATIENT]);
    system.list("pen", 10).await;
    let status = system.sagactl(&["status"]);
    assert!(status.starts_with("nobody is needed"), "{status}");
    assert!(system.sagactl(&["doctor"]).starts_with("nobody is needed"));

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
    let said = text(&doctor.stdout);
    assert_eq!(doctor.status.code(), HUMAN_NEEDED);
    for named in [&fingerprint, &reason, "1 is awaited by its saga", &format!("dlq show {id}")] {
        assert!(said.contains(named), "{named} is not in:\n{said}");
    }
    // What it tells to look first can be typed, from anywhere.
    let commands = said.lines().filter(|line| line.contains("dlq show") || line.contains("--preview"));
    for command in commands.map(str::trim) {
        let output = Command::new("sh").args(["-c", command]).current_dir("/").output().expect("a shell");
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    }

    let admin = system.url("admin", "");
    let elsewhere = system.try_sagactl(&["status", "--json", "--admin", &admin]);
    assert_eq!(elsewhere.status.code(), HUMAN_NEEDED);
    let told: Value = serde_json::from_slice(&elsewhere.stdout).expect("JSON");
    assert_eq!((&told["needs_human"], &told["processes"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(told["overview"]["findings"][0]["key"], format!("dead_letters:{fingerprint}"));

    system.sagactl(&["dlq", "replay", &id]);
    wait_until("nobody is needed", async || system.try_sagactl(&["status"]).status.success()).await;
    system.sagactl(&["reconcile", "--wait", "10s"]);
    let status = system.sagactl(&["status"]);
    assert!(status.contains("BALANCED") && status.contains("COMPLETED 1"), "{status}");
}

#[tokio::test]
async fn what_is_down_is_said_in_time_and_the_rest_is_shown() {
    let system = System::start(&[]);
    system.sagactl(&["kill", "payment"]);
    let began = Instant::now();
    let status = system.try_sagactl(&["status"]);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let said = text(&status.stdout);
    assert_eq!(status.status.code(), HUMAN_NEEDED, "{said}");
    assert!(said.contains("payment does not run") && said.contains("sagas:"), "{said}");
    assert!(!said.contains("payment does not answer"), "once is enough:\n{said}");
    let doctor = text(&system.try_sagactl(&["doctor"]).stdout);
    let start = doctor.lines().find(|line| line.ends_with("start payment")).expect("how to start it").trim();
    let output = Command::new("sh").args(["-c", start]).current_dir("/").output().expect("a shell");
    assert!(output.status.success(), "{start}: {}", text(&output.stderr));

    // Without admin nobody knows, and what runs is shown all the same.
    system.sagactl(&["stop", "admin"]);
    let status = system.try_sagactl(&["status", "--json"]);
    assert_eq!(status.status.code(), HUMAN_NEEDED);
    let told: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!((&told["needs_human"], &told["overview"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(told["processes"].as_array().map(Vec::len), Some(6));
    let elsewhere = Command::new(programs().join("sagactl"))
        .args(["doctor", "--admin", &system.url("admin", "")])
        .current_dir(workspace())
        .output()
        .expect("sagactl runs");
    assert_eq!(elsewhere.status.code(), Some(1));
    assert_eq!(text(&elsewhere.stderr).lines().count(), 1, "{}", text(&elsewhere.stderr));
}

/// A fault is named while nothing waits for it, and needs somebody once an injected pause holds messages back.
#[tokio::test]
async fn an_injected_pause_is_named_and_needs_somebody_once_it_holds_messages_back() {
    let system = System::start(&[PATIENT, "payment.readiness.max_consumer_stall=500ms"]);
    system.list("pen", 10).await;
    system.sagactl(&["faults", "inject", "payment", "pause", "--step", STEP]);
    let named = "1 fault is injected at payment: pause of payment-processing; `";
    for command in ["status", "doctor"] {
        let said = system.sagactl(&[command]);
        assert!(said.starts_with("nobody is needed") && said.contains(named), "{said}");
        assert!(said.contains(" faults clear payment` ends it"), "{said}");
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
    // What is told to be done is done, and that is all there was.
    let clear = doctor.lines().map(str::trim).find(|line| line.ends_with(" faults clear payment"));
    let clear = clear.expect("how to end it");
    let output = Command::new("sh").args(["-c", clear]).current_dir("/").output().expect("a shell");
    assert!(output.status.success(), "{clear}: {}", text(&output.stderr));
    wait_until("nobody is needed, nor is anything injected", async || {
        let output = system.try_sagactl(&["doctor"]);
        output.status.success() && !text(&output.stdout).contains("injected")
    })
    .await;
    assert!(system.try_sagactl(&["status"]).status.success());
}
