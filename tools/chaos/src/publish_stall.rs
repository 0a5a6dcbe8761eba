//! Pure: judges how long no message of an outbox was published though one process could.

use std::time::Duration;

use devstack::component::Component;
use devstack::plan::Layout;

use super::plan::PlannedDisruption;

/// Maximum time for which the oldest entry waits while a process reaches the broker and its database: the lease of a process
/// that hangs, and the choice of a leader among the brokers.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Age of the oldest entry of an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub service: Component,
    /// Time since the start of the run.
    pub at: Duration,
    pub age: Duration,
}

/// Longest time in which an outbox had entries and published none, although one process of the service was undisturbed.
pub fn longest_stall(plan: &[PlannedDisruption], layout: Layout, samples: &[Sample]) -> Option<Sample> {
    let stalls = samples.iter().filter_map(|sample| {
        let undisturbed = layout
            .services()
            .filter(|process| process.kind() == sample.service)
            .filter_map(|process| undisturbed_for(plan, process, sample.at))
            .max()?;
        // An entry is older than the stall if nobody could publish before.
        Some(Sample { age: sample.age.min(undisturbed), ..*sample })
    });
    stalls.max_by_key(|stall| stall.age)
}

/// Time for which nothing kept a process from publishing; `None` if something does.
fn undisturbed_for(plan: &[PlannedDisruption], process: Component, at: Duration) -> Option<Duration> {
    let disturbing = plan.iter().filter(|it| it.at <= at && it.disruption.prevents_publishing(process));
    let last = disturbing.map(|it| it.until).max().unwrap_or_default();
    at.checked_sub(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Disruption, Link};
    use devstack::plan::StoreKind;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn stall(plan: &[PlannedDisruption], layout: Layout, at: u64, age: u64) -> Duration {
        let sample = Sample { service: Component::ORDER, at: seconds(at), age: seconds(age) };
        longest_stall(plan, layout, &[sample]).map_or(Duration::ZERO, |stall| stall.age)
    }

    fn planned(at: u64, until: u64, disruption: Disruption) -> PlannedDisruption {
        PlannedDisruption { at: seconds(at), until: seconds(until), disruption }
    }

    #[test]
    fn stall_counts_only_while_one_process_is_undisturbed() {
        let one = Layout::default();
        assert_eq!(stall(&[], one, 50, 7), seconds(7));
        let broker = planned(10, 20, Disruption::Kill(Component::NATS));
        assert_eq!(stall(&[broker], one, 15, 9), Duration::ZERO);
        assert_eq!(stall(&[broker], one, 25, 12), seconds(5), "since the broker is back");
        let other = planned(10, 20, Disruption::Kill(Component::INVENTORY));
        assert_eq!(stall(&[other], one, 25, 12), seconds(12));
    }

    #[test]
    fn cut_of_one_replica_excuses_no_other() {
        let layout = Layout { store: StoreKind::Postgres, replicas: 2, nats_nodes: 1 };
        let mut replicas = layout.services().filter(|process| process.kind() == Component::ORDER);
        let (from, other) = (replicas.next().expect("one"), replicas.next().expect("another"));
        let cut = planned(10, 90, Disruption::CutPath(Link { from, to: Component::NATS }));
        assert_eq!(stall(&[cut], layout, 80, 60), seconds(60), "the other one could publish");
        let both = [cut, planned(20, 85, Disruption::Pause(other))];
        assert_eq!(stall(&both, layout, 80, 60), Duration::ZERO);
        let to_bank =
            planned(10, 90, Disruption::CutPath(Link { from, to: "bank".parse().expect("a service") }));
        assert_eq!(stall(&[to_bank, both[1]], layout, 80, 60), seconds(60));
    }
}
