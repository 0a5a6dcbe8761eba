//! Shell: what time it is. Durations are measured with tokio's clock; this is the time of day.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

/// Tells the time of day. Two machines' clocks differ, and the simulation's differ more.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, which may jump either way.
    fn now(&self) -> Timestamp;

    /// Resolves when it can be trusted; `None` when it always can.
    fn trusted(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
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

/// The time of the broker, which all services share: a deadline that one of them sets is one by which another judges.
///
/// Until the broker has said what time it is, the machine's own clock tells it. From then on that time goes on by
/// what has passed since, and the machine's clock may be put right, or wrong, without any effect.
pub struct BrokerClock {
    own: SharedClock,
    /// When the broker was last believed, and what time it was.
    anchor: RwLock<Option<(Instant, Timestamp)>>,
    heard: CancellationToken,
}

/// A time that is off by less is left alone: no deadline is that short, and on one machine it is the machine's own.
const CLOSE_ENOUGH: SignedDuration = SignedDuration::from_millis(100);

impl BrokerClock {
    /// The time of a broker that has not been asked yet.
    #[must_use]
    pub fn new(own: SharedClock) -> Self {
        Self { own, anchor: RwLock::default(), heard: CancellationToken::new() }
    }

    /// Takes what the broker says: its time is `ahead` of this clock's.
    pub fn correct(&self, ahead: SignedDuration) {
        let mut anchor = self.anchor.write();
        let now = self.told(*anchor);
        let by = if ahead.abs() < CLOSE_ENOUGH { SignedDuration::ZERO } else { ahead };
        *anchor = Some((Instant::now(), now.saturating_add(by).unwrap_or(now)));
        drop(anchor);
        self.heard.cancel();
    }

    /// How far the machine's own clock is ahead of the broker's time.
    #[must_use]
    pub fn offset(&self) -> SignedDuration {
        self.own.now().duration_since(self.now())
    }

    fn told(&self, anchor: Option<(Instant, Timestamp)>) -> Timestamp {
        match anchor {
            Some((since, at)) => at.saturating_add(since.elapsed()).unwrap_or(Timestamp::MAX),
            None => self.own.now(),
        }
    }
}

impl Clock for BrokerClock {
    fn now(&self) -> Timestamp {
        self.told(*self.anchor.read())
    }

    fn trusted(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self.heard.clone().cancelled_owned()))
    }
}
