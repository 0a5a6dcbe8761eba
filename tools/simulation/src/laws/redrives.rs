//! Shell: law 8 for redrives: the rest follows after the canary is resolved, and a paused or ended redrive
//! sends nothing.

use std::collections::BTreeMap;

use admin::dead_letters::events::{DeadLetterEvent, Tag};
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::decider::{Drive, Redrive};
use admin::redrive::events::RedriveEvent;
use admin_api::redrives::RedriveStatus;
use jiff::Timestamp;
use uuid::Uuid;

use crate::coverage::CoveragePoint;
use crate::law::Law;
use crate::world::{World, events, history};

/// Dead letters sent in one round of a redrive.
#[derive(Default)]
struct Sent {
    /// Times at which each was sent and resolved, by admin's clock.
    at: Vec<(Timestamp, Timestamp)>,
    /// Number of dead letters not replayed by hand since.
    counted: u32,
}

/// Checks that each redrive keeps to its plan.
pub fn check_redrives(world: &World) {
    let sent = sent(world);
    for (id, drive) in world.redrives() {
        let count = |point, status| world.sim.count_if(point, drive.status == status);
        count(CoveragePoint::RedriveDone, RedriveStatus::Done);
        count(CoveragePoint::RedriveStopped, RedriveStatus::Stopped);
        let broken = |what| world.sim.breaks(Law::ReplayReachesItsStep, format!("redrive {id} {what}"));
        for (number, round) in (1..).zip(rounds(world, id, &drive)) {
            let Some(sent) = sent.get(&(id, number)) else { continue };
            world.sim.count_many(CoveragePoint::Redriven, sent.at.len() as u64);
            if round.canary_passed_at.is_none() && round.has_canary && sent.counted > drive.plan.canary {
                broken(format!("sent {} with a canary of {}", sent.counted, drive.plan.canary));
            }
            // Clocks of two instances are not comparable.
            if world.sim.profile().instances > 1 {
                continue;
            }
            if sent.at.iter().any(|(at, _)| round.is_silent_at(*at)) {
                broken("sent a dead letter while paused or ended".to_owned());
            }
            let is_open =
                |passed: Timestamp| sent.at.iter().any(|(at, resolved)| *at < passed && *resolved > passed);
            if round.canary_passed_at.is_some_and(is_open) {
                broken("did not wait for its canary".to_owned());
            }
        }
    }
}

/// A round of a redrive.
struct Round {
    has_canary: bool,
    canary_passed_at: Option<Timestamp>,
    /// Times since which it sends or does not.
    sends: Vec<(Timestamp, bool)>,
}

impl Round {
    fn started(at: Timestamp, drive: &Drive) -> Self {
        let has_canary = drive.plan.canary > 0;
        Self { has_canary, canary_passed_at: None, sends: vec![(at, true)] }
    }

    /// True if it sent neither just before nor at this time.
    fn is_silent_at(&self, at: Timestamp) -> bool {
        let before = self.sends.iter().rev().find(|(since, _)| *since < at);
        let then = self.sends.iter().any(|(since, _)| *since == at);
        !then && before.is_none_or(|(_, sends)| !sends)
    }
}

/// Rounds of a redrive, in order.
fn rounds(world: &World, id: Uuid, drive: &Drive) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    for event in events::<Redrive>(world.admin.store(), id) {
        match (event, rounds.last_mut()) {
            (RedriveEvent::Started(_, at) | RedriveEvent::RoundStarted(at), _) => {
                rounds.push(Round::started(at, drive));
            }
            (RedriveEvent::CanaryPassed(at), Some(round)) => round.canary_passed_at = Some(at),
            (RedriveEvent::Resumed(at), Some(round)) => round.sends.push((at, true)),
            (
                RedriveEvent::Paused(at)
                | RedriveEvent::Cancelled(at)
                | RedriveEvent::Stopped(_, at)
                | RedriveEvent::Finished(at),
                Some(round),
            ) => round.sends.push((at, false)),
            (RedriveEvent::Sent(..), _) | (_, None) => {}
        }
    }
    rounds
}

/// Dead letters sent, by redrive and round.
fn sent(world: &World) -> BTreeMap<(Uuid, u32), Sent> {
    let mut sent = BTreeMap::<_, Sent>::new();
    for (dead_letter, _) in world.dead_letters() {
        let mut last = None;
        let mut resolved = Timestamp::MAX;
        for stored in history::<DeadLetterView>(world.admin.store(), dead_letter).iter().rev() {
            let at = stored.recorded_at;
            let event = serde_json::from_str(&stored.data);
            if let Ok(DeadLetterEvent::Replayed { tag, .. }) = event {
                if let Some(Tag { redrive, round }) = tag {
                    sent.entry((redrive, round)).or_default().at.push((at, resolved));
                }
                last = last.or(Some(tag));
            } else if let Ok(DeadLetterEvent::Resolved(_)) = event {
                resolved = at;
            }
        }
        if let Some(Some(Tag { redrive, round })) = last {
            sent.entry((redrive, round)).or_default().counted += 1;
        }
    }
    sent
}
