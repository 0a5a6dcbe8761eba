//! Pure: what became of an input: the few ways in which it ends, and their names.

use crate::breaker::Verdict;
use crate::service::Service;

const DONE: &str = "done";
const DUPLICATE: &str = "duplicate";
const REJECTED: &str = "rejected";
const RETRIED: &str = "retried";
const DEAD: &str = "dead";
const REPLAYED: &str = "replayed";
const KEY_REUSED: &str = "key_reused";
const FAULTED: &str = "faulted";
/// Nothing was done: it is counted nowhere.
const WANTED: &str = "wanted";

/// What can become of a message, or of a call of a task, by name.
pub const OF_MESSAGES: [&str; 5] = [DONE, DUPLICATE, REJECTED, RETRIED, DEAD];
/// What can become of a command, by name.
pub const OF_COMMANDS: [&str; 5] = [DONE, REPLAYED, REJECTED, KEY_REUSED, FAULTED];
/// What can become of a due row, by name.
pub const OF_DUE_ROWS: [&str; 3] = [DONE, REJECTED, FAULTED];

/// What became of an input.
#[derive(Debug)]
pub enum Outcome<S: Service> {
    /// Of a command: its caller is told.
    Command(CommandOutcome<S>),
    /// Of a message, or of a call of a task: nobody waits for it, and none is lost.
    Message(MessageOutcome<S::Rejection>),
    /// Of a due row.
    Due(DueOutcome<S::Rejection>),
}

/// What became of a command.
#[derive(Debug)]
pub enum CommandOutcome<S: Service> {
    /// It had its effect, or was so already.
    Done(S::Reply),
    /// Its idempotency key was answered before; the same answer again.
    Replayed(S::Reply),
    /// The business said no.
    Rejected(S::Rejection),
    /// Its idempotency key belongs to another request.
    KeyReused,
    /// It broke; nothing is stored.
    Faulted(String),
}

/// What became of a message, or of a call of a task.
#[derive(Debug)]
pub enum MessageOutcome<J> {
    /// It had its effect, or was so already.
    Done,
    /// Known, waiting or parked already; nothing happened.
    Duplicate,
    /// The business said no.
    Rejected(J),
    /// Nothing happened: the call that was asked about is to be made.
    Wanted,
    /// It failed and will be tried again.
    Retried(String),
    /// It is parked for a human.
    Dead(String),
}

/// What became of a due row.
#[derive(Debug)]
pub enum DueOutcome<J> {
    /// It had its effect, or was so already.
    Done,
    /// The business said no.
    Rejected(J),
    /// It broke; nothing is stored, and the row stays due.
    Faulted(String),
}

impl<S: Service> Outcome<S> {
    /// What it tells the breaker of its step: what the business says, and what is wrong with one message, says
    /// nothing of the step.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self::Command(CommandOutcome::Done(_) | CommandOutcome::Replayed(_))
            | Self::Message(MessageOutcome::Done)
            | Self::Due(DueOutcome::Done) => Verdict::Success,
            Self::Command(_) | Self::Message(_) | Self::Due(_) => Verdict::Ignored,
        }
    }

    /// Whether nothing was done but to answer that a call is still wanted.
    #[must_use]
    pub const fn is_still_wanted(&self) -> bool {
        matches!(self, Self::Message(MessageOutcome::Wanted))
    }

    /// The outcome's name in metrics and logs.
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
            Self::Message(MessageOutcome::Wanted) => WANTED,
            Self::Message(MessageOutcome::Retried(_)) => RETRIED,
            Self::Message(MessageOutcome::Dead(_)) => DEAD,
            Self::Command(CommandOutcome::Faulted(_)) | Self::Due(DueOutcome::Faulted(_)) => FAULTED,
        }
    }

    /// The outcome of a command; `None` for everything else.
    #[must_use]
    pub fn of_command(self) -> Option<CommandOutcome<S>> {
        match self {
            Self::Command(outcome) => Some(outcome),
            Self::Message(_) | Self::Due(_) => None,
        }
    }
}
