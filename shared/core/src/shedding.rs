//! Pure: load shedding: how much may be under way before what is new is told to come again, so that what was taken keeps
//! its time.
//!
//! The bound is Little's law: with so many ends a second, what begins now waits for all that is under way before it. An
//! outage is no overload: when nothing has come by the whole way for a while, and little to any end, what is new may
//! wait for the end of the outage.

use std::time::Duration;

/// When what is new is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// So few under way are never too many, however slowly they end.
    pub few: u64,
    /// What begins may have to wait for its end as long as this.
    pub wait: Duration,
    /// So many under way are too many, whatever the reason.
    pub most: u64,
}

/// What is under way, and how it ends. Times are since any origin, and do not go back.
#[derive(Debug)]
pub struct Shedding {
    bounds: Bounds,
    /// Let in, and neither begun nor given up yet.
    asking: u64,
    begun: u64,
    ended: Recent,
    /// When something last came to its end by the whole way.
    flowed: Duration,
    /// Ends that nothing has begun in place of, while there was more under way than the bound.
    credit: u64,
}

/// Why something new is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{under_way} are under way, {per_second} end in a second: more would make all of them late")]
pub struct Overload {
    /// How many have not come to their end.
    pub under_way: u64,
    /// How many came to their end in the last second.
    pub per_second: u64,
}

/// Batches end some tens of milliseconds apart, and some hundreds where a disk stumbles or the processor is taken: that is
/// when more must not come. When nothing has come by the whole way for so long, something on it is away.
const OUTAGE: Duration = Duration::from_millis(750);

/// Of so many ends one gives room to something new, until there is less under way than the bound.
const ENDS_FOR_ONE: u64 = 2;

impl Shedding {
    /// Nothing is under way.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        // Were none allowed, nothing could come to its end either.
        let bounds = Bounds { few: bounds.few.max(1), ..bounds };
        Self {
            bounds,
            asking: 0,
            begun: 0,
            ended: Recent::default(),
            flowed: Duration::ZERO,
            credit: bounds.few / 2,
        }
    }

    /// Lets something in, which [`Self::answered`] follows.
    ///
    /// # Errors
    /// When too much is under way.
    pub fn let_in(&mut self, at: Duration) -> Result<(), Overload> {
        let under_way = self.under_way();
        let per_second = self.ended.in_a_second(at);
        let overload = Overload { under_way, per_second };
        if under_way >= self.bounds.most {
            return Err(overload);
        }
        if under_way == 0 {
            // Nothing could have come to its end until now.
            self.flowed = at;
        }
        // Where as much ends as may always be under way, nothing is away that all need.
        if at.saturating_sub(self.flowed) >= OUTAGE && per_second < self.bounds.few {
            self.credit = self.bounds.few / 2;
        } else if under_way >= self.bound(per_second) {
            self.credit = self.credit.checked_sub(ENDS_FOR_ONE).ok_or(overload)?;
        }
        self.asking += 1;
        Ok(())
    }

    /// What was let in has begun, which [`Self::begun`] tells of by itself, or never will.
    pub const fn answered(&mut self) {
        self.asking = self.asking.saturating_sub(1);
    }

    /// Something began.
    pub const fn begun(&mut self) {
        self.begun += 1;
    }

    /// Something came to its end, be it by the whole way or before.
    pub fn ended(&mut self, by_the_whole_way: bool, at: Duration) {
        self.begun = self.begun.saturating_sub(1);
        self.ended.one_more(at);
        if by_the_whole_way {
            self.flowed = at;
        }
        self.credit = (self.credit + 1).min(self.bounds.few / 2);
    }

    /// So much had begun before this was made.
    pub const fn had_begun(&mut self, begun: u64) {
        self.begun += begun;
    }

    /// So much has begun and not ended, wherever it was: where several share the work, what each of them hears is a part of
    /// it. What is missing has ended elsewhere; of it nobody knows how.
    pub fn recounted(&mut self, count: u64, at: Duration) {
        for _ in count..self.begun {
            self.ended(false, at);
        }
        self.begun = count;
    }

    /// How much is under way.
    #[must_use]
    pub const fn under_way(&self) -> u64 {
        self.begun + self.asking
    }

    /// From how many under way on something new would have to wait for too long.
    fn bound(&self, per_second: u64) -> u64 {
        let wait = u64::try_from(self.bounds.wait.as_millis()).unwrap_or(u64::MAX);
        self.bounds.few.max(per_second.saturating_mul(wait) / 1_000)
    }
}

/// How much happened in the last second, in tenths.
#[derive(Debug, Default)]
struct Recent {
    tenths: [u64; 10],
    /// The tenth that is counted now, since the origin.
    now: u64,
}

impl Recent {
    fn one_more(&mut self, at: Duration) {
        self.turn(at);
        self.tenths[Self::slot(self.now)] += 1;
    }

    fn in_a_second(&mut self, at: Duration) -> u64 {
        self.turn(at);
        self.tenths.iter().sum()
    }

    fn turn(&mut self, at: Duration) {
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

    const BOUNDS: Bounds = Bounds { few: 500, wait: Duration::from_millis(300), most: 20_000 };

    /// Whoever has so much capacity, first come, first served, asked at steady rates, millisecond by millisecond.
    struct World {
        shedding: Shedding,
        now: Duration,
        queue: VecDeque<Duration>,
        arrived: u64,
        served: u64,
        by_the_whole_way: bool,
    }

    /// What a while came to.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct While {
        taken: u64,
        refused: u64,
        longest: Duration,
        most: u64,
    }

    impl World {
        fn new() -> Self {
            Self::bounded(BOUNDS)
        }

        fn bounded(bounds: Bounds) -> Self {
            let (shedding, now, queue) = (Shedding::new(bounds), Duration::ZERO, VecDeque::new());
            Self { shedding, now, queue, arrived: 0, served: 0, by_the_whole_way: true }
        }

        /// So many come, and so many could be served, each second, for so many milliseconds.
        fn run(&mut self, come: u64, capacity: u64, ms: u64) -> While {
            let mut came_to = While::default();
            for _ in 0..ms {
                self.now += Duration::from_millis(1);
                self.arrived += come;
                while self.arrived >= 1_000 {
                    self.arrived -= 1_000;
                    if self.shedding.let_in(self.now).is_ok() {
                        came_to.taken += 1;
                        self.queue.push_back(self.now);
                        self.shedding.answered();
                        self.shedding.begun();
                    } else {
                        came_to.refused += 1;
                    }
                }
                self.served = (self.served + capacity).min(1_000 * 50);
                while self.served >= 1_000 {
                    self.served -= 1_000;
                    let Some(since) = self.queue.pop_front() else { continue };
                    came_to.longest = came_to.longest.max(self.now - since);
                    self.shedding.ended(self.by_the_whole_way, self.now);
                }
                came_to.most = came_to.most.max(self.shedding.under_way());
            }
            came_to
        }
    }

    /// Several share the work: what one hears of is a part of it.
    #[test]
    fn what_has_ended_elsewhere_makes_room_and_what_has_begun_there_takes_it() {
        let (mut shedding, at) = (Shedding::new(BOUNDS), Duration::from_secs(1));
        (0..5_000).for_each(|_| shedding.begun());
        shedding.recounted(100, at);
        assert_eq!(shedding.under_way(), 100);
        shedding.let_in(at).expect("there is room");
        shedding.answered();
        shedding.recounted(30_000, at);
        assert_eq!(shedding.let_in(at).expect_err("there is none").under_way, 30_000);
    }

    #[test]
    fn what_can_be_served_is_never_refused() {
        let mut world = World::new();
        for rate in [10, 300, 3_000] {
            assert_eq!(world.run(rate, 3_100, 5_000).refused, 0, "{rate}");
        }
    }

    #[test]
    fn in_an_overload_what_is_taken_waits_as_long_as_it_may_and_nothing_idles() {
        let mut world = World::new();
        world.run(1_500, 3_000, 2_000);
        let overload = world.run(9_000, 3_000, 5_000);
        assert!(overload.longest < Duration::from_millis(400), "{overload:?}");
        assert!(overload.taken >= 14_900, "{overload:?}");
        // A second after, nothing is left of it.
        world.run(1_500, 3_000, 1_000);
        let after = world.run(1_500, 3_000, 1_000);
        assert_eq!((after.refused, after.longest), (0, Duration::ZERO), "{after:?}");
    }

    #[test]
    fn an_overload_out_of_rest_is_bounded_before_anything_has_ended() {
        let mut world = World::new();
        let overload = world.run(9_000, 3_000, 3_000);
        assert!(overload.most < 1_100, "{overload:?}");
    }

    #[test]
    fn a_slow_system_is_bounded_too() {
        let mut world = World::new();
        let overload = world.run(300, 100, 60_000);
        assert!(overload.most <= BOUNDS.few + BOUNDS.few / 2, "{overload:?}");
        assert!(overload.taken >= 5_900, "{overload:?}");
    }

    #[test]
    fn ends_that_come_in_bursts_far_apart_are_no_outage() {
        let mut world = World::new();
        world.run(3_000, 3_000, 2_000);
        for _ in 0..20 {
            let stumbles = world.run(9_000, 0, 400);
            world.run(9_000, 6_000, 100);
            assert!(stumbles.most < 1_200, "{stumbles:?}");
        }
    }

    #[test]
    fn an_outage_is_no_overload_and_neither_is_its_end() {
        let mut world = World::new();
        world.run(300, 3_000, 2_000);
        let outage = world.run(300, 0, 20_000);
        assert_eq!((outage.refused, outage.most), (0, 6_000));
        // A few are let through, to see whether it is over.
        let probed = world.run(300, 10, 300);
        assert_eq!(probed.refused, 0, "{probed:?}");
        let after = world.run(300, 3_000, 10_000);
        assert_eq!((after.refused, world.shedding.under_way()), (0, 0), "{after:?}");
    }

    /// Those of the order service.
    #[test]
    fn at_a_thousand_a_second_none_is_refused_before_an_outage_is_known() {
        let mut world = World::bounded(Bounds { few: 750, wait: Duration::from_millis(200), most: 50_000 });
        assert_eq!(world.run(1_000, 3_000, 2_000).refused, 0);
        assert_eq!(world.run(1_000, 0, 5_000).refused, 0);
    }

    /// All that comes ends quickly, and none of it by the whole way: an overload like any other, and nothing is away.
    #[test]
    fn a_rush_for_what_is_sold_out_is_bounded_as_any_other() {
        let mut world = World::new();
        world.run(1_500, 3_000, 2_000);
        world.by_the_whole_way = false;
        let rush = world.run(9_000, 3_000, 3_000);
        assert!(rush.longest < Duration::from_millis(600), "{rush:?}");
        assert!(rush.most < 2_000, "{rush:?}");
    }

    #[test]
    fn an_outage_is_bounded_all_the_same() {
        let mut world = World::new();
        let outage = world.run(3_000, 0, 10_000);
        assert_eq!(outage.most, BOUNDS.most);
    }

    #[test]
    fn what_is_let_in_and_never_begins_is_under_way_until_it_is_answered() {
        let mut shedding = Shedding::new(BOUNDS);
        let at = Duration::from_secs(1);
        let let_in = (0..).take_while(|_| shedding.let_in(at).is_ok()).count() as u64;
        assert_eq!(let_in, BOUNDS.few + BOUNDS.few / 2 / ENDS_FOR_ONE);
        (0..let_in).for_each(|_| shedding.answered());
        assert_eq!(shedding.under_way(), 0);
        assert_eq!(shedding.let_in(at), Ok(()));
    }

    #[test]
    fn what_had_begun_before_a_restart_is_under_way() {
        let mut shedding = Shedding::new(BOUNDS);
        shedding.had_begun(BOUNDS.most);
        let refused = shedding.let_in(Duration::from_secs(1));
        assert_eq!(refused, Err(Overload { under_way: BOUNDS.most, per_second: 0 }));
    }
}
