//! Shell: the clocks of processes: those of their machines, which are off, may drift and may be set wrong,
//! and production's clock, which follows the broker's.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::clock::{BrokerClock, Clock, SharedClock};
use tokio::time::sleep;

use crate::bus::SimBus;
use crate::planted_fault::PlantedFault;
use crate::process::Process;

/// Interval between two requests for the broker's time, and the one while the first answer is in doubt.
const SYNC_EVERY: Duration = Duration::from_secs(5);
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct SimClock {
    process: Process,
    /// Offset at the start of the world.
    skew: SignedDuration,
    /// Microseconds gained per second.
    drift: i64,
}

impl SimClock {
    pub const fn new(process: Process, skew: SignedDuration, drift: i64) -> Self {
        Self { process, skew, drift }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let sim = self.process.sim();
        let millis = i64::try_from(sim.age().as_millis()).unwrap_or(i64::MAX);
        let gained = SignedDuration::from_micros(millis.saturating_mul(self.drift) / 1000);
        let offset = self.skew + gained + self.process.clock_offset();
        sim.now().saturating_add(offset).unwrap_or(Timestamp::MAX)
    }
}

/// Planted fault: shows each time that the broker tells.
struct CredulousClock(SimClock);

impl Clock for CredulousClock {
    fn now(&self) -> Timestamp {
        let offset = self.0.process.sim().broker_offset();
        self.0.now().saturating_add(offset).unwrap_or(Timestamp::MAX)
    }
}

/// Clock of the loops of a process in whose world `followed` follows the broker's.
pub fn shown(machine: &SimClock, followed: &Arc<BrokerClock>) -> SharedClock {
    match machine.process.sim().has(PlantedFault::JumpsBelieved) {
        true => Arc::new(CredulousClock(machine.clone())),
        false => followed.clone(),
    }
}

/// Clock by which a process purges.
pub fn for_retention(machine: &SimClock, followed: Arc<BrokerClock>) -> Arc<BrokerClock> {
    if !machine.process.sim().has(PlantedFault::PurgedByMachineClock) {
        return followed;
    }
    let clock = Arc::new(BrokerClock::new(Arc::new(machine.clone())));
    clock.follow_machine(None);
    clock
}

/// Asks for the broker's time, until dropped.
pub async fn follow(clock: Arc<BrokerClock>, bus: SimBus) {
    let mut pause = DOUBT_PAUSE;
    loop {
        if bus.probe().await.is_ok() {
            let ahead = bus.time().duration_since(clock.now());
            pause = match clock.correct(ahead, None) {
                Some(_) => DOUBT_PAUSE,
                None => {
                    bus.received_time();
                    SYNC_EVERY
                }
            };
        }
        sleep(pause).await;
    }
}
