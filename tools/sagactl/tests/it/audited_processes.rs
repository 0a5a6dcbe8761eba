//! Shell: starts, stops and kills of processes in the audit log, also while admin is down.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::system::{System, text};

/// Changes of processes in the order of their time: operator, action, process, command and outcome.
fn logged(system: &System, more: &[&str]) -> Vec<[String; 5]> {
    let list = [&["log", "list", "--json", "--limit", "200"], more].concat();
    let page: Value = serde_json::from_str(&system.sagactl(&list)).expect("JSON");
    let entries = page["items"].as_array().expect("entries").iter().rev();
    let changes =
        entries.filter(|entry| entry["action"].as_str().is_some_and(|it| it.starts_with("process.")));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let change = |entry: &Value| {
        let command = &entry["detail"]["command"];
        [&entry["operator"], &entry["action"], &entry["target"], command, &entry["outcome"]].map(text)
    };
    changes.map(change).collect()
}

fn change(operator: &str, action: &str, process: &str, command: &str) -> [String; 5] {
    [operator, &format!("process.{action}"), process, command, "done"].map(str::to_owned)
}

#[test]
fn changes_of_processes_are_logged_once_also_while_admin_is_down() {
    let system = System::not_started();
    let by = |name: &'static str, words: &[&str]| {
        system.sagactl(&[words, &["--operator", name]].concat());
    };
    let mut up = system.up(&["--detach"], &[]);
    up.extend(["--operator", "ada"].map(str::to_owned));
    system.sagactl(&up);
    let all = ["nats", "bank", "order", "inventory", "payment", "admin"];
    let mut wanted: Vec<_> = all.map(|process| change("ada", "start", process, "up")).to_vec();
    assert_eq!(logged(&system, &[]), wanted);

    by("eve", &["stop", "payment"]);
    by("eve", &["stop", "payment"]);
    wanted.push(change("eve", "stop", "payment", "stop"));
    assert_eq!(logged(&system, &[]), wanted, "a process that does not run is not stopped again");
    by("eve", &["stop", "admin"]);
    by("bob", &["kill", "order"]);
    by("bob", &["start", "order"]);
    let recorded = || fs::read_dir(system.path().join("audit")).expect("a folder").count();
    assert_eq!(recorded(), 3, "admin is down");
    let copies: Vec<_> = fs::read_dir(system.path().join("audit"))
        .expect("a folder")
        .map(|file| file.expect("a file").path())
        .map(|path| (fs::read(&path).expect("its text"), path))
        .collect();
    by("ada", &["start", "admin"]);
    wanted.push(change("eve", "stop", "admin", "stop"));
    wanted.push(change("bob", "kill", "order", "kill"));
    wanted.push(change("bob", "start", "order", "start"));
    wanted.push(change("ada", "start", "admin", "start"));
    assert_eq!(logged(&system, &[]), wanted);
    assert_eq!(recorded(), 0);

    // As if the answer of admin had been lost; and a command that was killed before it knew its outcome.
    for (text, path) in copies {
        fs::write(path, text).expect("written");
    }
    let (id, at) = (Uuid::now_v7(), Timestamp::now() - SignedDuration::from_hours(2));
    let left = json!({
        "id": id, "at": at, "operator": "eve", "change": "kill", "process": "bank",
        "command": "kill", "outcome": "asked",
    });
    fs::write(system.path().join(format!("audit/{id}.json")), left.to_string()).expect("written");
    by("ada", &["start", "payment"]);
    wanted.push(change("ada", "start", "payment", "start"));
    let [mut unknown] = [change("eve", "kill", "bank", "kill")];
    unknown[4] = "asked".to_owned();
    wanted.push(unknown);
    assert_eq!(logged(&system, &[]), wanted);
    assert_eq!(recorded(), 0);

    by("ada", &["down"]);
    system.sagactl(&up);
    let stopped = logged(&system, &["--action", "process.stop", "--target", "bank"]);
    assert_eq!(stopped, [change("ada", "stop", "bank", "down")]);
}

/// An older admin may reject what a newer one takes.
#[test]
fn rejected_change_is_sent_again_until_it_is_too_old() {
    let system = System::start(&[]);
    let old = uuid::Timestamp::from_unix(uuid::NoContext, 1_700_000_000, 0);
    let ids = [Uuid::now_v7(), Uuid::new_v7(old)];
    let write = |id: &Uuid, process: &str| {
        let change = json!({
            "id": id, "at": Timestamp::now(), "operator": "ada", "change": "stop", "process": process,
            "command": "stop", "outcome": "done",
        });
        fs::write(system.path().join(format!("audit/{id}.json")), change.to_string()).expect("written");
    };
    let is_file = |id: &Uuid, extension: &str| system.path().join(format!("audit/{id}.{extension}")).exists();
    ids.iter().for_each(|id| write(id, &"x".repeat(101)));
    let said = text(&system.try_sagactl(&["stop", "bank"]).stderr);
    assert!(said.contains("later commands send it again"), "{said}");
    assert_eq!(ids.each_ref().map(|id| is_file(id, "json")), [true, false]);
    assert_eq!(ids.each_ref().map(|id| is_file(id, "rejected")), [false, true]);
    write(&ids[0], "order-9");
    system.sagactl(&["start", "bank"]);
    assert!(!is_file(&ids[0], "json"));
    assert_eq!(logged(&system, &["--target", "order-9"]), [change("ada", "stop", "order-9", "stop")]);
}

#[test]
fn operator_of_a_process_change_is_the_token_that_reports_it() {
    let system = System::not_started();
    system.sagactl(&system.up(&["--detach", "--tokens"], &[]));
    let token = system.sagactl(&["token", "create", "vera", "--role", "viewer"]);
    let stop = ["stop", "bank", "--token", token.trim(), "--operator", "eve"];
    let stopped = text(&system.try_sagactl(&stop).stderr);
    assert_eq!(stopped.matches("\"eve\" does not count").count(), 1, "{stopped}");
    let started = text(&system.try_sagactl(&["start", "bank", "--operator", "eve"]).stderr);
    assert!(!started.contains("warning"), "it is recorded: {started}");
    let changes = ["start", "stop", "start"].iter().zip(["up", "stop", "start"]);
    let wanted: Vec<_> = changes.map(|(what, by)| change("sagactl", what, "bank", by)).collect();
    assert_eq!(logged(&system, &["--target", "bank"]), wanted);
    // A viewer may stop processes of its own machine, but not write to the log.
    let of_vera = logged(&system, &["--target", "bank", "--text", "vera"]);
    assert_eq!(of_vera, [change("sagactl", "stop", "bank", "stop")]);
    // The name of the person is found as that of an operator.
    for (person, change) in
        [("eve", change("sagactl", "start", "bank", "start")), ("vera", of_vera[0].clone())]
    {
        assert_eq!(logged(&system, &["--by", person]), [change], "{person}");
    }
    let noted =
        system.command(&["notifications", "test", "--wait", "0s"]).env("SAGA_OPERATOR", "eve").output();
    let noted = text(&noted.expect("sagactl runs").stderr);
    assert_eq!(noted.matches("\"eve\" does not count").count(), 1, "{noted}");
}

#[test]
fn anonymous_change_of_a_process_is_warned_of_before_it_is_made() {
    let system = System::start(&[]);
    for action in ["stop", "start", "kill"] {
        let mut sagactl = system.command(&[action, "bank"]);
        let output = sagactl.env_remove("USER").env_remove("SAGA_OPERATOR").output().expect("sagactl runs");
        let printed = text(&output.stderr);
        assert!(output.status.success(), "{printed}");
        let first = printed.lines().next().unwrap_or_default();
        assert!(first.contains("will say \"anonymous\""), "{action}: {printed}");
    }
}

#[test]
fn issued_and_revoked_tokens_are_logged_without_secrets_also_while_admin_is_down() {
    let system = System::not_started();
    system.sagactl(&system.up(&["--detach", "--tokens"], &[]));
    let by_eve = ["--operator", "eve"];
    let create = ["token", "create", "vera", "--role", "viewer", "--expires", "1d"];
    let token = system.sagactl(&[&create[..], &by_eve].concat());
    system.sagactl(&["stop", "admin"]);
    system.sagactl(&[&["token", "revoke", "vera"][..], &by_eve].concat());
    system.sagactl(&["start", "admin"]);
    let listed = system.sagactl(&["log", "list", "--target", "vera", "--json"]);
    let page: Value = serde_json::from_str(&listed).expect("JSON");
    let each = |path: &str| -> Vec<Value> {
        let entries = page["items"].as_array().expect("entries").iter();
        entries.map(|entry| entry.pointer(path).cloned().unwrap_or_default()).collect()
    };
    assert_eq!(each("/action"), ["token.revoke", "token.create"]);
    assert_eq!(each("/detail/command"), ["token revoke", "token create --role viewer"]);
    assert_eq!(
        (each("/operator"), each("/detail/reported_operator")),
        (vec![json!("sagactl"); 2], vec![json!("eve"); 2])
    );
    let time =
        |path: &str| page.pointer(path).and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok());
    let expires = time("/items/1/detail/expires").expect("an expiry");
    let valid_for = expires.duration_since(time("/items/1/at").expect("a time"));
    assert!((86_390..=86_400).contains(&valid_for.as_secs()), "{listed}");
    assert!(!listed.contains(token.trim()) && !listed.contains("saga_"), "{listed}");
    assert!(!system.try_sagactl(&["token", "revoke", "vera"]).status.success());
    let listed = system.sagactl(&["log", "list", "--target", "vera", "--json"]);
    let page: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "what failed changed nothing");
}
