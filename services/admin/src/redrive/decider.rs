//! Pure: the row of a redrive. Its progress is counted from the dead letters, and not kept here.

use admin_api::redrives::RedriveStatus;
use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::events::{Plan, RedriveCommand, RedriveEvent, RedriveRejection};
use super::rate::RateLimit;
use crate::dead_letters::events::{Replay, Tag};

/// Maximum number of replays of one redrive in flight: enough to keep a service busy, few enough to stop in time.
pub const MAX_IN_FLIGHT: u64 = 4_000;

/// A redrive; empty until it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive(Option<Drive>);

/// A redrive that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    pub plan: Plan,
    pub status: RedriveStatus,
    /// True until the canary of this round is resolved.
    pub in_canary: bool,
    /// Replays of this round, by all drivers.
    pub sent: u64,
    /// State of the rate limit, once it has a rate and has replayed anything.
    limit: Option<RateLimit>,
    /// Number of the round, from 1.
    pub round: u32,
    /// Start of the round. It does not replay dead letters that failed later.
    pub round_started_at: Timestamp,
    /// Cause of an automatic stop.
    pub stopped_because: Option<String>,
    pub created_at: Timestamp,
    /// Time of the last change of status.
    pub updated_at: Timestamp,
}

impl Redrive {
    /// Returns the redrive, once it was started.
    pub const fn drive(&self) -> Option<&Drive> {
        self.0.as_ref()
    }
}

/// Outcome of the replays so far, as a driver counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Replays in flight, those of earlier rounds included.
    pub in_flight: u64,
    /// Resolved replays of the canary.
    pub resolved: u64,
    /// Resolved replays of the canary that changed nothing.
    pub in_vain: u64,
}

impl Drive {
    /// Number of dead letters that may still be replayed, apart from the rate.
    pub fn room(&self, counted: &Counted) -> u64 {
        match self.status {
            RedriveStatus::Canary => u64::from(self.plan.canary).saturating_sub(self.sent),
            RedriveStatus::Running => MAX_IN_FLIGHT.saturating_sub(counted.in_flight),
            RedriveStatus::Paused
            | RedriveStatus::Stopped
            | RedriveStatus::Cancelled
            | RedriveStatus::Done => 0,
        }
    }

    /// Number of dead letters that the rate allows now.
    pub fn granted(&self, now: Timestamp) -> u64 {
        self.rate_limit(now).map_or(u64::MAX, |(rate, limit)| limit.holds(rate, now))
    }

    fn rate_limit(&self, now: Timestamp) -> Option<(u32, RateLimit)> {
        let rate = self.plan.rate?;
        Some((rate, self.limit.unwrap_or_else(|| RateLimit::new(rate, now))))
    }

    /// Next step when nothing can be replayed; `None` while a replay is in flight.
    pub fn ending(&self, counted: &Counted) -> Option<RedriveCommand> {
        let Counted { in_flight, resolved, in_vain } = *counted;
        match self.status {
            RedriveStatus::Canary if in_flight == 0 && resolved > 0 && resolved == in_vain => {
                let because = format!(
                    "the canary of {} changed nothing, so that it proves nothing: no saga waited for it any more",
                    self.sent
                );
                Some(RedriveCommand::Stop(self.round, because))
            }
            RedriveStatus::Canary if in_flight == 0 && resolved >= self.sent => {
                Some(RedriveCommand::PassCanary(self.round, self.sent))
            }
            RedriveStatus::Canary if in_flight == 0 => {
                let because = format!(
                    "only {resolved} of a canary of {} were resolved: the others were discarded or replayed by hand",
                    self.sent
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

    pub const fn tag(&self, redrive: Uuid) -> Tag {
        Tag { redrive, round: self.round }
    }

    pub fn replay(&self, redrive: Uuid) -> Replay {
        Replay { force: self.plan.force, tag: Some(self.tag(redrive)), ..Replay::default() }
    }

    /// # Errors
    /// Returns a rejection when it is in another round, or replays nothing.
    pub fn sends_in(&self, round: u32) -> Result<(), RedriveRejection> {
        self.in_round(round, self.status.is_sending())
    }

    /// Rejects a report that does not know all replays.
    fn after(&self, sent: u64) -> Result<(), RedriveRejection> {
        if sent == self.sent { Ok(()) } else { Err(RedriveRejection::SentMore) }
    }

    /// Rejects a report about another round, or another status.
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
            limit: None,
            round: 1,
            round_started_at: at,
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
            RedriveEvent::RoundStarted(at) => {
                self.round += 1;
                self.round_started_at = *at;
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
                self.limit = self.rate_limit(*at).map(|(rate, limit)| limit.without(*count, rate, *at));
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
    /// With the time of the decision.
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
            (Command::Resume, Status::Stopped) => Ok(vec![Event::RoundStarted(at)]),
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
