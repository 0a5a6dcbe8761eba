//! Shell: state shared by the whole world: chance, time, faults, violations and the trace.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::coverage::{Coverage, CoveragePoint};
use crate::fault_profile::FaultProfile;
use crate::law::Law;
use crate::planted_fault::PlantedFault;

const BEGINNING: Timestamp = Timestamp::constant(1_800_000_000, 0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    Off,
    Print,
    Keep,
}

/// State of a world. Clones share it.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    profile: FaultProfile,
    planted_fault: PlantedFault,
    trace: Trace,
    born: Instant,
    state: Mutex<State>,
}

struct State {
    rng: fastrand::Rng,
    are_faults_on: bool,
    is_bank_away: bool,
    broker_offset: SignedDuration,
    is_any_clock_wrong: bool,
    coverage: Coverage,
    broken: Vec<String>,
    notes: Vec<String>,
}

impl Sim {
    /// Starts a world. Everything that happens in it follows from the seed.
    pub fn new(seed: u64, planted_fault: PlantedFault, trace: Trace) -> Self {
        // The loops draw jitter from the thread's generator.
        fastrand::seed(seed);
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            are_faults_on: false,
            is_bank_away: false,
            broker_offset: SignedDuration::ZERO,
            is_any_clock_wrong: false,
            coverage: Coverage::default(),
            broken: Vec::new(),
            notes: Vec::new(),
        };
        Self(Arc::new(Inner {
            profile: FaultProfile::of(seed),
            planted_fault,
            trace,
            born: Instant::now(),
            state: Mutex::new(state),
        }))
    }

    pub fn profile(&self) -> &FaultProfile {
        &self.0.profile
    }

    /// True if this fault is planted.
    pub fn has(&self, planted_fault: PlantedFault) -> bool {
        self.0.planted_fault == planted_fault
    }

    pub fn planted_fault(&self) -> PlantedFault {
        self.0.planted_fault
    }

    pub fn age(&self) -> Duration {
        self.0.born.elapsed()
    }

    /// True time, which no process knows.
    pub fn now(&self) -> Timestamp {
        self.at(self.age())
    }

    /// True time at this age of the world.
    pub fn at(&self, age: Duration) -> Timestamp {
        BEGINNING.saturating_add(age).unwrap_or(Timestamp::MAX)
    }

    /// Age of the world at this time.
    pub fn age_at(&self, at: Timestamp) -> Option<Duration> {
        at.duration_since(BEGINNING).try_into().ok()
    }

    /// Switches random faults on or off.
    pub fn set_faults_on(&self, are_faults_on: bool) {
        self.0.state.lock().are_faults_on = are_faults_on;
    }

    /// True while nobody reaches the bank.
    pub fn is_bank_away(&self) -> bool {
        self.0.state.lock().is_bank_away
    }

    /// Makes the bank unreachable or reachable.
    pub fn set_bank_away(&self, is_away: bool) {
        self.0.state.lock().is_bank_away = is_away;
    }

    /// Time by the broker's clock.
    pub fn broker_time(&self) -> Timestamp {
        self.now().saturating_add(self.broker_offset()).unwrap_or(Timestamp::MAX)
    }

    /// Offset by which the broker's clock is ahead.
    pub fn broker_offset(&self) -> SignedDuration {
        self.0.state.lock().broker_offset
    }

    pub fn set_broker_offset(&self, offset: SignedDuration) {
        self.0.state.lock().broker_offset = offset;
    }

    /// True while the clock of the broker or of a machine is days off.
    pub fn is_any_clock_wrong(&self) -> bool {
        self.0.state.lock().is_any_clock_wrong
    }

    /// Records whether a clock is days off.
    pub fn set_clock_wrong(&self, is_wrong: bool) {
        self.0.state.lock().is_any_clock_wrong = is_wrong;
    }

    /// True with this probability in percent, while faults are on.
    pub fn chance(&self, percent: u8) -> bool {
        self.chance_of(u32::from(percent) * 10)
    }

    /// True with this probability per mille, while faults are on.
    pub fn chance_of(&self, per_mille: u32) -> bool {
        let mut state = self.0.state.lock();
        per_mille > 0 && state.are_faults_on && state.rng.u32(0..1000) < per_mille
    }

    /// Random number below `end`, also while faults are off.
    pub fn below(&self, end: usize) -> usize {
        self.0.state.lock().rng.usize(0..end.max(1))
    }

    pub fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Random duration up to this maximum.
    pub fn up_to(&self, millis: u64) -> Duration {
        Duration::from_micros(self.0.state.lock().rng.u64(0..=millis * 1000))
    }

    pub fn fresh_id(&self) -> Uuid {
        Uuid::from_u128(self.0.state.lock().rng.u128(..))
    }

    pub fn count(&self, point: CoveragePoint) {
        self.count_many(point, 1);
    }

    pub fn count_if(&self, point: CoveragePoint, is_reached: bool) {
        self.count_many(point, u64::from(is_reached));
    }

    pub fn count_many(&self, point: CoveragePoint, times: u64) {
        self.0.state.lock().coverage.count_many(point, times);
    }

    pub fn count_of(&self, point: CoveragePoint) -> u64 {
        self.0.state.lock().coverage.of(point)
    }

    /// Records that a law does not hold.
    pub fn breaks(&self, law: Law, what: String) {
        self.violation(format!("{law}: {what}"));
    }

    /// Records something that must not happen.
    pub fn violation(&self, what: String) {
        self.note(|| format!("BROKEN: {what}"));
        let mut state = self.0.state.lock();
        if !state.broken.contains(&what) {
            state.broken.push(what);
        }
    }

    /// Adds a line to the trace.
    pub fn note(&self, what: impl FnOnce() -> String) {
        match self.0.trace {
            Trace::Off => {}
            Trace::Print => println!("{:>12.3?} {}", self.age(), what()),
            Trace::Keep => {
                let line = format!("{:?} {}", self.age(), what());
                self.0.state.lock().notes.push(line);
            }
        }
    }

    pub fn result(&self) -> (Vec<String>, Coverage, Vec<String>) {
        let state = self.0.state.lock();
        (state.broken.clone(), state.coverage.clone(), state.notes.clone())
    }
}

/// Returns the result of a store in memory, which never waits.
///
/// # Panics
///
/// If it does.
pub fn ready<T>(answer: impl Future<Output = T>) -> T {
    match answer.now_or_never() {
        Some(answer) => answer,
        None => panic!("a store in memory made somebody wait"),
    }
}
