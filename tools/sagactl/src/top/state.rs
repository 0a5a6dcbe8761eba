//! Pure: state after several samples: the last overview, CPU usage and saga rates.

use std::collections::BTreeMap;
use std::time::Duration;

use admin_api::overview::Overview;
use devstack::processes::Processes;
use jiff::Timestamp;

use super::metrics::SagaMetrics;
use super::saga_rates::{Rate, SagaRates};
use crate::overview::snapshot::Snapshot;

#[derive(Debug)]
pub struct Sample {
    pub at: Timestamp,
    /// Monotonic time since the first sample.
    pub elapsed: Duration,
    /// Overview, or the error of an admin that does not answer.
    pub overview: anyhow::Result<Overview>,
    pub metrics: Option<SagaMetrics>,
    /// Processes of a local system.
    pub processes: Option<Processes>,
}

/// Period in which admin has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminOutage {
    pub since: Timestamp,
    /// Last error.
    pub problem: String,
}

#[derive(Debug, Default)]
pub struct State {
    /// Last snapshot. While admin does not answer, it has the last overview.
    pub snapshot: Option<Snapshot>,
    pub admin_outage: Option<AdminOutage>,
    pub processes: Option<Processes>,
    /// CPU usage of each process, by name.
    pub cpu: BTreeMap<String, Rate>,
    pub saga_rates: SagaRates,
    /// Time of the last sample, and CPU time of each process by name and pid.
    cpu_times: (Duration, BTreeMap<(String, u32), u64>),
}

/// Answer to the first question of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HumanNeeded {
    /// There are problems, or were when admin last answered.
    Yes,
    No,
    /// Admin does not answer; there were no problems before.
    Unknown,
    /// There is no sample yet.
    NotSampled,
}

impl State {
    pub fn add(&mut self, sample: Sample) {
        let Sample { at, elapsed, overview, metrics, processes } = sample;
        self.cpu = self.cpu_since_last(elapsed, processes.as_ref());
        self.saga_rates.add(elapsed, metrics);
        let last_overview = self.snapshot.take().and_then(|snapshot| snapshot.overview);
        let (overview, problem) = match overview {
            Ok(overview) => (Some(overview), None),
            Err(error) => (last_overview, Some(format!("{error:#}"))),
        };
        let since = self.admin_outage.as_ref().map_or(at, |outage| outage.since);
        self.admin_outage = problem.clone().map(|problem| AdminOutage { since, problem });
        let down = processes.as_ref().map(Processes::down);
        self.snapshot = Some(Snapshot { down, overview, problem, ..Snapshot::default() });
        self.processes = processes;
    }

    fn cpu_since_last(&mut self, now: Duration, processes: Option<&Processes>) -> BTreeMap<String, Rate> {
        let running = processes.into_iter().flat_map(|processes| &processes.each);
        let times: BTreeMap<_, _> = running
            .filter_map(|process| Some(((process.name.to_string(), process.pid?), process.cpu_ms?)))
            .collect();
        let (last, last_times) = std::mem::replace(&mut self.cpu_times, (now, times.clone()));
        let period = now.saturating_sub(last);
        let usage = |(process, cpu_ms): ((String, u32), u64)| {
            let last_ms = last_times.get(&process)?;
            Some((process.0, Rate::percent(cpu_ms.saturating_sub(*last_ms), period)))
        };
        times.into_iter().filter_map(usage).collect()
    }

    pub fn human_needed(&self) -> HumanNeeded {
        let Some(snapshot) = &self.snapshot else { return HumanNeeded::NotSampled };
        let is_down = snapshot.down.as_ref().is_some_and(|down| !down.is_empty());
        match &snapshot.overview {
            _ if is_down => HumanNeeded::Yes,
            Some(overview) if overview.needs_human => HumanNeeded::Yes,
            Some(_) if self.admin_outage.is_none() => HumanNeeded::No,
            Some(_) | None => HumanNeeded::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixtures::{overview, process};

    #[test]
    fn last_overview_is_kept_while_admin_does_not_answer() {
        let mut state = State::default();
        assert_eq!(state.human_needed(), HumanNeeded::NotSampled);
        state.add(Sample::at(0).with_overview(overview()));
        assert_eq!((state.human_needed(), state.admin_outage.clone()), (HumanNeeded::No, None));
        for second in [1, 2, 3] {
            state.add(Sample::at(second).with_problem(&format!("problem {second}")));
        }
        let since = Sample::at(1).at;
        assert_eq!(state.admin_outage, Some(AdminOutage { since, problem: "problem 3".to_owned() }));
        assert_eq!(state.human_needed(), HumanNeeded::Unknown);
        let kept = state.snapshot.as_ref().and_then(|snapshot| snapshot.overview.clone());
        assert_eq!(kept, Some(overview()));
        state.add(Sample::at(4).with_overview(overview()));
        assert_eq!((state.human_needed(), state.admin_outage.clone()), (HumanNeeded::No, None));
    }

    #[test]
    fn human_stays_needed_while_admin_does_not_answer() {
        let mut state = State::default();
        state.add(Sample::at(0).with_overview(Overview { needs_human: true, ..overview() }));
        state.add(Sample::at(1).with_problem("no answer"));
        assert_eq!(state.human_needed(), HumanNeeded::Yes);
        let mut never = State::default();
        never.add(Sample::at(0).with_problem("no answer"));
        assert_eq!(never.human_needed(), HumanNeeded::Unknown);
    }

    #[test]
    fn stopped_process_needs_a_human_whatever_admin_answers() {
        let mut state = State::default();
        state.add(Sample::at(0).with_overview(overview()).with_processes([process("payment", None, 0)]));
        assert_eq!(state.human_needed(), HumanNeeded::Yes);
    }

    #[test]
    fn cpu_usage_is_that_of_one_process_between_two_samples() {
        let mut state = State::default();
        let mut usage = |second, pid, cpu_ms| {
            let processes = [process("order", Some(pid), cpu_ms)];
            state.add(Sample::at(second).with_overview(overview()).with_processes(processes));
            state.cpu.get("order").map(Rate::to_string)
        };
        assert_eq!(usage(0, 7, 5_000), None, "no earlier sample");
        assert_eq!(usage(2, 7, 5_030), Some("1.5".to_owned()));
        assert_eq!(usage(3, 7, 7_030), Some("200.0".to_owned()), "two processors");
        assert_eq!(usage(4, 8, 10), None, "another process");
        assert_eq!(usage(5, 8, 20), Some("1.0".to_owned()));
    }
}
