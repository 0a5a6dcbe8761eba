//! Shell: traces of orders across all programs, received by an OTLP collector.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;
use uuid::Uuid;

use crate::operator::LONG_DEADLINE;
use crate::system::{System, order_for, wait_until};
use crate::trace_collector::{Collector, Trace, attribute, has_failed, number};

const POST: &str = "order POST /api/orders";

pub const SERVICES: [&str; 5] = ["order", "inventory", "payment", "admin", "bank"];

/// Starts a system that samples this ratio of orders.
fn traced(collector: &str, ratio: &str, more: &[&str]) -> System {
    let set = |service: &str| {
        [format!("{service}.trace.endpoint={collector}"), format!("{service}.trace.sample_ratio={ratio}")]
    };
    let settings: Vec<String> = SERVICES.iter().flat_map(|service| set(service)).collect();
    System::start(&settings.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
}

#[tokio::test]
async fn one_trace_follows_an_order_through_every_program() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "1", &[]);
    system.list("pen", 10).await;
    system.first_charge("pen").await;
    let order = system.order(&[("pen", 2)], "tok_ok").await;
    assert_eq!(order["status"], "CONFIRMED");
    let caused = [
        (POST, "order command"),
        ("order command", "order publish order.created"),
        ("order publish order.created", "inventory process order.created"),
        ("inventory process order.created", "inventory publish inventory.stock_reserved"),
        ("inventory publish inventory.stock_reserved", "payment process inventory.stock_reserved"),
        ("payment process inventory.stock_reserved", "payment POST /v1/charges"),
        ("payment POST /v1/charges", "bank POST /v1/charges"),
        ("payment POST /v1/charges", "payment payment-charge"),
        ("payment payment-charge", "payment publish payment.processed"),
        ("payment publish payment.processed", "order process payment.processed"),
    ];
    let is_whole = |trace: &Trace| {
        trace.has_all(&caused)
            && trace.is_one_tree(POST)
            && trace.processed_by("admin-saga-view") == 4
            && trace.0.iter().filter(|seen| seen.span.name.starts_with("publish ")).count() == 4
            && trace.processed_by("inventory-sale") == 1
    };
    let trace = collector.trace_of(&order["id"], is_whole).await;
    for (cause, effect) in caused {
        trace.assert_caused(cause, effect);
    }
    let charged = trace.one("bank POST /v1/charges");
    assert_eq!(charged.kind(), SpanKind::Server);
    assert_eq!(number(charged, "http.response.status_code"), Some(200));
    assert_eq!(trace.one("payment process inventory.stock_reserved").kind(), SpanKind::Consumer);
    assert_eq!(trace.one("order publish order.created").kind(), SpanKind::Producer);
    assert!(!trace.0.iter().any(|seen| has_failed(&seen.span)), "nothing failed");
    let log = std::fs::read_to_string(system.path().join("log/inventory.log")).expect("a log");
    let trace_id = order["id"].as_str().expect("an id").replace('-', "");
    assert!(log.contains(&format!("\"trace_id\":\"{trace_id}\"")), "the log names the trace: {log}");
    let printed = format!("{:?}", trace.0);
    assert!(!printed.contains("tok_ok") && !printed.contains("customer"), "no token and no name: {printed}");
}

#[tokio::test]
async fn followed_caller_trace_continues_and_decides_sampling() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "0", &["order.trace.callers=follow"]);
    system.list("pen", 10).await;
    let place = async |traceparent: &str| {
        let request = system.post("order", "/api/orders").header("traceparent", traceparent);
        let order = order_for(&[("pen", 1)], "tok_ok");
        let answer = request.header("Prefer", "wait=10").json(&order).send().await.expect("an answer");
        assert_eq!(answer.json::<Value>().await.expect("JSON")["status"], "CONFIRMED");
    };
    place("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").await;
    place("00-5bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01").await;
    let recorded = 0x5bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4737_u128.to_be_bytes();
    let has_come =
        |trace: &Trace| trace.has("order process payment.processed") && trace.has("order POST /api/orders");
    wait_until("it has come", async || has_come(&collector.of(&recorded))).await;
    let first = collector.of(&recorded).one("order POST /api/orders").clone();
    assert_eq!(first.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    let unrecorded = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    assert_eq!(collector.of(&unrecorded).0.len(), 0, "it was not sampled");
}

/// A compensated saga is recorded from its start, even if it was not sampled.
#[tokio::test]
async fn trace_of_compensated_order_is_complete_although_unsampled() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "0", &[]);
    system.list("pen", 10).await;
    let fine = system.order(&[("pen", 1)], "tok_ok").await;
    let declined = system.order(&[("pen", 2)], "tok_declined").await;
    assert_eq!([&fine["status"], &declined["status"]], ["CONFIRMED", "CANCELLED"]);
    let caused = [
        (POST, "order command"),
        ("order publish order.created", "inventory process order.created"),
        ("payment POST /v1/charges", "bank POST /v1/charges"),
        ("bank POST /v1/charges", "bank command"),
        ("payment payment-charge", "payment publish payment.failed"),
        ("payment publish payment.failed", "order process payment.failed"),
        ("order process payment.failed", "order publish order.cancelled"),
    ];
    let is_whole = |trace: &Trace| {
        trace.has_all(&caused)
            && trace.is_one_tree(POST)
            && trace.has("inventory publish inventory.stock_released")
            && trace.processed_by("admin-saga-view") >= 5
    };
    let trace = collector.trace_of(&declined["id"], is_whole).await;
    for (cause, effect) in caused {
        trace.assert_caused(cause, effect);
    }
    let id: Uuid = fine["id"].as_str().expect("an id").parse().expect("a UUID");
    assert_eq!(collector.of(id.as_bytes()).names(), BTreeMap::new(), "a successful order is not recorded");
}

/// A trace is found by the id of its order, and links to the caller's.
#[tokio::test]
async fn caller_trace_is_linked_and_does_not_decide_sampling() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "0.5", &[]);
    system.list("pen", 100).await;
    system.first_charge("pen").await;
    let caller = 0x5bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4737_u128.to_be_bytes();
    let place = async || {
        let request = system.post("order", "/api/orders").header("Prefer", "wait=20");
        let traced = request.header("traceparent", "00-5bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01");
        let answer = traced.json(&order_for(&[("pen", 1)], "tok_ok")).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")["id"].clone()
    };
    // An id is chance from its 73rd bit on, and this half of them is recorded.
    let is_sampled = |order: &Value| {
        let id: Uuid = order.as_str().expect("an id").parse().expect("a UUID");
        id.as_u128() & ((1 << 56) - 1) < 1 << 55
    };
    let (mut recorded, mut unrecorded) = (None, None);
    while recorded.is_none() || unrecorded.is_none() {
        let order = place().await;
        let seen = if is_sampled(&order) { &mut recorded } else { &mut unrecorded };
        *seen = Some(order);
    }
    let (recorded, unrecorded) = (recorded.expect("one"), unrecorded.expect("one"));
    let caused = [
        (POST, "order command"),
        ("payment POST /v1/charges", "bank POST /v1/charges"),
        ("payment publish payment.processed", "order process payment.processed"),
    ];
    let trace =
        collector.trace_of(&recorded, |trace| trace.has_all(&caused) && trace.is_one_tree(POST)).await;
    for (cause, effect) in caused {
        trace.assert_caused(cause, effect);
    }
    let [link] = &trace.one(POST).links[..] else { panic!("one link: {:?}", trace.one(POST)) };
    assert_eq!(
        (&link.trace_id[..], &link.span_id[..]),
        (&caller[..], &0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()[..])
    );
    let id: Uuid = unrecorded.as_str().expect("an id").parse().expect("a UUID");
    for trace_id in [&caller, id.as_bytes()] {
        assert_eq!(collector.of(trace_id).names(), BTreeMap::new());
    }
}

#[tokio::test]
async fn calls_of_admin_continue_the_trace_of_its_caller() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "0", &[]);
    let request = system.http.delete(system.url("admin", "/api/admin/faults/bank"));
    let traced = request.header("traceparent", "00-6bf92f3577b34da6a3ce929d0e0e4738-00f067aa0ba902b7-01");
    assert!(traced.send().await.expect("an answer").status().is_success());
    let asked = "admin DELETE /api/admin/faults/{service}";
    let (sent, passed_on) = ("admin DELETE", "bank DELETE /internal/faults");
    let caller = 0x6bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4738_u128.to_be_bytes();
    let caused = [(asked, sent), (sent, passed_on)];
    wait_until("all have come", async || collector.of(&caller).has_all(&caused)).await;
    for (cause, effect) in caused {
        collector.of(&caller).assert_caused(cause, effect);
    }
}

/// The memory of failed traces is lost at a restart; what was stored or exported is not.
#[tokio::test]
async fn failed_trace_survives_a_restart() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "0", &[LONG_DEADLINE, "payment.task.retry.base=1s"]);
    system.list("pen", 10).await;
    let dead_lettered = system.dead_letter_orders(1).await;
    system.sagactl(&["stop", "bank"]);
    let called = system.place(1).await;
    let has_failed = |trace: &Trace| trace.has("payment GET /v1/ledger");
    collector.trace_of(&Value::from(called[0].clone()), has_failed).await;

    system.sagactl(&["stop", "payment"]);
    system.sagactl(&["start", "bank"]);
    system.sagactl(&["start", "payment"]);
    let (id, _) = system.dead_letter();
    system.sagactl(&["dlq", "replay", &id, "--reason", "a test"]);
    for orders in [dead_lettered, called] {
        system.wait_until_confirmed(&orders).await;
        let caused = [
            (POST, "order command"),
            ("payment process inventory.stock_reserved", "payment POST /v1/charges"),
            ("payment POST /v1/charges", "bank POST /v1/charges"),
            ("payment payment-charge", "payment publish payment.processed"),
            ("payment publish payment.processed", "order process payment.processed"),
            ("order process payment.processed", "order publish order.confirmed"),
        ];
        let is_whole = |trace: &Trace| trace.has_all(&caused) && trace.is_one_tree(POST);
        collector.trace_of(&Value::from(orders[0].clone()), is_whole).await;
    }
}

#[tokio::test]
async fn replay_continues_the_trace_of_its_order() {
    let (collector, address) = Collector::start().await;
    let system = traced(&address, "0.000001", &[LONG_DEADLINE]);
    system.list("pen", 10).await;
    system.first_charge("pen").await;
    let orders = system.dead_letter_orders(1).await;
    let (id, _) = system.dead_letter();
    system.sagactl(&["dlq", "replay", &id, "--reason", "a test"]);
    system.wait_until_confirmed(&orders).await;
    let tries = "payment process inventory.stock_reserved";
    let is_whole = |trace: &Trace| {
        trace.all(tries).len() == 2
            && trace.has_all(&[(POST, "order command")])
            && trace.has("order process payment.processed")
            && trace.is_one_tree(POST)
    };
    let trace = collector.trace_of(&Value::from(orders[0].clone()), is_whole).await;
    let mut tries = trace.all(tries);
    tries.sort_by_key(|span| span.start_time_unix_nano);
    let [failed, replayed] = tries[..] else { panic!("two tries: {tries:?}") };
    assert!(has_failed(failed) && !has_failed(replayed), "{failed:?} {replayed:?}");
    let reserved = &trace.one("inventory publish inventory.stock_reserved").span_id;
    assert_eq!([&failed.parent_span_id, &replayed.parent_span_id], [reserved, reserved]);
    assert_eq!(attribute(replayed, "saga.dead_letter_id").as_ref(), Some(&id));
    trace.assert_caused("payment publish payment.processed", "order process payment.processed");
    let shown = system.sagactl_json(&["dlq", "show", &id]);
    let traced = shown["trace"].as_str().expect("where it failed in the trace");
    assert!(traced.contains(&orders[0].replace('-', "")), "{traced}");
}

#[tokio::test]
async fn span_export_uses_compression_and_headers_of_the_environment() {
    let (collector, address) = Collector::start().await;
    let system = System::not_started();
    let settings = [&format!("bank.trace.endpoint={address}"), "bank.trace.sample_ratio=1"];
    let mut up = system.command(&system.up(&["--detach"], &settings));
    up.env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip").env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20shop");
    assert!(up.output().expect("sagactl runs").status.success());
    let charge = serde_json::json!({
        "amount": {"amount_minor": 1_000, "currency": "EUR"}, "token": "tok_ok", "reference": "a test",
    });
    let key = Uuid::from_u128(7);
    let request = system.post("bank", "/v1/charges").header("Idempotency-Key", key.to_string());
    assert!(request.json(&charge).send().await.expect("an answer").status().is_success());
    wait_until("it has come", async || !collector.of(key.as_bytes()).0.is_empty()).await;
    let heads = collector.heads.lock().clone();
    assert!(heads.iter().all(|head| *head == ("gzip".to_owned(), "a shop".to_owned())), "{heads:?}");
}

#[tokio::test]
async fn unreachable_collector_causes_one_warning_only() {
    let unreachable = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    let system = traced(&unreachable, "1", &[]);
    system.list("pen", 100).await;
    for _ in 0..3 {
        assert_eq!(system.order(&[("pen", 1)], "tok_ok").await["status"], "CONFIRMED");
        let before = system.metric("payment", "trace_span_total", &[r#"outcome="failed""#]).await;
        wait_until("spans are given up", async || {
            system.metric("payment", "trace_span_total", &[r#"outcome="failed""#]).await > before
        })
        .await;
    }
    let log = std::fs::read_to_string(system.path().join("log/payment.log")).expect("a log");
    let warnings = log.lines().filter(|line| line.contains("traces are lost")).count();
    let loud = log.lines().filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\"")).count();
    assert_eq!((warnings, loud), (1, 1 + log.matches("anybody who reaches").count()), "{log}");
    system.assert_reconciled().await;
}
