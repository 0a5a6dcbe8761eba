//! Shell: invalid requests are rejected with the name of the member, and change nothing.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::given::{announced, dead_refund};
use crate::harness::AdminHarness;

const UNKNOWN: &str = "01890000-0000-7000-8000-000000000001";

/// Method, path, body, status, and invalid field.
type Resolution = (Method, String, Option<Value>, u16, &'static str);

async fn rejected(admin: &AdminHarness, cases: Vec<Resolution>) {
    let before = admin.everything().await;
    for (method, path, body, status, field) in cases {
        let what = format!("{method} {path} {}", body.as_ref().map(Value::to_string).unwrap_or_default());
        let mut request = admin.request(method, &path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        assert_problem(request, status, field, &what).await;
    }
    assert_eq!(admin.everything().await, before, "nothing has changed");
}

async fn assert_problem(request: RequestBuilder, status: u16, field: &str, what: &str) {
    let answer = request.send().await.expect("an answer");
    let got = answer.status();
    let form = answer.headers()["content-type"].clone();
    let problem: Value = answer.json().await.expect("a problem");
    assert_eq!(got, status, "{what}: {problem}");
    assert_eq!(form, "application/problem+json", "{what}");
    if !field.is_empty() {
        assert_eq!(problem["errors"][0]["field"], field, "{what}: {problem}");
    }
}

async fn admin_with_a_dead_letter(flags: &[&str]) -> (AdminHarness, Uuid) {
    let (admin, dead) = (AdminHarness::with(flags).await, dead_refund(0));
    admin.receives(&announced(&dead)).await;
    (admin, dead.id)
}

#[tokio::test]
async fn invalid_queries_are_rejected_by_field() {
    let (admin, id) = admin_with_a_dead_letter(&[]).await;
    let long = "x".repeat(201);
    let questions = [
        ("/dlq?status=LOST", 422, "status"),
        ("/dlq?status=PENDING,", 422, "status"),
        ("/dlq?status=pending", 422, "status"),
        ("/dlq?limit=0", 422, "limit"),
        ("/dlq?limit=201", 422, "limit"),
        ("/dlq?limit=-1", 400, "limit"),
        ("/dlq?limit=many", 400, "limit"),
        ("/dlq?saga=x", 400, "saga"),
        ("/dlq?failed_after=yesterday", 400, "failed_after"),
        ("/dlq?failed_before=2026-13-01T00:00:00Z", 400, "failed_before"),
        ("/dlq?cursor=x", 422, "cursor"),
        ("/dlq?cursor=MTIzL25vLWlk", 422, "cursor"),
        ("/dlq?cursor=", 422, "cursor"),
        ("/dlq?service=", 422, "service"),
        ("/dlq?text=", 422, "text"),
        (&format!("/dlq?text={long}"), 422, "text"),
        ("/dlq?surprise=1", 400, "surprise"),
        ("/dlq/groups?status=LOST", 422, "status"),
        ("/dlq/groups?limit=0", 422, "limit"),
        ("/dlq/groups?text=x", 400, "text"),
        ("/dlq/no-id", 400, ""),
        (&format!("/dlq/{UNKNOWN}"), 404, ""),
        ("/dlq/redrive?limit=201", 422, "limit"),
        ("/dlq/redrive?cursor=x", 400, "cursor"),
        ("/dlq/redrive/x", 400, ""),
        (&format!("/dlq/redrive/{UNKNOWN}"), 404, ""),
        (&format!("/dlq/redrive/{UNKNOWN}/events"), 404, ""),
        (&format!("/dlq/redrive/{id}"), 404, ""),
        ("/audit?limit=0", 422, "limit"),
        ("/audit?action=dlq.burn", 400, "action"),
        ("/audit?cursor=x", 400, "cursor"),
        ("/audit?who=ada", 400, "who"),
        ("/sagas?limit=9999", 422, "limit"),
        ("/sagas?status=LOST", 400, "status"),
        ("/reconciliation?wait=31", 422, "wait"),
    ];
    let case = |(path, status, field): (&str, u16, &'static str)| {
        (Method::GET, path.to_owned(), None, status, field)
    };
    rejected(&admin, questions.map(case).to_vec()).await;
}

#[tokio::test]
async fn invalid_dead_letter_commands_are_rejected_by_field() {
    let (admin, id) = admin_with_a_dead_letter(&[]).await;
    let long = "x".repeat(501);
    let one = |what: &str| format!("/dlq/{id}/{what}");
    let many = "/dlq/replay".to_owned();
    let ids: Vec<_> = (0..1001).map(|_| UNKNOWN).collect();
    let commands = [
        (one("replay"), json!({"reason": ""}), 422, "reason"),
        (one("replay"), json!({"reason": long}), 422, "reason"),
        (one("replay"), json!({"force": true}), 422, "reason"),
        (one("replay"), json!({"force": "yes"}), 422, "force"),
        (one("replay"), json!({"version": -1}), 422, "version"),
        (one("replay"), json!({"version": 7}), 409, ""),
        (one("replay"), json!({"surprise": 1}), 422, "surprise"),
        ("/dlq/x/replay".to_owned(), json!({}), 400, ""),
        (format!("/dlq/{UNKNOWN}/replay"), json!({}), 404, ""),
        (one("restore"), json!({}), 409, ""),
        (one("restore"), json!({"reason": ""}), 422, "reason"),
        (format!("/dlq/{UNKNOWN}/restore"), json!({}), 404, ""),
        (one("notes"), json!({}), 422, "text"),
        (one("notes"), json!({"text": ""}), 422, "text"),
        (one("notes"), json!({"text": "x".repeat(2001)}), 422, "text"),
        (one("notes"), json!({"text": 1}), 422, "text"),
        (format!("/dlq/{UNKNOWN}/notes"), json!({"text": "x"}), 404, ""),
        (one("edit"), json!({"reason": "x"}), 422, "data"),
        (one("edit"), json!({"data": {}}), 422, "reason"),
        (one("edit"), json!({"data": {}, "payload": {}, "reason": "x"}), 422, "payload"),
        (one("edit"), json!({"data": {}, "reason": "x"}), 422, "data"),
        (one("edit"), json!({"payload": 7, "reason": "x"}), 422, "payload"),
        (one("edit"), json!({"payload": {}, "reason": "x", "version": 9}), 409, ""),
        (format!("/dlq/{UNKNOWN}/edit"), json!({"payload": {}, "reason": "x"}), 404, ""),
        (many.clone(), json!({"ids": [id]}), 422, "reason"),
        (many.clone(), json!({"reason": "x"}), 422, "filter"),
        (many.clone(), json!({"ids": [], "reason": "x"}), 422, "ids"),
        (many.clone(), json!({"ids": ids, "reason": "x"}), 422, "ids"),
        (many.clone(), json!({"ids": ["x"], "reason": "x"}), 422, "ids[0]"),
        (many.clone(), json!({"ids": [id], "filter": {"step": "x"}, "reason": "x"}), 422, "filter"),
        (many.clone(), json!({"filter": {}, "reason": "x"}), 422, "filter"),
        (many.clone(), json!({"filter": {"fingerprint": ""}, "reason": "x"}), 422, "filter.fingerprint"),
        (many, json!({"filtre": {"step": "x"}, "reason": "x"}), 422, "filtre"),
        ("/dlq/discard".to_owned(), json!({"ids": [id]}), 422, "reason"),
        ("/dlq/restore".to_owned(), json!({"ids": [id]}), 422, "reason"),
        ("/dlq/notes".to_owned(), json!({"ids": [id]}), 422, "text"),
        ("/dlq/resolve".to_owned(), json!({"ids": [id]}), 422, "reason"),
        ("/dlq/resolve".to_owned(), json!({"reason": "x"}), 422, "filter"),
        ("/dlq/withdraw-resolution".to_owned(), json!({"ids": [id]}), 422, "reason"),
        (one("resolve"), json!({}), 422, "reason"),
        (one("withdraw-resolution"), json!({}), 422, "reason"),
        (one("withdraw-resolution"), json!({"reason": "x"}), 409, ""),
        (format!("/dlq/{UNKNOWN}/resolve"), json!({"reason": "x"}), 404, ""),
        (format!("/sagas/{UNKNOWN}/resolve"), json!({}), 422, "reason"),
        (format!("/sagas/{UNKNOWN}/resolve"), json!({"reason": "x"}), 404, ""),
        (format!("/sagas/{UNKNOWN}/withdraw-resolution"), json!({"reason": "x"}), 404, ""),
        (format!("/payments/{UNKNOWN}/resolve"), json!({}), 422, "reason"),
        (format!("/payments/{UNKNOWN}/resolve"), json!({"reason": "x"}), 404, ""),
        (format!("/payments/{UNKNOWN}/withdraw-resolution"), json!({"reason": "x"}), 404, ""),
        ("/sagas/extend".to_owned(), json!({"ids": [id], "seconds": 60}), 422, "reason"),
        ("/sagas/extend".to_owned(), json!({"ids": [id], "reason": "x"}), 422, "seconds"),
        (format!("/sagas/{UNKNOWN}/extend"), json!({"seconds": 86_401, "reason": "x"}), 422, "seconds"),
        (format!("/sagas/{UNKNOWN}/extend"), json!({"seconds": 60}), 422, "reason"),
    ];
    let mut cases: Vec<Resolution> = commands
        .into_iter()
        .map(|(path, body, status, field)| (Method::POST, path, Some(body), status, field))
        .collect();
    cases.push((Method::POST, one("replay"), Some(json!(7)), 422, "."));
    cases.push((Method::DELETE, format!("/dlq/{UNKNOWN}?reason=x"), None, 404, ""));
    cases.push((Method::DELETE, format!("/dlq/{id}"), None, 422, "reason"));
    cases.push((Method::DELETE, "/dlq/x".to_owned(), None, 400, ""));
    cases.push((Method::DELETE, format!("/dlq/{id}?reason="), None, 422, "reason"));
    cases.push((Method::DELETE, format!("/dlq/{id}?why=x"), None, 400, "why"));
    cases.push((Method::DELETE, format!("/dlq/{id}"), Some(json!({"reason": ""})), 422, "reason"));
    cases.push((Method::PUT, format!("/dlq/{id}"), None, 405, ""));
    rejected(&admin, cases).await;
    let posts = |what: &str, body: String| {
        admin.request(Method::POST, &one(what)).header("content-type", "application/json").body(body)
    };
    let unreadable = posts("replay", "{".to_owned());
    assert_problem(unreadable, 400, "", "a body that is no JSON").await;
    let huge = posts("notes", "x".repeat(600_000));
    assert_problem(huge, 413, "", "a body that is too large").await;
}

#[tokio::test]
async fn invalid_redrives_are_rejected_by_field() {
    let (admin, _) = admin_with_a_dead_letter(&[]).await;
    let filter = json!({"service": "payment"});
    let commands = [
        (json!({}), 422, "filter"),
        (json!({"filter": {}, "reason": "x"}), 422, "filter"),
        (json!({"filter": {"colour": "red"}, "reason": "x"}), 422, "filter.colour"),
        (json!({"filter": {"saga": "x"}, "reason": "x"}), 422, "filter.saga"),
        (json!({"filter": {"service": ""}, "reason": "x"}), 422, "filter.service"),
        (json!({"filter": {"failed_after": "noon"}, "reason": "x"}), 422, "filter.failed_after"),
        (json!({"filter": {"text": "x".repeat(201)}, "preview": true}), 422, "filter.text"),
        (json!({"filter": filter}), 422, "reason"),
        (json!({"filter": filter, "reason": ""}), 422, "reason"),
        (json!({"filter": filter, "reason": "x", "canary": 101}), 422, "canary"),
        (json!({"filter": filter, "reason": "x", "canary": -1}), 422, "canary"),
        (json!({"filter": filter, "reason": "x", "rate": 0}), 422, "rate"),
        (json!({"filter": filter, "reason": "x", "rate": 10_001}), 422, "rate"),
        (json!({"filter": filter, "reason": "x", "rate": 1.5}), 422, "rate"),
        (json!({"filter": filter, "reason": "x", "force": 1}), 422, "force"),
        (json!({"filter": filter, "reason": "x", "speed": 1}), 422, "speed"),
    ];
    let mut cases: Vec<Resolution> = commands
        .into_iter()
        .map(|(body, status, field)| (Method::POST, "/dlq/redrive".to_owned(), Some(body), status, field))
        .collect();
    for what in ["pause", "resume", "cancel"] {
        let why = Some(json!({"reason": "x"}));
        cases.push((Method::POST, format!("/dlq/redrive/{UNKNOWN}/{what}"), why, 404, ""));
        cases.push((Method::POST, format!("/dlq/redrive/x/{what}"), None, 400, ""));
        let empty = json!({"reason": ""});
        cases.push((Method::POST, format!("/dlq/redrive/{UNKNOWN}/{what}"), Some(empty), 422, "reason"));
    }
    cases.push((Method::POST, format!("/dlq/redrive/{UNKNOWN}/cancel"), None, 422, "reason"));
    rejected(&admin, cases).await;
}

#[tokio::test]
async fn invalid_faults_and_unknown_breakers_are_rejected_by_field() {
    let (admin, _) = admin_with_a_dead_letter(&["faults.enabled=true"]).await;
    let fault = |fault: Value, field| (Method::POST, "/faults".to_owned(), Some(fault), 422, field);
    let breaker = |path: &str, body: Value, status, field| {
        (Method::POST, format!("/breakers/{path}"), Some(body), status, field)
    };
    let step = "admin-saga-view";
    rejected(
        &admin,
        vec![
            fault(json!({}), "service"),
            fault(json!({"service": "order"}), "kind"),
            fault(json!({"service": "nowhere", "kind": "pause"}), "service"),
            fault(json!({"service": "admin", "kind": "burn"}), "kind"),
            fault(json!({"service": "admin", "kind": "pause", "probability": 0}), "probability"),
            fault(json!({"service": "admin", "kind": "pause", "probability": 101}), "probability"),
            fault(json!({"service": "admin", "kind": "pause", "probability": 300}), "probability"),
            fault(json!({"service": "admin", "kind": "pause", "next": 0}), "next"),
            fault(json!({"service": "admin", "kind": "pause", "next": 1_000_001}), "next"),
            fault(json!({"service": "admin", "kind": "delay", "delay_ms": 0}), "delay_ms"),
            fault(json!({"service": "admin", "kind": "delay", "delay_ms": 600_001}), "delay_ms"),
            fault(json!({"service": "admin", "kind": "pause", "seed": -1}), "seed"),
            fault(json!({"service": "admin", "kind": "pause", "reason": ""}), "reason"),
            fault(json!({"service": "admin", "kind": "pause", "colour": 1}), "colour"),
            breaker("nowhere/bank", json!({"action": "reset"}), 404, ""),
            breaker("bank/bank", json!({"action": "reset"}), 404, ""),
            breaker(&format!("admin/{step}"), json!({}), 422, "action"),
            breaker(&format!("admin/{step}"), json!({"action": "burn"}), 422, "action"),
            breaker(&format!("admin/{step}"), json!({"action": "open"}), 422, "reason"),
            breaker(&format!("admin/{step}"), json!({"action": "closed"}), 422, "reason"),
            breaker(&format!("admin/{step}"), json!({"action": "reset", "x": 1}), 422, "x"),
            breaker("admin/a%2F..%2Fb", json!({"action": "reset"}), 404, ""),
            (Method::DELETE, "/faults/nowhere".to_owned(), None, 404, ""),
            (Method::DELETE, "/faults/nowhere/1".to_owned(), None, 404, ""),
            (Method::DELETE, "/faults/admin/x".to_owned(), None, 400, ""),
            (Method::POST, "/outbox/nowhere/retry".to_owned(), None, 404, ""),
            (Method::POST, "/outbox/bank/retry".to_owned(), None, 404, ""),
            (Method::POST, "/outbox/admin/retry".to_owned(), Some(json!({"seq": -1})), 422, "seq"),
            (Method::POST, "/outbox/admin/retry".to_owned(), Some(json!({"seq": "x"})), 422, "seq"),
            (Method::POST, "/outbox/admin/retry".to_owned(), None, 422, "reason"),
            (
                Method::POST,
                "/outbox/admin/republish".to_owned(),
                Some(json!({"since": "2020-01-01T00:00:00Z"})),
                422,
                "reason",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn rejection_of_a_service_is_passed_on_and_logged() {
    let (admin, _) = admin_with_a_dead_letter(&["faults.enabled=true"]).await;
    for service in ["admin", "payment"] {
        for (fault, field) in [
            (json!({"service": service, "kind": "bank_hang"}), "kind"),
            (json!({"service": service, "kind": "pause", "step": "order-confirmation"}), "step"),
            (json!({"service": service, "kind": "delay"}), "delay_ms"),
        ] {
            let request = admin.request(Method::POST, "/faults").json(&fault);
            assert_problem(request, 422, field, &fault.to_string()).await;
            let entry = admin.get("/audit?limit=1").await["entries"][0].clone();
            let [action, target, outcome] =
                ["action", "target", "outcome"].map(|member| entry[member].clone());
            assert_eq!((action, target), (json!("fault.inject"), json!(service)));
            let says =
                outcome.as_str().and_then(|outcome| outcome.strip_prefix(&format!("invalid: {field}: ")));
            assert!(says.is_some_and(|detail| !detail.is_empty()), "{fault}: {outcome}");
        }
        let unknown = admin.request(Method::DELETE, &format!("/faults/{service}/77"));
        assert_problem(unknown, 404, "", "a fault that there is not").await;
        let unknown = admin.request(Method::POST, &format!("/breakers/{service}/nothing"));
        assert_problem(unknown.json(&json!({"action": "reset"})), 404, "", "a breaker that there is not")
            .await;
    }
    let away = admin.request(Method::POST, "/faults").json(&json!({"service": "bank", "kind": "bank_hang"}));
    assert_problem(away, 503, "", "a service that is away").await;
    let outcome = admin.get("/audit?limit=1").await["entries"][0]["outcome"].clone();
    assert!(outcome.as_str().expect("a text").starts_with("bank does not answer"), "{outcome}");
    assert_eq!(admin.get("/faults").await["faults"], json!([]));
}

#[tokio::test]
async fn disabled_faults_are_rejected_with_the_name_of_the_setting() {
    let (admin, _) = admin_with_a_dead_letter(&[]).await;
    for service in ["admin", "order"] {
        let request =
            admin.request(Method::POST, "/faults").json(&json!({"service": service, "kind": "pause"}));
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 403);
        let problem: Value = answer.json().await.expect("a problem");
        assert!(problem["detail"].as_str().expect("a text").contains("faults.enabled"), "{problem}");
    }
}

#[tokio::test]
async fn operator_name_must_be_printable() {
    let (admin, id) = admin_with_a_dead_letter(&[]).await;
    let before = admin.everything().await;
    for name in ["", " ", "\u{7f}", "Zoë", &"x".repeat(101)] {
        let mut request = admin.request(Method::POST, &format!("/dlq/{id}/replay"));
        let value = reqwest::header::HeaderValue::from_bytes(name.as_bytes());
        let Ok(value) = value else { continue };
        request = request.header("X-Operator", value);
        assert_problem(request, 422, "X-Operator", name).await;
    }
    assert_eq!(admin.everything().await, before);
    admin.request(Method::POST, &format!("/dlq/{id}/replay")).send().await.expect("an answer");
    assert_eq!(admin.get("/audit").await["entries"][0]["operator"], "anonymous");
}

#[tokio::test]
async fn change_without_operator_is_rejected_when_one_is_required() {
    let (admin, id) = admin_with_a_dead_letter(&["service.require_operator=true"]).await;
    let cases = [
        (Method::POST, format!("/dlq/{id}/replay"), json!({})),
        (Method::POST, format!("/dlq/{id}/edit"), json!({"data": {}, "reason": "x"})),
        (Method::POST, format!("/dlq/{id}/restore"), json!({})),
        (Method::POST, format!("/dlq/{id}/notes"), json!({"text": "x"})),
        (Method::DELETE, format!("/dlq/{id}"), json!({})),
        (Method::POST, "/dlq/replay".to_owned(), json!({"ids": [id], "reason": "x"})),
        (Method::POST, "/dlq/discard".to_owned(), json!({"ids": [id], "reason": "x"})),
        (Method::POST, "/dlq/restore".to_owned(), json!({"ids": [id], "reason": "x"})),
        (Method::POST, "/dlq/notes".to_owned(), json!({"ids": [id], "text": "x"})),
        (Method::POST, "/dlq/resolve".to_owned(), json!({"ids": [id], "reason": "x"})),
        (Method::POST, "/dlq/withdraw-resolution".to_owned(), json!({"ids": [id], "reason": "x"})),
        (Method::POST, format!("/dlq/{id}/resolve"), json!({"reason": "x"})),
        (Method::POST, format!("/dlq/{id}/withdraw-resolution"), json!({"reason": "x"})),
        (Method::POST, format!("/sagas/{UNKNOWN}/resolve"), json!({"reason": "x"})),
        (Method::POST, format!("/sagas/{UNKNOWN}/withdraw-resolution"), json!({"reason": "x"})),
        (Method::POST, format!("/payments/{UNKNOWN}/resolve"), json!({"reason": "x"})),
        (Method::POST, format!("/payments/{UNKNOWN}/withdraw-resolution"), json!({"reason": "x"})),
        (Method::POST, "/sagas/extend".to_owned(), json!({"ids": [id], "seconds": 60, "reason": "x"})),
        (Method::POST, format!("/sagas/{UNKNOWN}/extend"), json!({"seconds": 60, "reason": "x"})),
        (Method::POST, "/dlq/redrive".to_owned(), json!({"filter": {"service": "payment"}, "reason": "x"})),
        (Method::POST, format!("/dlq/redrive/{UNKNOWN}/pause"), json!({})),
        (Method::POST, format!("/dlq/redrive/{UNKNOWN}/resume"), json!({})),
        (Method::POST, format!("/dlq/redrive/{UNKNOWN}/cancel"), json!({})),
        (Method::POST, "/breakers/admin/outside".to_owned(), json!({"action": "reset"})),
        (Method::POST, "/faults".to_owned(), json!({"service": "admin", "kind": "pause"})),
        (Method::DELETE, "/faults".to_owned(), json!({})),
        (Method::DELETE, "/faults/admin".to_owned(), json!({})),
        (Method::DELETE, "/faults/admin/1".to_owned(), json!({})),
        (Method::POST, "/outbox/admin/retry".to_owned(), json!({})),
    ];
    let case = |(method, path, body)| (method, path, Some(body), 422, "X-Operator");
    rejected(&admin, cases.map(case).to_vec()).await;
    admin.post(&format!("/dlq/{id}/replay"), &json!({}), 202).await;
}
