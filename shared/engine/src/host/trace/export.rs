//! Shell: export of spans to a collector, queued and sent in batches by a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind as OtelKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_COMPRESSION, OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_COMPRESSION,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, Protocol, SpanExporter as OtlpExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanLinks, SpanProcessor as _,
};
use reqwest::Url;
use saga_core::trace::TraceContext;
use tracing::{info, warn};

use super::client::Client;
use super::described::Described;
use crate::host::metrics::{Metrics, names};
use crate::runtime::span_attribute::{Attribute, AttributeValue};
use crate::runtime::span_operation::{SpanKind, SpanOperation};
use crate::runtime::tracer::{OpenSpan, Span, SpanDetails, SpanFailure, Transaction};

/// Capacity of the queue. Further spans are dropped and counted.
const QUEUE: usize = 16_384;
/// Maximum number of spans in one request.
const BATCH: usize = 512;
const EVERY: Duration = Duration::from_secs(1);
/// Time-out of a request to the collector.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on sending the last spans of a stopping service.
pub(in crate::host) const LAST: Duration = Duration::from_secs(2);

/// Supported values of OpenTelemetry's environment variables; others are errors, because they would have no effect. The
/// headers variables are supported as they are. Endpoint, batch size and time-outs are set by `trace.endpoint` and the
/// constants here.
const FORMS: [(&str, &[&str]); 4] = [
    (OTEL_EXPORTER_OTLP_TRACES_COMPRESSION, &["gzip", "none"]),
    (OTEL_EXPORTER_OTLP_COMPRESSION, &["gzip", "none"]),
    (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, &["http/protobuf"]),
    (OTEL_EXPORTER_OTLP_PROTOCOL, &["http/protobuf"]),
];

/// Exporter of spans to one collector.
#[derive(Debug)]
pub(super) struct Export {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    /// Attributes of all transactions.
    database: Vec<KeyValue>,
    waiting: Arc<AtomicUsize>,
    metrics: Metrics,
}

impl Export {
    /// Makes an exporter to the collector at `url`. Must be called in a runtime.
    ///
    /// # Errors
    /// When the client cannot be made, or the environment asks for an unsupported form.
    pub(super) fn to(url: &Url, described: Described, metrics: Metrics) -> anyhow::Result<Self> {
        check_forms()?;
        let otlp = OtlpExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url.as_str())
            .with_timeout(TIMEOUT)
            .with_http_client(Client::within(TIMEOUT)?)
            .build()
            .map_err(|error| anyhow::anyhow!("trace.endpoint {url}: {error}"))?;
        let waiting = Arc::new(AtomicUsize::new(0));
        for outcome in ["exported", "dropped", "failed"] {
            metrics.show(&names::TRACE_SPANS, &[outcome]);
        }
        let counting = CountingExporter {
            otlp,
            url: url.clone(),
            is_failing: AtomicBool::new(false),
            waiting: waiting.clone(),
            metrics: metrics.clone(),
        };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(EVERY)
            .build();
        let mut processor = BatchSpanProcessor::builder(counting).with_batch_config(config).build();
        let Described { resource, database } = described;
        opentelemetry_sdk::trace::SpanProcessor::set_resource(&mut processor, &resource);
        let scope =
            InstrumentationScope::builder("saga-engine").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self { processor, scope, database, waiting, metrics })
    }

    /// Queues a span and that of its transaction, or drops them when the queue is full.
    pub(super) fn take(&self, span: Span) {
        if let Some(transaction) = span.details.transaction {
            self.queue(|| self.data_of_transaction(&span, transaction));
        }
        self.queue(|| self.data(span));
    }

    fn queue(&self, data: impl FnOnce() -> SpanData) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.metrics.add(&names::TRACE_SPANS, &["dropped"], 1);
            return;
        }
        self.processor.on_end(data());
    }

    /// Sends the queued spans, within a limit.
    pub(super) fn finish(&self) {
        let _ = self.processor.shutdown_with_timeout(LAST);
    }

    fn data(&self, span: Span) -> SpanData {
        let Span {
            opened: OpenSpan { context, parent },
            ended,
            took,
            details: SpanDetails { operation, failed, links, transaction: _ },
        } = span;
        let mut attributes: Vec<_> = operation.attributes().into_iter().map(key_value).collect();
        let status = match failed {
            None => Status::Unset,
            Some(SpanFailure { error_type, description }) => {
                attributes.push(KeyValue::new("error.type", error_type));
                Status::error(description)
            }
        };
        let mut linked = SpanLinks::default();
        linked.links = links.iter().map(|link| Link::new(context_of(link, true), vec![], 0)).collect();
        SpanData {
            parent_span_is_remote: matches!(operation.kind(), SpanKind::Server | SpanKind::Consumer),
            span_kind: match operation.kind() {
                SpanKind::Internal => OtelKind::Internal,
                SpanKind::Server => OtelKind::Server,
                SpanKind::Client => OtelKind::Client,
                SpanKind::Producer => OtelKind::Producer,
                SpanKind::Consumer => OtelKind::Consumer,
            },
            name: operation.name(),
            attributes,
            links: linked,
            status,
            ..self.plain(&context, parent, (ended, took))
        }
    }

    /// Describes the transaction that ended with `span`, as a client call of the database below it.
    fn data_of_transaction(&self, span: &Span, transaction: Transaction) -> SpanData {
        let Span { opened: OpenSpan { context, .. }, ended, details, .. } = span;
        let own = TraceContext { span_id: fastrand::u64(1..), ..*context };
        let mut attributes = self.database.clone();
        attributes.push(KeyValue::new("db.operation.name", COMMIT));
        attributes.extend(
            i64::try_from(transaction.inputs).map(|inputs| KeyValue::new("saga.batch.inputs", inputs)),
        );
        if let SpanOperation::Process(input) = &details.operation {
            attributes.push(KeyValue::new("saga.correlation_id", input.correlation_id.to_string()));
        }
        SpanData {
            span_kind: OtelKind::Client,
            name: COMMIT.into(),
            attributes,
            ..self.plain(&own, Some(context.span_id), (*ended, transaction.took))
        }
    }

    /// Span without operation, with its times and its place in the trace.
    fn plain(
        &self,
        context: &TraceContext,
        parent: Option<u64>,
        (ended, took): (SystemTime, Duration),
    ) -> SpanData {
        SpanData {
            span_context: context_of(context, false),
            parent_span_id: parent.map_or(SpanId::INVALID, |id| SpanId::from_bytes(id.to_be_bytes())),
            parent_span_is_remote: false,
            span_kind: OtelKind::Internal,
            name: "".into(),
            start_time: ended.checked_sub(took).unwrap_or(ended),
            end_time: ended,
            attributes: vec![],
            dropped_attributes_count: 0,
            events: opentelemetry_sdk::trace::SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// Name of the operation of a transaction.
const COMMIT: &str = "COMMIT";

fn key_value((key, value): Attribute) -> KeyValue {
    match value {
        AttributeValue::Number(number) => KeyValue::new(key, number),
        AttributeValue::Text(text) => KeyValue::new(key, text),
    }
}

fn check_forms() -> anyhow::Result<()> {
    for (variable, known) in FORMS {
        let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else { continue };
        let is_known = known.iter().any(|known| value.eq_ignore_ascii_case(known));
        anyhow::ensure!(is_known, "{variable} is {value:?}: it has to be {}", known.join(" or "));
    }
    Ok(())
}

fn context_of(context: &TraceContext, is_remote: bool) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(context.trace_id.to_be_bytes()),
        SpanId::from_bytes(context.span_id.to_be_bytes()),
        TraceFlags::SAMPLED,
        is_remote,
        TraceState::default(),
    )
}

/// Exporter that counts spans, and logs once when the collector fails and once when it recovers.
#[derive(Debug)]
struct CountingExporter {
    otlp: OtlpExporter,
    url: Url,
    is_failing: AtomicBool,
    waiting: Arc<AtomicUsize>,
    metrics: Metrics,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.otlp.export(batch).await;
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let outcome = if sent.is_ok() { "exported" } else { "failed" };
        self.metrics.add(&names::TRACE_SPANS, &[outcome], count as u64);
        let was_failing = self.is_failing.swap(sent.is_err(), Ordering::Relaxed);
        let url = &self.url;
        match &sent {
            Err(error) if !was_failing => {
                warn!(
                    "traces are lost, as the collector at {url} does not take them: {error}; nothing else is"
                );
            }
            Ok(()) if was_failing => info!("the collector at {url} takes traces again"),
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}
