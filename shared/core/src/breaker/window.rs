//! Pure: the sliding window of a circuit breaker: what the last calls, or the calls of the last seconds, came to.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which calls a breaker looks at. In TOML `{ calls = 10 }` or `{ time = "30s" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// The last calls, this many.
    Calls(u32),
    /// The calls of the last whole seconds, this many, the running one included.
    Time(#[serde(with = "humantime_serde")] Duration),
}

impl Window {
    /// The rule that every window keeps, and whether this one does. It bounds the memory of a window.
    pub(super) fn check(self) -> (bool, &'static str) {
        match self {
            Self::Calls(calls) => ((1..=10_000).contains(&calls), "window.calls must be 1 to 10000"),
            Self::Time(time) => (
                (1..=3600).contains(&time.as_secs()) && time == Duration::from_secs(time.as_secs()),
                "window.time must be 1s to 1h, in whole seconds",
            ),
        }
    }

    /// Marks that stay in the window, the newest included.
    fn span(self) -> u64 {
        match self {
            Self::Calls(calls) => calls.into(),
            Self::Time(time) => time.as_secs(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) failures: u64,
    pub(super) slow: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.failures += other.failures;
        self.slow += other.slow;
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        self.calls -= other.calls;
        self.failures -= other.failures;
        self.slow -= other.slow;
    }
}

/// A window in motion. Both kinds are rings of marked slots: a window of time marks with the second, a window
/// of calls with the number of the call, so that its every slot holds one.
#[derive(Debug, Clone)]
pub(super) struct Sliding {
    window: Window,
    /// Oldest first; seconds without calls have none.
    slots: VecDeque<(u64, Tally)>,
    total: Tally,
}

impl Sliding {
    pub(super) fn new(window: Window) -> Self {
        Self { window, slots: VecDeque::new(), total: Tally::default() }
    }

    /// Counts one call and says what the window holds with it.
    pub(super) fn record(&mut self, call: Tally, at: Duration) -> Tally {
        let mark = match self.window {
            Window::Calls(_) => self.slots.back().map_or(0, |(mark, _)| mark + 1),
            Window::Time(_) => at.as_secs(),
        };
        while let Some((oldest, tally)) = self.slots.front().copied()
            && self.is_past(oldest, mark)
        {
            self.total -= tally;
            self.slots.pop_front();
        }
        match self.slots.back_mut() {
            Some((last, tally)) if *last == mark => *tally += call,
            Some(_) | None => self.slots.push_back((mark, call)),
        }
        self.total += call;
        self.total
    }

    /// What the window holds when looked at, without moving it.
    pub(super) fn tally(&self, at: Duration) -> Tally {
        let mut tally = self.total;
        let past = |(mark, _): &&(u64, Tally)| match self.window {
            Window::Calls(_) => false,
            Window::Time(_) => self.is_past(*mark, at.as_secs()),
        };
        self.slots.iter().take_while(past).for_each(|(_, old)| tally -= *old);
        tally
    }

    fn is_past(&self, mark: u64, newest: u64) -> bool {
        mark.saturating_add(self.window.span()) <= newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is bounded by the seconds of the window, and not by its calls.
    #[test]
    fn a_second_is_one_slot_however_many_calls_it_has() {
        let mut sliding = Sliding::new(Window::Time(Duration::from_secs(2)));
        let call = Tally { calls: 1, failures: 0, slow: 0 };
        let slots: Vec<_> = (0..40)
            .map(|tenth| {
                sliding.record(call, Duration::from_millis(tenth * 100));
                sliding.slots.len()
            })
            .collect();
        assert_eq!(slots, [[1; 10], [2; 10], [2; 10], [2; 10]].concat());
        assert_eq!(sliding.total.calls, 20);
    }
}
