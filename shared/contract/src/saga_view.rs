//! Pure: where one saga stands, seen from outside: a fold of what was heard, and of what humans settled.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use saga_core::dead_letter::{DEAD_LETTER_TYPES, OperatorMessage};
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use saga_core::message::Message;
use saga_core::revision;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::fact::{Fact, FactType};
use crate::heard_fact::HeardFact;
use crate::money::Money;
use crate::order::CancelReason;
use crate::payment::PaymentFailure;
use crate::saga::{ORDER_SAGA, SagaStatus, Stage, StepRole, role_of};
pub use crate::saga_event::{SagaCommand, SagaEvent};
use crate::settlement::{Settlement, SettlementRejection};

/// The view of one saga: the same whatever the order in which its facts were heard, and however often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SagaView {
    /// Types heard, each with the earliest time it was said.
    #[serde(serialize_with = "in_the_order_of_the_contract")]
    pub heard: BTreeMap<String, Timestamp>,
    /// Ids of all messages heard.
    messages: BTreeSet<Uuid>,
    /// Who ordered; `None` until `OrderCreated` is heard.
    pub customer: Option<String>,
    /// The order's total.
    pub total: Option<Money>,
    /// The order's deadline.
    pub deadline: Option<Timestamp>,
    /// Why it was cancelled.
    pub cancelled_because: Option<CancelReason>,
    /// Why its payment failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_failed_because: Option<PaymentFailure>,
    /// Dead letters, each with the step that failed.
    #[serde(default)]
    pub parked: BTreeMap<Uuid, String>,
    /// Dead letters that were replayed and are handled.
    #[serde(default)]
    pub resolved: BTreeSet<Uuid>,
    /// What a human has settled outside; `None` of nothing, and once that is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settlement>,
    /// How often it was settled, and that taken back.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    pub settlements: u64,
    /// The newest revision of that; earlier builds counted alone.
    #[serde(default, skip_serializing_if = "saga_core::row::is_zero")]
    revision: u64,
}

/// Rows are compared with the fold of their events byte for byte, and earlier builds wrote them in this order.
fn in_the_order_of_the_contract<S: Serializer>(
    heard: &BTreeMap<String, Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let place = |name: &str| match FactType::named(name) {
        Some(fact) => fact as usize,
        None => {
            let of_the_engine = DEAD_LETTER_TYPES.iter().position(|known| known.name == name);
            of_the_engine.map_or(usize::MAX, |place| FactType::ALL.len() + place)
        }
    };
    let mut heard: Vec<_> = heard.iter().map(|heard| (place(heard.0), heard)).collect();
    heard.sort_by_key(|(place, _)| *place);
    serializer.collect_map(heard.into_iter().map(|(_, heard)| heard))
}

/// What somebody still owes to a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owed {
    /// The step that is to react, e.g. `payment-processing`.
    pub step: String,
    /// The service that the step is of.
    pub owner: String,
    /// The fact that will tell it is done.
    pub fact: FactType,
}

impl SagaView {
    /// Folds a fact. Hearing it again changes nothing.
    pub fn record(&mut self, fact: &HeardFact) {
        if !self.messages.insert(fact.message_id) {
            return;
        }
        let at = self.heard.entry(fact.message_type.clone()).or_insert(fact.occurred_at);
        *at = (*at).min(fact.occurred_at);
        let detail = &fact.detail;
        self.customer = self.customer.take().or_else(|| detail.customer.clone());
        self.total = self.total.or(detail.total);
        // It is extended, and never shortened: the latest holds, whichever is heard first.
        self.deadline = self.deadline.max(detail.deadline);
        self.cancelled_because = self.cancelled_because.or(detail.cancelled_because);
        self.payment_failed_because = self.payment_failed_because.or(detail.payment_failed_because);
        self.parked.extend(detail.parked.clone().map(|parked| (parked.dead_letter, parked.step)));
        self.resolved.extend(detail.resolved);
    }

    /// Where the saga stands. What has ended after all stands where it ended.
    #[must_use]
    pub fn status(&self) -> SagaStatus {
        match self.status_by_itself() {
            open if self.settled.is_some() && !open.is_terminal() => SagaStatus::Settled,
            status => status,
        }
    }

    /// Where the saga stands, whatever was settled outside.
    #[must_use]
    pub fn status_by_itself(&self) -> SagaStatus {
        if !self.has(FactType::OrderCreated) {
            return SagaStatus::Unknown;
        }
        if !self.has(FactType::OrderCancelled) {
            return if self.has(FactType::OrderConfirmed) {
                SagaStatus::Completed
            } else if self.is_held_up() {
                SagaStatus::Parked
            } else if ORDER_SAGA.iter().skip(1).any(|stage| self.is_answered(stage)) {
                SagaStatus::InProgress
            } else {
                SagaStatus::Started
            };
        }
        if !ORDER_SAGA.iter().any(|stage| self.is_undoing_owed(stage)) {
            return SagaStatus::Compensated;
        }
        // What is parked after its stage was undone keeps nobody waiting.
        let mut owed = ORDER_SAGA.iter().filter(|stage| self.is_undoing_owed(stage));
        if owed.any(|stage| stage.undoing_step.is_some_and(|step| self.is_parked_at(step))) {
            return SagaStatus::Failed;
        }
        let something_undone =
            ORDER_SAGA.iter().flat_map(|stage| stage.undone_by).any(|fact| self.has(*fact));
        match self.cancelled_because {
            Some(CancelReason::TimedOut) if !something_undone => SagaStatus::TimedOut,
            _ => SagaStatus::Compensating,
        }
    }

    /// Who owes the next steps, in the order of the saga.
    #[must_use]
    pub fn remaining(&self) -> Vec<Owed> {
        // Nobody owes anything to what nobody has ordered, or what was settled outside.
        if self.settled.is_some() || !self.has(FactType::OrderCreated) {
            return Vec::new();
        }
        let owed = |stage: &Stage, step: &str, fact| Owed {
            step: step.to_owned(),
            owner: stage.owner.to_owned(),
            fact,
        };
        if self.has(FactType::OrderCancelled) {
            let undoing = ORDER_SAGA.iter().filter(|stage| self.is_undoing_owed(stage));
            let of = |stage| Some(owed(stage, stage.undoing_step?, self.undone_by(stage)?));
            return undoing.filter_map(of).collect();
        }
        if self.has(FactType::OrderConfirmed) {
            return Vec::new();
        }
        let doing = ORDER_SAGA.iter().filter(|stage| !self.is_answered(stage));
        doing.map(|stage| owed(stage, stage.step, stage.says)).collect()
    }

    /// When the last fact heard was said.
    #[must_use]
    pub fn last_fact_at(&self) -> Option<Timestamp> {
        self.heard.values().max().copied()
    }

    /// The revision of what is settled now, or taken back.
    #[must_use]
    pub fn next_revision(&self, now: Timestamp) -> u64 {
        revision::after(self.revision.max(self.settlements), now)
    }

    /// Dead letters that are in its way, each with the step that failed. One that was given up counts too: what it
    /// should have done is not done.
    pub fn in_the_way(&self) -> impl Iterator<Item = (Uuid, &str)> {
        let unresolved = self.parked.iter().filter(|(dead_letter, _)| !self.resolved.contains(dead_letter));
        unresolved.map(|(dead_letter, step)| (*dead_letter, step.as_str()))
    }

    /// Whether there is anything to settle: not while it goes on by itself, nor when all of it adds up.
    fn settleable(&self, settlement: &Settlement) -> Result<(), SettlementRejection> {
        let adds_up = settlement.accepted.is_empty();
        match self.status_by_itself() {
            _ if self.heard.is_empty() => Err(SettlementRejection::Unknown),
            ended @ (SagaStatus::Completed | SagaStatus::Compensated | SagaStatus::Unknown) if adds_up => {
                Err(SettlementRejection::Ended(ended))
            }
            _ if self.settled.as_ref().is_some_and(|known| known.accepted == settlement.accepted) => {
                Err(SettlementRejection::Settled)
            }
            status @ (SagaStatus::Started | SagaStatus::InProgress) => match self.deadline {
                Some(until) if until > settlement.at => Err(SettlementRejection::UnderWay { status, until }),
                Some(_) | None => Ok(()),
            },
            SagaStatus::Unknown
            | SagaStatus::Parked
            | SagaStatus::Completed
            | SagaStatus::TimedOut
            | SagaStatus::Compensating
            | SagaStatus::Compensated
            | SagaStatus::Failed
            | SagaStatus::Settled => Ok(()),
        }
    }

    /// Whether a dead letter of this step, or of this kind of task, waits for a human.
    fn is_parked_at(&self, step: &str) -> bool {
        self.in_the_way().any(|(_, parked)| parked == step)
    }

    /// Whether a step is parked that the end waits for, and nobody has done it all the same.
    fn is_held_up(&self) -> bool {
        let is_done = |step| ORDER_SAGA.iter().any(|stage| stage.step == step && self.is_answered(stage));
        self.in_the_way().any(|(_, step)| role_of(step) == StepRole::Forward && !is_done(step))
    }

    pub(crate) fn has(&self, fact: FactType) -> bool {
        self.heard.contains_key(fact.name())
    }

    fn is_answered(&self, stage: &Stage) -> bool {
        self.has(stage.says) || stage.refuses.is_some_and(|refusal| self.has(refusal))
    }

    /// Every cancellation is answered, even of an order that nothing was done for: only a clear refusal, which left
    /// nothing to undo, is answer enough.
    fn is_undoing_owed(&self, stage: &Stage) -> bool {
        let is_unclear = |refusal| {
            refusal == FactType::PaymentFailed
                && self.payment_failed_because.is_some_and(PaymentFailure::is_unclear)
        };
        let is_refused = stage.refuses.is_some_and(|refusal| self.has(refusal) && !is_unclear(refusal));
        let is_undone = stage.undone_by.iter().any(|fact| self.has(*fact));
        !stage.undone_by.is_empty() && !is_undone && (!is_refused || self.has(stage.says))
    }

    /// The fact that will tell that nothing of a stage is left.
    fn undone_by(&self, stage: &Stage) -> Option<FactType> {
        let was_done = self.has(stage.says);
        if was_done { stage.undone_by.first() } else { stage.undone_by.last() }.copied()
    }
}

/// Kept as rows by admin: each fact heard is an event, and each settlement.
impl Decider for SagaView {
    const KIND: &'static str = "saga";
    const FIELDS: &'static [&'static str] = &["status", "next_step", "customer", "deadline", "finished"];
    const NUMBERS: &'static [&'static str] = &["deadline", "finished"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRows;
    type Command = SagaCommand;
    type Event = SagaEvent;
    type Rejection = SettlementRejection;

    fn decide(&self, command: &SagaCommand) -> Result<Vec<SagaEvent>, SettlementRejection> {
        match command {
            SagaCommand::Hear(heard) => {
                let is_known = self.messages.contains(&heard.message_id);
                Ok(if is_known { vec![] } else { vec![SagaEvent::Heard(heard.clone())] })
            }
            SagaCommand::Settle(settlement) => {
                self.settleable(settlement)?;
                Ok(vec![SagaEvent::Settled(settlement.clone())])
            }
            SagaCommand::Unsettle(unsettlement) => match &self.settled {
                None if self.heard.is_empty() => Err(SettlementRejection::Unknown),
                None => Err(SettlementRejection::NotSettled(self.status())),
                Some(_) => Ok(vec![SagaEvent::Unsettled(unsettlement.clone())]),
            },
        }
    }

    fn evolve(&mut self, event: &SagaEvent) {
        match event {
            SagaEvent::Heard(fact) => return self.record(fact),
            SagaEvent::Settled(settlement) => {
                self.settled = Some(settlement.clone());
                self.revision = self.revision.max(settlement.revision);
            }
            SagaEvent::Unsettled(unsettlement) => {
                self.settled = None;
                self.revision = self.revision.max(unsettlement.revision);
            }
        }
        self.settlements += 1;
    }

    fn event_name(event: &SagaEvent) -> &'static str {
        match event {
            SagaEvent::Settled(_) => "Settled",
            SagaEvent::Unsettled(_) => "Unsettled",
            SagaEvent::Heard(fact) => {
                let known = <OperatorMessage<Fact> as Message>::named(&fact.message_type);
                known.map_or("Heard", |message_type| message_type.name)
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

    /// What a human has settled is held against what is said of it as long as that stands.
    fn is_finished(&self) -> bool {
        let has_ended = matches!(self.status_by_itself(), SagaStatus::Completed | SagaStatus::Compensated);
        has_ended && self.settled.is_none() && self.in_the_way().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::heard_fact::{FactDetail, Parked};

    /// Everything that admin hears of a saga.
    const HEARD: [&str; 13] = [
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

    fn heard(number: u128, message_type: &str) -> HeardFact {
        // A dead letter of a refund; or of a charge, which is `Parked`.
        let step = match message_type {
            "DeadLettered" => Some("payment-refund"),
            "Parked" => Some("payment-processing"),
            _ => None,
        };
        let message_type = if message_type == "Parked" { "DeadLettered" } else { message_type };
        HeardFact {
            message_id: Uuid::from_u128(number),
            message_type: message_type.to_owned(),
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: Timestamp::from_microsecond(i64::try_from(number).unwrap_or(0)).unwrap_or_default(),
            detail: FactDetail {
                cancelled_because: (message_type == "OrderCancelled").then_some(CancelReason::TimedOut),
                payment_failed_because: (message_type == "PaymentFailed")
                    .then_some(PaymentFailure::Exhausted),
                parked: step.map(|step| Parked { dead_letter: Uuid::nil(), step: step.to_owned() }),
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
            view.record(&heard(number as u128, fact));
        }
        view.status()
    }

    #[test]
    fn statuses_follow_the_facts() {
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
        let parked = ["OrderCreated", "StockReserved", "Parked"];
        assert_eq!(status_after(&parked), SagaStatus::Parked);
        assert_eq!(status_after(&[&parked[..], &["PaymentProcessed"]].concat()), SagaStatus::InProgress);
        assert_eq!(status_after(&[&parked[..], &["OrderCancelled"]].concat()), SagaStatus::TimedOut);
        let stuck = ["OrderCreated", "PaymentProcessed", "OrderCancelled", "StockReleased", "DeadLettered"];
        assert_eq!(status_after(&stuck), SagaStatus::Failed);
        let mended = [&stuck[..], &["DeadLetterResolved", "PaymentRefunded"]].concat();
        assert_eq!(status_after(&mended), SagaStatus::Compensated);
    }

    /// The stranger's facts of an order that there is not; the same facts, once somebody has created it.
    #[test]
    fn facts_of_an_order_that_nobody_created_make_no_saga() {
        let foreign = ["OrderConfirmed", "OrderCancelled", "PaymentProcessed", "DeadLettered"];
        for (index, fact) in foreign.iter().enumerate() {
            let mut view = SagaView::default();
            view.record(&heard(index as u128, fact));
            assert_eq!((view.status(), view.remaining()), (SagaStatus::Unknown, vec![]), "{fact}");
            view.record(&heard(99, "OrderCreated"));
            assert_ne!(view.status(), SagaStatus::Unknown, "{fact} came before it");
        }
    }

    /// A cancellation that comes once more, and cannot be read then, undoes nothing of what is undone.
    #[test]
    fn what_is_parked_after_everything_was_undone_needs_nobody() {
        let undone = ["OrderCreated", "OrderCancelled", "StockReleased", "PaymentVoided", "DeadLettered"];
        assert_eq!(status_after(&undone), SagaStatus::Compensated);
    }

    /// A clear no left nothing to undo.
    #[test]
    fn a_declined_payment_owes_no_other_answer() {
        let mut view = SagaView::default();
        let mut declined = heard(1, "PaymentFailed");
        declined.detail.payment_failed_because = Some(PaymentFailure::Declined);
        for fact in
            [declined, heard(2, "OrderCancelled"), heard(3, "StockReleased"), heard(4, "OrderCreated")]
        {
            view.record(&fact);
        }
        assert_eq!((view.status(), view.remaining()), (SagaStatus::Compensated, vec![]));
    }

    #[test]
    fn what_remains_names_its_owner() {
        let mut view = SagaView::default();
        view.record(&heard(1, "OrderCreated"));
        view.record(&heard(2, "StockReserved"));
        let owners: Vec<_> = view.remaining().into_iter().map(|owed| (owed.owner, owed.step)).collect();
        let wanted = [("payment", "payment-processing"), ("order", "order-confirmation")];
        assert_eq!(owners, wanted.map(|(owner, step)| (owner.to_owned(), step.to_owned())));
    }

    proptest! {
        #[test]
        fn the_view_is_the_same_whatever_the_order_and_repetition_of_its_facts(
            numbered in prop::collection::vec(0..HEARD.len(), 1..14), seed: u64, repeated: usize,
        ) {
            let facts: Vec<HeardFact> = numbered
                .iter()
                .enumerate()
                .map(|(number, index)| heard(number as u128, HEARD[*index]))
                .collect();
            let mut shuffled = facts.clone();
            shuffled.push(facts[repeated % facts.len()].clone());
            let mut state = seed | 1;
            for i in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                shuffled.swap(i, (state >> 33) as usize % (i + 1));
            }
            let fold = |facts: &[HeardFact]| {
                let mut view = SagaView::default();
                facts.iter().for_each(|fact| view.record(fact));
                view
            };
            prop_assert_eq!(fold(&facts), fold(&shuffled));
        }
    }

    /// An audit compares rows with their history, which earlier builds wrote without revisions.
    #[test]
    fn settlements_of_earlier_builds_are_kept_as_they_were_and_what_follows_is_newer() {
        let settlement = r#""operator":"ada","reason":"cheque","at":"1970-01-01T00:00:00Z""#;
        let settled = format!(r#"{{"Settled":{{{settlement},"was":"FAILED","accepted":[]}}}}"#);
        let unsettled = format!(r#"{{"Unsettled":{{{settlement}}}}}"#);
        let mut view = SagaView::default();
        for (text, next) in [(&settled, 2), (&unsettled, 3)] {
            view.evolve(&serde_json::from_str(text).expect("an event"));
            assert!(!serde_json::to_string(&view).expect("JSON").contains("revision"), "{view:?}");
            assert_eq!(view.next_revision(Timestamp::UNIX_EPOCH), next);
        }
    }
}
