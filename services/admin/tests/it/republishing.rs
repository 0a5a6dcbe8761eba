//! Shell: republication that takes longer than its client waits, and services that ask for a pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::service::AdminService;
use axum::Router;
use axum::http::StatusCode;
use jiff::Timestamp;
use reqwest::Method;
use saga_core::decision::{OutboxWrite, Reads, Writes};
use saga_core::service::Service as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{PublishOutcome, Store};
use serde_json::json;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::harness::{AdminHarness, PATIENCE};

/// Number of entries, more than one transaction marks.
const MANY: u64 = 12_000;

/// A republication that stops with its client would only ever publish the oldest entries.
#[tokio::test]
async fn republication_completes_after_its_client_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("admin.db"), AdminService::rows()).expect("a database");
    let store: Arc<dyn Store> = Arc::new(store);
    let entry = |number: u64| OutboxWrite {
        trace: None,
        id: Uuid::from_u128(number.into()),
        saga: Uuid::from_u128(number.into()),
        event: None,
        subject: "admin.told".to_owned(),
        payload: b"anything".as_slice().into(),
    };
    let outbox: Vec<_> = (1..=MANY).map(entry).collect();
    let promised = Writes { outbox, ..Writes::default() };
    store.transact(Reads::default(), Box::new(move |_| promised.clone())).await.expect("promised");
    let admin = AdminHarness::over(store.clone(), &[]).await;
    let now = Timestamp::now();
    let all =
        store.pending_entries(20_000).await.expect("the outbox").iter().map(|entry| entry.seq).collect();
    admin.settles(PublishOutcome { done: all, ..PublishOutcome::default() }, now).await;

    let mut marking = Box::pin(admin.app.republish(Timestamp::UNIX_EPOCH));
    assert!(futures::poll!(&mut marking).is_pending());
    drop(marking);
    let until = Instant::now() + PATIENCE;
    while store.stats().await.expect("stats").outbox_republishing < MANY {
        assert!(Instant::now() < until, "waited in vain for the rest");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The caller must not ask sooner than the service wants.
#[tokio::test]
async fn retry_after_of_a_service_is_passed_on() {
    let busy = || async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "7")]) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let payment = format!("service.payment=http://{}", listener.local_addr().expect("its address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(busy)).await });
    let admin = AdminHarness::with(&[&payment]).await;
    let request = admin.request(Method::POST, "/outbox/payment/retry").header("X-Operator", "ada");
    let response = request.json(&json!({ "reason": "a test" })).send().await.expect("an answer");
    let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    assert_eq!((response.status().as_u16(), wait), (503, Some("7")));
}
