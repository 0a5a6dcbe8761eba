//! Shell: sampling of traces, and export of their spans by OTLP over HTTP.

mod client;
mod described;
mod export;
mod span_buffer;
mod tail_sampled;

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use self::described::Described;
pub use self::described::Process;
use self::export::Export;
pub(super) use self::export::LAST;
use self::span_buffer::SpanBuffer;
use self::tail_sampled::TailSampled;
use super::metrics::Metrics;
use crate::runtime::trace_queue::TraceQueue;
use crate::runtime::tracer::{Callers, RecordSpans, Span, Tracer};

/// Sampling and export of traces (section `trace`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceSettings {
    /// Collector, e.g. `http://localhost:4318`; without one tracing is off. Of OpenTelemetry's environment variables,
    /// `OTEL_EXPORTER_OTLP_HEADERS`, `…_COMPRESSION` (`gzip`, `none`) and `…_PROTOCOL` (`http/protobuf`) have an
    /// effect. Each also exists as `OTEL_EXPORTER_OTLP_TRACES_…`, which takes precedence. `OTEL_RESOURCE_ATTRIBUTES` adds
    /// attributes to the resource.
    pub endpoint: String,
    /// Share of new traces that is recorded, from 0 to 1.
    pub sample_ratio: f64,
    /// Record traces in which a step fails or is compensated, although they were not sampled.
    pub keep_failed: bool,
    /// Treatment of trace contexts on open routes. `link`: start a new trace linked to the caller's. `follow`: continue
    /// the caller's trace. Guarded routes always continue it; denied requests never do.
    pub callers: Callers,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { endpoint: String::new(), sample_ratio: 0.05, keep_failed: true, callers: Callers::Link }
    }
}

/// Path of spans in OTLP over HTTP.
const TRACES: &str = "v1/traces";

impl TraceSettings {
    /// True if a collector is set.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When a setting is impossible; the message names the key.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(format!("trace.sample_ratio is {}, it has to be from 0 to 1", self.sample_ratio));
        }
        self.url().map(drop)
    }

    /// Returns the collector's URL; `None` while tracing is off.
    fn url(&self) -> Result<Option<Url>, String> {
        if !self.is_on() {
            return Ok(None);
        }
        let bad = |why: &str| {
            Err(format!(
                "trace.endpoint is {:?}, {why}: it has to be the address of a collector that takes OTLP over HTTP, e.g. \
                 http://localhost:4318",
                self.endpoint
            ))
        };
        let is_open =
            |url: &Url| url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let mut url = match Url::parse(&self.endpoint) {
            // Not shown, because it holds a secret.
            Ok(url) if !is_open(&url) => {
                return Err("trace.endpoint has a user, a password or a query, which would be shown wherever it is named: \
                            give what the collector wants to know in OTEL_EXPORTER_OTLP_HEADERS"
                    .to_owned());
            }
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            Ok(_) => return bad("which is no http or https address"),
            Err(error) => return bad(&format!("which is no URL ({error})")),
        };
        // An explicit path stays as it is.
        if url.path() == "/" {
            url.set_path(TRACES);
        }
        Ok(Some(url))
    }
}

/// Tracer of a service, with its exporter.
pub(super) struct Tracing {
    /// Tracer for the loops and routes.
    pub(super) tracer: Tracer,
    export: Option<Arc<Export>>,
}

impl Tracing {
    /// Makes the tracer and its exporter.
    ///
    /// # Errors
    /// When the exporter cannot be made.
    pub(super) fn new(
        settings: &TraceSettings,
        process: Process<'_>,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let described = Described::of(process);
        let Some(url) = settings.url().map_err(anyhow::Error::msg)? else {
            return Ok(Self { tracer: Tracer::off(), export: None });
        };
        let export = Arc::new(Export::to(&url, described, metrics.clone())?);
        let tail_sampler = settings.keep_failed.then(TailSampler::default);
        let sampled_below = share_of_ids(settings.sample_ratio);
        let recorded = Recorder { export: export.clone(), tail_sampler, sampled_below };
        let tracer = Tracer::new(Arc::new(recorded), settings.callers);
        Ok(Self { tracer, export: Some(export) })
    }

    /// Sends the remaining spans, within a limit.
    pub(super) async fn finish(self) {
        if let Some(export) = self.export {
            // Blocks on the exporter's thread.
            let _ = tokio::task::spawn_blocking(move || export.finish()).await;
        }
    }
}

/// Recorder that samples spans and exports them.
struct Recorder {
    export: Arc<Export>,
    /// Tail sampler of traces that were not sampled; `None` while `trace.keep_failed` is false.
    tail_sampler: Option<TailSampler>,
    /// Threshold of the random bits below which a trace is sampled.
    sampled_below: u64,
}

/// Number of random bits of a trace id (W3C Trace Context, level 2), which UUIDs have too.
const RANDOM_BITS: u32 = 56;

/// Converts a sample ratio into a threshold of the random bits.
#[expect(clippy::float_arithmetic, reason = "a share is set as a float; nothing is counted by it")]
fn share_of_ids(ratio: f64) -> u64 {
    (ratio * (1_u64 << RANDOM_BITS) as f64) as u64
}

impl RecordSpans for Recorder {
    fn samples(&self, trace_id: u128) -> bool {
        let chance = trace_id & ((1 << RANDOM_BITS) - 1);
        chance < u128::from(self.sampled_below) || self.has_kept(trace_id)
    }

    fn has_kept(&self, trace_id: u128) -> bool {
        self.tail_sampler.as_ref().is_some_and(|tail_sampler| tail_sampler.sampled.contains(trace_id))
    }

    fn buffers_unsampled(&self) -> bool {
        self.tail_sampler.is_some()
    }

    fn keep(&self, trace_id: u128) {
        if self.has_kept(trace_id) {
            return;
        }
        if let Some(TailSampler { announcements, .. }) = &self.tail_sampler {
            announcements.push(trace_id);
        }
        self.keep_announced(trace_id);
    }

    fn keep_announced(&self, trace_id: u128) {
        if let Some(tail_sampler) = &self.tail_sampler {
            tail_sampler.forwards.push(trace_id);
            tail_sampler.keep(trace_id).into_iter().for_each(|span| self.export.take(span));
        }
    }

    fn announcements(&self) -> Option<&TraceQueue> {
        self.tail_sampler.as_ref().map(|tail_sampler| &tail_sampler.announcements)
    }

    fn forwards(&self) -> Option<&TraceQueue> {
        self.tail_sampler.as_ref().map(|tail_sampler| &tail_sampler.forwards)
    }

    fn take(&self, span: Span) {
        let span = match &self.tail_sampler {
            Some(tail_sampler) => tail_sampler.take(span, |before| self.export.take(before)),
            None => Some(span).filter(|span| span.opened.context.is_sampled),
        };
        span.into_iter().for_each(|span| self.export.take(span));
    }
}

/// Tail sampler: buffers spans of traces that were not sampled, and knows the traces that are recorded because of a
/// failure.
#[derive(Default)]
struct TailSampler {
    spans: Mutex<SpanBuffer<Span>>,
    sampled: TailSampled,
    /// Traces that this process keeps, and of which others must learn.
    announcements: TraceQueue,
    /// All traces that are kept, for programs without the broker.
    forwards: TraceQueue,
}

impl TailSampler {
    /// Records a trace from now on, and returns its buffered spans.
    fn keep(&self, trace_id: u128) -> Vec<Span> {
        // Inserted before the spans are taken, so that a concurrent span of the trace is not buffered afterwards.
        self.sampled.insert(trace_id);
        self.spans.lock().take_trace(trace_id)
    }

    /// Buffers a span, or returns it if its trace is recorded, after passing the buffered spans of the trace to
    /// `record`. A sampled span of a trace with buffered spans shows that another process found a failure; the whole
    /// trace is then recorded.
    fn take(&self, span: Span, mut record: impl FnMut(Span)) -> Option<Span> {
        let trace_id = span.opened.context.trace_id;
        let mut spans = self.spans.lock();
        if !span.opened.context.is_sampled && !self.sampled.contains(trace_id) {
            let oldest = spans.push(trace_id, span);
            drop(spans);
            drop(oldest);
            return None;
        }
        let before = spans.take_trace(trace_id);
        if !before.is_empty() {
            // Inserted under the lock: a span that is buffered later would never be taken.
            self.sampled.insert(trace_id);
        }
        drop(spans);
        before.into_iter().for_each(&mut record);
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, SystemTime};

    use saga_core::trace::TraceContext;
    use uuid::Uuid;

    use super::*;
    use crate::runtime::span_operation::SpanOperation;
    use crate::runtime::tracer::OpenSpan;

    fn span(trace_id: u128, is_sampled: bool) -> Span {
        let context = TraceContext { trace_id, span_id: 1, is_sampled };
        let correlation_id = Uuid::nil();
        let (subject, message_id, round) = (String::new(), correlation_id, 1);
        let details = SpanOperation::Publish { subject, message_id, correlation_id, round }.into();
        let opened = OpenSpan { context, parent: None };
        Span { opened, ended: SystemTime::UNIX_EPOCH, took: Duration::ZERO, details }
    }

    /// Other spans of the trace end at the same time.
    #[test]
    fn tail_sampler_buffers_no_span_of_recorded_trace_under_concurrency() {
        // Fewer than the buffer holds.
        const AT_MOST: usize = 10_000;
        let unsampled = TailSampler::default();
        for trace_id in 1..=1_000 {
            assert_eq!(unsampled.take(span(trace_id, false), drop), None, "it is buffered");
            let (both, is_over) = (Barrier::new(2), AtomicBool::new(false));
            let take_others = || {
                let (mut ended, mut recorded) = (0, 0);
                both.wait();
                while ended < AT_MOST && !is_over.load(Ordering::Relaxed) {
                    ended += 1;
                    recorded += usize::from(unsampled.take(span(trace_id, false), drop).is_some());
                }
                (ended, recorded)
            };
            let (ended, recorded) = std::thread::scope(|scope| {
                let others = scope.spawn(take_others);
                both.wait();
                let mut recorded = 0;
                recorded += usize::from(unsampled.take(span(trace_id, true), |_| recorded += 1).is_some());
                is_over.store(true, Ordering::Relaxed);
                let others = others.join().expect("it does not panic");
                (2 + others.0, recorded + others.1)
            });
            assert_eq!(unsampled.spans.lock().take_trace(trace_id), [], "trace {trace_id} keeps spans back");
            assert_eq!(recorded, ended, "trace {trace_id}");
        }
    }
}
