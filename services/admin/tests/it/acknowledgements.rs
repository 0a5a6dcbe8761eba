//! Findings that somebody works on.

use admin::notifications::state::{NotificationCommand, NotificationRejection, Observation};
use admin_api::actor::Actor;
use admin_api::overview::Finding;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::given::announced;
use crate::notification_state::{Notifier, RECOVERED, REMINDER, finding, needed, seen};
use crate::notifications::{admin_for, dead_lettered, wait_until};
use crate::receiver::{Manner, Receiver};

const HOUR: i64 = 3_600;

fn acknowledge(key: &str, seconds: i64) -> NotificationCommand {
    let by = Actor { operator: "ada".to_owned(), reason: Some("calls the bank".to_owned()) };
    NotificationCommand::Acknowledge { key: key.to_owned(), by, time: SignedDuration::from_secs(seconds) }
}

fn is_acknowledged(notifier: &Notifier, key: &str) -> bool {
    notifier.state.acknowledged(key, notifier.now()).is_some()
}

#[test]
fn nobody_is_reminded_of_a_finding_until_its_acknowledgement_ends() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    notifier.execute(acknowledge("a", 3 * HOUR));
    assert_eq!(notifier.delivers(2 * HOUR, &["a"]), None);
    assert!(is_acknowledged(&notifier, "a"));
    assert_eq!(notifier.delivers(3 * HOUR, &["a"]), REMINDER);
    assert!(!is_acknowledged(&notifier, "a"));
}

#[test]
fn acknowledged_finding_is_not_reported_at_first_but_others_are() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["unreachable:a"]), None, "it may pass");
    notifier.execute(acknowledge("unreachable:a", HOUR));
    assert_eq!(notifier.delivers(100, &["unreachable:a"]), None);
    assert_eq!(notifier.delivers(200, &["unreachable:a", "b"]), needed(&["b"]));
    assert_eq!(notifier.delivers(HOUR, &["unreachable:a", "b"]), needed(&["unreachable:a"]));
}

#[test]
fn acknowledged_finding_that_becomes_much_worse_is_reported_again() {
    let mut notifier = Notifier::default();
    let of = |count| Observation {
        findings: vec![Finding { count: Some(count), ..finding("urgent:a") }],
        ..seen(&[])
    };
    assert_eq!(notifier.delivers_all(0, of(10)), needed(&["urgent:a"]));
    notifier.execute(acknowledge("urgent:a", HOUR));
    assert_eq!(notifier.delivers_all(100, of(99)), None);
    assert_eq!(notifier.delivers_all(200, of(100)), needed(&["urgent:a"]));
}

#[test]
fn acknowledgement_ends_with_its_finding_or_by_hand() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    notifier.execute(acknowledge("a", HOUR));
    notifier.execute(acknowledge("a", 0));
    assert!(!is_acknowledged(&notifier, "a"));
    notifier.execute(acknowledge("a", 10 * HOUR));
    assert_eq!(notifier.delivers(100, &[]), None, "it may come back");
    assert_eq!(notifier.try_execute(acknowledge("a", HOUR)), Err(NotificationRejection::NotOpen));
    assert_eq!(notifier.delivers(200, &[]), RECOVERED);
    assert_eq!(notifier.delivers(300, &["a"]), needed(&["a"]));
    assert!(!is_acknowledged(&notifier, "a"), "it is another one");
}

#[tokio::test]
async fn overview_and_notifications_show_who_works_on_a_finding() {
    let receiver = Receiver::new(Manner::status(204)).await;
    let admin = admin_for(&receiver).await;
    let key = "dead_letters:f";
    let body = |seconds: u32| json!({ "key": key, "seconds": seconds, "reason": "calls the bank" });
    admin.post("/findings/acknowledge", &body(60), 404).await;
    admin.receives(&announced(&dead_lettered("f", 1))).await;
    wait_until("somebody is notified", async || receiver.received().len() == 1).await;
    admin.post("/findings/acknowledge", &body(604_801), 422).await;
    let answer = admin.post("/findings/acknowledge", &body(60), 200).await;
    assert_eq!(answer["acknowledged"]["operator"], "ada");
    let overview = admin.get("/overview").await;
    let shown = acknowledged(&overview["findings"]);
    assert_eq!((&shown["operator"], &shown["reason"]), (&"ada".into(), &"calls the bank".into()));
    assert_eq!(acknowledged(&admin.get("/notifications").await["open"]), shown);
    let log = admin.get("/audit?action=finding.acknowledge").await;
    assert_eq!((&log["entries"][0]["target"], &log["entries"][0]["operator"]), (&key.into(), &"ada".into()));
    admin.post("/findings/acknowledge", &body(0), 200).await;
    assert_eq!(acknowledged(&admin.get("/overview").await["findings"]), Value::Null);
}

/// Acknowledgement of the finding of the test in a list.
fn acknowledged(findings: &Value) -> Value {
    let is_it = |finding: &&Value| finding["key"] == "dead_letters:f";
    findings.as_array().and_then(|all| all.iter().find(is_it)).expect("the finding")["acknowledged"].clone()
}
