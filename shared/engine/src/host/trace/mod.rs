//! Shell: where the spans of a service go: to a collector, by OTLP over HTTP.

mod client;
mod export;
mod span_buffer;
mod tail_sampled;

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use self::export::Export;
pub(super) use self::export::LAST;
use self::span_buffer::SpanBuffer;
use self::tail_sampled::TailSampled;
use super::metrics::Metrics;
use crate::runtime::tracer::{Callers, RecordSpans, Span, Tracer};

/// Which traces are recorded, and where they go (section `trace`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceSettings {
    /// The collector, e.g. `http://localhost:4318`; without one nothing is traced. Of OpenTelemetry's own variables of the
    /// environment `OTEL_EXPORTER_OTLP_HEADERS`, `…_COMPRESSION` (`gzip`, `none`) and `…_PROTOCOL` (`http/protobuf`) are
    /// honoured, each also as `OTEL_EXPORTER_OTLP_TRACES_…`, which comes first.
    pub endpoint: String,
    /// Which part of the traces that begin here is recorded, from 0 to 1.
    pub sample_ratio: f64,
    /// Whether the traces of sagas in which something goes wrong, or is undone, are recorded all the same.
    pub keep_failed: bool,
    /// What becomes of the traces that callers bring along on routes that are anybody's. Those of callers on guarded
    /// routes, who are of this system, are gone on in; what is refused is recorded by no caller's wish.
    pub callers: Callers,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { endpoint: String::new(), sample_ratio: 0.05, keep_failed: true, callers: Callers::Link }
    }
}

/// The path that OTLP over HTTP gives to spans.
const TRACES: &str = "v1/traces";

impl TraceSettings {
    /// Whether anything is traced.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// What cannot be, if anything.
    ///
    /// # Errors
    /// The key, and what it has to be.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(format!("trace.sample_ratio is {}, it has to be from 0 to 1", self.sample_ratio));
        }
        self.url().map(drop)
    }

    /// Where spans are sent; `None` when nothing is traced.
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
            // Not shown: it holds what nobody is to see.
            Ok(url) if !is_open(&url) => {
                return Err("trace.endpoint has a user, a password or a query, which would be shown wherever it is named: \
                            give what the collector wants to know in OTEL_EXPORTER_OTLP_HEADERS"
                    .to_owned());
            }
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            Ok(_) => return bad("which is no http or https address"),
            Err(error) => return bad(&format!("which is no URL ({error})")),
        };
        // Whoever names a path means it.
        if url.path() == "/" {
            url.set_path(TRACES);
        }
        Ok(Some(url))
    }
}

/// Where spans go until they are over, and what ends that.
pub(super) struct Tracing {
    /// What the loops are given.
    pub(super) tracer: Tracer,
    export: Option<Arc<Export>>,
}

impl Tracing {
    /// What these settings ask for.
    ///
    /// # Errors
    /// When there can be no exporter.
    pub(super) fn new(
        settings: &TraceSettings,
        service: &'static str,
        instance: &str,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let Some(url) = settings.url().map_err(anyhow::Error::msg)? else {
            return Ok(Self { tracer: Tracer::off(), export: None });
        };
        let export = Arc::new(Export::to(&url, service, instance, metrics.clone())?);
        let held = settings.keep_failed.then(TailSampler::default);
        let sampled_below = share_of_ids(settings.sample_ratio);
        let recorded = Recorded { export: export.clone(), held, sampled_below };
        let tracer = Tracer::new(Arc::new(recorded), settings.callers);
        Ok(Self { tracer, export: Some(export) })
    }

    /// Sends what is not sent yet, within a moment.
    pub(super) async fn finish(self) {
        if let Some(export) = self.export {
            // It waits for its thread.
            let _ = tokio::task::spawn_blocking(move || export.finish()).await;
        }
    }
}

/// Which spans are exported.
struct Recorded {
    export: Arc<Export>,
    /// Spans that nobody wants unless something goes wrong.
    held: Option<TailSampler>,
    /// Traces are sampled whose number is below this.
    sampled_below: u64,
}

/// The bits of a trace's id that are chance (W3C Trace Context, level 2): of a UUID too.
const RANDOM_BITS: u32 = 56;

/// The number that this share of all trace ids stays below.
#[expect(clippy::float_arithmetic, reason = "a share is set as a float; nothing is counted by it")]
fn share_of_ids(ratio: f64) -> u64 {
    (ratio * (1_u64 << RANDOM_BITS) as f64) as u64
}

impl RecordSpans for Recorded {
    fn samples(&self, trace_id: u128) -> bool {
        let chance = trace_id & ((1 << RANDOM_BITS) - 1);
        chance < u128::from(self.sampled_below) || self.has_kept(trace_id)
    }

    fn has_kept(&self, trace_id: u128) -> bool {
        self.held.as_ref().is_some_and(|held| held.sampled.contains(trace_id))
    }

    fn holds(&self) -> bool {
        self.held.is_some()
    }

    fn keep(&self, trace_id: u128) {
        if let Some(held) = &self.held {
            held.keep(trace_id).into_iter().for_each(|span| self.export.take(span));
        }
    }

    fn take(&self, span: Span) {
        let span = match &self.held {
            Some(held) => held.take(span, |before| self.export.take(before)),
            None => Some(span).filter(|span| span.begun.context.is_sampled),
        };
        span.into_iter().for_each(|span| self.export.take(span));
    }
}

/// Spans that nobody wants unless something goes wrong, and the traces in which it did.
#[derive(Default)]
struct TailSampler {
    spans: Mutex<SpanBuffer<Span>>,
    sampled: TailSampled,
}

impl TailSampler {
    /// From now on a trace is recorded; answers what is held of it.
    fn keep(&self, trace_id: u128) -> Vec<Span> {
        // Known before it is let go: whoever holds another span meanwhile has looked before that.
        self.sampled.insert(trace_id);
        self.spans.lock().take_trace(trace_id)
    }

    /// Holds a span, or answers it when it is to be recorded, and all that is held of its trace before it. One that comes
    /// recorded was found by somebody else to be of a trace in which something went wrong, if any of that is held: it
    /// belongs to it, and all that comes.
    fn take(&self, span: Span, mut record: impl FnMut(Span)) -> Option<Span> {
        let trace_id = span.begun.context.trace_id;
        let mut spans = self.spans.lock();
        if !span.begun.context.is_sampled && !self.sampled.contains(trace_id) {
            let oldest = spans.push(trace_id, span);
            drop(spans);
            drop(oldest);
            return None;
        }
        let before = spans.take_trace(trace_id);
        if !before.is_empty() {
            // Known before anybody else may hold a span: it would be held for nobody.
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

    use super::*;
    use crate::runtime::operation::Operation;
    use crate::runtime::tracer::OpenSpan;

    fn span(trace_id: u128, is_sampled: bool) -> Span {
        let context = TraceContext { trace_id, span_id: 1, is_sampled };
        let details = Operation::Commit { inputs: 1 }.into();
        let begun = OpenSpan { context, parent: None };
        Span { begun, ended: SystemTime::UNIX_EPOCH, took: Duration::ZERO, details }
    }

    /// It turns out while others of the trace end.
    #[test]
    fn nothing_is_held_any_more_of_a_trace_that_turns_out_to_be_recorded() {
        // Fewer than are held at all.
        const AT_MOST: usize = 10_000;
        let unsampled = TailSampler::default();
        for trace_id in 1..=1_000 {
            assert_eq!(unsampled.take(span(trace_id, false), drop), None, "it is held");
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
