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
    /// Pieces of work that ended in this process since the last recount.
    ended_here: u64,
    /// Time of the last regular completion.
    last_completion: Duration,
    /// Credit for admissions above the limit, in completions. Its start and its maximum are half of the lower limit.
    credit: u64,
}

/// Work of all replicas, counted in the database that they share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recount {
    /// Number of pieces of work in flight.
    pub in_flight: u64,
    /// Number of pieces of work that ended since the last count.
    pub ended: u64,
    /// True if any of these has completed regularly.
    pub has_completed: bool,
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
            ended_here: 0,
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

    /// Records that work has ended in this process, regularly or otherwise.
    pub fn record_end(&mut self, completed: bool, at: Duration) {
        self.ended_here += 1;
        if completed {
            self.last_completion = at;
        }
        self.started = self.started.saturating_sub(1);
        self.ended.add(at);
        self.credit = (self.credit + 1).min(self.limits.min_limit / 2);
    }

    /// Adds work that had begun before this process started.
    pub const fn restore(&mut self, started: u64) {
        self.started += started;
    }

    /// Corrects counts from the database. Replicas share the work, and each sees only a part of what ends: most ends
    /// at the leader. Without the rest, the others would take the leader's completions for an outage.
    pub fn recount(&mut self, recount: Recount, at: Duration) {
        let missing = self.started.saturating_sub(recount.in_flight);
        let elsewhere = recount.ended.saturating_sub(self.ended_here).max(missing);
        // Without credit: each replica would admit work for the same completion.
        for _ in 0..elsewhere {
            self.ended.add(at);
        }
        if recount.has_completed {
            self.last_completion = at;
        }
        (self.started, self.ended_here) = (recount.in_flight, 0);
    }

    /// Number of pieces of work that have begun and not ended.
    #[must_use]
    pub const fn started(&self) -> u64 {
        self.started
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
