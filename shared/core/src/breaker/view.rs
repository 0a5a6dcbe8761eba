//! Pure: the state of a circuit breaker as operators see it, and their actions on it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::breaker::{Breaker, Recorded, State, Transition};
use super::policy::BreakerPolicy;

/// An operator's action on a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BreakerAction {
    /// Opens it, until another action.
    Open,
    /// Closes it, until another action.
    Closed,
    /// Lets it work by itself, from an empty window on.
    Reset,
}

/// The state of one breaker in one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BreakerView {
    /// The step or dependency that it stands before.
    pub name: String,
    /// The process whose breaker it is: each replica has its own, and what is forced holds for all.
    #[serde(default)]
    pub instance: String,
    /// What it does with calls now.
    pub state: State,
    /// Calls in the window, or probes recorded.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those that were slow.
    pub slow: u64,
    /// Percent, rounded down; `None` while too few calls are recorded to tell.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub failure_rate: Option<u8>,
    /// Percent, rounded down; `None` while too few calls are recorded to tell.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub slow_rate: Option<u8>,
    /// Calls refused since the process started.
    pub refused: u64,
    /// Calls recorded since the process started.
    #[serde(default)]
    pub recorded: Recorded,
    /// How it works.
    pub policy: BreakerPolicy,
    /// When it will let probes through, if it is open and not forced.
    #[cfg_attr(feature = "openapi", schema(required = true, value_type = Option<String>, format = DateTime))]
    pub open_until: Option<Timestamp>,
    /// Since when it has not been closed, probes that failed included; absent while it is, and while it is forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub not_closed_since: Option<Timestamp>,
    /// The last twenty changes of state, oldest first.
    pub transitions: Vec<TransitionView>,
}

/// A change of state, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransitionView {
    /// Time of day.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// What the breaker did with calls until then.
    pub from: State,
    /// What it does with calls from then on.
    pub to: State,
    /// What caused it, in a few words.
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
        let seen = breaker.snapshot(at);
        let transition =
            |Transition { at, from, to, why }: Transition| TransitionView { at: wall(at), from, to, why };
        Self {
            name: name.to_owned(),
            instance: instance.to_owned(),
            state: seen.state,
            calls: seen.calls,
            failures: seen.failures,
            slow: seen.slow,
            failure_rate: seen.failure_rate,
            slow_rate: seen.slow_rate,
            refused: seen.refused,
            recorded: seen.recorded,
            policy: breaker.policy().clone(),
            not_closed_since: seen.not_closed_since.map(&wall),
            open_until: breaker.refuses_until(at).flatten().map(&wall),
            transitions: seen.transitions.into_iter().map(transition).collect(),
        }
    }
}
