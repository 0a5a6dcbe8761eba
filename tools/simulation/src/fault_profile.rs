//! Pure: probabilities of the faults of a world, selected by its seed.

/// Part of the time with faults in which an outage lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    Never,
    /// The middle half of the time with faults.
    Long,
    /// The whole time with faults.
    Whole,
}

impl Outage {
    /// True if the outage lasts at this event of so many.
    pub const fn is_on(self, event: usize, of: usize) -> bool {
        match self {
            Self::Never => false,
            Self::Long => event * 4 >= of && event * 4 < of * 3,
            Self::Whole => true,
        }
    }
}

/// Probabilities of each fault, in percent unless stated otherwise.
#[derive(Debug, Clone)]
pub struct FaultProfile {
    /// Inbox marks are read. Without them only the domain makes repetitions harmless. Steps must not fail
    /// then, since nothing tells what becomes of a message that fails after it was handled.
    pub has_inbox: bool,
    /// Instances of each service on one database.
    pub instances: usize,
    /// Maximum number of facts in a message of the broker.
    pub max_pack: usize,
    pub burst: usize,
    /// A process crashes when it touches the outside, per mille.
    pub dies: u32,
    /// A process is paused, per event.
    pub pauses: u8,
    /// A process loses the broker, which others reach, per event.
    pub cuts: u8,
    /// Maximum offset of a clock in milliseconds, either way.
    pub skew_ms: usize,
    /// Microseconds that every fourth clock gains per second.
    pub drift: i64,
    /// The broker's clock jumps, or that of a machine is set wrong, per event.
    pub clock_jumps: u8,
    /// A database request fails, per mille.
    pub store_fails: u32,
    /// A commit ends without a reply, done or not, per mille.
    pub replies_lost: u32,
    /// A database request is slow.
    pub store_delays: u8,
    /// Finished entries are purged, per event.
    pub trims: u8,
    /// An acknowledgement gets lost.
    pub ack_lost: u8,
    /// The connection breaks when a message arrives.
    pub connection_breaks: u8,
    /// A batch of publishes is cut short, or its acknowledgements get lost.
    pub publish_fails: u8,
    /// The broker rejects an entry, until an operator retries it.
    pub publish_rejected: u8,
    /// The broker has forgotten the ids of its deduplication window.
    pub window_forgets: u8,
    /// A message is stored twice.
    pub duplicates: u8,
    /// The bank does not receive a charge.
    pub charge_fails: u8,
    /// The bank does not receive a refund.
    pub refund_fails: u8,
    /// The bank refuses a refund for good.
    pub refund_refused: u8,
    /// The answer of the bank gets lost.
    pub answer_lost: u8,
    /// A failing call ends by its time-out only.
    pub bank_hangs: u8,
    /// Attempts of a call.
    pub task_attempts: u32,
    pub step_fails: u8,
    pub step_breaks: u8,
    pub step_delays: u8,
    /// An operator forces a breaker, per event.
    pub breaker_forced: u8,
    /// An unreadable message is published, per event.
    pub poison: u8,
    /// A message is published in a newer version than anyone reads.
    pub newer_version: u8,
    /// A message reaches the delivery limit of a durable.
    pub max_deliveries_reached: u8,
    /// The broker loses its disk once, and all messages are republished.
    pub disk_lost: bool,
    pub bank_away: Outage,
    pub broker_away: Outage,
    /// At the end the operator discards some dead letters in place of replaying them.
    pub discards_some: bool,
}

/// Ordinary faults of network, disk and processes.
const MILD: FaultProfile = FaultProfile {
    has_inbox: true,
    instances: 1,
    max_pack: 100,
    burst: 1,
    dies: 8,
    pauses: 0,
    cuts: 0,
    skew_ms: 0,
    drift: 0,
    clock_jumps: 0,
    store_fails: 0,
    replies_lost: 0,
    store_delays: 4,
    trims: 0,
    ack_lost: 10,
    connection_breaks: 2,
    publish_fails: 10,
    publish_rejected: 0,
    window_forgets: 20,
    duplicates: 3,
    charge_fails: 20,
    refund_fails: 20,
    refund_refused: 0,
    answer_lost: 20,
    bank_hangs: 10,
    task_attempts: 3,
    step_fails: 0,
    step_breaks: 0,
    step_delays: 0,
    breaker_forced: 0,
    poison: 0,
    newer_version: 0,
    max_deliveries_reached: 0,
    disk_lost: false,
    bank_away: Outage::Never,
    broker_away: Outage::Never,
    discards_some: false,
};

/// An outage and crashes only. The number of attempts is the real default.
const OUTAGE: FaultProfile = FaultProfile {
    dies: 3,
    ack_lost: 0,
    connection_breaks: 0,
    publish_fails: 0,
    window_forgets: 0,
    duplicates: 0,
    charge_fails: 0,
    refund_fails: 0,
    answer_lost: 0,
    bank_hangs: 0,
    task_attempts: 6,
    ..MILD
};

/// Two or more instances of each service, with different clocks and pauses.
const CROWDED: FaultProfile = FaultProfile {
    instances: 2,
    dies: 4,
    pauses: 4,
    cuts: 3,
    skew_ms: 3_000,
    drift: 2_000,
    replies_lost: 15,
    store_delays: 20,
    ..MILD
};

impl FaultProfile {
    /// Selects the profile of a seed, with up to three instances of each service and packs of any size. Every other one has no
    /// inboxes.
    pub fn of(seed: u64) -> Self {
        let profile = Self::base_of(seed);
        let instances = match seed / 24 % 4 {
            2 => 2,
            3 => 3,
            _ => 1,
        };
        let max_pack = match seed / 24 % 3 {
            0 => 100,
            1 => 3,
            _ => 1,
        };
        let burst = if max_pack == 3 { 3 } else { 1 };
        Self { instances: profile.instances.max(instances), max_pack, burst, ..profile }
    }

    fn base_of(seed: u64) -> Self {
        let discards_some = seed / 16 % 3 == 2;
        if !seed.is_multiple_of(2) {
            let plain = match seed / 2 % 8 {
                0 => Self { charge_fails: 45, task_attempts: 1, ..MILD },
                1 => Self { refund_fails: 95, refund_refused: 40, ..MILD },
                2 => Self { bank_away: Outage::Whole, ..OUTAGE },
                3 => Self { broker_away: Outage::Whole, ..OUTAGE },
                4 => Self {
                    bank_away: Outage::Long,
                    skew_ms: 4_000,
                    clock_jumps: 6,
                    publish_rejected: 4,
                    ..MILD
                },
                5 => CROWDED,
                6 => Self { store_fails: 6, replies_lost: 20, store_delays: 30, disk_lost: true, ..MILD },
                _ => Self { trims: 5, drift: 5_000, clock_jumps: 6, ..MILD },
            };
            return Self { has_inbox: false, discards_some, ..plain };
        }
        let profile = match seed / 2 % 12 {
            0 => Self { charge_fails: 45, task_attempts: 1, poison: 2, ..MILD },
            1 => Self { refund_refused: 70, step_breaks: 3, ..MILD },
            2 => Self { bank_away: Outage::Whole, ..OUTAGE },
            3 => Self { broker_away: Outage::Whole, ..OUTAGE },
            4 => Self { step_fails: 30, step_breaks: 5, step_delays: 20, ..MILD },
            5 => Self {
                poison: 8,
                newer_version: 8,
                max_deliveries_reached: 5,
                store_fails: 8,
                replies_lost: 20,
                ..MILD
            },
            6 => Self { step_breaks: 15, dies: 4, clock_jumps: 4, ..MILD },
            7 => Self {
                bank_away: Outage::Long,
                step_fails: 10,
                step_breaks: 4,
                poison: 3,
                newer_version: 3,
                max_deliveries_reached: 2,
                refund_refused: 30,
                ..MILD
            },
            8 => Self { store_fails: 10, store_delays: 40, step_fails: 5, disk_lost: true, ..MILD },
            9 => Self { trims: 8, skew_ms: 4_000, drift: 5_000, clock_jumps: 8, ..MILD },
            10 => Self { step_fails: 8, step_breaks: 2, publish_rejected: 4, ..CROWDED },
            _ => Self {
                breaker_forced: 6,
                store_fails: 4,
                replies_lost: 20,
                broker_away: Outage::Long,
                ..MILD
            },
        };
        Self { discards_some, ..profile }
    }

    /// True if nothing but an outage goes wrong.
    pub fn is_outage_only(&self) -> bool {
        let is_away = [self.bank_away, self.broker_away].contains(&Outage::Whole);
        let other_faults = [self.publish_fails, self.charge_fails, self.refund_fails];
        is_away && other_faults == [0; 3]
    }
}
