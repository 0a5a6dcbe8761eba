//! Pure: the view of one saga from outside: a fold of its facts and manual resolutions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use saga_core::dead_letter::OperatorMessage;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use saga_core::message::Message;
use saga_core::revision;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::fact::{Fact, FactType};
use crate::manual_resolution::{ManualResolution, ResolutionRejection};
use crate::money::Money;
use crate::order::CancelReason;
use crate::payment::PaymentFailure;
use crate::saga::SagaStatus;
pub use crate::saga_event::{SagaCommand, SagaEvent};
use crate::saga_fact::SagaFact;

mod progress;

pub use self::progress::Owed;

/// View of one saga. Independent of the order and repetition of its facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SagaView {
    /// Types of received facts, each with the earliest time of its publication.
    pub facts: BTreeMap<String, Timestamp>,
    /// Ids of received messages, by which repetitions are recognized.
    messages: BTreeSet<Uuid>,
    /// Customer; `None` until `OrderCreated` is received.
    pub customer: Option<String>,
    /// Total price of the order.
    pub total: Option<Money>,
    /// Deadline of the order, after all extensions.
    pub deadline: Option<Timestamp>,
    /// Reason why the order was cancelled, if it was.
    pub cancelled_because: Option<CancelReason>,
    /// Reason of the failed payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_failed_because: Option<PaymentFailure>,
    /// Dead letters, each with the step that failed.
    pub dead_letters: BTreeMap<Uuid, String>,
    /// Dead letters that replays resolved.
    pub resolved: BTreeSet<Uuid>,
    /// Manual resolution; `None` if there is none or it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_resolution: Option<ManualResolution>,
    /// Revision of the newest resolution or withdrawal.
    revision: u64,
}

impl SagaView {
    /// Folds a fact. A repeated fact changes nothing.
    pub fn record(&mut self, fact: &SagaFact) {
        if !self.messages.insert(fact.message_id) {
            return;
        }
        let at = self.facts.entry(fact.message_type.clone()).or_insert(fact.occurred_at);
        *at = (*at).min(fact.occurred_at);
        let detail = &fact.detail;
        self.customer = self.customer.take().or_else(|| detail.customer.clone());
        self.total = self.total.or(detail.total);
        // A deadline is only ever extended, so the latest one holds, whichever arrives first.
        self.deadline = self.deadline.max(detail.deadline);
        self.cancelled_because = self.cancelled_because.or(detail.cancelled_because);
        self.payment_failed_because = self.payment_failed_because.or(detail.payment_failed_because);
        self.dead_letters.extend(detail.dead_lettered.clone().map(|dead| (dead.dead_letter, dead.step)));
        self.resolved.extend(detail.resolved);
    }

    /// Latest time of publication of any received fact.
    #[must_use]
    pub fn last_fact_at(&self) -> Option<Timestamp> {
        self.facts.values().max().copied()
    }

    /// Latest time of publication of any received fact but an extension of the deadline.
    #[must_use]
    pub fn last_progress_at(&self) -> Option<Timestamp> {
        let extension = FactType::DeadlineExtended.name();
        self.facts.iter().filter(|(fact, _)| *fact != extension).map(|(_, at)| *at).max()
    }

    /// Revision of the next resolution or withdrawal.
    #[must_use]
    pub fn next_revision(&self, now: Timestamp) -> u64 {
        revision::after(self.revision, now)
    }

    /// Dead letters that no replay has resolved, each with its step. Includes discarded ones: their work is not
    /// done.
    pub fn open_dead_letters(&self) -> impl Iterator<Item = (Uuid, &str)> {
        let unresolved =
            self.dead_letters.iter().filter(|(dead_letter, _)| !self.resolved.contains(dead_letter));
        unresolved.map(|(dead_letter, step)| (*dead_letter, step.as_str()))
    }

    /// Rejects a manual resolution while the saga is in flight, or if there is nothing to resolve.
    fn check_resolvable(&self, resolution: &ManualResolution) -> Result<(), ResolutionRejection> {
        let is_balanced = resolution.accepted.is_empty();
        match self.status_without_resolution() {
            _ if self.facts.is_empty() => Err(ResolutionRejection::Unknown),
            ended @ (SagaStatus::Completed | SagaStatus::Compensated | SagaStatus::Unknown)
                if is_balanced =>
            {
                Err(ResolutionRejection::Ended(ended))
            }
            _ if self
                .manual_resolution
                .as_ref()
                .is_some_and(|known| known.accepted == resolution.accepted) =>
            {
                Err(ResolutionRejection::AlreadyResolved)
            }
            status @ (SagaStatus::Started | SagaStatus::InProgress) => match self.deadline {
                Some(until) if until > resolution.at => Err(ResolutionRejection::InFlight { status, until }),
                Some(_) | None => Ok(()),
            },
            SagaStatus::Unknown
            | SagaStatus::DeadLettered
            | SagaStatus::Completed
            | SagaStatus::TimedOut
            | SagaStatus::Compensating
            | SagaStatus::Compensated
            | SagaStatus::CompensationStuck
            | SagaStatus::ResolvedManually => Ok(()),
        }
    }

    pub(crate) fn has(&self, fact: FactType) -> bool {
        self.facts.contains_key(fact.name())
    }
}

/// Rows of admin: each received fact and each resolution is an event.
impl Decider for SagaView {
    const KIND: &'static str = "saga";
    const FIELDS: &'static [&'static str] = &["status", "next_step", "customer", "deadline", "finished"];
    const NUMBERS: &'static [&'static str] = &["deadline", "finished"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRows;
    type Command = SagaCommand;
    type Event = SagaEvent;
    type Rejection = ResolutionRejection;

    fn decide(&self, command: &SagaCommand) -> Result<Vec<SagaEvent>, ResolutionRejection> {
        match command {
            SagaCommand::RecordFact(fact) => {
                let is_known = self.messages.contains(&fact.message_id);
                Ok(if is_known { vec![] } else { vec![SagaEvent::FactRecorded(fact.clone())] })
            }
            SagaCommand::ResolveManually(resolution) => {
                self.check_resolvable(resolution)?;
                Ok(vec![SagaEvent::ResolvedManually(resolution.clone())])
            }
            SagaCommand::WithdrawResolution(withdrawal) => match &self.manual_resolution {
                None if self.facts.is_empty() => Err(ResolutionRejection::Unknown),
                None => Err(ResolutionRejection::NotResolved(self.status())),
                Some(_) => Ok(vec![SagaEvent::ResolutionWithdrawn(withdrawal.clone())]),
            },
        }
    }

    fn evolve(&mut self, event: &SagaEvent) {
        match event {
            SagaEvent::FactRecorded(fact) => self.record(fact),
            SagaEvent::ResolvedManually(resolution) => {
                self.manual_resolution = Some(resolution.clone());
                self.revision = self.revision.max(resolution.revision);
            }
            SagaEvent::ResolutionWithdrawn(withdrawal) => {
                self.manual_resolution = None;
                self.revision = self.revision.max(withdrawal.revision);
            }
        }
    }

    fn event_name(event: &SagaEvent) -> &'static str {
        match event {
            SagaEvent::ResolvedManually(_) => "ResolvedManually",
            SagaEvent::ResolutionWithdrawn(_) => "ResolutionWithdrawn",
            SagaEvent::FactRecorded(fact) => {
                let known = <OperatorMessage<Fact> as Message>::named(&fact.message_type);
                known.map_or("FactRecorded", |message_type| message_type.name)
            }
        }
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let status = self.status();
        let next = self.remaining().into_iter().next();
        vec![
            status.as_str().into(),
            next.map_or(FieldValue::Null, |owed| FieldValue::Text(owed.step)),
            self.customer.as_deref().map_or(FieldValue::Null, FieldValue::from),
            self.deadline.map_or(FieldValue::Null, |deadline| deadline.as_microsecond().into()),
            i64::from(status.is_terminal()).into(),
        ]
    }

    /// A saga that is resolved manually is kept: reconciliation still compares its accepted discrepancies.
    fn is_finished(&self) -> bool {
        let has_ended =
            matches!(self.status_without_resolution(), SagaStatus::Completed | SagaStatus::Compensated);
        has_ended && self.manual_resolution.is_none() && self.open_dead_letters().next().is_none()
    }
}
