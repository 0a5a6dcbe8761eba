//! Shell: tokens: roles limit requests, and revoked tokens are rejected.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};
use std::time::Duration;

use contract::access::ACCESS;
use contract::topology::PARTICIPANTS;
use reqwest::{Method, RequestBuilder, StatusCode};
use saga_core::access::Role;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::operator::LONG_DEADLINE;
use crate::system::{System, text, wait_until};

impl System {
    /// Starts a system with tokens on.
    fn guarded(settings: &[&str]) -> (Self, String) {
        let system = Self::not_started();
        let printed = system.sagactl(&system.up(&["--detach", "--tokens"], settings));
        (system, printed)
    }

    /// Issues a token.
    fn token(&self, name: &str, role: &str) -> String {
        let printed = self.sagactl(&["token", "create", name, "--role", role, "--expires", "1d"]);
        assert_eq!(printed.lines().count(), 1, "{printed}");
        printed.trim().to_owned()
    }

    /// Runs sagactl with a token.
    fn sagactl_as(&self, token: &str, arguments: &[&str]) -> Output {
        self.command(arguments).env("SAGA_TOKEN", token).output().expect("sagactl runs")
    }
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.expect("an answer").status()
}

#[tokio::test]
async fn roles_limit_commands_and_revoked_tokens_are_rejected() {
    let (system, printed) = System::guarded(&[LONG_DEADLINE]);
    assert!(printed.contains("tokens      on"), "{printed}");
    system.list("pen", 100).await;
    // This program's own token is the local one's: it need not be named.
    let inject =
        ["faults", "inject", "payment", "fail_permanently", "--step", "payment-processing", "--next", "1"];
    system.sagactl(&inject);
    system.place(1).await;
    let list = || system.http.get(system.url("admin", "/api/admin/dlq"));
    let own = fs::read_to_string(system.path().join("credentials/sagactl.token")).expect("a token");
    let mut id = String::new();
    wait_until("it is dead-lettered", async || {
        let answer = list().bearer_auth(own.trim()).send().await.expect("an answer");
        let page: Value = answer.json().await.expect("JSON");
        id = page["dead_letters"][0]["id"].as_str().unwrap_or_default().to_owned();
        !id.is_empty()
    })
    .await;
    let (vera, oscar) = (system.token("vera", "viewer"), system.token("oscar", "operator"));
    let replay = || {
        let path = format!("/api/admin/dlq/{id}/replay");
        system.post("admin", &path).header("X-Operator", "eve").json(&json!({}))
    };
    // They were issued just now, and every service reads them by itself.
    let service_stats = || system.http.get(system.url("payment", "/internal/stats"));
    wait_until("vera is let in", async || {
        status(list().bearer_auth(&vera)).await == 200
            && status(service_stats().bearer_auth(&vera)).await == 200
    })
    .await;
    for (request, wanted) in [
        (list(), 401),
        (list().bearer_auth(&vera[..40]), 401),
        (list().basic_auth("vera", Some(&vera)), 401),
        (replay(), 401),
        (replay().bearer_auth(&vera), 403),
        (service_stats(), 401),
        (system.http.get(system.url("bank", "/internal/faults")), 401),
        (service_stats().bearer_auth(&vera), 200),
        (system.http.get(system.url("payment", "/api/payments")), 401),
        (system.http.get(system.url("payment", "/api/payments")).bearer_auth(&vera), 200),
        (system.post("payment", "/api/payments/x/refund").bearer_auth(&vera), 403),
        (system.post("bank", "/v1/charges"), 401),
        (system.http.get(system.url("order", "/readyz")), 200),
        (system.http.get(system.url("order", "/metrics")), 200),
    ] {
        assert_eq!(status(request).await, wanted);
    }
    let rejected = system.sagactl_as(&vera, &["dlq", "replay", &id]);
    assert_eq!(rejected.status.code(), Some(2));
    assert!(text(&rejected.stderr).contains("needs the role operator"), "{}", text(&rejected.stderr));
    let listed = system.sagactl_as(&vera, &["dlq", "list", "--json"]);
    assert!(text(&listed.stdout).contains(&id), "{}", text(&listed.stderr));
    assert_eq!(status(replay().bearer_auth(&oscar)).await, 202);

    system.sagactl(&["token", "revoke", "oscar"]);
    let revoked = Instant::now();
    wait_until("oscar is rejected", async || status(list().bearer_auth(&oscar)).await == 401).await;
    assert!(revoked.elapsed() < Duration::from_secs(1), "after {:?}", revoked.elapsed());
    let rejected = system.sagactl_as(&oscar, &["dlq", "list"]);
    assert!(text(&rejected.stderr).contains("--token"), "{}", text(&rejected.stderr));
    assert_eq!(status(list().bearer_auth(&vera)).await, 200);

    let log = system.sagactl(&["log", "--json"]);
    let log: Value = serde_json::from_str(&log).expect("JSON");
    let who = |action: &str| {
        let entries = log["items"].as_array().expect("entries");
        entries.iter().find(|entry| entry["action"] == action).map(|entry| entry["operator"].clone())
    };
    assert_eq!(who("dlq.replay"), Some(json!("oscar")), "{log:#}");
    assert_eq!(who("fault.inject"), Some(json!("sagactl")), "{log:#}");
    wait_until("the order is paid", async || {
        system.sagactl(&["dlq", "list", "--json"]).contains("\"items\":[]")
    })
    .await;
    system.sagactl(&["reconcile"]);
    system.sagactl(&["status"]);
    no_token_is_anywhere(&system, &[vera, oscar, own.trim().to_owned()]);
}

/// The operator is the holder of the token, whoever the header names. A service publishes the entry with the change.
#[tokio::test]
async fn changes_at_services_are_in_the_audit_log() {
    let (system, _) = System::guarded(&[]);
    system.list("pen", 100).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    let id = order["id"].as_str().expect("an id");
    let oscar = system.token("oscar", "operator");
    let price = json!({"unit_price": {"amount_minor": 900, "currency": "EUR"}});
    let reprice = || {
        let request = system.http.put(system.url("inventory", "/api/products/pen/price"));
        request.bearer_auth(&oscar).header("X-Operator", "eve").json(&price)
    };
    wait_until("oscar is let in", async || status(reprice()).await == 200).await;
    let restock = system.post("inventory", "/api/products/pen/restock").bearer_auth(&oscar);
    assert_eq!(status(restock.json(&json!({"quantity": 5}))).await, 200);
    let refund = || system.post("payment", &format!("/api/payments/{id}/refund"));
    assert_eq!(status(refund()).await, 401);
    wait_until("payment knows oscar", async || status(refund().bearer_auth(&oscar)).await == 200).await;
    wait_until("all changes are in the audit log", async || {
        let log = system.sagactl_json(&["log"]);
        [
            ("oscar", "product.price", "pen"),
            ("oscar", "product.restock", "pen"),
            ("oscar", "payment.refund", id),
            ("sagactl", "product.list", "pen"),
        ]
        .into_iter()
        .all(|(operator, action, target)| {
            log["items"].as_array().into_iter().flatten().any(|entry| {
                (&entry["operator"], &entry["action"], &entry["target"])
                    == (&json!(operator), &json!(action), &json!(target))
            })
        })
    })
    .await;
}

/// Sends a request to every described route of every service: without a token, and with that of a viewer.
#[tokio::test]
async fn every_described_route_asks_for_the_role_of_the_table() {
    let (system, _) = System::guarded(&[]);
    let vera = system.token("vera", "viewer");
    let stats = |service| system.http.get(system.url(service, "/internal/stats")).bearer_auth(&vera);
    let mut walked = 0;
    for participant in &PARTICIPANTS {
        let service = participant.name;
        wait_until("the new token is known", async || status(stats(service)).await == 200).await;
        let api = system.get(service, "/openapi.json").await;
        for (path, operations) in api["paths"].as_object().expect("paths") {
            for (name, operation) in operations.as_object().expect("operations") {
                let (method, route) = (name.to_uppercase(), format!("{name} {service} {path}"));
                let rule = ACCESS.rule(&method, path);
                let role =
                    rule.unwrap_or_else(|| panic!("{route} is not in shared/contract/src/access.rs")).role;
                assert_eq!(role.is_some(), operation["security"].is_array(), "{route}");
                let method = Method::from_bytes(method.as_bytes()).expect("a method");
                let request = || system.http.request(method.clone(), system.url(service, &filled(path)));
                let (without, as_viewer) =
                    (status(request()).await, status(request().bearer_auth(&vera)).await);
                assert_eq!(without == 401, role.is_some(), "{route} answers {without} without a token");
                let is_too_small = role.is_some_and(|role| role > Role::Viewer);
                assert_eq!(as_viewer == 403, is_too_small, "{route} answers {as_viewer} to a viewer");
                assert_ne!(as_viewer, 401, "{route}");
                walked += 1;
            }
        }
    }
    assert!(walked > 60, "{walked} routes");
}

/// Replaces the parameters of a path by a text that is no id.
fn filled(path: &str) -> String {
    let segment = |part: &str| if part.starts_with('{') { "x".to_owned() } else { part.to_owned() };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Asserts that tokens are in no log, command line or file but their own.
#[track_caller]
fn no_token_is_anywhere(system: &System, tokens: &[String]) {
    for entry in fs::read_dir(system.path().join("log")).expect("logs") {
        let path = entry.expect("a log").path();
        let log = fs::read_to_string(&path).expect("text");
        assert!(
            !log.contains("saga_") || tokens.iter().all(|token| !log.contains(&token[5..20])),
            "{path:?}"
        );
    }
    let kept = fs::read_to_string(system.path().join("credentials/tokens.json")).expect("a file");
    assert!(tokens.iter().all(|token| !kept.contains(&token[5..20])), "{kept}");
    for file in ["tokens.json", "internal.token", "payment.token", "sagactl.token"] {
        let about = fs::metadata(system.path().join("credentials").join(file)).expect("a file");
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{file}");
    }
    for pid in fs::read_dir(system.path().join("run")).expect("processes") {
        let pid = fs::read_to_string(pid.expect("a file").path()).expect("text");
        let number: String =
            pid.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        let Ok(arguments) = fs::read_to_string(format!("/proc/{number}/cmdline")) else { continue };
        assert!(tokens.iter().all(|token| !arguments.contains(&token[5..20])), "{arguments}");
    }
}

#[test]
fn system_without_tokens_reports_open_access_without_a_finding() {
    let system = System::not_started();
    let printed = system.sagactl(&system.up(&["--detach"], &[]));
    assert!(printed.contains("tokens      off") && printed.contains("up --tokens"), "{printed}");
    let status = system.sagactl(&["status"]);
    assert!(status.contains("no human is needed") && status.contains("authorization is off"), "{status}");
    assert_eq!(status.matches("authorization is off").count(), 1, "once for all: {status}");
    let log = fs::read_to_string(system.path().join("log/admin.log")).expect("a log");
    assert!(log.contains("authorization is off"), "{log}");
    let rejected = system.try_sagactl(&["token", "create", "ada", "--role", "admin"]);
    assert!(text(&rejected.stderr).contains("up --tokens"), "{}", text(&rejected.stderr));
    assert_eq!(rejected.status.code(), Some(2));
}

#[tokio::test]
async fn tokens_stay_on_after_a_fresh_start() {
    let (system, _) = System::guarded(&[]);
    let old = system.token("ada", "admin");
    system.sagactl(&["down"]);
    let printed = system.sagactl(&system.up(&["--detach", "--fresh"], &[]));
    assert!(printed.contains("tokens      on"), "{printed}");
    let list = || system.http.get(system.url("admin", "/api/admin/dlq"));
    assert_eq!(status(list()).await, 401);
    assert_eq!(status(list().bearer_auth(&old)).await, 401, "all of the old system is gone");
    system.sagactl(&["dlq", "list"]);
    assert_eq!(system.sagactl_json(&["token", "list"])["items"].as_array().map(Vec::len), Some(3));
}

/// A lock file may belong to another user, mostly root, who issued a token before.
#[test]
fn lock_of_another_user_is_used_or_reported_with_its_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::copy(env!("CARGO_BIN_EXE_sagactl"), at("sagactl")).expect("a copy that others reach too");
    let (file, lock) = (at("tokens.json"), at("tokens.lock"));
    fs::write(&lock, "").expect("a file");
    let owner = fs::metadata(&lock).expect("it is there").uid();
    let mode = |mode| fs::set_permissions(&lock, fs::Permissions::from_mode(mode)).expect("it is ours");
    let issue = |name: &str| {
        let mut sagactl = Command::new(at("sagactl"));
        sagactl.args(["token", "create", name, "--role", "viewer", "--file"]).arg(&file);
        // Nothing is closed to root.
        if owner == 0 {
            sagactl.uid(UNKNOWN_ID).gid(UNKNOWN_ID);
        }
        let output = sagactl.current_dir(folder.path()).output().expect("sagactl runs");
        (output.status.code(), text(&output.stderr))
    };
    if owner == 0 {
        chown(folder.path(), Some(UNKNOWN_ID), Some(UNKNOWN_ID)).expect("root may");
    }
    mode(0o000);
    let (code, printed) = issue("ada");
    assert_eq!(code, Some(1), "{printed}");
    for wanted in [lock.display().to_string(), format!("uid {owner}"), "chown".to_owned()] {
        assert!(printed.contains(&wanted), "{wanted} is not in: {printed}");
    }
    assert!(!file.exists(), "nothing is issued without the lock");
    // To hold it, it is enough to see it.
    mode(0o444);
    assert_eq!(issue("ada"), (Some(0), String::new()));
    assert!(fs::read_to_string(&file).expect("it was made").contains("ada"));
}

/// User who owns no file of a test.
const UNKNOWN_ID: u32 = 65_534;
