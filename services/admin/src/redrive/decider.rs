//! Pure: a redrive. What it has done so far is counted from the dead letters, not kept here.

use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::events::{Plan, RedriveCommand, RedriveEvent, RedriveRejection, RedriveStatus};
use crate::dead_letter::events::Tag;

/// Dead letters of one redrive on their way: enough to keep a service busy, few enough to stop in time.
pub const MOST_IN_FLIGHT: u64 = 4_000;

/// A redrive: nothing until it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive(Option<Drive>);

/// A redrive that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// What is to be done, as it was told at the start.
    pub plan: Plan,
    /// Where it stands.
    pub status: RedriveStatus,
    /// Whether the canary of this round is still to be resolved.
    pub in_canary: bool,
    /// Dead letters that the canary of this round has sent; kept here, so that two drivers do not send one each.
    #[serde(default)]
    pub canary_sent: u64,
    /// Which round this is, from 1.
    pub round: u32,
    /// When the round began: dead letters that failed later are not sent in it.
    pub round_began_at: Timestamp,
    /// Why it stopped by itself.
    pub stopped_because: Option<String>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its status changed last.
    pub updated_at: Timestamp,
}

impl Redrive {
    /// The redrive, once it was started.
    #[must_use]
    pub const fn drive(&self) -> Option<&Drive> {
        self.0.as_ref()
    }
}

impl Drive {
    /// How many dead letters more may be sent, with so many on their way.
    #[must_use]
    pub fn room(&self, in_flight: u64) -> u64 {
        match self.status {
            RedriveStatus::Canary => u64::from(self.plan.canary).saturating_sub(self.canary_sent),
            RedriveStatus::Running => MOST_IN_FLIGHT.saturating_sub(in_flight),
            RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => 0,
        }
    }

    /// What follows when there is none to send, or no room for one: nothing as long as any is on its way.
    #[must_use]
    pub fn ending(&self, in_flight: u64) -> Option<RedriveCommand> {
        match self.status {
            RedriveStatus::Canary if in_flight == 0 => Some(RedriveCommand::PassCanary(self.round)),
            RedriveStatus::Running if in_flight == 0 => Some(RedriveCommand::Finish(self.round)),
            RedriveStatus::Canary
            | RedriveStatus::Running
            | RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => None,
        }
    }

    /// What the dead letters carry that this round sends.
    #[must_use]
    pub const fn tag(&self, redrive: Uuid) -> Tag {
        Tag { redrive, round: self.round }
    }

    /// Whether it sends in this round.
    ///
    /// # Errors
    /// When it does not: it is in another round, or sends nothing at all.
    pub fn sends_in(&self, round: u32) -> Result<(), RedriveRejection> {
        self.in_round(round, self.status.is_sending())
    }

    /// The driver decides on what it has seen; only what it saw of this round, while it sent, counts.
    fn in_round(&self, round: u32, allowed: bool) -> Result<(), RedriveRejection> {
        if round != self.round {
            return Err(RedriveRejection::OtherRound);
        }
        if allowed { Ok(()) } else { Err(RedriveRejection::Status(self.status)) }
    }

    fn started(plan: &Plan, at: Timestamp) -> Self {
        let in_canary = plan.canary > 0;
        Self {
            plan: plan.clone(),
            status: Self::phase(in_canary),
            in_canary,
            canary_sent: 0,
            round: 1,
            round_began_at: at,
            stopped_because: None,
            created_at: at,
            updated_at: at,
        }
    }

    const fn phase(in_canary: bool) -> RedriveStatus {
        if in_canary { RedriveStatus::Canary } else { RedriveStatus::Running }
    }

    fn evolve(&mut self, event: &RedriveEvent) {
        let (status, at) = match event {
            RedriveEvent::Started(_, at) => (self.status, at),
            RedriveEvent::Paused(at) => (RedriveStatus::Paused, at),
            RedriveEvent::Resumed(at) => (Self::phase(self.in_canary), at),
            RedriveEvent::BegunAgain(at) => {
                self.round += 1;
                self.round_began_at = *at;
                self.in_canary = self.plan.canary > 0;
                self.canary_sent = 0;
                self.stopped_because = None;
                (Self::phase(self.in_canary), at)
            }
            RedriveEvent::Cancelled(at) => (RedriveStatus::Cancelled, at),
            RedriveEvent::Stopped(because, at) => {
                self.stopped_because = Some(because.clone());
                (RedriveStatus::Stopped, at)
            }
            RedriveEvent::CanarySent(count) => {
                self.canary_sent += count;
                return;
            }
            RedriveEvent::CanaryPassed(at) => {
                self.in_canary = false;
                (RedriveStatus::Running, at)
            }
            RedriveEvent::Finished(at) => (RedriveStatus::Done, at),
        };
        (self.status, self.updated_at) = (status, *at);
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
        use {RedriveCommand as Command, RedriveEvent as Event, RedriveStatus as Status};
        let at = *at;
        let drive = match (&self.0, command) {
            (None, Command::Start(plan)) => return Ok(vec![Event::Started(plan.clone(), at)]),
            (None, _) => return Err(RedriveRejection::Unknown),
            (Some(drive), _) => drive,
        };
        let refused = Err(RedriveRejection::Status(drive.status));
        match (command, drive.status) {
            (Command::Start(_), _) => refused,

            (Command::Pause, Status::Canary | Status::Running) => Ok(vec![Event::Paused(at)]),
            (Command::Pause, Status::Paused | Status::Stopped | Status::Cancelled | Status::Done) => refused,

            (Command::Resume, Status::Paused) => Ok(vec![Event::Resumed(at)]),
            (Command::Resume, Status::Stopped) => Ok(vec![Event::BegunAgain(at)]),
            (Command::Resume, Status::Canary | Status::Running | Status::Cancelled | Status::Done) => refused,

            (Command::Cancel, Status::Canary | Status::Running | Status::Paused | Status::Stopped) => {
                Ok(vec![Event::Cancelled(at)])
            }
            (Command::Cancel, Status::Cancelled | Status::Done) => refused,

            (Command::Stop(round, because), _) => {
                drive.sends_in(*round)?;
                Ok(vec![Event::Stopped(because.clone(), at)])
            }
            (Command::CountCanary(round, count), status) => {
                drive.in_round(*round, status == Status::Canary)?;
                Ok(if *count > 0 { vec![Event::CanarySent(*count)] } else { vec![] })
            }
            (Command::PassCanary(round), status) => {
                drive.in_round(*round, status == Status::Canary)?;
                Ok(vec![Event::CanaryPassed(at)])
            }
            (Command::Finish(round), status) => {
                drive.in_round(*round, status == Status::Running)?;
                Ok(vec![Event::Finished(at)])
            }
        }
    }

    fn evolve(&mut self, event: &RedriveEvent) {
        match (&mut self.0, event) {
            (Some(drive), event) => drive.evolve(event),
            (None, RedriveEvent::Started(plan, at)) => self.0 = Some(Drive::started(plan, *at)),
            (None, _) => {}
        }
    }

    fn event_name(event: &RedriveEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        vec![self.0.as_ref().map_or(FieldValue::Null, |drive| FieldValue::Text(drive.status.to_string()))]
    }
}
