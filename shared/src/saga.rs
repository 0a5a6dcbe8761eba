//! Pure: the order saga's shape, declared once, and the view of one saga as a fold of what was heard.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::contract::{CancelReason, Fact, FactType};
use crate::decider::{Decider, FieldValue};
use crate::envelope::Message;
use crate::money::Money;

/// One stage of the saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// The step that does it.
    pub step: &'static str,
    /// The service that owes it.
    pub owner: &'static str,
    /// The fact that asks for it; `None` for the start.
    pub after: Option<FactType>,
    /// The fact that tells it is done.
    pub says: FactType,
    /// The fact that tells it cannot be done, and that there is nothing to undo.
    pub refuses: Option<FactType>,
    /// The fact that tells it is undone, when undoing it is somebody's duty.
    pub undone_by: Option<FactType>,
    /// The step that undoes it.
    pub undoing_step: Option<&'static str>,
}

/// The order saga. All stages share one deadline, the order's; when it passes, or anyone refuses, the order
/// says [`FactType::OrderCancelled`], and everyone undoes their own stage.
pub const ORDER_SAGA: [Stage; 4] = [
    Stage {
        step: "order-placement",
        owner: "order",
        after: None,
        says: FactType::OrderCreated,
        refuses: None,
        undone_by: None,
        undoing_step: None,
    },
    Stage {
        step: "inventory-stock-reservation",
        owner: "inventory",
        after: Some(FactType::OrderCreated),
        says: FactType::StockReserved,
        refuses: Some(FactType::StockReservationFailed),
        undone_by: Some(FactType::StockReleased),
        undoing_step: Some("inventory-stock-release"),
    },
    Stage {
        step: "payment-processing",
        owner: "payment",
        after: Some(FactType::StockReserved),
        says: FactType::PaymentProcessed,
        refuses: Some(FactType::PaymentFailed),
        undone_by: Some(FactType::PaymentRefunded),
        undoing_step: Some("payment-refund"),
    },
    Stage {
        step: "order-confirmation",
        owner: "order",
        after: Some(FactType::PaymentProcessed),
        says: FactType::OrderConfirmed,
        refuses: None,
        undone_by: None,
        undoing_step: None,
    },
];

/// Where a saga stands, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SagaStatus {
    /// Nobody has reacted yet.
    Started,
    /// Some stages are done.
    InProgress,
    /// The order is confirmed.
    Completed,
    /// The deadline passed and nothing is undone yet.
    TimedOut,
    /// The order is cancelled and something is still to be undone.
    Compensating,
    /// The order is cancelled and everything is undone.
    Compensated,
    /// A compensation is parked: a human is needed.
    Failed,
}

impl SagaStatus {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "STARTED",
            Self::InProgress => "IN_PROGRESS",
            Self::Completed => "COMPLETED",
            Self::TimedOut => "TIMED_OUT",
            Self::Compensating => "COMPENSATING",
            Self::Compensated => "COMPENSATED",
            Self::Failed => "FAILED",
        }
    }

    /// Whether nobody owes anything any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Compensated => true,
            Self::Started | Self::InProgress | Self::TimedOut | Self::Compensating | Self::Failed => false,
        }
    }
}

/// A fact of the saga, as the view keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeardFact {
    /// Its message's id.
    pub message_id: Uuid,
    /// Its type.
    #[serde(rename = "type")]
    pub fact_type: FactType,
    /// Who said it.
    pub producer: String,
    /// What caused it.
    pub causation_id: Uuid,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    pub occurred_at: Timestamp,
    /// What people want to know of it.
    pub detail: FactDetail,
}

/// What the view takes out of a fact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactDetail {
    /// Who ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// The order's total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Money>,
    /// The order's deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_because: Option<CancelReason>,
    /// Anything else, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
    /// The dead letter that was replayed and is handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Uuid>,
}

/// A dead letter in a saga's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parked {
    /// The dead letter.
    pub letter: Uuid,
    /// The step that failed, or the kind of task.
    pub step: String,
}

impl HeardFact {
    /// What the view keeps of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        Self {
            message_id: message.id,
            fact_type: message.fact.fact_type(),
            producer: message.producer.clone(),
            causation_id: message.causation_id,
            occurred_at: message.occurred_at,
            detail: FactDetail::of(&message.fact),
        }
    }
}

impl FactDetail {
    fn of(fact: &Fact) -> Self {
        let note = |note: String| Self { note: Some(note), ..Self::default() };
        match fact {
            Fact::OrderCreated(fact) => Self {
                customer: Some(fact.payment.customer.clone()),
                total: Some(fact.payment.total),
                deadline: Some(fact.deadline),
                note: Some(format!("{} line(s), {}", fact.lines.len(), fact.payment.total)),
                ..Self::default()
            },
            Fact::OrderCancelled(fact) => Self { cancelled_because: Some(fact.reason), ..Self::default() },
            Fact::StockReservationFailed(fact) => note(
                fact.shortages
                    .iter()
                    .map(|short| format!("{}: {} of {}", short.sku, short.available, short.requested))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
            Fact::PaymentProcessed(fact) => note(format!("{}, bank {}", fact.amount, fact.bank_reference)),
            Fact::PaymentFailed(fact) => note(fact.reason.as_str().to_owned()),
            Fact::PaymentRefunded(fact) => note(fact.amount.to_string()),
            Fact::StockReserved(fact) => note(pieces(&fact.lines)),
            Fact::StockReleased(fact) => note(pieces(&fact.lines)),
            Fact::DeadLettered(fact) => Self {
                parked: Some(Parked { letter: fact.id, step: fact.step.clone() }),
                note: Some(format!("{}: {}", fact.step, fact.reason)),
                ..Self::default()
            },
            Fact::DeadLetterResolved(fact) => Self {
                resolved: Some(fact.letter),
                note: Some(format!("{}, replay {}", fact.step, fact.replays)),
                ..Self::default()
            },
            Fact::OrderConfirmed(_)
            | Fact::StockReplenished(_)
            | Fact::ProductListed(_)
            | Fact::PriceChanged(_)
            | Fact::ReplayRequested(_)
            | Fact::DeadLetterDiscarded(_)
            | Fact::DeadLetterRestored(_) => Self::default(),
        }
    }
}

fn pieces(lines: &[crate::contract::StockLine]) -> String {
    format!("{} piece(s)", lines.iter().map(|line| u64::from(line.quantity)).sum::<u64>())
}

/// The view of one saga: the same whatever the order in which its facts were heard, and however often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SagaView {
    /// Types heard, each with the earliest time it was said.
    pub heard: BTreeMap<FactType, Timestamp>,
    /// Ids of all messages heard.
    messages: BTreeSet<Uuid>,
    /// Who ordered.
    pub customer: Option<String>,
    /// The order's total.
    pub total: Option<Money>,
    /// The order's deadline.
    pub deadline: Option<Timestamp>,
    /// Why it was cancelled.
    pub cancelled_because: Option<CancelReason>,
    /// Dead letters, each with the step that failed.
    #[serde(default)]
    pub parked: BTreeMap<Uuid, String>,
    /// Dead letters that were replayed and are handled.
    #[serde(default)]
    pub resolved: BTreeSet<Uuid>,
}

/// What somebody still owes to a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owed {
    /// The step.
    pub step: String,
    /// The service.
    pub owner: String,
    /// The fact that will tell it is done.
    pub fact: FactType,
}

impl SagaView {
    /// Folds a fact. Hearing it again changes nothing.
    pub fn hear(&mut self, fact: &HeardFact) {
        if !self.messages.insert(fact.message_id) {
            return;
        }
        let at = self.heard.entry(fact.fact_type).or_insert(fact.occurred_at);
        *at = (*at).min(fact.occurred_at);
        let detail = &fact.detail;
        self.customer = self.customer.take().or_else(|| detail.customer.clone());
        self.total = self.total.or(detail.total);
        self.deadline = self.deadline.or(detail.deadline);
        self.cancelled_because = self.cancelled_because.or(detail.cancelled_because);
        self.parked.extend(detail.parked.clone().map(|parked| (parked.letter, parked.step)));
        self.resolved.extend(detail.resolved);
    }

    /// Where the saga stands.
    #[must_use]
    pub fn status(&self) -> SagaStatus {
        if !self.has(FactType::OrderCancelled) {
            return if self.has(FactType::OrderConfirmed) {
                SagaStatus::Completed
            } else if ORDER_SAGA.iter().skip(1).any(|stage| self.is_answered(stage)) {
                SagaStatus::InProgress
            } else {
                SagaStatus::Started
            };
        }
        let mut undoing_steps = ORDER_SAGA.iter().filter_map(|stage| stage.undoing_step);
        if undoing_steps.any(|step| self.is_parked_at(step)) {
            return SagaStatus::Failed;
        }
        if !ORDER_SAGA.iter().any(|stage| self.is_undoing_owed(stage)) {
            return SagaStatus::Compensated;
        }
        let something_undone =
            ORDER_SAGA.iter().filter_map(|stage| stage.undone_by).any(|fact| self.has(fact));
        match self.cancelled_because {
            Some(CancelReason::TimedOut) if !something_undone => SagaStatus::TimedOut,
            _ => SagaStatus::Compensating,
        }
    }

    /// Who owes the next steps, in the order of the saga.
    #[must_use]
    pub fn remaining(&self) -> Vec<Owed> {
        let owed = |stage: &Stage, step: &str, fact| Owed {
            step: step.to_owned(),
            owner: stage.owner.to_owned(),
            fact,
        };
        if self.has(FactType::OrderCancelled) {
            let undoing = ORDER_SAGA.iter().filter(|stage| self.is_undoing_owed(stage));
            return undoing
                .filter_map(|stage| Some(owed(stage, stage.undoing_step?, stage.undone_by?)))
                .collect();
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

    /// Whether a dead letter of this step, or of this kind of task, waits for a human. One that was given up
    /// counts too: what it should have done is not done.
    fn is_parked_at(&self, step: &str) -> bool {
        self.parked.iter().any(|(letter, parked)| parked == step && !self.resolved.contains(letter))
    }

    fn has(&self, fact: FactType) -> bool {
        self.heard.contains_key(&fact)
    }

    fn is_answered(&self, stage: &Stage) -> bool {
        self.has(stage.says) || stage.refuses.is_some_and(|refusal| self.has(refusal))
    }

    /// Inventory answers every cancellation, even of an order it never reserved for: only its own refusal
    /// releases it. Payment owes a refund only for what it captured.
    fn is_undoing_owed(&self, stage: &Stage) -> bool {
        let Some(undone_by) = stage.undone_by else {
            return false;
        };
        if self.has(undone_by) {
            return false;
        }
        if stage.says == FactType::StockReserved {
            return stage.refuses.is_none_or(|refusal| !self.has(refusal));
        }
        self.has(stage.says)
    }
}

/// Kept as rows by admin: each fact heard is an event.
impl Decider for SagaView {
    const KIND: &'static str = "saga";
    const FIELDS: &'static [&'static str] = &["status", "next_step", "customer", "deadline", "finished"];
    type Command = HeardFact;
    type Event = HeardFact;
    type Rejection = std::convert::Infallible;

    fn decide(&self, heard: &HeardFact) -> Result<Vec<HeardFact>, Self::Rejection> {
        let is_known = self.messages.contains(&heard.message_id);
        Ok(if is_known { vec![] } else { vec![heard.clone()] })
    }

    fn evolve(&mut self, event: &HeardFact) {
        self.hear(event);
    }

    fn event_name(event: &HeardFact) -> &'static str {
        event.fact_type.name()
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard(number: u128, fact_type: FactType) -> HeardFact {
        HeardFact {
            message_id: Uuid::from_u128(number),
            fact_type,
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: Timestamp::from_microsecond(i64::try_from(number).unwrap_or(0)).unwrap_or_default(),
            detail: FactDetail {
                cancelled_because: (fact_type == FactType::OrderCancelled).then_some(CancelReason::TimedOut),
                parked: (fact_type == FactType::DeadLettered)
                    .then(|| Parked { letter: Uuid::nil(), step: "payment-refund".to_owned() }),
                resolved: (fact_type == FactType::DeadLetterResolved).then(Uuid::nil),
                ..FactDetail::default()
            },
        }
    }

    fn status_after(facts: &[FactType]) -> SagaStatus {
        let mut view = SagaView::default();
        for (number, fact) in facts.iter().enumerate() {
            view.hear(&heard(number as u128, *fact));
        }
        view.status()
    }

    #[test]
    fn statuses_follow_the_facts() {
        use FactType::*;
        assert_eq!(status_after(&[OrderCreated]), SagaStatus::Started);
        assert_eq!(status_after(&[OrderCreated, StockReserved]), SagaStatus::InProgress);
        let happy = [OrderCreated, StockReserved, PaymentProcessed, OrderConfirmed];
        assert_eq!(status_after(&happy), SagaStatus::Completed);
        assert_eq!(status_after(&[OrderCreated, OrderCancelled]), SagaStatus::TimedOut);
        assert_eq!(status_after(&[OrderCreated, OrderCancelled, StockReleased]), SagaStatus::Compensated);
        let refused = [OrderCreated, StockReservationFailed, OrderCancelled];
        assert_eq!(status_after(&refused), SagaStatus::Compensated);
        let late = [OrderCreated, OrderCancelled, StockReleased, PaymentProcessed];
        assert_eq!(status_after(&late), SagaStatus::Compensating);
        let stuck = [OrderCreated, PaymentProcessed, OrderCancelled, StockReleased, DeadLettered];
        assert_eq!(status_after(&stuck), SagaStatus::Failed);
        let mended = [&stuck[..], &[DeadLetterResolved, PaymentRefunded]].concat();
        assert_eq!(status_after(&mended), SagaStatus::Compensated);
    }

    #[test]
    fn what_remains_names_its_owner() {
        let mut view = SagaView::default();
        view.hear(&heard(1, FactType::OrderCreated));
        view.hear(&heard(2, FactType::StockReserved));
        let owners: Vec<_> = view.remaining().into_iter().map(|owed| (owed.owner, owed.step)).collect();
        let wanted = [("payment", "payment-processing"), ("order", "order-confirmation")];
        assert_eq!(owners, wanted.map(|(owner, step)| (owner.to_owned(), step.to_owned())));
    }

    proptest! {
        #[test]
        fn the_view_is_the_same_whatever_the_order_and_repetition_of_its_facts(
            numbered in prop::collection::vec(0..FactType::ALL.len(), 1..14), seed: u64, repeated: usize,
        ) {
            let facts: Vec<HeardFact> = numbered
                .iter()
                .enumerate()
                .map(|(number, index)| heard(number as u128, FactType::ALL[*index]))
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
                facts.iter().for_each(|fact| view.hear(fact));
                view
            };
            prop_assert_eq!(fold(&facts), fold(&shuffled));
        }
    }
}
