//! Pure: load shedding. Limits what is in flight, so that whatever was admitted ends in time.
//!
//! The limit is Little's law: at a given rate of completions, new work waits for all work in flight before it. An
//! outage is no overload: if nothing has completed for a while and little has ended otherwise, new work may wait
//! for the end of the outage.

use std::time::Duration;

/// Limits of work in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightLimits {
    /// Lower bound of the limit: so few are never too many, however slowly they end.
    pub min_limit: u64,
    /// Maximum time that new work may have to wait for its end.
    pub max_wait: Duration,
    /// Upper bound of the limit, outages included.
    pub max_limit: u64,
}

/// Work in flight and its completions. Times count from any origin of a monotonic clock.
#[derive(Debug)]
pub struct Shedding {
    limits: InFlightLimits,
    /// Admitted, and neither begun nor rejected yet.
    admitted: u64,
    started: u64,
    ended: Recent,
    /// Time of the last regular completion.
    last_completion: Duration,
    /// Credit for admissions above the limit, in completions. Its start and its maximum are half of the lower limit.
    credit: u64,
}

/// Rejection of new work under overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{in_flight} are in flight and {per_second} ended in the last second: more would end too late")]
pub struct Overload {
    /// Number of pieces of work in flight.
    pub in_flight: u64,
    /// Completions in the last second.
    pub per_second: u64,
}

/// Time without a regular completion after which a dependency counts as unavailable. Batches end some tens of
/// milliseconds apart, and some hundreds if the disk or the processor is busy.
const OUTAGE: Duration = Duration::from_millis(750);

/// Completions that admit one new piece of work while the limit is exceeded.
const ENDS_PER_ADMISSION: u64 = 2;

impl Shedding {
    /// Starts with nothing in flight.
    #[must_use]
    pub fn new(limits: InFlightLimits) -> Self {
        // With a limit of zero nothing could ever complete.
        let limits = InFlightLimits { min_limit: limits.min_limit.max(1), ..limits };
        Self {
            limits,
            admitted: 0,
            started: 0,
            ended: Recent::default(),
            last_completion: Duration::ZERO,
            credit: limits.min_limit / 2,
        }
    }

    /// Admits new work. [`Self::record_answer`] must follow.
    ///
    /// # Errors
    /// If too much is in flight.
    pub fn admit(&mut self, at: Duration) -> Result<(), Overload> {
        let in_flight = self.in_flight();
        let per_second = self.ended.last_second(at);
        let overload = Overload { in_flight, per_second };
        if in_flight >= self.limits.max_limit {
            return Err(overload);
        }
        if in_flight == 0 {
            // Nothing could complete until now.
            self.last_completion = at;
        }
        // A rate of completions that reaches the lower limit shows that nothing that all work needs is unavailable.
        if at.saturating_sub(self.last_completion) >= OUTAGE && per_second < self.limits.min_limit {
            self.credit = self.limits.min_limit / 2;
        } else if in_flight >= self.bound(per_second) {
            self.credit = self.credit.checked_sub(ENDS_PER_ADMISSION).ok_or(overload)?;
        }
        self.admitted += 1;
        Ok(())
    }

    /// Records that admitted work has begun, which [`Self::record_begin`] counts, or was rejected.
    pub const fn record_answer(&mut self) {
        self.admitted = self.admitted.saturating_sub(1);
    }

    /// Records that work has begun.
    pub const fn record_begin(&mut self) {
        self.started += 1;
    }

    /// Records that work has ended, regularly or otherwise.
    pub fn record_end(&mut self, completed: bool, at: Duration) {
        self.started = self.started.saturating_sub(1);
        self.ended.add(at);
        if completed {
            self.last_completion = at;
        }
        self.credit = (self.credit + 1).min(self.limits.min_limit / 2);
    }

    /// Adds work that had begun before this process started.
    pub const fn restore(&mut self, started: u64) {
        self.started += started;
    }

    /// Corrects the number in flight from the database. Replicas share the work, and each sees only a part of what
    /// ends. How the rest ended is unknown.
    pub fn recount(&mut self, count: u64, at: Duration) {
        for _ in count..self.started {
            self.record_end(false, at);
        }
        self.started = count;
    }

    /// Number of pieces of work in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.started + self.admitted
    }

    /// Limit at this rate of completions: more would have to wait for too long.
    fn bound(&self, per_second: u64) -> u64 {
        let wait = u64::try_from(self.limits.max_wait.as_millis()).unwrap_or(u64::MAX);
        self.limits.min_limit.max(per_second.saturating_mul(wait) / 1_000)
    }
}

/// Count of the last second, in tenths of a second.
#[derive(Debug, Default)]
struct Recent {
    tenths: [u64; 10],
    /// Current tenth, since the origin.
    now: u64,
}

impl Recent {
    fn add(&mut self, at: Duration) {
        self.advance(at);
        self.tenths[Self::slot(self.now)] += 1;
    }

    fn last_second(&mut self, at: Duration) -> u64 {
        self.advance(at);
        self.tenths.iter().sum()
    }

    fn advance(&mut self, at: Duration) {
        let now = u64::try_from(at.as_millis() / 100).unwrap_or(u64::MAX);
        let passed = now.saturating_sub(self.now).min(10);
        for tenth in 0..passed {
            self.tenths[Self::slot(now - tenth)] = 0;
        }
        self.now = self.now.max(now);
    }

    const fn slot(tenth: u64) -> usize {
        (tenth % 10) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

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
        shedding.recount(100, at);
        assert_eq!(shedding.in_flight(), 100);
        shedding.admit(at).expect("there is room");
        shedding.record_answer();
        shedding.recount(30_000, at);
        assert_eq!(shedding.admit(at).expect_err("there is none").in_flight, 30_000);
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
        assert_eq!(admitted, LIMITS.min_limit + LIMITS.min_limit / 2 / ENDS_PER_ADMISSION);
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
}
