//! Shell: work that is due: rows, retries and tasks.

use jiff::{SignedDuration, Timestamp};
use saga_core::row::RowKey;
use saga_core::waiting::{Retry, Task};

/// Parameters of a search for due work.
#[derive(Debug, Clone)]
pub struct DueQuery {
    /// Current time, by which work counts as due.
    pub now: Timestamp,
    /// Maximum number of rows of each kind, and of retries.
    pub limit: usize,
    /// Maximum number of tasks to claim.
    pub tasks: usize,
    /// Steps whose retries are left alone.
    pub paused: Vec<String>,
    /// Owner of the claimed tasks.
    pub owner: String,
    /// Duration of the claims. A stored claim that lasts longer is void: a clock was ahead.
    pub lease: SignedDuration,
    /// Longest delay before another attempt. A stored delay that lasts longer is over: a clock was ahead.
    pub longest_delay: SignedDuration,
    /// Voids claims of `owner` on tasks created before `now`: they belong to a process that has ended.
    pub recover: bool,
}

/// Due work that was found and claimed.
#[derive(Debug, Clone, Default)]
pub struct Due {
    /// Due rows, with their due times.
    pub rows: Vec<(RowKey, Timestamp)>,
    /// Messages to process again, except those of paused steps.
    pub retries: Vec<Retry>,
    /// Tasks, claimed by the caller.
    pub tasks: Vec<Task>,
    /// Time at which more work becomes due.
    pub next: Option<Timestamp>,
}

/// Task whose last attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingTask {
    /// The task that will be tried again.
    pub task: Task,
    /// Time of the next attempt.
    pub next_attempt: Timestamp,
    /// Error of the last attempt.
    pub last_error: String,
}
