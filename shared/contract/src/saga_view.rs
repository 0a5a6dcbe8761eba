//! Pure: the view of one saga from outside: a fold of its facts and manual resolutions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use saga_core::dead_letter::OperatorMessage;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use saga_core::message::Message;
use saga_core::revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::fact::{Fact, FactType};
use crate::manual_resolution::{ManualResolution, ResolutionRejection};
use crate::money::Money;
use crate::order::CancelReason;
use crate::payment::PaymentFailure;
use crate::saga::{ORDER_SAGA, SagaStatus, Stage, StepRole, role_of};
pub use crate::saga_event::{SagaCommand, SagaEvent};
use crate::saga_fact::SagaFact;

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

/// Step that a saga waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owed {
    /// Name of the step, e.g. `payment-processing`.
    pub step: String,
    /// Service that owns the step.
    pub owner: String,
    /// Fact that will report its completion.
    pub fact: FactType,
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

    /// Status of the saga. A saga that ended regularly after a manual resolution has its regular status.
    #[must_use]
    pub fn status(&self) -> SagaStatus {
        match self.status_without_resolution() {
            open if self.manual_resolution.is_some() && !open.is_terminal() => SagaStatus::ResolvedManually,
            status => status,
        }
    }

    /// Status of the saga without regard to a manual resolution.
    #[must_use]
    pub fn status_without_resolution(&self) -> SagaStatus {
        if !self.has(FactType::OrderCreated) {
            return SagaStatus::Unknown;
        }
        if !self.has(FactType::OrderCancelled) {
            return if self.has(FactType::OrderConfirmed) {
                SagaStatus::Completed
            } else if self.is_blocked_by_dead_letter() {
                SagaStatus::DeadLettered
            } else if ORDER_SAGA.iter().skip(1).any(|stage| self.is_answered(stage)) {
                SagaStatus::InProgress
            } else {
                SagaStatus::Started
            };
        }
        if !ORDER_SAGA.iter().any(|stage| self.is_compensation_due(stage)) {
            return SagaStatus::Compensated;
        }
        // Dead letters of stages that are undone block nothing.
        let mut due = ORDER_SAGA.iter().filter(|stage| self.is_compensation_due(stage));
        if due.any(|stage| stage.compensation_step.is_some_and(|step| self.is_dead_lettered_at(step))) {
            return SagaStatus::CompensationStuck;
        }
        let something_undone =
            ORDER_SAGA.iter().flat_map(|stage| stage.compensated_by).any(|fact| self.has(*fact));
        match self.cancelled_because {
            Some(CancelReason::TimedOut) if !something_undone => SagaStatus::TimedOut,
            _ => SagaStatus::Compensating,
        }
    }

    /// Steps that are due, in the order of the saga.
    #[must_use]
    pub fn remaining(&self) -> Vec<Owed> {
        // Nothing is due for a saga without an order, or one that is resolved manually.
        if self.manual_resolution.is_some() || !self.has(FactType::OrderCreated) {
            return Vec::new();
        }
        let owed = |stage: &Stage, step: &str, fact| Owed {
            step: step.to_owned(),
            owner: stage.owner.to_owned(),
            fact,
        };
        if self.has(FactType::OrderCancelled) {
            let due = ORDER_SAGA.iter().filter(|stage| self.is_compensation_due(stage));
            let of = |stage| Some(owed(stage, stage.compensation_step?, self.compensated_by(stage)?));
            return due.filter_map(of).collect();
        }
        if self.has(FactType::OrderConfirmed) {
            return Vec::new();
        }
        let due = ORDER_SAGA.iter().filter(|stage| !self.is_answered(stage));
        due.map(|stage| owed(stage, stage.step, stage.completed_by)).collect()
    }

    /// Latest time of publication of any received fact.
    #[must_use]
    pub fn last_fact_at(&self) -> Option<Timestamp> {
        self.facts.values().max().copied()
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

    /// True if a dead letter of this step, or kind of task, is not resolved.
    fn is_dead_lettered_at(&self, step: &str) -> bool {
        self.open_dead_letters().any(|(_, dead)| dead == step)
    }

    /// True if a forward step is dead-lettered and has not been done by other means.
    fn is_blocked_by_dead_letter(&self) -> bool {
        let is_done = |step| ORDER_SAGA.iter().any(|stage| stage.step == step && self.is_answered(stage));
        self.open_dead_letters().any(|(_, step)| role_of(step) == StepRole::Forward && !is_done(step))
    }

    pub(crate) fn has(&self, fact: FactType) -> bool {
        self.facts.contains_key(fact.name())
    }

    fn is_answered(&self, stage: &Stage) -> bool {
        self.has(stage.completed_by) || stage.rejected_by.is_some_and(|rejection| self.has(rejection))
    }

    /// True if a stage must still report its compensation.
    ///
    /// Every cancellation is answered, even if nothing was done for the order. Only a clear rejection, which left
    /// nothing to undo, counts as an answer.
    fn is_compensation_due(&self, stage: &Stage) -> bool {
        let is_unclear = |rejection| {
            rejection == FactType::PaymentFailed
                && self.payment_failed_because.is_some_and(PaymentFailure::is_unclear)
        };
        let is_rejected =
            stage.rejected_by.is_some_and(|rejection| self.has(rejection) && !is_unclear(rejection));
        let is_undone = stage.compensated_by.iter().any(|fact| self.has(*fact));
        !stage.compensated_by.is_empty() && !is_undone && (!is_rejected || self.has(stage.completed_by))
    }

    /// Fact that will report the compensation of a stage.
    fn compensated_by(&self, stage: &Stage) -> Option<FactType> {
        let was_done = self.has(stage.completed_by);
        if was_done { stage.compensated_by.first() } else { stage.compensated_by.last() }.copied()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::saga_fact::{DeadLetterRef, FactDetail};

    /// Types of facts of a saga that admin receives.
    const TYPES: [&str; 13] = [
        "OrderCreated",
        "DeadlineExtended",
        "OrderConfirmed",
        "OrderCancelled",
        "StockReserved",
        "StockReservationFailed",
        "StockReleased",
        "PaymentProcessed",
        "PaymentFailed",
        "PaymentRefunded",
        "PaymentVoided",
        "DeadLettered",
        "DeadLetterResolved",
    ];

    fn saga_fact(number: u128, message_type: &str) -> SagaFact {
        // A dead letter of a refund; or of a charge, as `ForwardDeadLetter`.
        let step = match message_type {
            "DeadLettered" => Some("payment-refund"),
            "ForwardDeadLetter" => Some("payment-processing"),
            _ => None,
        };
        let message_type = if message_type == "ForwardDeadLetter" { "DeadLettered" } else { message_type };
        SagaFact {
            message_id: Uuid::from_u128(number),
            message_type: message_type.to_owned(),
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: Timestamp::from_microsecond(i64::try_from(number).unwrap_or(0)).unwrap_or_default(),
            detail: FactDetail {
                cancelled_because: (message_type == "OrderCancelled").then_some(CancelReason::TimedOut),
                payment_failed_because: (message_type == "PaymentFailed")
                    .then_some(PaymentFailure::Exhausted),
                dead_lettered: step
                    .map(|step| DeadLetterRef { dead_letter: Uuid::nil(), step: step.to_owned() }),
                resolved: (message_type == "DeadLetterResolved").then(Uuid::nil),
                deadline: ["OrderCreated", "DeadlineExtended"].contains(&message_type).then(|| {
                    Timestamp::from_microsecond(i64::try_from(number).unwrap_or(0)).unwrap_or_default()
                }),
                ..FactDetail::default()
            },
        }
    }

    fn status_after(facts: &[&str]) -> SagaStatus {
        let mut view = SagaView::default();
        for (number, fact) in facts.iter().enumerate() {
            view.record(&saga_fact(number as u128, fact));
        }
        view.status()
    }

    #[test]
    fn status_follows_from_facts() {
        assert_eq!(status_after(&["OrderCreated"]), SagaStatus::Started);
        assert_eq!(status_after(&["OrderCreated", "StockReserved"]), SagaStatus::InProgress);
        let happy = ["OrderCreated", "StockReserved", "PaymentProcessed", "OrderConfirmed"];
        assert_eq!(status_after(&happy), SagaStatus::Completed);
        assert_eq!(status_after(&["OrderCreated", "OrderCancelled"]), SagaStatus::TimedOut);
        let released = ["OrderCreated", "OrderCancelled", "StockReleased"];
        assert_eq!(status_after(&released), SagaStatus::Compensating, "payment has not answered");
        assert_eq!(status_after(&[&released[..], &["PaymentVoided"]].concat()), SagaStatus::Compensated);
        assert_eq!(
            status_after(&["OrderCreated", "OrderCancelled", "PaymentVoided"]),
            SagaStatus::Compensating
        );
        let refused = ["OrderCreated", "StockReservationFailed", "OrderCancelled", "PaymentVoided"];
        assert_eq!(status_after(&refused), SagaStatus::Compensated);
        let unclear = ["OrderCreated", "PaymentFailed", "OrderCancelled", "StockReleased"];
        assert_eq!(status_after(&unclear), SagaStatus::Compensating, "the charge is still to be reversed");
        assert_eq!(status_after(&[&unclear[..], &["PaymentVoided"]].concat()), SagaStatus::Compensated);
        let late = ["OrderCreated", "OrderCancelled", "StockReleased", "PaymentProcessed"];
        assert_eq!(status_after(&late), SagaStatus::Compensating);
        let blocked = ["OrderCreated", "StockReserved", "ForwardDeadLetter"];
        assert_eq!(status_after(&blocked), SagaStatus::DeadLettered);
        assert_eq!(status_after(&[&blocked[..], &["PaymentProcessed"]].concat()), SagaStatus::InProgress);
        assert_eq!(status_after(&[&blocked[..], &["OrderCancelled"]].concat()), SagaStatus::TimedOut);
        let stuck = ["OrderCreated", "PaymentProcessed", "OrderCancelled", "StockReleased", "DeadLettered"];
        assert_eq!(status_after(&stuck), SagaStatus::CompensationStuck);
        let mended = [&stuck[..], &["DeadLetterResolved", "PaymentRefunded"]].concat();
        assert_eq!(status_after(&mended), SagaStatus::Compensated);
    }

    /// A foreign service's facts of an order that does not exist; the same facts once it does.
    #[test]
    fn facts_without_order_created_leave_status_unknown() {
        let foreign = ["OrderConfirmed", "OrderCancelled", "PaymentProcessed", "DeadLettered"];
        for (index, fact) in foreign.iter().enumerate() {
            let mut view = SagaView::default();
            view.record(&saga_fact(index as u128, fact));
            assert_eq!((view.status(), view.remaining()), (SagaStatus::Unknown, vec![]), "{fact}");
            view.record(&saga_fact(99, "OrderCreated"));
            assert_ne!(view.status(), SagaStatus::Unknown, "{fact} came before it");
        }
    }

    /// A repeated cancellation that cannot be read changes nothing of what is undone.
    #[test]
    fn dead_letter_after_full_compensation_does_not_fail_saga() {
        let undone = ["OrderCreated", "OrderCancelled", "StockReleased", "PaymentVoided", "DeadLettered"];
        assert_eq!(status_after(&undone), SagaStatus::Compensated);
    }

    /// A clear rejection left nothing to undo.
    #[test]
    fn declined_payment_needs_no_compensation() {
        let mut view = SagaView::default();
        let mut declined = saga_fact(1, "PaymentFailed");
        declined.detail.payment_failed_because = Some(PaymentFailure::Declined);
        for fact in [
            declined,
            saga_fact(2, "OrderCancelled"),
            saga_fact(3, "StockReleased"),
            saga_fact(4, "OrderCreated"),
        ] {
            view.record(&fact);
        }
        assert_eq!((view.status(), view.remaining()), (SagaStatus::Compensated, vec![]));
    }

    #[test]
    fn due_steps_name_their_owner() {
        let mut view = SagaView::default();
        view.record(&saga_fact(1, "OrderCreated"));
        view.record(&saga_fact(2, "StockReserved"));
        let owners: Vec<_> = view.remaining().into_iter().map(|owed| (owed.owner, owed.step)).collect();
        let wanted = [("payment", "payment-processing"), ("order", "order-confirmation")];
        assert_eq!(owners, wanted.map(|(owner, step)| (owner.to_owned(), step.to_owned())));
    }

    proptest! {
        #[test]
        fn view_is_independent_of_order_and_repetition_of_facts(
            numbered in prop::collection::vec(0..TYPES.len(), 1..14), seed: u64, repeated: usize,
        ) {
            let facts: Vec<SagaFact> = numbered
                .iter()
                .enumerate()
                .map(|(number, index)| saga_fact(number as u128, TYPES[*index]))
                .collect();
            let mut shuffled = facts.clone();
            shuffled.push(facts[repeated % facts.len()].clone());
            let mut state = seed | 1;
            for i in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                shuffled.swap(i, (state >> 33) as usize % (i + 1));
            }
            let fold = |facts: &[SagaFact]| {
                let mut view = SagaView::default();
                facts.iter().for_each(|fact| view.record(fact));
                view
            };
            prop_assert_eq!(fold(&facts), fold(&shuffled));
        }
    }
}
