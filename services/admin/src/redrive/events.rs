//! Pure: commands, events and rejections of a redrive.

use admin_api::dead_letters::Filter;
use admin_api::redrives::RedriveStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use admin_api::actor::Actor;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Filter of pending dead letters.
    pub filter: Filter,
    /// Dead letters that must be resolved before the rest follows.
    pub canary: u32,
    /// Maximum number of replays per second; unlimited without it.
    pub rate: Option<u32>,
    /// Replays dead letters with too many failed replays too.
    pub force: bool,
    pub by: Actor,
    /// Dead letters that matched at the start.
    pub matching: u64,
}

/// A request of an operator, or a report of the driver about a round.
#[derive(Debug, Clone)]
pub enum RedriveCommand {
    Start(Box<Plan>),
    Pause,
    /// Continues; with another round after an automatic stop.
    Resume,
    Cancel,
    /// Stops this round, with the cause.
    Stop(u32, String),
    /// Adds to the replays of this round.
    Count(u32, u64),
    /// Reports the canary of this round as resolved, after so many replays.
    PassCanary(u32, u64),
    /// Ends this round, after so many replays.
    Finish(u32, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum RedriveEvent {
    Started(Box<Plan>, Timestamp),
    Paused(Timestamp),
    /// It continues in the same round.
    Resumed(Timestamp),
    /// Another round started, with its canary.
    RoundStarted(Timestamp),
    Cancelled(Timestamp),
    /// It stopped automatically, for this cause.
    Stopped(String, Timestamp),
    Sent(u64, Timestamp),
    CanaryPassed(Timestamp),
    Finished(Timestamp),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedriveRejection {
    #[error("there is no such redrive")]
    Unknown,
    #[error("the redrive is {0}")]
    Status(RedriveStatus),
    #[error("the redrive is in another round")]
    OtherRound,
    /// Another driver has replayed more since.
    #[error("the redrive has replayed more meanwhile")]
    SentMore,
}
