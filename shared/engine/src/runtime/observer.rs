//! Shell: what the loops tell whoever counts.

use std::sync::Arc;
use std::time::Duration;

use saga_core::admission::CallResult;
use saga_core::metric::Measurement;
use saga_core::trace::TraceContext;

/// Hears what the loops do. Every method does nothing unless it is overridden.
pub trait Observer: Send + Sync + 'static {
    /// An input was settled. Not told of those that only asked whether a call is still wanted.
    fn input_settled(&self, _settled: &InputSettled<'_>) {}

    /// What an input had measured is durable.
    fn measured(&self, _measurement: &Measurement, _trace: Option<TraceContext>) {}

    /// A message that nobody of this system sent was parked by this step.
    fn foreign_parked(&self, _step: &str) {}

    /// A call to the outside ended, of a task of this kind.
    fn call_ended(&self, _kind: &str, _end: CallResult, _took: Duration, _trace: Option<TraceContext>) {}

    /// A batch of so many inputs was committed; `took` includes waiting for the writer.
    fn batch_committed(&self, _inputs: usize, _took: Duration) {}

    /// A batch could not be stored.
    fn batch_not_stored(&self) {}

    /// So many messages were written to the outbox.
    fn promised(&self, _messages: usize) {}

    /// So many messages of one round reached the broker, and so many it does not take; it took so long to say so.
    fn published(&self, _messages: usize, _refused: usize, _took: Duration) {}

    /// A message was delivered to this consumer again.
    fn delivered_again(&self, _consumer: &str) {}

    /// So many messages wait at the broker for this consumer, or to be acknowledged; `None` when the broker does not say.
    fn lagging(&self, _consumer: &str, _messages: Option<u64>) {}
}

/// An input that was settled.
#[derive(Debug, Clone, Copy)]
pub struct InputSettled<'a> {
    /// What reacted to it ([`saga_core::input::Input::source`]).
    pub source: &'a str,
    /// The outcome's name.
    pub outcome: &'static str,
    /// How long ago it was handed in.
    pub took: Duration,
    /// Where it stands in its trace.
    pub trace: Option<TraceContext>,
}

/// Hears everything and counts nothing.
impl Observer for () {}

/// An observer that everything in a process shares.
pub type SharedObserver = Arc<dyn Observer>;
