//! Shell: tokens: roles, the recorded operator, and admin's calls to services.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Method, RequestBuilder};
use saga_core::access::{Issued, Role, Token, Tokens};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::audit_log::process_change;
use crate::given::announced;
use crate::harness::{AdminHarness, answered};
use crate::routes::numbered;

fn token(name: &str) -> Token {
    let mut bytes = [7; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Token::of(bytes)
}

fn private(file: &Path, text: &str) {
    std::fs::write(file, text).expect("written");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// Admin with tokens for all roles, with or without one of its own.
async fn guarded(has_own: bool) -> (AdminHarness, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tokens = Tokens::default();
    for (name, role) in
        [("vera", Role::Viewer), ("oscar", Role::Operator), ("ada", Role::Admin), ("internal", Role::Admin)]
    {
        let (sha256, created) = (token(name).digest(), Timestamp::now());
        let issued = Issued { name: name.to_owned(), role, sha256, created, expires: None, rate: None };
        tokens.issue(issued).expect("a good name");
    }
    let [all, own] = ["tokens.json", "internal.token"].map(|name| folder.path().join(name));
    private(&all, &tokens.written());
    private(&own, token("internal").secret());
    let mut flags = vec![format!("http.tokens={}", all.display()), "faults.enabled=true".to_owned()];
    flags.extend(has_own.then(|| format!("http.token={}", own.display())));
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    (AdminHarness::with(&flags).await, folder)
}

fn ask(admin: &AdminHarness, method: Method, path: &str, name: &str) -> RequestBuilder {
    admin.request(method, path).bearer_auth(token(name).secret())
}

#[tokio::test]
async fn operator_is_the_holder_of_the_token() {
    let (admin, _folder) = guarded(true).await;
    let dead = numbered(1);
    admin.receives(&announced(&dead)).await;
    let note = format!("/dlq/{}/notes", dead.id);
    let noted =
        ask(&admin, Method::POST, &note, "oscar").header("X-Operator", "ada").json(&json!({"text": "seen"}));
    answered(noted, 201).await;
    let log = answered(ask(&admin, Method::GET, "/audit", "vera"), 200).await;
    assert_eq!(
        (&log["entries"][0]["operator"], &log["entries"][0]["action"]),
        (&json!("oscar"), &json!("dlq.note"))
    );
    let detail = answered(ask(&admin, Method::GET, &format!("/dlq/{}", dead.id), "vera"), 200).await;
    assert!(!detail.to_string().contains("\"ada\""), "{detail}");
    assert!(!log.to_string().contains("saga_"), "no token is shown: {log}");
    // It does not count, and has to make sense all the same, as it does where tokens are off.
    let nonsense = ask(&admin, Method::POST, &note, "oscar").header("X-Operator", "x".repeat(101));
    let rejected = answered(nonsense.json(&json!({"text": "seen"})), 422).await;
    assert_eq!(rejected["errors"][0]["field"], "X-Operator", "{rejected}");
}

/// Regression: an admin could write entries in the name of others.
#[tokio::test]
async fn operator_of_a_reported_change_is_the_holder_of_the_token() {
    let (admin, _folder) = guarded(true).await;
    let change = process_change("eve", Timestamp::now());
    answered(ask(&admin, Method::POST, "/audit/processes", "ada").json(&change), 204).await;
    let log = answered(ask(&admin, Method::GET, "/audit", "vera"), 200).await;
    let entry = &log["entries"][0];
    let detail = json!({"command": "stop", "reported_operator": "eve"});
    assert_eq!((&entry["operator"], &entry["detail"]), (&json!("ada"), &detail));
    for (by, found) in [("EV", 1), ("ada", 1), ("stop", 0)] {
        let log = answered(ask(&admin, Method::GET, &format!("/audit?operator={by}"), "vera"), 200).await;
        assert_eq!(log["entries"].as_array().map(Vec::len), Some(found), "{by}: {log}");
    }
}

#[tokio::test]
async fn roles_limit_what_tokens_may_do() {
    let (admin, _folder) = guarded(true).await;
    let dead = numbered(1);
    admin.receives(&announced(&dead)).await;
    let replay = format!("/dlq/{}/replay", dead.id);
    let forced = json!({"force": true, "reason": "a test"});
    let edit = json!({"data": {}, "reason": "a test"});
    let many = json!({"filter": {"service": "payment"}, "reason": "a test", "force": true});
    let redrive = json!({"filter": {"service": "payment"}, "reason": "a test", "force": true});
    let fault = json!({"service": "order", "kind": "pause"});
    let rejected = |problem: &Value, role: &str| {
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(&format!("needs the role {role}")), "{problem}");
    };
    for path in ["/overview", "/sagas", "/dlq", "/breakers", "/audit"] {
        answered(ask(&admin, Method::GET, path, "vera"), 200).await;
        answered(admin.request(Method::GET, path), 401).await;
    }
    for (path, body) in [(&*replay, &json!({})), ("/dlq/replay", &many), ("/dlq/redrive", &redrive)] {
        rejected(&answered(ask(&admin, Method::POST, path, "vera").json(body), 403).await, "operator");
    }
    for (path, body) in [
        (&*replay, &forced),
        ("/dlq/replay", &many),
        ("/dlq/redrive", &redrive),
        (&*format!("/dlq/{}/edit", dead.id), &edit),
        ("/faults", &fault),
        ("/breakers/order/admin-saga-view", &json!({"action": "open", "reason": "a test"})),
    ] {
        rejected(&answered(ask(&admin, Method::POST, path, "oscar").json(body), 403).await, "admin");
    }
    let item = answered(ask(&admin, Method::GET, &format!("/dlq/{}", dead.id), "vera"), 200).await;
    assert_eq!(item["status"], "PENDING", "nothing was done: {item}");
    answered(ask(&admin, Method::POST, &replay, "oscar").json(&json!({})), 202).await;
    answered(ask(&admin, Method::POST, &replay, "ada").json(&forced), 202).await;
    answered(ask(&admin, Method::POST, "/faults", "ada").json(&fault), 201).await;
}

#[tokio::test]
async fn admin_calls_services_with_its_token_and_reports_its_rejection() {
    let (admin, _folder) = guarded(true).await;
    let breakers = answered(ask(&admin, Method::GET, "/breakers", "vera"), 200).await;
    assert_eq!(breakers[1]["problem"], Value::Null, "{breakers}");
    answered(admin.http.get(format!("{}/internal/breakers", admin.base)), 401).await;

    let (admin, _folder) = guarded(false).await;
    let breakers = answered(ask(&admin, Method::GET, "/breakers", "vera"), 200).await;
    let problem = breakers[1]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("order rejects admin's token: http.token"), "{breakers}");
    let fault = json!({"service": "order", "kind": "pause"});
    // No 401: the operator's token is good.
    let answer = answered(ask(&admin, Method::POST, "/faults", "ada").json(&fault), 503).await;
    assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains("http.token")), "{answer}");
}

#[tokio::test]
async fn event_stream_ends_when_its_token_is_removed() {
    let (admin, folder) = guarded(true).await;
    admin.receives(&announced(&numbered(1))).await;
    let plan = json!({"filter": {"service": "payment"}, "canary": 1, "rate": 1, "reason": "a test"});
    let redrive = answered(ask(&admin, Method::POST, "/dlq/redrive", "oscar").json(&plan), 202).await;
    let path = format!("/dlq/redrive/{}", redrive["id"].as_str().expect("an id"));
    let paused =
        ask(&admin, Method::POST, &format!("{path}/pause"), "oscar").json(&json!({"reason": "a test"}));
    answered(paused, 200).await;
    let listen = async |name| {
        let stream =
            ask(&admin, Method::GET, &format!("{path}/events"), name).send().await.expect("it answers");
        assert_eq!(stream.status(), 200);
        stream
    };
    let (mut of_ada, mut of_vera) = (listen("ada").await, listen("vera").await);
    let file = folder.path().join("tokens.json");
    let mut tokens = Tokens::read(&std::fs::read_to_string(&file).expect("it is there")).expect("tokens");
    tokens.revoke("vera").expect("she has one");
    private(&file, &tokens.written());
    let ends = async { while of_vera.chunk().await.expect("it ends well").is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), ends).await.expect("it ends");
    // Whose token holds hears on.
    assert!(of_ada.chunk().await.expect("it goes on").is_some());
    let next =
        tokio::time::timeout(Duration::from_secs(20), of_ada.chunk()).await.expect("it tells something");
    assert!(next.expect("it goes on").is_some());
}

#[tokio::test]
async fn openapi_lists_the_role_of_each_route() {
    let (admin, _folder) = guarded(true).await;
    let open = AdminHarness::new().await;
    let described = async |admin: &AdminHarness| {
        answered(admin.http.get(format!("{}/openapi.json", admin.base)), 200).await
    };
    for (api, security) in [
        (described(&admin).await, json!([{"token": []}])),
        (described(&open).await, json!([{"token": []}, {}])),
    ] {
        assert_eq!(api["components"]["securitySchemes"]["token"]["scheme"], "bearer");
        for (path, methods) in api["paths"].as_object().expect("paths") {
            for (method, route) in methods.as_object().expect("methods") {
                assert_eq!(route["security"], security, "{method} {path}");
                for status in ["401", "403", "429"] {
                    let content = &route["responses"][status]["content"];
                    assert!(content["application/problem+json"].is_object(), "{method} {path} {status}");
                }
                assert!(route["responses"]["401"]["headers"]["WWW-Authenticate"].is_object());
                assert!(route["responses"]["429"]["headers"]["Retry-After"].is_object());
            }
        }
    }
}
