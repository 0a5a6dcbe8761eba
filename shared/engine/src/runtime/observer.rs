//! Shell: the trait by which the loops report what they do, for metrics.

use std::sync::Arc;
use std::time::Duration;

use saga_core::admission::CallResult;
use saga_core::metric::Measurement;
use saga_core::trace::TraceContext;

/// Receives reports from all loops. Every method does nothing by default.
pub trait Observer: Send + Sync + 'static {
    /// Reports a processed input. Checks whether a task is still needed are not reported.
    fn input_processed(&self, _input: &ProcessedInput<'_>) {}

    /// Reports a business measurement of an input that is durable.
    fn measured(&self, _measurement: &Measurement, _trace: Option<TraceContext>) {}

    /// Reports that `step` dead-lettered a message that no service of this system sent.
    fn foreign_dead_lettered(&self, _step: &str) {}

    /// Reports the end of one call for a task of this kind.
    fn call_ended(&self, _kind: &str, _end: CallResult, _took: Duration, _trace: Option<TraceContext>) {}

    /// Reports a committed batch. `took` includes the wait for the store's writer.
    fn batch_committed(&self, _inputs: usize, _took: Duration) {}

    /// Reports a batch that could not be stored.
    fn batch_not_stored(&self) {}

    /// Reports messages written to the outbox.
    fn outbox_written(&self, _messages: usize) {}

    /// Reports a round of the relay: messages that reached the broker, messages that it rejects, and its duration.
    fn published(&self, _messages: usize, _rejected: usize, _took: Duration) {}

    /// Reports a redelivery to this consumer.
    fn redelivered(&self, _consumer: &str) {}

    /// Reports the unacknowledged messages of a consumer; `None` if the broker does not answer.
    fn consumer_backlog(&self, _consumer: &str, _messages: Option<u64>) {}
}

/// Report of a processed input.
#[derive(Debug, Clone, Copy)]
pub struct ProcessedInput<'a> {
    /// Step or other origin of the input ([`saga_core::input::Input::source`]).
    pub source: &'a str,
    /// Name of the outcome, such as `done` or `rejected`.
    pub outcome: &'static str,
    /// Time since the input was submitted.
    pub took: Duration,
    /// Trace context of the input.
    pub trace: Option<TraceContext>,
}

/// Observer that ignores all reports.
impl Observer for () {}

/// Observer that all loops of a process share.
pub type SharedObserver = Arc<dyn Observer>;
