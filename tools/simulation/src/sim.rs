//! Shell: what everybody in a world shares: chance, time, what goes wrong, and the notes of what was seen.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::endings::{Ending, Endings};
use crate::sabotage::Sabotage;
use crate::weather::Weather;

const BEGINNING: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// What is done with the notes of what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// Nobody wants them.
    Off,
    /// They are printed.
    Print,
    /// They are kept, to be compared.
    Keep,
}

/// What everybody in a world shares. Clones are the same.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    weather: Weather,
    sabotage: Sabotage,
    trace: Trace,
    born: Instant,
    state: Mutex<State>,
}

struct State {
    rng: fastrand::Rng,
    is_rough: bool,
    is_bank_away: bool,
    seen: Endings,
    broken: Vec<String>,
    notes: Vec<String>,
}

impl Sim {
    /// The beginning of a world. Everything that happens in it follows from the seed.
    #[must_use]
    pub fn new(seed: u64, sabotage: Sabotage, trace: Trace) -> Self {
        // The loops draw their jitter from the thread's own generator.
        fastrand::seed(seed);
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            is_rough: false,
            is_bank_away: false,
            seen: Endings::default(),
            broken: Vec::new(),
            notes: Vec::new(),
        };
        Self(Arc::new(Inner {
            weather: Weather::of(seed),
            sabotage,
            trace,
            born: Instant::now(),
            state: Mutex::new(state),
        }))
    }

    #[must_use]
    pub fn weather(&self) -> &Weather {
        &self.0.weather
    }

    /// Whether this fault is planted.
    #[must_use]
    pub fn has(&self, sabotage: Sabotage) -> bool {
        self.0.sabotage == sabotage
    }

    #[must_use]
    pub fn sabotage(&self) -> Sabotage {
        self.0.sabotage
    }

    /// How old the world is.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.0.born.elapsed()
    }

    /// The true time of day, which no process knows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at(self.age())
    }

    /// The true time of day at this age of the world.
    #[must_use]
    pub fn at(&self, age: Duration) -> Timestamp {
        BEGINNING.saturating_add(age).unwrap_or(Timestamp::MAX)
    }

    /// The age of the world at this time of day.
    #[must_use]
    pub fn age_at(&self, at: Timestamp) -> Option<Duration> {
        at.duration_since(BEGINNING).try_into().ok()
    }

    /// From now on things go wrong, or no longer do.
    pub fn set_rough(&self, is_rough: bool) {
        self.0.state.lock().is_rough = is_rough;
    }

    /// Whether nobody reaches the bank.
    #[must_use]
    pub fn is_bank_away(&self) -> bool {
        self.0.state.lock().is_bank_away
    }

    /// From now on nobody reaches the bank, or everybody does.
    pub fn set_bank_away(&self, is_away: bool) {
        self.0.state.lock().is_bank_away = is_away;
    }

    /// Whether something that goes wrong so often of a hundred times does so now.
    #[must_use]
    pub fn chance(&self, percent: u8) -> bool {
        self.chance_of(u32::from(percent) * 10)
    }

    /// The same for so often of a thousand times.
    #[must_use]
    pub fn chance_of(&self, per_mille: u32) -> bool {
        let mut state = self.0.state.lock();
        per_mille > 0 && state.is_rough && state.rng.u32(0..1000) < per_mille
    }

    /// A number below `end`, whatever the weather.
    #[must_use]
    pub fn below(&self, end: usize) -> usize {
        self.0.state.lock().rng.usize(0..end.max(1))
    }

    #[must_use]
    pub fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A time of so many milliseconds at most.
    #[must_use]
    pub fn up_to(&self, millis: u64) -> Duration {
        Duration::from_micros(self.0.state.lock().rng.u64(0..=millis * 1000))
    }

    /// An id that nobody has had before.
    #[must_use]
    pub fn fresh_id(&self) -> Uuid {
        Uuid::from_u128(self.0.state.lock().rng.u128(..))
    }

    /// A run came to this.
    pub fn count(&self, ending: Ending) {
        self.count_many(ending, 1);
    }

    /// A run came to this so many times.
    pub fn count_many(&self, ending: Ending, times: u64) {
        self.0.state.lock().seen.count_many(ending, times);
    }

    /// How often the run came to this.
    #[must_use]
    pub fn seen(&self, ending: Ending) -> u64 {
        self.0.state.lock().seen.of(ending)
    }

    pub fn object(&self, what: String) {
        self.note(|| format!("BROKEN: {what}"));
        let mut state = self.0.state.lock();
        if !state.broken.contains(&what) {
            state.broken.push(what);
        }
    }

    /// Something happened, for whoever follows.
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

    /// What became of it all: broken laws, endings, notes.
    #[must_use]
    pub fn result(&self) -> (Vec<String>, Endings, Vec<String>) {
        let state = self.0.state.lock();
        (state.broken.clone(), state.seen.clone(), state.notes.clone())
    }
}

/// The answer of a store in memory, which is always there at once.
///
/// # Panics
/// When it is not.
pub fn ready<T>(answer: impl Future<Output = T>) -> T {
    match answer.now_or_never() {
        Some(answer) => answer,
        None => panic!("a store in memory made somebody wait"),
    }
}
