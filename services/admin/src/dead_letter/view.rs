//! Pure: one dead letter, as admin knows it: what its service said of it, and what operators asked for.
//!
//! Its state depends on which facts were heard and on what operators asked, never on the order or the repetition
//! of the facts: what a service says is counted by its `replays`, and what an operator asked for holds until the
//! service has said something newer, or that it has it no more. The row keeps what lists show; payloads stay in the history.

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLettered, ReplayEffect};
use saga_core::decider::{Decider, FieldValue};
use saga_core::revision;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::events::{
    AGAIN, DeadLetterCommand, DeadLetterEvent, DeadLetterRejection, Forgotten, IN_VAIN, MOST_NOTES,
    MOST_REPLAYS, Replay, Tag,
};
use crate::request::By;

/// A dead letter. The default is one that nobody has heard of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterView {
    said: Option<Said>,
    resolved_after: Option<u32>,
    /// What handling it did; `None` until then, and when its service did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<ReplayEffect>,
    asked: Asked,
    sent: Option<Sent>,
    /// What its service said last of that it has it no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten: Option<Forgotten>,
    edited: bool,
    /// The edit that its service has not yet said anything of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edit_under_way: Option<Uuid>,
    changes: u64,
    notes: u32,
    /// The newest revision that its service was asked for; earlier builds went by the version.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    revision: u64,
}

/// What the service said last: its announcement without the bulk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The service that parked it.
    pub service: String,
    /// The step that failed, or the kind of task.
    pub step: String,
    /// Whether it is a message, something that is none, or a call.
    pub origin: DeadLetterOrigin,
    /// Id of the message or task.
    pub message_id: Uuid,
    /// Type of the message, when it could be read.
    pub message_type: Option<String>,
    /// The saga, when it could be read.
    pub saga: Option<Uuid>,
    /// The error chain in one line.
    pub reason: String,
    /// Groups dead letters of one cause.
    pub fingerprint: String,
    /// Attempts made, those of replays included.
    pub attempts: u32,
    /// Replays that failed; the number of what the service said of it.
    pub replays: u32,
    /// When the first attempt failed.
    pub first_failed_at: Timestamp,
    /// When the last attempt failed.
    pub last_failed_at: Timestamp,
}

/// What an operator asked for last. It holds until more than `at` replays have failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Asked {
    #[default]
    Nothing,
    Replay {
        at: u32,
    },
    Discard {
        at: u32,
    },
    Settle {
        at: u32,
    },
}

/// The redrive that sent it last, and how it had failed before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sent {
    #[serde(flatten)]
    tag: Tag,
    fingerprint: String,
}

impl DeadLetterView {
    /// What its service said last.
    #[must_use]
    pub const fn said(&self) -> Option<&Said> {
        self.said.as_ref()
    }

    /// Where it stands; `None` as long as its service has not announced it.
    #[must_use]
    pub fn status(&self) -> Option<DeadLetterStatus> {
        let said = self.said.as_ref()?;
        let asked = if self.is_asked_since() { self.asked } else { Asked::Nothing };
        Some(match asked {
            _ if self.resolved_after.is_some() => DeadLetterStatus::Resolved,
            _ if self.is_forgotten() => DeadLetterStatus::Discarded,
            Asked::Replay { at } if said.replays <= at => DeadLetterStatus::Replaying,
            Asked::Discard { at } if said.replays <= at => DeadLetterStatus::Discarded,
            Asked::Settle { at } if said.replays <= at => DeadLetterStatus::ResolvedManually,
            Asked::Replay { .. } | Asked::Discard { .. } | Asked::Settle { .. } | Asked::Nothing => {
                DeadLetterStatus::Pending
            }
        })
    }

    /// Whether its service has it no more, as far as it was asked. It may park the same once more, which it then says later.
    fn is_forgotten(&self) -> bool {
        let is_parked_since = |at| self.said.as_ref().is_some_and(|said| said.last_failed_at > at);
        self.forgotten.is_some_and(|forgotten| !self.is_asked_since() && !is_parked_since(forgotten.at))
    }

    /// Whether what was asked last is newer than that its service had it no more.
    fn is_asked_since(&self) -> bool {
        self.forgotten.is_none_or(|forgotten| self.revision > forgotten.revision)
    }

    /// Whether its service has said as much, or of something newer.
    fn has_said(&self, forgotten: &Forgotten) -> bool {
        self.forgotten.is_some_and(|before| before.revision >= forgotten.revision)
    }

    /// Whether it waits for somebody, or for its replay to end.
    #[must_use]
    pub fn waits(&self) -> bool {
        match self.status() {
            Some(DeadLetterStatus::Pending | DeadLetterStatus::Replaying) => true,
            Some(
                DeadLetterStatus::Resolved | DeadLetterStatus::Discarded | DeadLetterStatus::ResolvedManually,
            )
            | None => false,
        }
    }

    /// Grows with everything that happens to it.
    #[must_use]
    pub fn version(&self) -> u64 {
        let said = self.said.as_ref().map_or(0, |said| u64::from(said.replays) + 1);
        self.changes + said + u64::from(self.resolved_after.is_some()) + u64::from(self.forgotten.is_some())
    }

    /// Replays that failed; none as long as its service has not announced it.
    #[must_use]
    pub fn replays(&self) -> u32 {
        self.said.as_ref().map_or(0, |said| said.replays)
    }

    /// The redrive that sent it last, unless somebody handed it back by hand since.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        self.sent.as_ref().map(|sent| sent.tag)
    }

    /// What handling it did, as far as its service told.
    #[must_use]
    pub const fn effect(&self) -> Option<&ReplayEffect> {
        self.effect.as_ref()
    }

    /// Whether it would not refuse this replay.
    #[must_use]
    pub fn may_be_replayed(&self, replay: &Replay) -> bool {
        self.replayable(replay).is_ok()
    }

    /// Whether an operator has edited it.
    #[must_use]
    pub const fn is_edited(&self) -> bool {
        self.edited
    }

    /// Where it stands in the redrive that sent it: `<redrive>/<round>/<status>`, with `AGAIN` in place of
    /// `PENDING` when it failed again in the way it had failed before, and `IN_VAIN` in place of `RESOLVED` when that
    /// changed nothing.
    fn course(&self) -> Option<String> {
        let (sent, said, status) = (self.sent.as_ref()?, self.said.as_ref()?, self.status()?);
        Some(sent.tag.course(match (status, &self.effect) {
            (DeadLetterStatus::Pending, _) if said.fingerprint == sent.fingerprint => AGAIN,
            (
                DeadLetterStatus::Resolved,
                Some(ReplayEffect::ChangedNothing | ReplayEffect::Rejected { .. }),
            ) => IN_VAIN,
            (
                DeadLetterStatus::Pending
                | DeadLetterStatus::Replaying
                | DeadLetterStatus::Resolved
                | DeadLetterStatus::Discarded
                | DeadLetterStatus::ResolvedManually,
                _,
            ) => status.as_str(),
        }))
    }

    fn hear(&self, announced: &DeadLettered) -> Vec<DeadLetterEvent> {
        let newest = |replays, last_failed_at| match self.forgotten {
            None => (replays, last_failed_at),
            // Parked once more, it has no replays.
            Some(_) => (0, last_failed_at),
        };
        let before = self.said.as_ref().map(|said| newest(said.replays, said.last_failed_at));
        let is_news = before < Some(newest(announced.replays, announced.last_failed_at));
        is_news.then(|| DeadLetterEvent::Announced(Box::new(announced.clone()))).into_iter().collect()
    }

    fn replay(
        &self,
        by: &By,
        replay: &Replay,
        revision: u64,
    ) -> Result<Vec<DeadLetterEvent>, DeadLetterRejection> {
        let said = self.replayable(replay)?;
        Ok(vec![DeadLetterEvent::Replayed {
            by: by.clone(),
            at: said.replays,
            fingerprint: said.fingerprint.clone(),
            tag: replay.tag,
            edited: replay.edited.clone(),
            revision,
        }])
    }

    /// What it said last, when it can be replayed like this.
    fn replayable(&self, replay: &Replay) -> Result<&Said, DeadLetterRejection> {
        let (said, status) = self.known()?;
        if replay.version.is_some_and(|version| version != self.version()) {
            return Err(DeadLetterRejection::Changed(self.version()));
        }
        match status {
            DeadLetterStatus::Pending => {}
            // That it got lost only a human knows: a redrive leaves alone what is on its way.
            DeadLetterStatus::Replaying if replay.force && replay.tag.is_none() => {}
            DeadLetterStatus::Replaying
            | DeadLetterStatus::Resolved
            | DeadLetterStatus::Discarded
            | DeadLetterStatus::ResolvedManually => {
                return Err(DeadLetterRejection::Status(status));
            }
        }
        if said.origin == DeadLetterOrigin::Task && replay.edited.is_some() {
            return Err(DeadLetterRejection::NotEditable);
        }
        if replay.tag.is_some() && replay.tag == self.tag() {
            return Err(DeadLetterRejection::SentInThisRound);
        }
        // Sent after the edit it might be heard before it, and put the edit out of force.
        if replay.edited.is_none() && self.edit_under_way.is_some() {
            return Err(DeadLetterRejection::EditUnderWay);
        }
        if said.replays >= MOST_REPLAYS && !replay.force {
            return Err(DeadLetterRejection::TooOften(said.replays));
        }
        Ok(said)
    }

    fn known(&self) -> Result<(&Said, DeadLetterStatus), DeadLetterRejection> {
        self.said.as_ref().zip(self.status()).ok_or(DeadLetterRejection::Unknown)
    }
}

impl Decider for DeadLetterView {
    const KIND: &'static str = "dead_letter_view";
    const FIELDS: &'static [&'static str] =
        &["status", "service", "step", "type", "fingerprint", "saga", "failed_at", "replays", "redrive"];
    const NUMBERS: &'static [&'static str] = &["failed_at", "replays"];
    type Command = (DeadLetterCommand, Timestamp);
    type Event = DeadLetterEvent;
    type Rejection = DeadLetterRejection;

    fn decide(
        &self,
        (command, now): &(DeadLetterCommand, Timestamp),
    ) -> Result<Vec<DeadLetterEvent>, DeadLetterRejection> {
        let revision = revision::after(self.revision.max(self.version()), *now);
        match command {
            DeadLetterCommand::Announce(announced) => Ok(self.hear(announced)),
            DeadLetterCommand::Resolve(resolved) => Ok(match self.resolved_after {
                Some(_) => vec![],
                None => vec![DeadLetterEvent::Resolved(resolved.clone())],
            }),
            DeadLetterCommand::Forget(said) => Ok(match self.has_said(said) {
                true => vec![],
                false => vec![DeadLetterEvent::Forgotten(*said)],
            }),
            DeadLetterCommand::Replay(by, replay) => self.replay(by, replay, revision),
            DeadLetterCommand::Discard(by) => match self.known()? {
                (said, DeadLetterStatus::Pending) => {
                    Ok(vec![DeadLetterEvent::Discarded { by: by.clone(), at: said.replays, revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::Restore(by) => match self.known()? {
                (_, DeadLetterStatus::Discarded) => {
                    Ok(vec![DeadLetterEvent::Restored { by: by.clone(), revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::Settle(by) => match self.known()? {
                (said, DeadLetterStatus::Pending) => {
                    Ok(vec![DeadLetterEvent::Settled { by: by.clone(), at: said.replays, revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::Unsettle(by) => match self.known()? {
                (_, DeadLetterStatus::ResolvedManually) => {
                    Ok(vec![DeadLetterEvent::Unsettled { by: by.clone(), revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::Note(by, text) => match self.known()? {
                _ if self.notes >= MOST_NOTES => Err(DeadLetterRejection::TooManyNotes),
                _ => Ok(vec![DeadLetterEvent::Noted { by: by.clone(), text: text.clone() }]),
            },
        }
    }

    fn evolve(&mut self, event: &DeadLetterEvent) {
        let is_said = matches!(
            event,
            DeadLetterEvent::Announced(_) | DeadLetterEvent::Resolved(_) | DeadLetterEvent::Forgotten(_)
        );
        self.changes += u64::from(!is_said);
        self.revision = self.revision.max(event.revision().unwrap_or_default());
        match event {
            DeadLetterEvent::Announced(announced) => {
                // Even a fold that gets them in another order ends with the newest.
                if !self.hear(announced).is_empty() {
                    self.edited |= announced.original.is_some();
                    self.edit_under_way = self.edit_under_way.filter(|edit| *edit != announced.message_id);
                    self.said = Some(Said::of(announced));
                }
            }
            DeadLetterEvent::Resolved(resolved) => {
                self.resolved_after = self.resolved_after.max(Some(resolved.replays));
                self.effect = Some(self.effect.take().unwrap_or_else(|| resolved.effect.clone()));
                self.edit_under_way = None;
            }
            DeadLetterEvent::Replayed { at, fingerprint, tag, edited, .. } => {
                self.asked = Asked::Replay { at: *at };
                self.sent = tag.map(|tag| Sent { tag, fingerprint: fingerprint.clone() });
                self.edited |= edited.is_some();
                self.edit_under_way = edited.as_ref().map(|edited| edited.message_id).or(self.edit_under_way);
            }
            DeadLetterEvent::Discarded { at, .. } => self.asked = Asked::Discard { at: *at },
            DeadLetterEvent::Settled { at, .. } => self.asked = Asked::Settle { at: *at },
            DeadLetterEvent::Restored { .. } | DeadLetterEvent::Unsettled { .. } => {
                self.asked = Asked::Nothing;
            }
            DeadLetterEvent::Forgotten(said) => {
                if !self.has_said(said) {
                    self.forgotten = Some(*said);
                    self.edit_under_way = None;
                }
            }
            DeadLetterEvent::Noted { .. } => self.notes += 1,
        }
    }

    fn event_name(event: &DeadLetterEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let text = |text: Option<String>| text.map_or(FieldValue::Null, FieldValue::Text);
        let of = |part: fn(&Said) -> Option<String>| text(self.said.as_ref().and_then(part));
        // One that was handled before it was announced is found by nobody; it has a time all the same.
        let failed_at = self.said.as_ref().map_or(0, |said| said.last_failed_at.as_microsecond());
        vec![
            text(self.status().map(|status| status.as_str().to_owned())),
            of(|said| Some(said.service.clone())),
            of(|said| Some(said.step.clone())),
            of(|said| said.message_type.clone()),
            of(|said| Some(said.fingerprint.clone())),
            of(|said| said.saga.map(|saga| saga.to_string())),
            failed_at.into(),
            i64::from(self.replays()).into(),
            text(self.course()),
        ]
    }
}

impl Said {
    fn of(announced: &DeadLettered) -> Self {
        Self {
            service: announced.service.clone(),
            step: announced.step.clone(),
            origin: announced.origin,
            message_id: announced.message_id,
            message_type: announced.message_type.clone(),
            saga: announced.saga,
            reason: announced.reason.clone(),
            fingerprint: announced.fingerprint.clone(),
            attempts: announced.attempts,
            replays: announced.replays,
            first_failed_at: announced.first_failed_at,
            last_failed_at: announced.last_failed_at,
        }
    }
}
