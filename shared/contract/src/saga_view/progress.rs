//! Pure: the status of a saga, and the steps that it still waits for.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::SagaView;
use crate::fact::FactType;
use crate::order::CancelReason;
use crate::payment::PaymentFailure;
use crate::saga::{ORDER_SAGA, SagaStatus, Stage, StepRole, role_of};

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

    /// Steps that are done, each with the time from the fact that triggered it to the fact that reports its outcome. That
    /// includes waiting, retries and calls.
    pub fn step_durations(&self) -> impl Iterator<Item = (&'static str, SignedDuration)> {
        let at = |fact: FactType| self.facts.get(fact.name()).copied();
        ORDER_SAGA.iter().flat_map(move |stage| {
            let done = at(stage.completed_by).or_else(|| at(stage.rejected_by?));
            let undone = stage.compensated_by.iter().find_map(|fact| at(*fact));
            let forward = (Some(stage.step), stage.triggered_by.and_then(at), done);
            let compensation = (stage.compensation_step, at(FactType::OrderCancelled), undone);
            [forward, compensation]
                .into_iter()
                .filter_map(|(step, began, ended)| Some((step?, ended?.duration_since(began?))))
        })
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::saga_fact::{DeadLetterRef, FactDetail, SagaFact};

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

    #[test]
    fn step_duration_lasts_from_its_trigger_to_its_outcome() {
        let mut view = SagaView::default();
        let facts = ["OrderCreated", "StockReserved", "PaymentFailed", "OrderCancelled", "StockReleased"];
        for (number, fact) in facts.iter().enumerate() {
            // Facts are 1, 2, 3 and 4 µs apart.
            view.record(&saga_fact((number * (number + 1) / 2) as u128, fact));
        }
        let found: Vec<_> = view.step_durations().map(|(step, took)| (step, took.as_micros())).collect();
        let wanted =
            [("inventory-stock-reservation", 1), ("inventory-stock-release", 4), ("payment-processing", 2)];
        assert_eq!(found, wanted);
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
