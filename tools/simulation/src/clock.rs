//! Shell: the clocks of processes, which are off and may drift.

use jiff::{SignedDuration, Timestamp};
use saga_engine::runtime::clock::Clock;

use crate::sim::Sim;

pub struct SimClock {
    sim: Sim,
    /// Offset at the start of the world.
    skew: SignedDuration,
    /// Microseconds gained per second.
    drift: i64,
}

impl SimClock {
    pub const fn new(sim: Sim, skew: SignedDuration, drift: i64) -> Self {
        Self { sim, skew, drift }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.sim.age().as_millis()).unwrap_or(i64::MAX);
        let gained = SignedDuration::from_micros(millis.saturating_mul(self.drift) / 1000);
        self.sim.now().saturating_add(self.skew + gained).unwrap_or(Timestamp::MAX)
    }
}
