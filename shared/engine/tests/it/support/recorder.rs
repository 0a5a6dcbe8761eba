//! Recorder of spans, for tests of traces.

use parking_lot::Mutex;
use saga_engine::runtime::tracer::{RecordSpans, Span};

/// Recorder of ended spans, and of traces to keep.
#[derive(Default)]
pub struct Recorder {
    /// True if every trace is recorded. Otherwise only sampled spans are.
    records_all: bool,
    pub spans: Mutex<Vec<Span>>,
    pub kept: Mutex<Vec<u128>>,
}

impl Recorder {
    pub fn of_all() -> Self {
        Self { records_all: true, ..Self::default() }
    }
}

impl RecordSpans for Recorder {
    fn samples(&self, _: u128) -> bool {
        self.records_all
    }

    fn has_kept(&self, trace_id: u128) -> bool {
        self.records_all || self.kept.lock().contains(&trace_id)
    }

    fn buffers_unsampled(&self) -> bool {
        self.records_all
    }

    fn keep(&self, trace_id: u128) {
        self.kept.lock().push(trace_id);
    }

    fn take(&self, span: Span) {
        self.spans.lock().push(span);
    }
}
