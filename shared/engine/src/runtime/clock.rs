//! Shell: wall-clock time. Durations are measured with tokio's clock instead.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

/// Source of wall-clock time. The clocks of two machines differ, and those of the simulation differ more.
pub trait Clock: Send + Sync + 'static {
    /// Current time, which may jump in either direction.
    fn now(&self) -> Timestamp;

    /// Resolves once the time can be trusted; `None` if it always can.
    fn trusted(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Clock that all loops of a process share.
pub type SharedClock = Arc<dyn Clock>;

/// Clock of the machine, which may be off or be set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Clock of the broker, so that a deadline set by one service is judged by the same time in another.
///
/// Until the first [`correct`](Self::correct) it shows the machine's time. From then on it advances monotonically, and
/// changes of the machine's clock have no effect.
pub struct BrokerClock {
    machine: SharedClock,
    /// Last correction, and the broker's time at that moment.
    anchor: RwLock<Option<(Instant, Timestamp)>>,
    corrected: CancellationToken,
}

/// Offset that is not corrected. No deadline is that short, and on one machine both clocks are the same.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(100);

impl BrokerClock {
    /// Creates a clock that shows the machine's time until it is corrected.
    #[must_use]
    pub fn new(machine: SharedClock) -> Self {
        Self { machine, anchor: RwLock::default(), corrected: CancellationToken::new() }
    }

    /// Corrects the time by `offset`, by which the broker is ahead of this clock.
    pub fn correct(&self, offset: SignedDuration) {
        let mut anchor = self.anchor.write();
        let now = self.time_since(*anchor);
        let by = if offset.abs() < TOLERANCE { SignedDuration::ZERO } else { offset };
        *anchor = Some((Instant::now(), now.saturating_add(by).unwrap_or(now)));
        drop(anchor);
        self.corrected.cancel();
    }

    /// Offset by which the machine's clock is ahead of the broker's time.
    #[must_use]
    pub fn offset(&self) -> SignedDuration {
        self.machine.now().duration_since(self.now())
    }

    fn time_since(&self, anchor: Option<(Instant, Timestamp)>) -> Timestamp {
        match anchor {
            Some((since, at)) => at.saturating_add(since.elapsed()).unwrap_or(Timestamp::MAX),
            None => self.machine.now(),
        }
    }
}

impl Clock for BrokerClock {
    fn now(&self) -> Timestamp {
        self.time_since(*self.anchor.read())
    }

    fn trusted(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self.corrected.clone().cancelled_owned()))
    }
}
