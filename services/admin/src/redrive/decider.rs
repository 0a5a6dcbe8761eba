//! Pure: a redrive. What it has done so far is counted from the dead letters, not kept here.

use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::events::{Plan, RedriveCommand, RedriveEvent, RedriveRejection, RedriveStatus};
use super::pace::Pace;
use crate::dead_letter::events::{Replay, Tag};

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
    /// Dead letters that this round has sent; kept here, so that what several drivers send adds up.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub sent: u64,
    /// How fast it may go on, when it has a rate and has sent anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pace: Option<Pace>,
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

/// What has become of the dead letters that a redrive sent, as a driver counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Those on their way, those of earlier rounds too: they may have lost their way for a while.
    pub in_flight: u64,
    /// Those that the canary of this round sent.
    pub canary: u64,
    /// Those of them that are handled.
    pub resolved: u64,
}

impl Drive {
    /// How many dead letters more may be sent, now or later.
    #[must_use]
    pub fn room(&self, counted: &Counted) -> u64 {
        match self.status {
            RedriveStatus::Canary => u64::from(self.plan.canary).saturating_sub(self.canary(counted)),
            RedriveStatus::Running => MOST_IN_FLIGHT.saturating_sub(counted.in_flight),
            RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => 0,
        }
    }

    /// How many dead letters its rate lets it send now.
    #[must_use]
    pub fn granted(&self, now: Timestamp) -> u64 {
        self.paced(now).map_or(u64::MAX, |(rate, pace)| pace.holds(rate, now))
    }

    /// Its rate, and how much of it there is.
    fn paced(&self, now: Timestamp) -> Option<(u32, Pace)> {
        let rate = self.plan.rate?;
        Some((rate, self.pace.unwrap_or_else(|| Pace::new(rate, now))))
    }

    /// What follows when there is none to send, or no room for one: nothing as long as any is on its way.
    #[must_use]
    pub fn ending(&self, counted: &Counted) -> Option<RedriveCommand> {
        let Counted { in_flight, resolved, .. } = *counted;
        let canary = self.canary(counted);
        match self.status {
            RedriveStatus::Canary if in_flight == 0 && resolved >= canary => {
                Some(RedriveCommand::PassCanary(self.round, self.sent))
            }
            RedriveStatus::Canary if in_flight == 0 => {
                let because = format!(
                    "of a canary of {canary} only {resolved} were handled: somebody gave up or replayed the others"
                );
                Some(RedriveCommand::Stop(self.round, because))
            }
            RedriveStatus::Running if in_flight == 0 => Some(RedriveCommand::Finish(self.round, self.sent)),
            RedriveStatus::Canary
            | RedriveStatus::Running
            | RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => None,
        }
    }

    /// How many the canary has sent. An earlier build did not keep that here.
    fn canary(&self, counted: &Counted) -> u64 {
        self.sent.max(counted.canary)
    }

    /// What the dead letters carry that this round sends.
    #[must_use]
    pub const fn tag(&self, redrive: Uuid) -> Tag {
        Tag { redrive, round: self.round }
    }

    /// How this round hands a dead letter back.
    #[must_use]
    pub fn replay(&self, redrive: Uuid) -> Replay {
        Replay { force: self.plan.force, tag: Some(self.tag(redrive)), ..Replay::default() }
    }

    /// Whether it sends in this round.
    ///
    /// # Errors
    /// When it does not: it is in another round, or sends nothing at all.
    pub fn sends_in(&self, round: u32) -> Result<(), RedriveRejection> {
        self.in_round(round, self.status.is_sending())
    }

    /// Whether it has sent no more than whoever asks has seen.
    fn after(&self, sent: u64) -> Result<(), RedriveRejection> {
        if sent == self.sent { Ok(()) } else { Err(RedriveRejection::SentMore) }
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
            sent: 0,
            pace: None,
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
                self.sent = 0;
                self.stopped_because = None;
                (Self::phase(self.in_canary), at)
            }
            RedriveEvent::Cancelled(at) => (RedriveStatus::Cancelled, at),
            RedriveEvent::Stopped(because, at) => {
                self.stopped_because = Some(because.clone());
                (RedriveStatus::Stopped, at)
            }
            RedriveEvent::Sent(count, at) => {
                self.sent += count;
                self.pace = self.paced(*at).map(|(rate, pace)| pace.without(*count, rate, *at));
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
            (Command::Count(round, count), _) => {
                drive.sends_in(*round)?;
                Ok(if *count > 0 { vec![Event::Sent(*count, at)] } else { vec![] })
            }
            (Command::PassCanary(round, sent), status) => {
                drive.in_round(*round, status == Status::Canary)?;
                drive.after(*sent)?;
                Ok(vec![Event::CanaryPassed(at)])
            }
            (Command::Finish(round, sent), status) => {
                drive.in_round(*round, status == Status::Running)?;
                drive.after(*sent)?;
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
