//! Pure: what is known by now: the last look, what of it is old, and the differences to those before.

use std::collections::BTreeMap;
use std::time::Duration;

use admin_api::overview::Overview;
use jiff::Timestamp;

use super::metrics::Reading;
use super::pace::{Counted, Pace, Rate};
use crate::overview::seen::Seen;
use devstack::processes::Processes;

/// One look.
#[derive(Debug)]
pub struct Look {
    /// When it began.
    pub at: Timestamp,
    /// The same on a clock that never goes back.
    pub clock: Duration,
    /// What admin says, or why it does not.
    pub overview: anyhow::Result<Overview>,
    /// What admin measures; `None` when it does not answer.
    pub reading: Option<Reading>,
    /// The processes of a local system.
    pub processes: Option<Processes>,
}

/// Admin does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Since the look that began then.
    pub since: Timestamp,
    /// Why, as the last look has it.
    pub problem: String,
}

/// What is known by now.
#[derive(Debug, Default)]
pub struct State {
    /// What there was to see; while admin does not answer, what it said last.
    pub seen: Option<Seen>,
    pub silence: Option<Silence>,
    pub processes: Option<Processes>,
    /// Which part of a processor each process takes, by its name.
    pub cpu: BTreeMap<String, Rate>,
    pub pace: Pace,
    /// When the last look was, and what each process, by its name and pid, had taken of processors until then.
    spent: (Duration, BTreeMap<(String, u32), u64>),
}

impl State {
    /// Takes one more look.
    pub fn take(&mut self, look: Look) {
        let Look { at, clock, overview, reading, processes } = look;
        self.cpu = self.cpu_since(clock, processes.as_ref());
        let sagas = overview.as_ref().ok().and_then(|overview| overview.sagas.as_ref());
        self.pace.take(clock, Counted::of(reading, sagas));
        let before = self.seen.take().and_then(|seen| seen.overview);
        let (overview, problem) = match overview {
            Ok(overview) => (Some(overview), None),
            Err(error) => (before, Some(format!("{error:#}"))),
        };
        let since = self.silence.as_ref().map_or(at, |silence| silence.since);
        self.silence = problem.clone().map(|problem| Silence { since, problem });
        let down = processes.as_ref().map(Processes::down);
        self.seen = Some(Seen { down, overview, problem, ..Seen::default() });
        self.processes = processes;
    }

    fn cpu_since(&mut self, clock: Duration, processes: Option<&Processes>) -> BTreeMap<String, Rate> {
        let running = processes.into_iter().flat_map(|processes| &processes.each);
        let now: BTreeMap<_, _> =
            running.filter_map(|it| Some(((it.name.to_string(), it.pid?), it.cpu_ms?))).collect();
        let (then, before) = std::mem::replace(&mut self.spent, (clock, now.clone()));
        let over = clock.saturating_sub(then);
        let share = |((name, pid), spent): ((String, u32), u64)| {
            let before = before.get(&(name.clone(), pid))?;
            Some((name, Rate::percent(spent.saturating_sub(*before), over)))
        };
        now.into_iter().filter_map(share).collect()
    }

    /// Whether somebody is needed.
    pub fn need(&self) -> Need {
        let Some(seen) = &self.seen else { return Need::NotLooked };
        let is_down = seen.down.as_ref().is_some_and(|down| !down.is_empty());
        match &seen.overview {
            _ if is_down => Need::Somebody,
            Some(overview) if overview.needs_human => Need::Somebody,
            Some(_) if self.silence.is_none() => Need::Nobody,
            Some(_) | None => Need::NotKnown,
        }
    }
}

/// Whether somebody is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Something does not mend itself, or did not when admin was last heard.
    Somebody,
    Nobody,
    /// Admin does not answer, and when it last did nobody was needed.
    NotKnown,
    /// The first look is under way.
    NotLooked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::played::{overview, process};

    #[test]
    fn while_admin_is_silent_its_last_word_stands_and_it_is_told_since_when() {
        let mut state = State::default();
        assert_eq!(state.need(), Need::NotLooked);
        state.take(Look::played(0).saying(overview()));
        assert_eq!((state.need(), state.silence.clone()), (Need::Nobody, None));
        for second in [1, 2, 3] {
            state.take(Look::played(second).silent(&format!("problem {second}")));
        }
        let since = Look::played(1).at;
        assert_eq!(state.silence, Some(Silence { since, problem: "problem 3".to_owned() }));
        assert_eq!(state.need(), Need::NotKnown);
        assert_eq!(state.seen.as_ref().and_then(|seen| seen.overview.clone()), Some(overview()));
        state.take(Look::played(4).saying(overview()));
        assert_eq!((state.need(), state.silence.clone()), (Need::Nobody, None));
    }

    #[test]
    fn who_was_needed_before_admin_fell_silent_still_is() {
        let mut state = State::default();
        state.take(Look::played(0).saying(Overview { needs_human: true, ..overview() }));
        state.take(Look::played(1).silent("gone"));
        assert_eq!(state.need(), Need::Somebody);
        let mut never = State::default();
        never.take(Look::played(0).silent("gone"));
        assert_eq!(never.need(), Need::NotKnown);
    }

    #[test]
    fn a_process_that_does_not_run_needs_somebody_whatever_admin_says() {
        let mut state = State::default();
        state.take(Look::played(0).saying(overview()).with([process("payment", None, 0)]));
        assert_eq!(state.need(), Need::Somebody);
    }

    #[test]
    fn a_processors_share_is_that_of_one_process_between_two_looks() {
        let mut state = State::default();
        let mut shares = |second, pid, cpu_ms| {
            state.take(Look::played(second).saying(overview()).with([process("order", Some(pid), cpu_ms)]));
            state.cpu.get("order").map(Rate::to_string)
        };
        assert_eq!(shares(0, 7, 5_000), None, "nothing to compare with");
        assert_eq!(shares(2, 7, 5_030), Some("1.5".to_owned()));
        assert_eq!(shares(3, 7, 7_030), Some("200.0".to_owned()), "two processors");
        assert_eq!(shares(4, 8, 10), None, "another process");
        assert_eq!(shares(5, 8, 20), Some("1.0".to_owned()));
    }
}
