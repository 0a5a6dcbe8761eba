//! Pure: what goes wrong in a world, decided by its seed, as long as it is rough.

/// How long something is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// It never is.
    Never,
    /// For a good part of the rough time.
    Long,
    /// As long as the world is rough.
    Whole,
}

impl Outage {
    /// Whether it is away at this happening of so many.
    #[must_use]
    pub const fn is_on(self, happening: usize, of: usize) -> bool {
        match self {
            Self::Never => false,
            Self::Long => happening * 4 >= of && happening * 4 < of * 3,
            Self::Whole => true,
        }
    }
}

/// What goes wrong: in percent of the occasions, where not said otherwise.
#[derive(Debug, Clone)]
pub struct Weather {
    /// Whether inbox marks are looked at. Without, nothing else than the domain keeps repetitions harmless; no
    /// step may fail then, because nothing says what becomes of a message that fails after it was handled.
    pub has_inbox: bool,
    /// Instances of each service on one database.
    pub instances: usize,
    /// A process dies when it touches the outside, of a thousand times.
    pub dies: u32,
    /// A process stands still for a while, per happening.
    pub pauses: u8,
    /// Milliseconds that a clock may be off, either way.
    pub skew_ms: usize,
    /// Microseconds that one clock of four gains in a second.
    pub drift: i64,
    /// A database fails, of a thousand times.
    pub store_fails: u32,
    /// A database takes long.
    pub store_delays: u8,
    /// Finished entries are trimmed, per happening.
    pub trims: u8,
    /// An acknowledgement gets lost.
    pub ack_lost: u8,
    /// The connection breaks when a message comes.
    pub connection_breaks: u8,
    /// A batch of publishes is cut short, or its acknowledgements are lost.
    pub publish_fails: u8,
    /// The broker refuses one of a batch of publishes, until an operator has it tried again.
    pub refuses: u8,
    /// The broker has forgotten the ids it knew.
    pub window_forgets: u8,
    /// A message is stored twice.
    pub duplicates: u8,
    /// The bank does not hear of a charge.
    pub charge_fails: u8,
    /// The bank does not hear of a refund.
    pub refund_fails: u8,
    /// The bank refuses a refund for good.
    pub refund_refused: u8,
    /// The bank's answer is lost.
    pub answer_lost: u8,
    /// A call that fails does so only when the caller's patience ends.
    pub bank_hangs: u8,
    /// Tries of a call before it is given up.
    pub task_attempts: u32,
    /// A step fails, and may work later.
    pub step_fails: u8,
    /// A step fails, and can never work.
    pub step_breaks: u8,
    /// A step takes long.
    pub step_delays: u8,
    /// An operator forces a breaker, per happening.
    pub breaker_forced: u8,
    /// Somebody publishes something that nobody can read, per happening.
    pub poison: u8,
    /// A message is published in a version that nobody reads yet.
    pub too_new: u8,
    /// The broker gives a message up for one who hears it.
    pub gives_up: u8,
    /// The broker loses its disk once, and what was published is published again.
    pub disk_lost: bool,
    /// The bank is away.
    pub bank_away: Outage,
    /// The broker is away.
    pub broker_away: Outage,
    /// In the end the operator gives some dead letters up in place of mending them.
    pub discards_some: bool,
}

/// Nothing but what a network, a disk and a process do.
const MILD: Weather = Weather {
    has_inbox: true,
    instances: 1,
    dies: 8,
    pauses: 0,
    skew_ms: 0,
    drift: 0,
    store_fails: 0,
    store_delays: 4,
    trims: 0,
    ack_lost: 10,
    connection_breaks: 2,
    publish_fails: 10,
    refuses: 0,
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
    too_new: 0,
    gives_up: 0,
    disk_lost: false,
    bank_away: Outage::Never,
    broker_away: Outage::Never,
    discards_some: false,
};

/// Nothing but an outage, in which processes die too. The attempts are the real default.
const OUTAGE: Weather = Weather {
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

/// Two instances of each service or more, whose clocks differ, and which stand still now and then.
const CROWDED: Weather =
    Weather { instances: 2, dies: 4, pauses: 4, skew_ms: 3_000, drift: 2_000, store_delays: 20, ..MILD };

impl Weather {
    /// The weather of a world, with up to three instances of each service. Every other one has no inboxes.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let weather = Self::of_so_many(seed);
        let instances = match seed / 24 % 4 {
            2 => 2,
            3 => 3,
            _ => 1,
        };
        Self { instances: weather.instances.max(instances), ..weather }
    }

    fn of_so_many(seed: u64) -> Self {
        let discards_some = seed / 16 % 3 == 2;
        if !seed.is_multiple_of(2) {
            let plain = match seed / 2 % 8 {
                0 => Self { charge_fails: 45, task_attempts: 1, ..MILD },
                1 => Self { refund_fails: 95, refund_refused: 40, ..MILD },
                2 => Self { bank_away: Outage::Whole, ..OUTAGE },
                3 => Self { broker_away: Outage::Whole, ..OUTAGE },
                4 => Self { bank_away: Outage::Long, skew_ms: 4_000, refuses: 4, ..MILD },
                5 => CROWDED,
                6 => Self { store_fails: 6, store_delays: 30, disk_lost: true, ..MILD },
                _ => Self { trims: 5, drift: 5_000, ..MILD },
            };
            return Self { has_inbox: false, discards_some, ..plain };
        }
        let weather = match seed / 2 % 12 {
            0 => Self { charge_fails: 45, task_attempts: 1, poison: 2, ..MILD },
            1 => Self { refund_refused: 70, step_breaks: 3, ..MILD },
            2 => Self { bank_away: Outage::Whole, ..OUTAGE },
            3 => Self { broker_away: Outage::Whole, ..OUTAGE },
            4 => Self { step_fails: 30, step_breaks: 5, step_delays: 20, ..MILD },
            5 => Self { poison: 8, too_new: 8, gives_up: 5, store_fails: 8, ..MILD },
            6 => Self { step_breaks: 15, dies: 4, ..MILD },
            7 => Self {
                bank_away: Outage::Long,
                step_fails: 10,
                step_breaks: 4,
                poison: 3,
                too_new: 3,
                gives_up: 2,
                refund_refused: 30,
                ..MILD
            },
            8 => Self { store_fails: 10, store_delays: 40, step_fails: 5, disk_lost: true, ..MILD },
            9 => Self { trims: 8, skew_ms: 4_000, drift: 5_000, ..MILD },
            10 => Self { step_fails: 8, step_breaks: 2, refuses: 4, ..CROWDED },
            _ => Self { breaker_forced: 6, store_fails: 4, broker_away: Outage::Long, ..MILD },
        };
        Self { discards_some, ..weather }
    }

    /// Whether nothing but an outage goes wrong.
    #[must_use]
    pub fn is_outage_alone(&self) -> bool {
        let is_away = [self.bank_away, self.broker_away].contains(&Outage::Whole);
        let else_wrong = [self.publish_fails, self.charge_fails, self.refund_fails];
        is_away && else_wrong == [0; 3]
    }
}
