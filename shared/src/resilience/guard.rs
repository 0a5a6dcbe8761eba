//! Shell: a circuit breaker that everybody shares: it has a clock, wakes those who wait, and logs its changes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use utoipa::ToSchema;

use super::{Breaker, BreakerPolicy, Permit, State, Transition, Verdict};

/// The breaker of one step or one outside dependency. Clones are the same breaker.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    origin: Instant,
    /// The origin's time of day. Kept, so that a transition is seen at the same time whenever one looks.
    born: Timestamp,
    breaker: Mutex<Breaker>,
    changed: Notify,
}

impl Guard {
    /// A closed one. `name` is what the log and people call it; the policy must have passed its
    /// [check](BreakerPolicy::check).
    #[must_use]
    pub fn new(name: &str, policy: BreakerPolicy) -> Self {
        Self(Arc::new(Inner {
            name: name.to_owned(),
            origin: Instant::now(),
            born: Timestamp::now(),
            breaker: Mutex::new(Breaker::new(policy)),
            changed: Notify::new(),
        }))
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Leave for a call that begins now, or `None`: do not call.
    #[must_use]
    pub fn acquire(&self) -> Option<Pass> {
        let (permit, began) = self.with(|breaker, at| (breaker.acquire(at), at));
        permit.map(|permit| Pass { guard: self.clone(), permit: Some(permit), began })
    }

    /// Whether it refuses because it is open and its time has not passed, or because it was forced open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.with(|breaker, at| breaker.refuses_until(at)).is_some()
    }

    /// What it does with calls now.
    #[must_use]
    pub fn state(&self) -> State {
        self.with(|breaker, at| breaker.state(at))
    }

    /// Slow start after an opening, see [`Breaker::ramp`].
    #[must_use]
    pub fn ramp(&self) -> Option<u32> {
        self.with(|breaker, _| breaker.ramp())
    }

    /// Waits as long as it [is open](Self::is_open). Afterwards [`acquire`](Self::acquire) may still refuse:
    /// half-open it admits only a few, and who finds no place waits for [`changed`](Self::changed).
    pub async fn admits(&self) {
        loop {
            // Armed before looking: a change after the look finds the wake-up already waiting.
            let changed = self.changed();
            match self.with(|breaker, at| breaker.refuses_until(at)) {
                None => return,
                Some(None) => changed.await,
                Some(Some(until)) => {
                    let _ = timeout_at(self.0.origin + until, changed).await;
                }
            }
        }
    }

    /// Resolves at the next change of state after this call, or when a probe gives its place back.
    /// Time that passes is no change: a breaker becomes half-open with the first call afterwards.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.0.changed.notified()
    }

    /// Refuses everything from now on.
    pub fn force_open(&self) {
        self.with(Breaker::force_open);
    }

    /// Admits everything from now on.
    pub fn force_closed(&self) {
        self.with(Breaker::force_closed);
    }

    /// Closed, with an empty window, as at the beginning.
    pub fn reset(&self) {
        self.with(Breaker::reset);
    }

    /// What there is to see of it.
    #[must_use]
    pub fn view(&self) -> GuardView {
        let (seen, until, policy) = self.with(|breaker, at| {
            (breaker.snapshot(at), breaker.refuses_until(at).flatten(), breaker.policy().clone())
        });
        let wall = |at: Duration| self.0.born.saturating_add(at).unwrap_or(Timestamp::MAX);
        GuardView {
            name: self.0.name.clone(),
            state: seen.state,
            calls: seen.calls,
            failures: seen.failures,
            slow: seen.slow,
            failure_rate: seen.failure_rate,
            slow_rate: seen.slow_rate,
            refused: seen.refused,
            policy,
            open_until: until.map(wall),
            transitions: seen
                .transitions
                .into_iter()
                .map(|Transition { at, from, to, why }| TransitionView { at: wall(at), from, to, why })
                .collect(),
        }
    }

    /// Does something with the breaker now, and tells of the change it made, if it made one.
    fn with<T>(&self, act: impl FnOnce(&mut Breaker, Duration) -> T) -> T {
        let mut breaker = self.0.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let (generation, freed) = (breaker.generation, breaker.freed);
        // The clock is read under the lock, so that the breaker's time does not go back.
        let done = act(&mut breaker, self.0.origin.elapsed());
        let is_moved = breaker.generation != generation;
        let is_freed = breaker.freed != freed;
        let transition = if is_moved { breaker.transitions.back().cloned() } else { None };
        drop(breaker);
        if let Some(transition) = transition {
            self.log(&transition);
        }
        if is_moved || is_freed {
            self.0.changed.notify_waiters();
        }
        done
    }

    fn log(&self, Transition { from, to, why, .. }: &Transition) {
        let breaker = self.name();
        match to {
            State::Open | State::ForcedOpen => warn!(breaker, ?from, ?to, "the breaker opens: {why}"),
            State::HalfOpen => info!(breaker, ?from, ?to, "the breaker lets probes through: {why}"),
            State::Closed | State::ForcedClosed => info!(breaker, ?from, ?to, "the breaker closes: {why}"),
        }
    }
}

/// Leave for one call, and its stopwatch. Dropped without a verdict it counts as a failure: whoever held it
/// died or was cut off.
#[derive(Debug)]
#[must_use]
pub struct Pass {
    guard: Guard,
    permit: Option<Permit>,
    began: Duration,
}

impl Pass {
    /// The call was answered.
    pub fn succeed(mut self) {
        self.end(Verdict::Success);
    }

    /// The call was not answered, or with a fault.
    pub fn fail(mut self) {
        self.end(Verdict::Failure);
    }

    /// The answer says nothing about the health of the other side.
    pub fn ignore(mut self) {
        self.end(Verdict::Ignored);
    }

    /// The call ended like this.
    pub fn record(mut self, verdict: Verdict) {
        self.end(verdict);
    }

    fn end(&mut self, verdict: Verdict) {
        if let Some(permit) = self.permit.take() {
            self.guard.with(|breaker, at| {
                breaker.record(permit, verdict, at.saturating_sub(self.began), at);
            });
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.end(Verdict::Failure);
    }
}

/// What there is to see of a breaker, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuardView {
    /// What it is called.
    pub name: String,
    /// What it does with calls now.
    pub state: State,
    /// Calls in the window, or probes recorded.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those that were slow.
    pub slow: u64,
    /// Percent, rounded down; `None` while too few calls are recorded to tell.
    pub failure_rate: Option<u8>,
    /// Percent, rounded down; `None` while too few calls are recorded to tell.
    pub slow_rate: Option<u8>,
    /// Calls refused since the process started.
    pub refused: u64,
    /// How it works.
    pub policy: BreakerPolicy,
    /// When it will let probes through, if it is open and not forced.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub open_until: Option<Timestamp>,
    /// The last twenty changes of state, oldest first.
    pub transitions: Vec<TransitionView>,
}

/// A change of state, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransitionView {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// State before.
    pub from: State,
    /// State after.
    pub to: State,
    /// What caused it, in a few words.
    pub why: String,
}
