//! The pages of the console, and the stream that keeps them up to date.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG};
use serde_json::Value;

use crate::harness::AdminHarness;

#[tokio::test]
async fn each_screen_is_the_same_document_that_runs_own_scripts_only() {
    let admin = AdminHarness::new().await;
    let mut documents = Vec::new();
    for path in [
        "/",
        "/orders",
        "/orders/1",
        "/dead-letters",
        "/dead-letters/1",
        "/redrives/1",
        "/map",
        "/books",
        "/activity",
    ] {
        let page = admin.http.get(format!("{}{path}", admin.base)).send().await.expect("an answer");
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(
            policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        documents.push(page.text().await.expect("a document"));
    }
    assert!(
        documents.iter().all(|document| document == &documents[0] && document.contains("/console/app.js"))
    );
    // Unknown paths are not the console.
    for path in ["/nowhere", "/api/admin/nowhere", "/console/nowhere.js", "/console/../Cargo.toml"] {
        let answer = admin.http.get(format!("{}{path}", admin.base)).send().await.expect("an answer");
        assert_eq!(answer.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn file_is_compressed_and_sent_again_only_when_it_has_changed() {
    let admin = AdminHarness::new().await;
    let get = || admin.http.get(format!("{}/console/app.js", admin.base));
    let file = get().header("accept-encoding", "gzip").send().await.expect("an answer");
    assert_eq!(file.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert_eq!(file.headers()[CONTENT_ENCODING], "gzip");
    assert_eq!(file.headers()[CACHE_CONTROL], "no-cache");
    let tag = file.headers()[ETAG].clone();
    let again = get().header("if-none-match", &tag).send().await.expect("an answer");
    assert_eq!(again.status(), 304);
    assert_eq!(again.headers()[ETAG], tag);
    assert_eq!(again.bytes().await.expect("nothing").len(), 0);
    let other = get().header("if-none-match", "W/\"other\"").send().await.expect("an answer");
    assert_eq!(other.status(), 200);
    assert!(other.headers().get(CONTENT_ENCODING).is_none(), "not asked for");
}

/// Events of the stream until one is of `wanted` kind.
async fn events_until(admin: &AdminHarness, last: Option<&str>, wanted: &str) -> Vec<(String, Value)> {
    let mut request = admin.request(Method::GET, "/live");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let mut response = request.send().await.expect("an answer");
    assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
    let mut text = String::new();
    loop {
        let chunk = tokio::time::timeout(Duration::from_secs(10), response.chunk()).await;
        text.push_str(&String::from_utf8_lossy(
            &chunk.expect("in time").expect("readable").expect("a chunk"),
        ));
        let events: Vec<_> = text.split("\n\n").filter_map(event_of).collect();
        if events.iter().any(|(kind, _)| kind == wanted) {
            return events;
        }
    }
}

fn event_of(text: &str) -> Option<(String, Value)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    Some((field("event: ")?, serde_json::from_str(&field("data: ")?).ok()?))
}

#[tokio::test]
async fn page_gets_the_whole_state_at_first_and_then_what_has_changed() {
    let admin = AdminHarness::new().await;
    let first = events_until(&admin, None, "rates").await;
    let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"overview") && names.contains(&"redrives"), "{names:?}");
    let of =
        |name: &str| first.iter().find(|(known, _)| known == name).map(|(_, data)| data).expect("the event");
    assert_eq!(of("redrives"), &serde_json::json!([]));
    assert!(of("overview")["services"].as_array().is_some_and(|services| services.len() == 5));
    assert!(of("rates")["overview_at"].is_string());
    // A page that comes back with a second in the future has missed nothing.
    let back = events_until(&admin, Some("9999999999"), "rates").await;
    let (_, rates) = back.iter().find(|(name, _)| name == "rates").expect("rates");
    assert_eq!(rates["seconds"], serde_json::json!([]));
}

#[tokio::test]
async fn session_without_tokens_may_do_everything() {
    let admin = AdminHarness::new().await;
    let session = admin.get("/session").await;
    assert_eq!((&session["role"], &session["requires_token"]), (&"admin".into(), &false.into()));
    assert_eq!(session.get("name"), None);
}
