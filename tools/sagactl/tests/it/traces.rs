//! Shell: traces of orders across all programs, received by an OTLP collector.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status};
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::Value;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::operator::{LONG_DEADLINE, STEP};
use crate::system::{System, order_for, wait_until};

#[derive(Debug, Clone)]
struct Seen {
    service: String,
    span: Span,
}

/// Received spans.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Seen>>>,
    /// Compression and header of each request.
    heads: Arc<Mutex<Vec<(String, String)>>>,
}

impl Collector {
    /// Starts a collector. Returns it with its address.
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let routes = Router::new().route("/v1/traces", post(take)).with_state(collector.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (collector, address)
    }

    /// Returns the spans of a trace received so far.
    fn of(&self, trace_id: &[u8]) -> Trace {
        Trace(self.spans.lock().iter().filter(|seen| seen.span.trace_id == trace_id).cloned().collect())
    }

    /// Waits for the trace of an order until `is_whole` holds.
    async fn trace_of(&self, order: &Value, is_whole: impl Fn(&Trace) -> bool) -> Trace {
        let order: Uuid = order.as_str().expect("an id").parse().expect("a UUID");
        wait_until("the trace has come", async || is_whole(&self.of(order.as_bytes()))).await;
        self.of(order.as_bytes())
    }
}

async fn take(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let head = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (coding, tenant) = (head("content-encoding"), head("x-tenant"));
    let mut plain = Vec::new();
    match &coding[..] {
        "gzip" => drop(GzDecoder::new(&body[..]).read_to_end(&mut plain).expect("gzip")),
        _ => plain.extend_from_slice(&body),
    }
    collector.heads.lock().push((coding, tenant));
    let request = ExportTraceServiceRequest::decode(&plain[..]).expect("OTLP");
    for resource in request.resource_spans {
        let attributes = resource.resource.expect("a resource").attributes;
        let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
        let service = match name.and_then(|name| name.value?.value) {
            Some(any_value::Value::StringValue(service)) => service,
            other => panic!("no service.name: {other:?}"),
        };
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        collector.spans.lock().extend(spans.map(|span| Seen { service: service.clone(), span }));
    }
    StatusCode::OK
}

/// Spans of one trace.
struct Trace(Vec<Seen>);

impl Trace {
    /// Counts spans by `service name`.
    fn names(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for Seen { service, span } in &self.0 {
            *names.entry(format!("{service} {}", span.name)).or_default() += 1;
        }
        names
    }

    fn has(&self, name: &str) -> bool {
        self.names().contains_key(name)
    }

    fn all(&self, name: &str) -> Vec<&Span> {
        let named = self.0.iter().filter(|seen| format!("{} {}", seen.service, seen.span.name) == name);
        named.map(|seen| &seen.span).collect()
    }

    #[track_caller]
    fn one(&self, name: &str) -> &Span {
        match self.all(name)[..] {
            [span] => span,
            ref spans => panic!("{} spans {name:?} in {:#?}", spans.len(), self.names()),
        }
    }

    /// True if all these pairs of cause and effect were received. Each program exports its own spans.
    fn has_all(&self, caused: &[(&str, &str)]) -> bool {
        caused.iter().all(|(cause, effect)| self.has(cause) && self.has(effect))
    }

    /// Spans without a cause in the trace.
    fn first(&self) -> Vec<String> {
        let ids: BTreeSet<_> = self.0.iter().map(|seen| &seen.span.span_id).collect();
        assert_eq!(ids.len(), self.0.len(), "each span came once");
        let first = self.0.iter().filter(|seen| !ids.contains(&seen.span.parent_span_id));
        first.map(|seen| format!("{} {}", seen.service, seen.span.name)).collect()
    }

    /// True if every other span has a cause in the trace.
    fn is_one_tree(&self, first: &str) -> bool {
        self.first() == [first]
    }

    #[track_caller]
    fn assert_caused(&self, cause: &str, effect: &str) {
        let (cause, effect) = (self.one(cause), self.one(effect));
        assert_eq!(cause.span_id, effect.parent_span_id, "{} is caused by another", effect.name);
    }
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    let value = found.value.as_ref()?.value.as_ref()?;
    if let any_value::Value::StringValue(value) = value { Some(value.clone()) } else { None }
}

fn has_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == status::StatusCode::Error)
}

const POST: &str = "order POST /api/orders";

const SERVICES: [&str; 5] = ["order", "inventory", "payment", "admin", "bank"];

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
        ("order command", "inventory inventory-stock-reservation"),
        ("inventory inventory-stock-reservation", "payment payment-processing"),
        ("payment payment-processing", "payment call payment-charge"),
        ("payment call payment-charge", "bank POST /v1/charges"),
        ("payment call payment-charge", "payment payment-charge"),
        ("payment payment-charge", "payment publish payment.processed"),
        ("payment payment-charge", "order order-confirmation"),
    ];
    let is_whole = |trace: &Trace| {
        trace.has_all(&caused)
            && trace.is_one_tree(POST)
            && trace.names().get("admin admin-saga-view") == Some(&4)
            && trace.0.iter().filter(|seen| seen.span.name.starts_with("publish ")).count() == 4
            && trace.0.iter().any(|seen| seen.service == "inventory" && seen.span.name.contains("sale"))
    };
    let trace = collector.trace_of(&order["id"], is_whole).await;
    for (cause, effect) in caused {
        trace.assert_caused(cause, effect);
    }
    let charged = trace.one("bank POST /v1/charges");
    assert_eq!(charged.kind(), SpanKind::Server);
    assert_eq!(attribute(charged, "http.response.status_code").as_deref(), Some("200"));
    assert_eq!(trace.one("payment payment-processing").kind(), SpanKind::Consumer);
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
        |trace: &Trace| trace.has("order order-confirmation") && trace.has("order POST /api/orders");
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
        ("order command", "inventory inventory-stock-reservation"),
        ("payment call payment-charge", "bank POST /v1/charges"),
        ("bank POST /v1/charges", "bank command"),
        ("payment payment-charge", "payment publish payment.failed"),
        ("payment payment-charge", "order order-cancellation"),
        ("order order-cancellation", "order publish order.cancelled"),
    ];
    let is_whole = |trace: &Trace| {
        trace.has_all(&caused)
            && trace.is_one_tree(POST)
            && trace.has("inventory publish inventory.stock_released")
            && trace.names().get("admin admin-saga-view") >= Some(&5)
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
        ("payment call payment-charge", "bank POST /v1/charges"),
        ("payment payment-charge", "order order-confirmation"),
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
    let (asked, passed_on) = ("admin DELETE /api/admin/faults/{service}", "bank DELETE /internal/faults");
    let caller = 0x6bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4738_u128.to_be_bytes();
    wait_until("both have come", async || collector.of(&caller).has_all(&[(asked, passed_on)])).await;
    collector.of(&caller).assert_caused(asked, passed_on);
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
    let has_failed = |trace: &Trace| !trace.all("payment call payment-charge").is_empty();
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
            ("payment payment-processing", "payment call payment-charge"),
            ("payment call payment-charge", "bank POST /v1/charges"),
            ("payment payment-charge", "payment publish payment.processed"),
            ("payment payment-charge", "order order-confirmation"),
            ("order order-confirmation", "order publish order.confirmed"),
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
    let tries = format!("payment {STEP}");
    let is_whole = |trace: &Trace| {
        trace.all(&tries).len() == 2
            && trace
                .has_all(&[(POST, "order command"), ("payment payment-charge", "order order-confirmation")])
            && trace.is_one_tree(POST)
    };
    let trace = collector.trace_of(&Value::from(orders[0].clone()), is_whole).await;
    let mut tries = trace.all(&tries);
    tries.sort_by_key(|span| span.start_time_unix_nano);
    let [failed, replayed] = tries[..] else { panic!("two tries: {tries:?}") };
    assert!(has_failed(failed) && !has_failed(replayed), "{failed:?} {replayed:?}");
    let reserved = &trace.one("inventory inventory-stock-reservation").span_id;
    assert_eq!([&failed.parent_span_id, &replayed.parent_span_id], [reserved, reserved]);
    assert_eq!(attribute(replayed, "saga.dead_letter_id").as_ref(), Some(&id));
    trace.assert_caused("payment payment-charge", "order order-confirmation");
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
