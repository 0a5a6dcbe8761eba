//! Shell: what the loops tell whoever counts.

use std::sync::Arc;
use std::time::Duration;

/// Hears what the loops do. Every method does nothing unless it is overridden.
pub trait Observer: Send + Sync + 'static {
    /// An input was settled: what reacted to it, and the outcome's name.
    fn input_settled(&self, _source: &str, _outcome: &'static str) {}

    /// A message that nobody of this system sent was parked by this step.
    fn foreign_parked(&self, _step: &str) {}

    /// A call to the outside ended: the task's kind, and `answered` or `failed`.
    fn call_ended(&self, _kind: &str, _end: &'static str) {}

    /// A batch of so many inputs was committed; `took` includes waiting for the writer.
    fn batch_committed(&self, _inputs: usize, _took: Duration) {}

    /// A batch could not be stored.
    fn batch_not_stored(&self) {}

    /// So many messages of one round reached the broker.
    fn published(&self, _messages: usize) {}
}

/// Hears everything and counts nothing.
impl Observer for () {}

/// An observer that everything in a process shares.
pub type SharedObserver = Arc<dyn Observer>;
