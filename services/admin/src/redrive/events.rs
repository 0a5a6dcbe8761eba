//! Pure: what may be asked of a redrive, what may happen to it, and why it says no.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::dead_letter::filter::Filter;
use crate::request::By;

/// Where a redrive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum RedriveStatus {
    /// The first few are sent, and it waits for what becomes of them.
    Canary,
    /// The rest is sent.
    Running,
    /// Nothing is sent until somebody says so.
    Paused,
    /// It has stopped by itself; somebody may start another round.
    Stopped,
    /// Somebody ended it.
    Cancelled,
    /// Nothing is left to send, and nothing is on its way.
    Done,
}

impl RedriveStatus {
    /// Whether dead letters are sent.
    #[must_use]
    pub const fn is_sending(self) -> bool {
        matches!(self, Self::Canary | Self::Running)
    }

    /// Whether nothing will happen any more, unless somebody starts another round.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Cancelled | Self::Done)
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Which dead letters, of those that wait for a human.
    pub filter: Filter,
    /// How many are sent first, and must be resolved before the rest follows.
    pub canary: u32,
    /// Dead letters per second at most; as fast as it goes without it.
    pub rate: Option<u32>,
    /// Even those whose replays failed too often.
    pub force: bool,
    /// Who wants it, and why.
    pub by: By,
    /// Dead letters that matched when it was planned.
    pub matching: u64,
}

/// What an operator asks of a redrive, or its driver has seen of one of its rounds.
#[derive(Debug, Clone)]
pub enum RedriveCommand {
    /// Begin, as planned.
    Start(Box<Plan>),
    /// Send nothing more for now.
    Pause,
    /// Go on; with another round, after it has stopped by itself.
    Resume,
    /// Send nothing more, ever.
    Cancel,
    /// Something speaks against sending more in this round.
    Stop(u32, String),
    /// This round has sent so many more.
    Count(u32, u64),
    /// The canary of this round, which has sent so many, is resolved.
    PassCanary(u32, u64),
    /// Nothing is left to do in this round, which has sent so many.
    Finish(u32, u64),
}

/// What happened to a redrive, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum RedriveEvent {
    /// It began, as planned.
    Started(Box<Plan>, Timestamp),
    /// Nothing more is sent for now.
    Paused(Timestamp),
    /// It goes on in the same round.
    Resumed(Timestamp),
    /// Another round began, with its canary.
    BegunAgain(Timestamp),
    /// Somebody ended it.
    Cancelled(Timestamp),
    /// It stopped by itself, for this reason.
    Stopped(String, Timestamp),
    /// So many more were sent.
    Sent(u64, Timestamp),
    /// The rest is sent.
    CanaryPassed(Timestamp),
    /// Nothing is left to do.
    Finished(Timestamp),
}

/// Why a redrive says no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedriveRejection {
    /// Nobody has started it.
    #[error("there is no such redrive")]
    Unknown,
    /// Its status does not allow it.
    #[error("the redrive is {0}")]
    Status(RedriveStatus),
    /// The round that this is about is over.
    #[error("the redrive is in another round")]
    OtherRound,
    /// Another driver has sent more than whoever asks has seen.
    #[error("the redrive has sent more meanwhile")]
    SentMore,
}
