//! Pure: the sliding window of a circuit breaker.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Extent of the window. In TOML `{ calls = 10 }` or `{ time = "30s" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// Number of most recent calls.
    Calls(u32),
    /// Number of whole seconds, including the current one.
    Time(#[serde(with = "humantime_serde")] Duration),
}

impl Window {
    /// Validates the extent, which bounds the memory of a window. Returns the rule as well.
    pub(super) fn check(self) -> (bool, &'static str) {
        match self {
            Self::Calls(calls) => ((1..=10_000).contains(&calls), "window.calls must be 1 to 10000"),
            Self::Time(time) => (
                (1..=3600).contains(&time.as_secs()) && time == Duration::from_secs(time.as_secs()),
                "window.time must be 1s to 1h, in whole seconds",
            ),
        }
    }

    /// Number of slots in the window, including the newest.
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

/// Sliding window: a ring of slots. Slots of a time window are numbered by second, those of a call window by call,
/// so that each holds one call.
#[derive(Debug, Clone)]
pub(super) struct Sliding {
    window: Window,
    /// Slots by number, oldest first. Seconds without calls have none.
    slots: VecDeque<(u64, Tally)>,
    total: Tally,
}

impl Sliding {
    pub(super) fn new(window: Window) -> Self {
        Self { window, slots: VecDeque::new(), total: Tally::default() }
    }

    /// Records one call and returns the sum of the window.
    pub(super) fn record(&mut self, call: Tally, at: Duration) -> Tally {
        let number = match self.window {
            Window::Calls(_) => self.slots.back().map_or(0, |(number, _)| number + 1),
            Window::Time(_) => at.as_secs(),
        };
        while let Some((oldest, tally)) = self.slots.front().copied()
            && self.is_past(oldest, number)
        {
            self.total -= tally;
            self.slots.pop_front();
        }
        match self.slots.back_mut() {
            Some((last, tally)) if *last == number => *tally += call,
            Some(_) | None => self.slots.push_back((number, call)),
        }
        self.total += call;
        self.total
    }

    /// Sum of the window at this time, without moving it.
    pub(super) fn tally(&self, at: Duration) -> Tally {
        let mut tally = self.total;
        let past = |(number, _): &&(u64, Tally)| match self.window {
            Window::Calls(_) => false,
            Window::Time(_) => self.is_past(*number, at.as_secs()),
        };
        self.slots.iter().take_while(past).for_each(|(_, old)| tally -= *old);
        tally
    }

    fn is_past(&self, number: u64, newest: u64) -> bool {
        number.saturating_add(self.window.span()) <= newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is bounded by the seconds of the window, not by its calls.
    #[test]
    fn time_window_has_one_slot_per_second() {
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
