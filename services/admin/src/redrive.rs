//! Pure: a redrive: many dead letters handed back one after another, a few first, never faster than told, and no
//! more once the error comes back. What it has done so far is counted from the letters, not kept here.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shared::decider::{Decider, FieldValue};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::filter::Filter;
use crate::letters::{By, Tag};

/// Letters of one redrive on their way: enough to keep a service busy, few enough to stop in time.
pub const MOST_IN_FLIGHT: u64 = 4_000;

/// Where a redrive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
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
    /// Every status there is.
    pub const ALL: [Self; 6] =
        [Self::Canary, Self::Running, Self::Paused, Self::Stopped, Self::Cancelled, Self::Done];

    /// The name in tables and in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "CANARY",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Stopped => "STOPPED",
            Self::Cancelled => "CANCELLED",
            Self::Done => "DONE",
        }
    }

    /// Whether letters are sent.
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
    /// Which letters.
    pub filter: Filter,
    /// How many are sent first, and must be resolved before the rest follows.
    pub canary: u32,
    /// Letters per second at most.
    pub rate: Option<u32>,
    /// Even those whose replays failed too often.
    pub force: bool,
    /// Who wants it, and why.
    pub by: By,
    /// Letters that matched when it was planned.
    pub matching: u64,
}

/// A redrive: nothing until it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive(Option<Drive>);

/// A redrive that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// What is to be done.
    pub plan: Plan,
    /// Where it stands.
    pub status: RedriveStatus,
    /// Whether the canary of this round is still to be resolved.
    pub in_canary: bool,
    /// Which try this is, from 1.
    pub round: u32,
    /// When the round began: letters that failed later are not sent in it.
    pub round_began_at: Timestamp,
    /// Why it stopped by itself.
    pub stopped_because: Option<String>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its status changed last.
    pub updated_at: Timestamp,
}

/// A wish concerning a redrive, at a time.
#[derive(Debug, Clone)]
pub enum RedriveCommand {
    /// Begin.
    Start(Box<Plan>),
    /// Send nothing more for now.
    Pause,
    /// Go on; with another round, after it has stopped by itself.
    Resume,
    /// Send nothing more, ever.
    Cancel,
    /// Something speaks against sending more in this round.
    Stop(u32, String),
    /// The canary of this round is resolved.
    PassCanary(u32),
    /// Nothing is left to do in this round.
    Finish(u32),
}

/// What happened to a redrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RedriveEvent {
    /// It began.
    Started(Box<Plan>, Timestamp),
    /// Nothing more is sent for now.
    Paused(Timestamp),
    /// It goes on.
    Resumed(Timestamp),
    /// Another round began.
    BegunAgain(Timestamp),
    /// Somebody ended it.
    Cancelled(Timestamp),
    /// It stopped by itself.
    Stopped(String, Timestamp),
    /// The rest is sent.
    CanaryPassed(Timestamp),
    /// Nothing is left to do.
    Finished(Timestamp),
}

/// Why a redrive says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedriveRejection {
    /// There is none.
    Unknown,
    /// Its status does not allow it.
    Status(RedriveStatus),
    /// The round that this is about is over.
    OtherRound,
}

impl fmt::Display for RedriveRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("there is no such redrive"),
            Self::Status(status) => write!(f, "the redrive is {}", status.as_str()),
            Self::OtherRound => f.write_str("the redrive is in another round"),
        }
    }
}

impl Redrive {
    /// The redrive, once it was started.
    #[must_use]
    pub const fn drive(&self) -> Option<&Drive> {
        self.0.as_ref()
    }
}

/// What is seen of a round under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Letters that the round has sent; counted only as long as its canary is to be resolved.
    pub sent: u64,
    /// Letters of the redrive on their way.
    pub in_flight: u64,
}

impl Drive {
    /// How many letters more may be on their way.
    #[must_use]
    pub fn room(&self, seen: Seen) -> u64 {
        match self.status {
            RedriveStatus::Canary => u64::from(self.plan.canary).saturating_sub(seen.sent),
            RedriveStatus::Running => MOST_IN_FLIGHT.saturating_sub(seen.in_flight),
            RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => 0,
        }
    }

    /// What follows when there is no letter to send, or no room for one: nothing as long as any is on its way.
    #[must_use]
    pub fn ending(&self, seen: Seen) -> Option<RedriveCommand> {
        match self.status {
            RedriveStatus::Canary if seen.in_flight == 0 => Some(RedriveCommand::PassCanary(self.round)),
            RedriveStatus::Running if seen.in_flight == 0 => Some(RedriveCommand::Finish(self.round)),
            RedriveStatus::Canary
            | RedriveStatus::Running
            | RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => None,
        }
    }

    /// What the letters carry that this round sends.
    #[must_use]
    pub const fn tag(&self, redrive: Uuid) -> Tag {
        Tag { redrive, round: self.round }
    }

    fn phase(in_canary: bool) -> RedriveStatus {
        if in_canary { RedriveStatus::Canary } else { RedriveStatus::Running }
    }

    /// The driver decides on what it has seen; only what it saw of this round, while it sent, counts.
    fn in_round(&self, round: u32, allowed: bool) -> Result<(), RedriveRejection> {
        if round != self.round {
            return Err(RedriveRejection::OtherRound);
        }
        if allowed { Ok(()) } else { Err(RedriveRejection::Status(self.status)) }
    }
}

impl Decider for Redrive {
    const KIND: &'static str = "redrive";
    const FIELDS: &'static [&'static str] = &["status"];
    /// With the time at which it is decided.
    type Command = (RedriveCommand, Timestamp);
    type Event = RedriveEvent;
    type Rejection = RedriveRejection;

    fn decide(
        &self,
        (command, at): &(RedriveCommand, Timestamp),
    ) -> Result<Vec<RedriveEvent>, RedriveRejection> {
        use {RedriveCommand as Wish, RedriveEvent as Event, RedriveStatus as Status};
        let at = *at;
        let drive = match (&self.0, command) {
            (None, Wish::Start(plan)) => return Ok(vec![Event::Started(plan.clone(), at)]),
            (None, _) => return Err(RedriveRejection::Unknown),
            (Some(drive), _) => drive,
        };
        let refused = Err(RedriveRejection::Status(drive.status));
        match (command, drive.status) {
            (Wish::Start(_), _) => refused,

            (Wish::Pause, Status::Canary | Status::Running) => Ok(vec![Event::Paused(at)]),
            (Wish::Pause, Status::Paused | Status::Stopped | Status::Cancelled | Status::Done) => refused,

            (Wish::Resume, Status::Paused) => Ok(vec![Event::Resumed(at)]),
            (Wish::Resume, Status::Stopped) => Ok(vec![Event::BegunAgain(at)]),
            (Wish::Resume, Status::Canary | Status::Running | Status::Cancelled | Status::Done) => refused,

            (Wish::Cancel, Status::Canary | Status::Running | Status::Paused | Status::Stopped) => {
                Ok(vec![Event::Cancelled(at)])
            }
            (Wish::Cancel, Status::Cancelled | Status::Done) => refused,

            (Wish::Stop(round, because), status) => {
                drive.in_round(*round, status.is_sending())?;
                Ok(vec![Event::Stopped(because.clone(), at)])
            }
            (Wish::PassCanary(round), status) => {
                drive.in_round(*round, status == Status::Canary)?;
                Ok(vec![Event::CanaryPassed(at)])
            }
            (Wish::Finish(round), status) => {
                drive.in_round(*round, status == Status::Running)?;
                Ok(vec![Event::Finished(at)])
            }
        }
    }

    fn evolve(&mut self, event: &RedriveEvent) {
        let Some(drive) = &mut self.0 else {
            if let RedriveEvent::Started(plan, at) = event {
                let in_canary = plan.canary > 0;
                self.0 = Some(Drive {
                    plan: (**plan).clone(),
                    status: Drive::phase(in_canary),
                    in_canary,
                    round: 1,
                    round_began_at: *at,
                    stopped_because: None,
                    created_at: *at,
                    updated_at: *at,
                });
            }
            return;
        };
        drive.updated_at = match event {
            RedriveEvent::Started(_, at) => *at,
            RedriveEvent::Paused(at) => {
                drive.status = RedriveStatus::Paused;
                *at
            }
            RedriveEvent::Resumed(at) => {
                drive.status = Drive::phase(drive.in_canary);
                *at
            }
            RedriveEvent::BegunAgain(at) => {
                drive.round += 1;
                drive.round_began_at = *at;
                drive.in_canary = drive.plan.canary > 0;
                drive.status = Drive::phase(drive.in_canary);
                drive.stopped_because = None;
                *at
            }
            RedriveEvent::Cancelled(at) => {
                drive.status = RedriveStatus::Cancelled;
                *at
            }
            RedriveEvent::Stopped(because, at) => {
                drive.status = RedriveStatus::Stopped;
                drive.stopped_because = Some(because.clone());
                *at
            }
            RedriveEvent::CanaryPassed(at) => {
                drive.in_canary = false;
                drive.status = RedriveStatus::Running;
                *at
            }
            RedriveEvent::Finished(at) => {
                drive.status = RedriveStatus::Done;
                *at
            }
        };
    }

    fn event_name(event: &RedriveEvent) -> &'static str {
        match event {
            RedriveEvent::Started(..) => "Started",
            RedriveEvent::Paused(_) => "Paused",
            RedriveEvent::Resumed(_) => "Resumed",
            RedriveEvent::BegunAgain(_) => "BegunAgain",
            RedriveEvent::Cancelled(_) => "Cancelled",
            RedriveEvent::Stopped(..) => "Stopped",
            RedriveEvent::CanaryPassed(_) => "CanaryPassed",
            RedriveEvent::Finished(_) => "Finished",
        }
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        vec![self.0.as_ref().map_or(FieldValue::Null, |drive| drive.status.as_str().into())]
    }
}
