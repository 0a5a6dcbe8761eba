//! Shell: an OTLP collector, and the traces that it has received.

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
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, status};
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::Value;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::system::wait_until;

#[derive(Debug, Clone)]
pub struct Seen {
    pub service: String,
    /// Attributes of the process.
    pub resource: BTreeMap<String, String>,
    pub span: Span,
}

/// Received spans.
#[derive(Clone, Default)]
pub struct Collector {
    spans: Arc<Mutex<Vec<Seen>>>,
    /// Compression and header of each request.
    pub heads: Arc<Mutex<Vec<(String, String)>>>,
}

impl Collector {
    /// Starts a collector. Returns it with its address.
    pub async fn start() -> (Self, String) {
        let collector = Self::default();
        let routes = Router::new().route("/v1/traces", post(take)).with_state(collector.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (collector, address)
    }

    /// Returns the spans of a trace received so far.
    pub fn of(&self, trace_id: &[u8]) -> Trace {
        Trace(self.spans.lock().iter().filter(|seen| seen.span.trace_id == trace_id).cloned().collect())
    }

    /// Waits for the trace of an order until `is_whole` holds.
    pub async fn trace_of(&self, order: &Value, is_whole: impl Fn(&Trace) -> bool) -> Trace {
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
        let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
            Some(any_value::Value::StringValue(text)) => text,
            other => panic!("no text: {other:?}"),
        };
        let resource_of: BTreeMap<_, _> =
            attributes.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect();
        let service = resource_of["service.name"].clone();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        collector.spans.lock().extend(spans.map(|span| Seen {
            service: service.clone(),
            resource: resource_of.clone(),
            span,
        }));
    }
    StatusCode::OK
}

/// Spans of one trace.
pub struct Trace(pub Vec<Seen>);

impl Trace {
    /// Counts spans by `service name`.
    pub fn names(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for Seen { service, span, .. } in &self.0 {
            *names.entry(format!("{service} {}", span.name)).or_default() += 1;
        }
        names
    }

    pub fn has(&self, name: &str) -> bool {
        self.names().contains_key(name)
    }

    /// Number of messages that a step has processed.
    pub fn processed_by(&self, step: &str) -> usize {
        let by = |seen: &Seen| attribute(&seen.span, "messaging.consumer.group.name");
        self.0.iter().filter(|seen| by(seen).as_deref() == Some(step)).count()
    }

    pub fn all(&self, name: &str) -> Vec<&Span> {
        let named = self.0.iter().filter(|seen| format!("{} {}", seen.service, seen.span.name) == name);
        named.map(|seen| &seen.span).collect()
    }

    #[track_caller]
    pub fn one(&self, name: &str) -> &Span {
        match self.all(name)[..] {
            [span] => span,
            ref spans => panic!("{} spans {name:?} in {:#?}", spans.len(), self.names()),
        }
    }

    /// True if all these pairs of cause and effect were received. Each program exports its own spans.
    pub fn has_all(&self, caused: &[(&str, &str)]) -> bool {
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
    pub fn is_one_tree(&self, first: &str) -> bool {
        self.first() == [first]
    }

    #[track_caller]
    pub fn assert_caused(&self, cause: &str, effect: &str) {
        let (cause, effect) = (self.one(cause), self.one(effect));
        assert_eq!(cause.span_id, effect.parent_span_id, "{} is caused by another", effect.name);
    }
}

pub fn attribute(span: &Span, key: &str) -> Option<String> {
    let value = value_of(span, key)?;
    if let any_value::Value::StringValue(value) = value { Some(value.clone()) } else { None }
}

pub fn number(span: &Span, key: &str) -> Option<i64> {
    let value = value_of(span, key)?;
    if let any_value::Value::IntValue(value) = value { Some(*value) } else { None }
}

fn value_of<'s>(span: &'s Span, key: &str) -> Option<&'s any_value::Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

pub fn has_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == status::StatusCode::Error)
}
