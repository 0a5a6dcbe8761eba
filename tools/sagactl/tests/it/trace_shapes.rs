//! Shell: the whole shape of traces: every span of an order, with its cause and its attributes.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;
use uuid::Uuid;

use crate::operator::LONG_DEADLINE;
use crate::system::{System, wait_until};
use crate::trace_collector::{Collector, Seen, Trace, attribute, number};
use crate::traces::SERVICES;

/// Attributes that every span of a kind has, with the type that the semantic conventions give them.
const TEXTS: [(SpanKind, &[&str]); 4] = [
    (SpanKind::Server, &["http.request.method", "url.scheme", "url.path", "http.route"]),
    (SpanKind::Client, &[]),
    (SpanKind::Producer, &MESSAGING),
    (SpanKind::Consumer, &CONSUMER),
];
const MESSAGING: [&str; 6] = [
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.message.id",
    "messaging.message.conversation_id",
];
const CONSUMER: [&str; 4] =
    ["messaging.system", "messaging.operation.name", "messaging.message.id", "messaging.consumer.group.name"];

/// Draws the tree of a trace, one span a line: service, name, then what a person would search for.
fn drawn(trace: &Trace) -> String {
    let parent_of = |seen: &Seen| {
        let is_parent = |other: &&Seen| other.span.span_id == seen.span.parent_span_id;
        trace.0.iter().any(|other| is_parent(&other)).then(|| seen.span.parent_span_id.clone())
    };
    subtrees(trace, None, 0, &parent_of).concat()
}

fn subtrees(
    trace: &Trace,
    parent: Option<&Vec<u8>>,
    depth: usize,
    parent_of: &dyn Fn(&Seen) -> Option<Vec<u8>>,
) -> Vec<String> {
    let below = trace.0.iter().filter(|seen| parent_of(seen).as_ref() == parent);
    let mut drawn: Vec<_> = below
        .map(|seen| {
            let line = format!("{}{}\n", "  ".repeat(depth), line(seen));
            line + &subtrees(trace, Some(&seen.span.span_id), depth + 1, parent_of).concat()
        })
        .collect();
    drawn.sort();
    drawn
}

fn line(Seen { service, span, .. }: &Seen) -> String {
    let mut line = format!("{service} {}", span.name);
    let shown = ["messaging.consumer.group.name", "db.system.name", "saga.failure_reason", "error.type"];
    for value in shown.iter().filter_map(|key| attribute(span, key)) {
        line += &format!(" {value}");
    }
    for (key, name) in [("http.response.status_code", "status"), ("saga.attempt", "attempt")] {
        let number = number(span, key).filter(|number| (name, *number) != ("attempt", 1));
        line += &number.map(|number| format!(" {name}={number}")).unwrap_or_default();
    }
    line
}

/// Waits until a trace has the shape in the file of this name, and shows the difference if it never has.
async fn assert_shape(collector: &Collector, order: &Value, name: &str) {
    let file = format!("{}/tests/it/shapes/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let expected = std::fs::read_to_string(file).expect("a shape");
    let id: Uuid = order.as_str().expect("an id").parse().expect("a UUID");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    wait_until("the trace has its shape", async || {
        drawn(&collector.of(id.as_bytes())) == expected || until < std::time::Instant::now()
    })
    .await;
    let trace = collector.of(id.as_bytes());
    assert_eq!(drawn(&trace), expected, "trace {id}");
    trace.0.iter().for_each(|seen| assert_attributes(seen, id));
}

/// Every span has the order's id and the attributes of its kind; every process names its host and itself.
#[track_caller]
fn assert_attributes(Seen { span, resource, .. }: &Seen, order: Uuid) {
    assert_eq!(attribute(span, "saga.correlation_id"), Some(order.to_string()), "{span:?}");
    for key in ["host.name", "service.instance.id", "service.namespace"] {
        assert!(resource.get(key).is_some_and(|value| !value.is_empty()), "{key}: {resource:?}");
    }
    assert_eq!(resource["deployment.environment.name"], "a test");
    let kind = span.kind();
    let texts = TEXTS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, keys)| *keys);
    texts.for_each(|key| assert!(attribute(span, key).is_some(), "{key}: {span:?}"));
    if kind == SpanKind::Client {
        assert_client(span);
    }
}

#[track_caller]
fn assert_client(span: &Span) {
    if attribute(span, "db.system.name").is_some() {
        let inputs = number(span, "saga.batch.inputs");
        assert!(attribute(span, "db.operation.name").is_some() && inputs >= Some(1), "{span:?}");
        return;
    }
    for key in ["http.request.method", "url.full", "server.address", "url.template"] {
        assert!(attribute(span, key).is_some(), "{key}: {span:?}");
    }
    assert!(number(span, "server.port").is_some(), "{span:?}");
    assert!(number(span, "http.response.status_code").is_some(), "{span:?}");
}

/// Starts a system whose spans go to this collector, with an attribute of the environment.
fn started(collector: &str, settings: &[&str]) -> System {
    let system = System::not_started();
    let endpoints = SERVICES.map(|service| format!("{service}.trace.endpoint={collector}"));
    let settings: Vec<&str> = endpoints.iter().map(String::as_str).chain(settings.iter().copied()).collect();
    let mut up = system.command(&system.up(&["--detach"], &settings));
    up.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a test");
    assert!(up.output().expect("sagactl runs").status.success());
    system
}

const ALL: [&str; 5] = [
    "order.trace.sample_ratio=1",
    "inventory.trace.sample_ratio=1",
    "payment.trace.sample_ratio=1",
    "admin.trace.sample_ratio=1",
    "bank.trace.sample_ratio=1",
];

#[tokio::test]
async fn happy_declined_and_refunded_orders_have_traces_of_their_whole_shape() {
    let (collector, address) = Collector::start().await;
    let system = started(&address, &ALL);
    system.list("pen", 10).await;
    system.first_charge("pen").await;
    let happy = system.order(&[("pen", 1)], "tok_ok").await;
    assert_eq!(happy["status"], "CONFIRMED");
    assert_shape(&collector, &happy["id"], "happy").await;
    let declined = system.order(&[("pen", 2)], "tok_declined").await;
    assert_eq!(declined["status"], "CANCELLED");
    assert_shape(&collector, &declined["id"], "declined").await;
    let id = happy["id"].as_str().expect("an id");
    let cancelled = system.post("order", &format!("/api/orders/{id}/cancel")).send().await;
    assert!(cancelled.expect("an answer").status().is_success());
    assert_shape(&collector, &happy["id"], "refunded").await;
}

#[tokio::test]
async fn timed_out_order_has_a_trace_of_its_whole_shape() {
    let (collector, address) = Collector::start().await;
    let system = started(&address, &[&ALL[..], &["order.service.deadline=5s"]].concat());
    system.list("pen", 10).await;
    system.sagactl(&["stop", "payment"]);
    let id = system.place(1).await.remove(0);
    assert_shape(&collector, &id.into(), "timed_out").await;
}

/// Inventory, payment and bank hear nothing of the order after the failure.
#[tokio::test]
async fn dead_lettered_and_replayed_order_has_a_whole_trace_with_default_sampling() {
    const STEP: &str = "order-confirmation";
    let (collector, address) = Collector::start().await;
    let system = started(&address, &[LONG_DEADLINE]);
    system.list("pen", 10).await;
    system.first_charge("pen").await;
    system.sagactl(&["faults", "inject", "order", "fail_permanently", "--step", STEP, "--next", "1"]);
    let orders = system.place(1).await;
    system.wait_for_dead_letters(1).await;
    let order = Value::from(orders[0].clone());
    assert_shape(&collector, &order, "dead_lettered").await;
    let (id, _) = system.dead_letter();
    system.sagactl(&["dlq", "replay", &id, "--reason", "a test"]);
    system.wait_until_confirmed(&orders).await;
    assert_shape(&collector, &order, "replayed").await;

    let trace_id: Uuid = orders[0].parse().expect("a UUID");
    let trace = collector.of(trace_id.as_bytes());
    let mut tries = trace.all("order process payment.processed");
    tries.sort_by_key(|span| span.start_time_unix_nano);
    let [failed, replayed] = tries[..] else { panic!("two tries: {tries:?}") };
    assert_eq!([failed, replayed].map(|span| number(span, "saga.attempt")), [Some(1), Some(2)]);
    assert_eq!(attribute(replayed, "saga.dead_letter_id"), Some(id));
    let [to_failed, to_request] = &replayed.links[..] else { panic!("two links: {replayed:?}") };
    assert_eq!((&to_failed.trace_id, &to_failed.span_id), (&failed.trace_id, &failed.span_id));
    wait_until("the operator's request has come whole", async || {
        let asked = collector.of(&to_request.trace_id);
        asked.0.iter().any(|seen| seen.span.span_id == to_request.span_id)
            && asked.is_one_tree("admin POST /api/admin/dlq/{id}/replay")
    })
    .await;
}
