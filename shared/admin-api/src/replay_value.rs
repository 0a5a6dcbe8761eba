//! Pure: the replay value of dead letters: whether a replay would still change anything, and how long that stays so.

use contract::saga::{SagaStatus, StepRole, role_of};
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::query::Joined;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Replay value of one dead letter, as far as admin knows its saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayValue {
    /// True if the saga still waits for it; false if a replay changes nothing. A message without a saga is awaited, a
    /// message from outside this system is not.
    pub awaited: bool,
    /// Status of the saga; absent when admin knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga_status: Option<SagaStatus>,
    /// Deadline of the order; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl ReplayValue {
    /// Evaluates a replay of a step or kind of task for a saga in this status, whose order has this deadline.
    pub fn of(
        origin: DeadLetterOrigin,
        step: &str,
        saga: Option<SagaStatus>,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        match origin {
            DeadLetterOrigin::Foreign => return Self { awaited: false, saga_status: saga, until: None },
            DeadLetterOrigin::Message | DeadLetterOrigin::Task => {}
        }
        let until = deadline.filter(|_| role_of(step) == StepRole::Forward);
        let is_late = until.is_some_and(|until| until <= now);
        let awaited = saga.is_none_or(|status| status.awaits(step)) && !is_late;
        Self { awaited, saga_status: saga, until: until.filter(|_| awaited) }
    }
}

/// Replay value of many dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReplayValues {
    /// Dead letters that a saga still waits for.
    #[schema(required = true)]
    pub awaited: u64,
    /// Dead letters whose saga has ended, or waits no longer: a replay changes nothing.
    #[schema(required = true)]
    pub ended: u64,
    /// Of the ended, those whose order was cancelled: stock is released, and a charge refunded.
    #[schema(required = true)]
    pub cancelled: u64,
    /// Of the ended, those whose order was confirmed all the same.
    #[schema(required = true)]
    pub confirmed: u64,
    /// Earliest deadline of the waiting orders; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_until: Option<Timestamp>,
    /// Latest deadline of the waiting orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_until: Option<Timestamp>,
}

impl ReplayValues {
    /// Counts one more dead letter.
    pub fn add(&mut self, value: ReplayValue) {
        match value.awaited {
            true => self.awaited += 1,
            false => self.add_ended(value.saga_status, 1),
        }
        self.widen(value.until.map(|until| (until, until)));
    }

    /// Counts dead letters that the store has counted by cause, step and saga status, with their future deadlines.
    pub fn add_counted(&mut self, counted: &Joined) {
        let status = counted.their.as_deref().and_then(|name| name.parse::<SagaStatus>().ok());
        if status.is_some_and(|status| !status.awaits(&counted.and)) {
            self.add_ended(status, counted.count);
            return;
        }
        let has_deadline = role_of(&counted.and) == StepRole::Forward;
        let late = if has_deadline { counted.past } else { 0 };
        self.add_ended(status, late);
        self.awaited += counted.count.saturating_sub(late);
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
        let range = counted.range.filter(|_| has_deadline);
        self.widen(range.map(|(first, last)| (time(first), time(last))));
    }

    /// Treats all of them as messages from outside this system, which no saga waits for.
    pub fn of_foreign(self) -> Self {
        Self { ended: self.awaited + self.ended, ..Self::default() }
    }

    /// Adds other counts.
    pub fn add_all(&mut self, others: &Self) {
        self.awaited += others.awaited;
        self.ended += others.ended;
        self.cancelled += others.cancelled;
        self.confirmed += others.confirmed;
        self.widen(others.first_until.zip(others.last_until));
    }

    fn add_ended(&mut self, saga: Option<SagaStatus>, count: u64) {
        self.ended += count;
        match saga {
            Some(SagaStatus::Completed) => self.confirmed += count,
            Some(status) if status.is_cancelled() => self.cancelled += count,
            Some(_) | None => {}
        }
    }

    fn widen(&mut self, range: Option<(Timestamp, Timestamp)>) {
        let Some((first, last)) = range else { return };
        self.first_until = Some(self.first_until.map_or(first, |known| known.min(first)));
        self.last_until = self.last_until.max(Some(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn forward_step_is_awaited_until_saga_ends_or_deadline_passes() {
        let value = |status, deadline| {
            ReplayValue::of(DeadLetterOrigin::Message, "payment-processing", status, deadline, at(10))
        };
        let parked = Some(SagaStatus::DeadLettered);
        assert_eq!(
            value(parked, Some(at(11))),
            ReplayValue { awaited: true, saga_status: parked, until: Some(at(11)) }
        );
        assert_eq!(
            value(parked, Some(at(10))),
            ReplayValue { awaited: false, saga_status: parked, until: None }
        );
        assert!(!value(Some(SagaStatus::TimedOut), Some(at(11))).awaited);
        assert!(!value(Some(SagaStatus::Compensated), None).awaited);
        assert!(value(None, None).awaited, "the saga may not have reached admin yet");
    }

    #[test]
    fn compensation_is_awaited_without_deadline_until_saga_is_compensated() {
        let value = |status| {
            ReplayValue::of(DeadLetterOrigin::Task, "payment-refund", Some(status), Some(at(1)), at(10))
        };
        assert_eq!(
            (value(SagaStatus::CompensationStuck).awaited, value(SagaStatus::CompensationStuck).until),
            (true, None)
        );
        assert!(!value(SagaStatus::Compensated).awaited);
        let of = |origin, step, saga| ReplayValue::of(origin, step, saga, Some(at(1)), at(10)).awaited;
        assert!(of(DeadLetterOrigin::Message, "order-catalogue", None));
        assert!(of(DeadLetterOrigin::Message, "inventory-sale", Some(SagaStatus::Completed)));
        assert!(
            !of(DeadLetterOrigin::Foreign, "order-catalogue", None),
            "foreign messages are never awaited"
        );
    }

    #[test]
    fn counts_of_store_equal_sum_of_single_values() {
        let mut one_by_one = ReplayValues::default();
        for deadline in [5, 12, 20] {
            one_by_one.add(ReplayValue::of(
                DeadLetterOrigin::Message,
                "order-confirmation",
                Some(SagaStatus::DeadLettered),
                Some(at(deadline)),
                at(10),
            ));
        }
        let counted = Joined {
            by: "cause".to_owned(),
            and: "order-confirmation".to_owned(),
            their: Some("DEAD_LETTERED".to_owned()),
            count: 3,
            past: 1,
            range: Some((12_000_000, 20_000_000)),
        };
        let mut together = ReplayValues::default();
        together.add_counted(&counted);
        assert_eq!(together, one_by_one);
        assert_eq!((together.awaited, together.ended), (2, 1));
        assert_eq!((together.first_until, together.last_until), (Some(at(12)), Some(at(20))));
        together.add_counted(&Joined { their: Some("COMPENSATED".to_owned()), ..counted.clone() });
        assert_eq!((together.awaited, together.ended, together.cancelled), (2, 4, 3));
        together.add_counted(&Joined { their: Some("COMPLETED".to_owned()), ..counted.clone() });
        assert_eq!((together.ended, together.cancelled, together.confirmed), (7, 3, 3));
        let refunds = Joined {
            and: "payment-refund".to_owned(),
            their: Some("COMPENSATION_STUCK".to_owned()),
            ..counted
        };
        together.add_counted(&refunds);
        assert_eq!((together.awaited, together.last_until), (5, Some(at(20))), "refunds have no deadline");
    }
}
