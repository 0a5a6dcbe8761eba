//! Pure: one dead letter: the reports of its service, and the requests of operators.
//!
//! The state does not depend on the order or repetition of reports. Reports are ordered by their `replays`. A request holds
//! until the service has reported something newer, or that the dead letter is gone. The row has what lists show; payloads
//! stay in the history.

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::dead_letter::{DeadLetterOrigin, DeadLettered, ReplayEffect};
use saga_core::decider::{ClosedRows, Decider, FieldValue, RetentionPolicy};
use saga_core::revision;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::events::{
    AGAIN, DeadLetterCommand, DeadLetterEvent, DeadLetterRejection, Forgotten, IN_VAIN, MAX_NOTES,
    MAX_REPLAYS, Replay, Tag,
};
use admin_api::actor::Actor;

/// A dead letter. The default is an unknown one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterView {
    report: Option<Report>,
    resolved_after: Option<u32>,
    /// Effect of the replay, once the service reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<ReplayEffect>,
    requested: Requested,
    sent: Option<Sent>,
    /// Last report that the dead letter is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten: Option<Forgotten>,
    edited: bool,
    /// Edit that the service has not reported on yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending_edit: Option<Uuid>,
    changes: u64,
    notes: u32,
    /// Revision of the newest request to the service.
    revision: u64,
}

/// The last report of the service, without the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub service: String,
    /// Step that failed, or kind of task.
    pub step: String,
    pub origin: DeadLetterOrigin,
    pub message_id: Uuid,
    pub message_type: Option<String>,
    pub saga: Option<Uuid>,
    /// Error chain in one line.
    pub reason: String,
    /// Equal for dead letters of one cause.
    pub fingerprint: String,
    /// Number of attempts, replays included.
    pub attempts: u32,
    /// Number of failed replays, which orders the reports.
    pub replays: u32,
    pub first_failed_at: Timestamp,
    pub last_failed_at: Timestamp,
}

/// The last request of an operator. It holds until more than `at` replays have failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Requested {
    #[default]
    Nothing,
    Replay {
        at: u32,
    },
    Discard {
        at: u32,
    },
    ManualResolution {
        at: u32,
    },
}

/// The redrive that replayed it last, and the fingerprint before that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sent {
    #[serde(flatten)]
    tag: Tag,
    fingerprint: String,
}

impl DeadLetterView {
    /// Last report of the service.
    pub const fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Current status; `None` until the service has reported it.
    pub fn status(&self) -> Option<DeadLetterStatus> {
        let report = self.report.as_ref()?;
        let requested = if self.is_requested_since() { self.requested } else { Requested::Nothing };
        Some(match requested {
            _ if self.resolved_after.is_some() => DeadLetterStatus::Resolved,
            _ if self.is_forgotten() => DeadLetterStatus::Discarded,
            Requested::Replay { at } if report.replays <= at => DeadLetterStatus::Replaying,
            Requested::Discard { at } if report.replays <= at => DeadLetterStatus::Discarded,
            Requested::ManualResolution { at } if report.replays <= at => DeadLetterStatus::ResolvedManually,
            Requested::Replay { .. }
            | Requested::Discard { .. }
            | Requested::ManualResolution { .. }
            | Requested::Nothing => DeadLetterStatus::Pending,
        })
    }

    /// True if the service reported it gone after the last request, and did not report it again since.
    fn is_forgotten(&self) -> bool {
        let is_reported_since = |at| self.report.as_ref().is_some_and(|report| report.last_failed_at > at);
        self.forgotten.is_some_and(|forgotten| !self.is_requested_since() && !is_reported_since(forgotten.at))
    }

    /// True if the last request is newer than the report that it is gone.
    fn is_requested_since(&self) -> bool {
        self.forgotten.is_none_or(|forgotten| self.revision > forgotten.revision)
    }

    /// True if this report, or a newer one, was consumed.
    fn has_consumed(&self, forgotten: &Forgotten) -> bool {
        self.forgotten.is_some_and(|before| before.revision >= forgotten.revision)
    }

    /// True if it waits for a human, or for the outcome of a replay.
    pub fn waits(&self) -> bool {
        match self.status() {
            Some(DeadLetterStatus::Pending | DeadLetterStatus::Replaying) => true,
            Some(
                DeadLetterStatus::Resolved | DeadLetterStatus::Discarded | DeadLetterStatus::ResolvedManually,
            )
            | None => false,
        }
    }

    /// Version, which grows with every change.
    pub fn version(&self) -> u64 {
        let report = self.report.as_ref().map_or(0, |report| u64::from(report.replays) + 1);
        self.changes + report + u64::from(self.resolved_after.is_some()) + u64::from(self.forgotten.is_some())
    }

    /// Time of the newest request to the service.
    pub fn requested_at(&self) -> Timestamp {
        let micros = i64::try_from(self.revision).unwrap_or(i64::MAX);
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    }

    /// Number of failed replays.
    pub fn replays(&self) -> u32 {
        self.report.as_ref().map_or(0, |report| report.replays)
    }

    /// Redrive that replayed it last, unless it was replayed by hand since.
    pub fn tag(&self) -> Option<Tag> {
        self.sent.as_ref().map(|sent| sent.tag)
    }

    /// Effect of the replay, once the service reported it.
    pub const fn effect(&self) -> Option<&ReplayEffect> {
        self.effect.as_ref()
    }

    /// True if this replay would be accepted.
    pub fn may_be_replayed(&self, replay: &Replay) -> bool {
        self.replayable(replay).is_ok()
    }

    pub const fn is_edited(&self) -> bool {
        self.edited
    }

    /// Position in the redrive that replayed it: `<redrive>/<round>/<status>`. The status is `AGAIN` when it failed again with
    /// the same fingerprint, and `IN_VAIN` when the replay changed nothing.
    fn course(&self) -> Option<String> {
        let (sent, report, status) = (self.sent.as_ref()?, self.report.as_ref()?, self.status()?);
        Some(sent.tag.course(match (status, &self.effect) {
            (DeadLetterStatus::Pending, _) if report.fingerprint == sent.fingerprint => AGAIN,
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

    fn on_report(&self, announced: &DeadLettered) -> Vec<DeadLetterEvent> {
        let newest = |replays, last_failed_at| match self.forgotten {
            None => (replays, last_failed_at),
            // After it was gone, a new report counts its replays from zero.
            Some(_) => (0, last_failed_at),
        };
        let before = self.report.as_ref().map(|report| newest(report.replays, report.last_failed_at));
        let is_news = before < Some(newest(announced.replays, announced.last_failed_at));
        is_news.then(|| DeadLetterEvent::Announced(Box::new(announced.clone()))).into_iter().collect()
    }

    fn replay(
        &self,
        by: &Actor,
        replay: &Replay,
        revision: u64,
    ) -> Result<Vec<DeadLetterEvent>, DeadLetterRejection> {
        let report = self.replayable(replay)?;
        Ok(vec![DeadLetterEvent::Replayed {
            by: by.clone(),
            at: report.replays,
            fingerprint: report.fingerprint.clone(),
            tag: replay.tag,
            edited: replay.edited.clone(),
            revision,
        }])
    }

    /// Returns the last report, if this replay is accepted.
    fn replayable(&self, replay: &Replay) -> Result<&Report, DeadLetterRejection> {
        let (report, status) = self.known()?;
        if replay.version.is_some_and(|version| version != self.version()) {
            return Err(DeadLetterRejection::Changed(self.version()));
        }
        match status {
            DeadLetterStatus::Pending => {}
            // Only a human knows that a replay was lost. A redrive leaves replays in flight alone.
            DeadLetterStatus::Replaying if replay.force && replay.tag.is_none() => {}
            DeadLetterStatus::Replaying
            | DeadLetterStatus::Resolved
            | DeadLetterStatus::Discarded
            | DeadLetterStatus::ResolvedManually => {
                return Err(DeadLetterRejection::Status(status));
            }
        }
        if report.origin == DeadLetterOrigin::Task && replay.edited.is_some() {
            return Err(DeadLetterRejection::NotEditable);
        }
        if replay.tag.is_some() && replay.tag == self.tag() {
            return Err(DeadLetterRejection::SentInThisRound);
        }
        // It could overtake the edit, and supersede it.
        if replay.edited.is_none() && self.pending_edit.is_some() {
            return Err(DeadLetterRejection::EditInFlight);
        }
        if report.replays >= MAX_REPLAYS && !replay.force {
            return Err(DeadLetterRejection::TooOften(report.replays));
        }
        Ok(report)
    }

    fn known(&self) -> Result<(&Report, DeadLetterStatus), DeadLetterRejection> {
        self.report.as_ref().zip(self.status()).ok_or(DeadLetterRejection::Unknown)
    }
}

impl Decider for DeadLetterView {
    const KIND: &'static str = "dead_letter_view";
    const FIELDS: &'static [&'static str] =
        &["status", "service", "step", "type", "fingerprint", "saga", "failed_at", "replays", "redrive"];
    const NUMBERS: &'static [&'static str] = &["failed_at", "replays"];
    /// The service that owns a closed dead letter purges it at the same age.
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeClosedRows(ClosedRows {
        status: "status",
        closed: &["RESOLVED", "DISCARDED", "RESOLVED_MANUALLY"],
        since: "failed_at",
    });
    type Command = (DeadLetterCommand, Timestamp);
    type Event = DeadLetterEvent;
    type Rejection = DeadLetterRejection;

    fn decide(
        &self,
        (command, now): &(DeadLetterCommand, Timestamp),
    ) -> Result<Vec<DeadLetterEvent>, DeadLetterRejection> {
        let revision = revision::after(self.revision, *now);
        match command {
            DeadLetterCommand::Announce(announced) => Ok(self.on_report(announced)),
            DeadLetterCommand::Resolve(resolved) => Ok(match self.resolved_after {
                Some(_) => vec![],
                None => vec![DeadLetterEvent::Resolved(resolved.clone())],
            }),
            DeadLetterCommand::Forget(report) => Ok(match self.has_consumed(report) {
                true => vec![],
                false => vec![DeadLetterEvent::Forgotten(*report)],
            }),
            DeadLetterCommand::Replay(by, replay) => self.replay(by, replay, revision),
            DeadLetterCommand::Discard(by) => match self.known()? {
                (report, DeadLetterStatus::Pending) => {
                    Ok(vec![DeadLetterEvent::Discarded { by: by.clone(), at: report.replays, revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::Restore(by) => match self.known()? {
                (_, DeadLetterStatus::Discarded) => {
                    Ok(vec![DeadLetterEvent::Restored { by: by.clone(), revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::ResolveManually(by) => match self.known()? {
                (report, DeadLetterStatus::Pending) => Ok(vec![DeadLetterEvent::ResolvedManually {
                    by: by.clone(),
                    at: report.replays,
                    revision,
                }]),
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::WithdrawResolution(by) => match self.known()? {
                (_, DeadLetterStatus::ResolvedManually) => {
                    Ok(vec![DeadLetterEvent::ResolutionWithdrawn { by: by.clone(), revision }])
                }
                (_, status) => Err(DeadLetterRejection::Status(status)),
            },
            DeadLetterCommand::Note(by, text) => match self.known()? {
                _ if self.notes >= MAX_NOTES => Err(DeadLetterRejection::TooManyNotes),
                _ => Ok(vec![DeadLetterEvent::Noted { by: by.clone(), text: text.clone() }]),
            },
        }
    }

    fn evolve(&mut self, event: &DeadLetterEvent) {
        let is_report = matches!(
            event,
            DeadLetterEvent::Announced(_) | DeadLetterEvent::Resolved(_) | DeadLetterEvent::Forgotten(_)
        );
        self.changes += u64::from(!is_report);
        self.revision = self.revision.max(event.revision().unwrap_or_default());
        match event {
            DeadLetterEvent::Announced(announced) => {
                // The newest report wins in any order.
                if !self.on_report(announced).is_empty() {
                    self.edited |= announced.original.is_some();
                    self.pending_edit = self.pending_edit.filter(|edit| *edit != announced.message_id);
                    self.report = Some(Report::of(announced));
                }
            }
            DeadLetterEvent::Resolved(resolved) => {
                self.resolved_after = self.resolved_after.max(Some(resolved.replays));
                self.effect = Some(self.effect.take().unwrap_or_else(|| resolved.effect.clone()));
                self.pending_edit = None;
            }
            DeadLetterEvent::Replayed { at, fingerprint, tag, edited, .. } => {
                self.requested = Requested::Replay { at: *at };
                self.sent = tag.map(|tag| Sent { tag, fingerprint: fingerprint.clone() });
                self.edited |= edited.is_some();
                self.pending_edit = edited.as_ref().map(|edited| edited.message_id).or(self.pending_edit);
            }
            DeadLetterEvent::Discarded { at, .. } => self.requested = Requested::Discard { at: *at },
            DeadLetterEvent::ResolvedManually { at, .. } => {
                self.requested = Requested::ManualResolution { at: *at }
            }
            DeadLetterEvent::Restored { .. } | DeadLetterEvent::ResolutionWithdrawn { .. } => {
                self.requested = Requested::Nothing;
            }
            DeadLetterEvent::Forgotten(report) => {
                if !self.has_consumed(report) {
                    self.forgotten = Some(*report);
                    self.pending_edit = None;
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
        let of = |part: fn(&Report) -> Option<String>| text(self.report.as_ref().and_then(part));
        // One that was resolved before it was reported is not listed, but the field needs a value.
        let failed_at = self.report.as_ref().map_or(0, |report| report.last_failed_at.as_microsecond());
        vec![
            text(self.status().map(|status| status.as_str().to_owned())),
            of(|report| Some(report.service.clone())),
            of(|report| Some(report.step.clone())),
            of(|report| report.message_type.clone()),
            of(|report| Some(report.fingerprint.clone())),
            of(|report| report.saga.map(|saga| saga.to_string())),
            failed_at.into(),
            i64::from(self.replays()).into(),
            text(self.course()),
        ]
    }
}

impl Report {
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
