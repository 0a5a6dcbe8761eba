//! Pure: the outcome of an input, and its names in metrics and logs.

use crate::breaker::Verdict;
use crate::service::Service;

const DONE: &str = "done";
const DUPLICATE: &str = "duplicate";
const REJECTED: &str = "rejected";
const RETRIED: &str = "retried";
const DEAD_LETTERED: &str = "dead_lettered";
const REPLAYED: &str = "replayed";
const KEY_REUSED: &str = "key_reused";
const FAULTED: &str = "faulted";
/// Outcome without effect, counted in no metric.
const TASK_NEEDED: &str = "task_needed";

/// Names of the outcomes of messages and task results.
pub const OF_MESSAGES: [&str; 5] = [DONE, DUPLICATE, REJECTED, RETRIED, DEAD_LETTERED];
/// Names of the outcomes of commands.
pub const OF_COMMANDS: [&str; 5] = [DONE, REPLAYED, REJECTED, KEY_REUSED, FAULTED];
/// Names of the outcomes of due rows.
pub const OF_DUE_ROWS: [&str; 3] = [DONE, REJECTED, FAULTED];

/// Outcome of an input, by its kind.
#[derive(Debug)]
pub enum Outcome<S: Service> {
    /// Outcome of a command, returned to its caller.
    Command(CommandOutcome<S>),
    /// Outcome of a message or of a task result.
    Message(MessageOutcome<S::Rejection>),
    /// Outcome of a due row.
    Due(DueOutcome<S::Rejection>),
}

/// Outcome of a command, for its caller.
#[derive(Debug)]
pub enum CommandOutcome<S: Service> {
    /// Success, with or without changes.
    Done(S::Reply),
    /// Repeated idempotency key: the stored answer.
    Replayed(S::Reply),
    /// Business rejection: an answer, and no fault.
    Rejected(S::Rejection),
    /// Idempotency key of a different request.
    KeyReused,
    /// Failure of the handler; nothing is stored.
    Faulted(String),
}

/// Outcome of a message or of a task result.
#[derive(Debug)]
pub enum MessageOutcome<J> {
    /// Success, with or without changes.
    Done,
    /// Message already processed, retrying or dead-lettered, or task already ended. No effect.
    Duplicate,
    /// Business rejection: an answer, and no fault.
    Rejected(J),
    /// Check before an attempt: the call is still necessary. No effect.
    TaskNeeded,
    /// Failure with a retry scheduled.
    Retried(String),
    /// Failure that became a dead letter.
    Dead(String),
}

/// Outcome of a due row.
#[derive(Debug)]
pub enum DueOutcome<J> {
    /// Success, with or without changes.
    Done,
    /// Business rejection: an answer, and no fault.
    Rejected(J),
    /// Failure; nothing is stored, and the row stays due.
    Faulted(String),
}

impl<S: Service> Outcome<S> {
    /// Verdict for the breaker of the step. Business rejections and faults of a single message are ignored.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self::Command(CommandOutcome::Done(_) | CommandOutcome::Replayed(_))
            | Self::Message(MessageOutcome::Done)
            | Self::Due(DueOutcome::Done) => Verdict::Success,
            Self::Command(_) | Self::Message(_) | Self::Due(_) => Verdict::Ignored,
        }
    }

    /// True if the outcome only says that a call is still necessary.
    #[must_use]
    pub const fn is_task_needed(&self) -> bool {
        matches!(self, Self::Message(MessageOutcome::TaskNeeded))
    }

    /// Name in metrics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Command(CommandOutcome::Done(_))
            | Self::Message(MessageOutcome::Done)
            | Self::Due(DueOutcome::Done) => DONE,
            Self::Command(CommandOutcome::Replayed(_)) => REPLAYED,
            Self::Message(MessageOutcome::Duplicate) => DUPLICATE,
            Self::Command(CommandOutcome::Rejected(_))
            | Self::Message(MessageOutcome::Rejected(_))
            | Self::Due(DueOutcome::Rejected(_)) => REJECTED,
            Self::Command(CommandOutcome::KeyReused) => KEY_REUSED,
            Self::Message(MessageOutcome::TaskNeeded) => TASK_NEEDED,
            Self::Message(MessageOutcome::Retried(_)) => RETRIED,
            Self::Message(MessageOutcome::Dead(_)) => DEAD_LETTERED,
            Self::Command(CommandOutcome::Faulted(_)) | Self::Due(DueOutcome::Faulted(_)) => FAULTED,
        }
    }

    /// Outcome of a command; `None` for all other inputs.
    #[must_use]
    pub fn of_command(self) -> Option<CommandOutcome<S>> {
        match self {
            Self::Command(outcome) => Some(outcome),
            Self::Message(_) | Self::Due(_) => None,
        }
    }
}
