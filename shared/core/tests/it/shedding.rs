//! Load shedding of a simulated service, and of replicas that share their work.

use std::collections::VecDeque;
use std::time::Duration;

use saga_core::shedding::{InFlightLimits, Overload, Recount, Shedding};

const LIMITS: InFlightLimits =
    InFlightLimits { min_limit: 500, max_wait: Duration::from_millis(300), max_limit: 20_000 };

/// Simulated service of a fixed capacity, first come first served, with requests at a steady rate, by the
/// millisecond.
struct World {
    shedding: Shedding,
    now: Duration,
    queue: VecDeque<Duration>,
    arrived: u64,
    served: u64,
    completed: bool,
}

/// Counts of a simulated period.
#[derive(Debug, Default, PartialEq, Eq)]
struct Period {
    taken: u64,
    rejected: u64,
    longest: Duration,
    most: u64,
}

impl World {
    fn new() -> Self {
        Self::bounded(LIMITS)
    }

    fn bounded(limits: InFlightLimits) -> Self {
        let (shedding, now, queue) = (Shedding::new(limits), Duration::ZERO, VecDeque::new());
        Self { shedding, now, queue, arrived: 0, served: 0, completed: true }
    }

    /// Simulates `arrivals` requests and `capacity` completions a second for `ms` milliseconds.
    fn run(&mut self, arrivals: u64, capacity: u64, ms: u64) -> Period {
        let mut counts = Period::default();
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            self.arrived += arrivals;
            while self.arrived >= 1_000 {
                self.arrived -= 1_000;
                if self.shedding.admit(self.now).is_ok() {
                    counts.taken += 1;
                    self.queue.push_back(self.now);
                    self.shedding.record_answer();
                    self.shedding.record_begin();
                } else {
                    counts.rejected += 1;
                }
            }
            self.served = (self.served + capacity).min(1_000 * 50);
            while self.served >= 1_000 {
                self.served -= 1_000;
                let Some(since) = self.queue.pop_front() else { continue };
                counts.longest = counts.longest.max(self.now - since);
                self.shedding.record_end(self.completed, self.now);
            }
            counts.most = counts.most.max(self.shedding.in_flight());
        }
        counts
    }
}

/// Replicas share the work: each sees a part of what ends.
#[test]
fn recount_corrects_in_flight_for_other_replicas() {
    let (mut shedding, at) = (Shedding::new(LIMITS), Duration::from_secs(1));
    (0..5_000).for_each(|_| shedding.record_begin());
    let counted = |in_flight| Recount { in_flight, ..Recount::default() };
    shedding.recount(counted(100), at);
    assert_eq!(shedding.in_flight(), 100);
    shedding.admit(at).expect("there is room");
    shedding.record_answer();
    shedding.recount(counted(30_000), at);
    assert_eq!(shedding.admit(at).expect_err("there is none").in_flight, 30_000);
}

/// Simulated replicas of which the first ends all work, as the leader does. Each recounts every half second.
struct Replicated {
    replicas: [Shedding; 3],
    now: Duration,
    queue: VecDeque<Duration>,
    ended: u64,
}

impl Replicated {
    fn new(limits: InFlightLimits) -> Self {
        let replicas = [Shedding::new(limits), Shedding::new(limits), Shedding::new(limits)];
        Self { replicas, now: Duration::ZERO, queue: VecDeque::new(), ended: 0 }
    }

    /// Simulates requests at each replica and completions in all, a second each, for `ms` milliseconds.
    fn run(&mut self, arrivals: u64, capacity: u64, ms: u64) -> Period {
        let (mut counts, mut arrived, mut served) = (Period::default(), 0, 0);
        for elapsed in 1..=ms {
            self.now += Duration::from_millis(1);
            arrived += arrivals;
            while arrived >= 1_000 {
                arrived -= 1_000;
                for replica in &mut self.replicas {
                    if replica.admit(self.now).is_err() {
                        counts.rejected += 1;
                        continue;
                    }
                    replica.record_answer();
                    replica.record_begin();
                    counts.taken += 1;
                    self.queue.push_back(self.now);
                }
            }
            served += capacity;
            while served >= 1_000 {
                served -= 1_000;
                let Some(since) = self.queue.pop_front() else { continue };
                counts.longest = counts.longest.max(self.now - since);
                self.replicas[0].record_end(true, self.now);
                self.ended += 1;
            }
            if elapsed % 500 == 0 {
                let (in_flight, ended) = (self.queue.len() as u64, std::mem::take(&mut self.ended));
                let recount = Recount { in_flight, ended, has_completed: ended > 0 };
                self.replicas.iter_mut().for_each(|replica| replica.recount(recount, self.now));
            }
            counts.most = counts.most.max(self.queue.len() as u64);
        }
        counts
    }
}

/// All completions happen at the leader. The others took that for an outage, and admitted up to the upper bound.
#[test]
fn replicas_that_complete_nothing_themselves_are_limited_under_overload() {
    let mut world = Replicated::new(LIMITS);
    let overload = world.run(200, 60, 60_000);
    assert!(overload.most <= 2 * LIMITS.min_limit, "{overload:?}");
    assert!(overload.taken >= 3_600, "{overload:?}");
}

#[test]
fn replicas_reject_nothing_in_an_outage_and_within_capacity() {
    let mut world = Replicated::new(LIMITS);
    assert_eq!(world.run(200, 1_000, 5_000).rejected, 0);
    assert_eq!(world.run(200, 0, 5_000).rejected, 0);
}

#[test]
fn load_within_capacity_is_never_rejected() {
    let mut world = World::new();
    for rate in [10, 300, 3_000] {
        assert_eq!(world.run(rate, 3_100, 5_000).rejected, 0, "{rate}");
    }
}

#[test]
fn wait_stays_at_limit_and_capacity_busy_under_overload() {
    let mut world = World::new();
    world.run(1_500, 3_000, 2_000);
    let overload = world.run(9_000, 3_000, 5_000);
    assert!(overload.longest < Duration::from_millis(400), "{overload:?}");
    assert!(overload.taken >= 14_900, "{overload:?}");
    // A second later nothing is left of it.
    world.run(1_500, 3_000, 1_000);
    let after = world.run(1_500, 3_000, 1_000);
    assert_eq!((after.rejected, after.longest), (0, Duration::ZERO), "{after:?}");
}

#[test]
fn sudden_overload_is_limited_before_first_completion() {
    let mut world = World::new();
    let overload = world.run(9_000, 3_000, 3_000);
    assert!(overload.most < 1_100, "{overload:?}");
}

#[test]
fn slow_system_is_limited() {
    let mut world = World::new();
    let overload = world.run(300, 100, 60_000);
    assert!(overload.most <= LIMITS.min_limit + LIMITS.min_limit / 2, "{overload:?}");
    assert!(overload.taken >= 5_900, "{overload:?}");
}

#[test]
fn bursty_completions_are_no_outage() {
    let mut world = World::new();
    world.run(3_000, 3_000, 2_000);
    for _ in 0..20 {
        let pauses = world.run(9_000, 0, 400);
        world.run(9_000, 6_000, 100);
        assert!(pauses.most < 1_200, "{pauses:?}");
    }
}

#[test]
fn outage_and_its_end_reject_nothing() {
    let mut world = World::new();
    world.run(300, 3_000, 2_000);
    let outage = world.run(300, 0, 20_000);
    assert_eq!((outage.rejected, outage.most), (0, 6_000));
    // A few requests probe whether the outage is over.
    let probed = world.run(300, 10, 300);
    assert_eq!(probed.rejected, 0, "{probed:?}");
    let after = world.run(300, 3_000, 10_000);
    assert_eq!((after.rejected, world.shedding.in_flight()), (0, 0), "{after:?}");
}

/// Limits of the order service.
#[test]
fn nothing_is_rejected_before_outage_is_detected() {
    let mut world = World::bounded(InFlightLimits {
        min_limit: 750,
        max_wait: Duration::from_millis(200),
        max_limit: 50_000,
    });
    assert_eq!(world.run(1_000, 3_000, 2_000).rejected, 0);
    assert_eq!(world.run(1_000, 0, 5_000).rejected, 0);
}

/// Everything ends early and nothing completes regularly: an overload, no outage.
#[test]
fn early_ends_are_limited() {
    let mut world = World::new();
    world.run(1_500, 3_000, 2_000);
    world.completed = false;
    let overload = world.run(9_000, 3_000, 3_000);
    assert!(overload.longest < Duration::from_millis(600), "{overload:?}");
    assert!(overload.most < 2_000, "{overload:?}");
}

#[test]
fn outage_is_limited_by_upper_bound() {
    let mut world = World::new();
    let outage = world.run(3_000, 0, 10_000);
    assert_eq!(outage.most, LIMITS.max_limit);
}

#[test]
fn admitted_work_counts_until_answered() {
    let mut shedding = Shedding::new(LIMITS);
    let at = Duration::from_secs(1);
    let admitted = (0..).take_while(|_| shedding.admit(at).is_ok()).count() as u64;
    assert_eq!(admitted, LIMITS.min_limit + LIMITS.min_limit / 4);
    (0..admitted).for_each(|_| shedding.record_answer());
    assert_eq!(shedding.in_flight(), 0);
    assert_eq!(shedding.admit(at), Ok(()));
}

#[test]
fn work_started_before_restart_counts() {
    let mut shedding = Shedding::new(LIMITS);
    shedding.restore(LIMITS.max_limit);
    let rejected = shedding.admit(Duration::from_secs(1));
    assert_eq!(rejected, Err(Overload { in_flight: LIMITS.max_limit, per_second: 0 }));
}

#[test]
fn rate_of_the_lower_limit_is_no_outage() {
    let mut shedding = Shedding::new(InFlightLimits { min_limit: 2, ..LIMITS });
    let at = Duration::from_secs(1);
    shedding.restore(5);
    shedding.record_end(false, at);
    shedding.admit(at).expect("an outage");
    shedding.record_answer();
    shedding.record_end(false, at);
    shedding.admit(at).expect_err("two ended in the last second");
}

#[test]
fn credit_after_an_outage_is_half_of_the_lower_limit() {
    let mut shedding = Shedding::new(InFlightLimits { min_limit: 4, ..LIMITS });
    let at = Duration::from_secs(1);
    shedding.restore(10);
    shedding.admit(at).expect("an outage");
    shedding.recount(Recount { in_flight: 10, ended: 0, has_completed: true }, at);
    assert_eq!((0..9).filter(|_| shedding.admit(at).is_ok()).count(), 1);
}

#[test]
fn completions_are_counted_once_and_for_a_second() {
    let mut shedding = Shedding::new(InFlightLimits { min_limit: 1, max_limit: 1, ..LIMITS });
    shedding.restore(1);
    let mut per_second = |ms, ended: u64| {
        let at = Duration::from_millis(ms);
        shedding.restore(ended);
        (0..ended).for_each(|_| shedding.record_end(true, at));
        shedding.recount(Recount { in_flight: 1, ended, has_completed: true }, at);
        shedding.admit(at).expect_err("the limit is reached").per_second
    };
    assert_eq!((per_second(750, 7), per_second(1_650, 2), per_second(1_850, 0)), (7, 9, 2));
}
