//! Shell: starts, stops and kills of processes in the audit log, also while admin is down.

use std::fs;

use serde_json::{Value, json};

use crate::system::System;

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
    let id = "01890000-0000-7000-8000-000000000001";
    let left = json!({
        "id": id, "at": "2023-06-28T00:00:00Z", "operator": "eve", "change": "kill", "process": "bank",
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

#[test]
fn operator_of_a_process_change_is_the_token_that_reports_it() {
    let system = System::not_started();
    system.sagactl(&system.up(&["--detach", "--tokens"], &[]));
    let token = system.sagactl(&["token", "create", "vera", "--role", "viewer"]);
    system.sagactl(&["stop", "bank", "--token", token.trim(), "--operator", "eve"]);
    system.sagactl(&["start", "bank", "--operator", "eve"]);
    let changes = ["start", "stop", "start"].iter().zip(["up", "stop", "start"]);
    let wanted: Vec<_> = changes.map(|(what, by)| change("sagactl", what, "bank", by)).collect();
    assert_eq!(logged(&system, &["--target", "bank"]), wanted);
    // A viewer may stop processes of its own machine, but not write to the log.
    let of_vera = logged(&system, &["--target", "bank", "--text", "vera"]);
    assert_eq!(of_vera, [change("sagactl", "stop", "bank", "stop")]);
}

#[test]
fn issued_and_revoked_tokens_are_logged_without_secrets_also_while_admin_is_down() {
    let system = System::not_started();
    system.sagactl(&system.up(&["--detach", "--tokens"], &[]));
    let token = system.sagactl(&["token", "create", "vera", "--role", "viewer"]);
    system.sagactl(&["stop", "admin"]);
    system.sagactl(&["token", "revoke", "vera"]);
    system.sagactl(&["start", "admin"]);
    let listed = system.sagactl(&["log", "list", "--target", "vera", "--json"]);
    let page: Value = serde_json::from_str(&listed).expect("JSON");
    let entries = page["items"].as_array().expect("entries").iter();
    let entries: Vec<_> =
        entries.map(|it| [&it["action"], &it["detail"]["command"], &it["operator"]]).collect();
    let wanted = [
        [&json!("token.revoke"), &json!("token revoke"), &json!("sagactl")],
        [&json!("token.create"), &json!("token create --role viewer"), &json!("sagactl")],
    ];
    assert_eq!(entries, wanted);
    assert!(!listed.contains(token.trim()) && !listed.contains("saga_"), "{listed}");
    assert!(!system.try_sagactl(&["token", "revoke", "vera"]).status.success());
    let listed = system.sagactl(&["log", "list", "--target", "vera", "--json"]);
    let page: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "what failed changed nothing");
}
