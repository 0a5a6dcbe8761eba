//! Pure: the state of a circuit breaker, as operators see it, and their actions on it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::breaker::{Breaker, Recorded, State, Transition};
use super::policy::BreakerPolicy;
use super::window::Tally;

/// Operator action on a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BreakerAction {
    /// Opens it until another action.
    Open,
    /// Closes it until another action.
    Closed,
    /// Returns it to automatic operation, with an empty window.
    Reset,
}

/// State of one breaker in one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BreakerView {
    /// Step or dependency of the breaker.
    pub name: String,
    /// Instance of the process. Each replica has its own breakers; operator actions apply to all.
    pub instance: String,
    /// State of the breaker at this time.
    pub state: State,
    /// Calls in the window, or recorded probes.
    pub calls: u64,
    /// Number of failed calls among them.
    pub failures: u64,
    /// Number of slow calls among them.
    pub slow: u64,
    /// Percent, rounded down; `None` below the minimum number of calls.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub failure_rate: Option<u8>,
    /// Percent, rounded down; `None` below the minimum number of calls.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub slow_rate: Option<u8>,
    /// Calls rejected since the process started.
    pub rejected: u64,
    /// Calls recorded since the process started.
    pub recorded: Recorded,
    /// Policy by which the breaker opens and closes.
    pub policy: BreakerPolicy,
    /// Time at which an open breaker will admit probes; absent if it is not open or forced open.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub open_until: Option<Timestamp>,
    /// Time since which the breaker is not closed, failed probes included; absent while it is closed or forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_closed_since: Option<Timestamp>,
    /// Last twenty transitions, oldest first.
    pub transitions: Vec<TransitionView>,
}

/// Transition of a breaker, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransitionView {
    /// Time of day of the transition.
    pub at: Timestamp,
    /// State that the breaker left.
    pub from: State,
    /// State that the breaker entered.
    pub to: State,
    /// Cause, in a few words.
    pub why: String,
}

impl BreakerView {
    /// Describes a breaker of a process at a monotonic time; `wall` converts monotonic to wall-clock time.
    pub fn of(
        instance: &str,
        name: &str,
        breaker: &Breaker,
        at: Duration,
        wall: impl Fn(Duration) -> Timestamp,
    ) -> Self {
        let (Tally { calls, failures, slow }, minimum) = breaker.tally(at);
        let rate = |part: u64| {
            let percent = (calls >= minimum).then(|| (part * 100).checked_div(calls))??;
            u8::try_from(percent).ok()
        };
        let transition = |Transition { at, from, to, why }: &Transition| TransitionView {
            at: wall(*at),
            from: *from,
            to: *to,
            why: why.clone(),
        };
        Self {
            name: name.to_owned(),
            instance: instance.to_owned(),
            state: breaker.state(at),
            calls,
            failures,
            slow,
            failure_rate: rate(failures),
            slow_rate: rate(slow),
            rejected: breaker.rejected,
            recorded: breaker.recorded,
            policy: breaker.policy().clone(),
            not_closed_since: breaker.not_closed_since.map(&wall),
            open_until: breaker.rejects_until(at).flatten().map(&wall),
            transitions: breaker.transitions.iter().map(transition).collect(),
        }
    }
}
