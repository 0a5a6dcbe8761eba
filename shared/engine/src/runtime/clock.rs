//! Shell: what time it is. Durations are measured with tokio's clock; this is the time of day.

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time of day. Two machines' clocks differ, and the simulation's differ more.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, which may jump either way.
    fn now(&self) -> Timestamp;
}

/// A clock that everything in a process shares.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
