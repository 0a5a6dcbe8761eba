//! Pure: what handling dead letters would be worth now: whether the sagas behind them still wait for it.

use contract::saga::{SagaStatus, StepRole, role_of};
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterOrigin;
use saga_core::query::Joined;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What handling a dead letter would be worth now, as far as the facts that admin has heard tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Worth {
    /// Whether its saga still waits for it. When it does not, a replay changes nothing. What belongs to no saga is
    /// missed until it is handled; what nobody of this system sent, nobody waits for.
    pub awaited: bool,
    /// Where its saga stands; absent when admin knows of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga_status: Option<SagaStatus>,
    /// Until when its order waits; absent when nothing ends the waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

impl Worth {
    /// What it is worth at `now` to have this step done, or this kind of task, with something that came from there, for
    /// a saga that stands like this and whose order has this deadline.
    #[must_use]
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

/// What handling many dead letters would be worth now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorthOfMany {
    /// Those that are still waited for.
    pub awaited: u64,
    /// Those whose saga has ended without them, or waits no longer: a replay of them changes nothing.
    pub ended: u64,
    /// When the first of the orders that wait gives up; absent when nothing ends the waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub first_until: Option<Timestamp>,
    /// When the last of them does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_until: Option<Timestamp>,
}

impl WorthOfMany {
    /// Counts one more.
    pub fn add(&mut self, worth: Worth) {
        match worth.awaited {
            true => self.awaited += 1,
            false => self.ended += 1,
        }
        self.widen(worth.until.map(|until| (until, until)));
    }

    /// Counts those that the store has counted together: by cause and step, with the status of their sagas, and the
    /// deadlines that are not past.
    pub fn add_counted(&mut self, counted: &Joined) {
        let status = counted.their.as_deref().and_then(|name| name.parse::<SagaStatus>().ok());
        if status.is_some_and(|status| !status.awaits(&counted.and)) {
            self.ended += counted.count;
            return;
        }
        let has_deadline = role_of(&counted.and) == StepRole::Forward;
        let late = if has_deadline { counted.past } else { 0 };
        self.ended += late;
        self.awaited += counted.count.saturating_sub(late);
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or_default();
        let range = counted.range.filter(|_| has_deadline);
        self.widen(range.map(|(first, last)| (time(first), time(last))));
    }

    /// The same number, of what nobody of this system sent: nobody waits for any of them.
    #[must_use]
    pub fn of_strangers(self) -> Self {
        Self { ended: self.awaited + self.ended, ..Self::default() }
    }

    /// Counts all of `others` too.
    pub fn add_all(&mut self, others: &Self) {
        self.awaited += others.awaited;
        self.ended += others.ended;
        self.widen(others.first_until.zip(others.last_until));
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
    fn a_step_on_the_way_is_waited_for_until_the_saga_ends_or_the_deadline_passes() {
        let worth = |status, deadline| {
            Worth::of(DeadLetterOrigin::Message, "payment-processing", status, deadline, at(10))
        };
        let parked = Some(SagaStatus::DeadLettered);
        assert_eq!(
            worth(parked, Some(at(11))),
            Worth { awaited: true, saga_status: parked, until: Some(at(11)) }
        );
        assert_eq!(worth(parked, Some(at(10))), Worth { awaited: false, saga_status: parked, until: None });
        assert!(!worth(Some(SagaStatus::TimedOut), Some(at(11))).awaited);
        assert!(!worth(Some(SagaStatus::Compensated), None).awaited);
        assert!(worth(None, None).awaited, "admin may not have heard of the saga yet");
    }

    #[test]
    fn what_undoes_is_waited_for_whatever_the_time_until_all_is_undone() {
        let worth =
            |status| Worth::of(DeadLetterOrigin::Task, "payment-refund", Some(status), Some(at(1)), at(10));
        assert_eq!((worth(SagaStatus::Failed).awaited, worth(SagaStatus::Failed).until), (true, None));
        assert!(!worth(SagaStatus::Compensated).awaited);
        let of = |origin, step, saga| Worth::of(origin, step, saga, Some(at(1)), at(10)).awaited;
        assert!(of(DeadLetterOrigin::Message, "order-catalogue", None));
        assert!(of(DeadLetterOrigin::Message, "inventory-sale", Some(SagaStatus::Completed)));
        assert!(!of(DeadLetterOrigin::Foreign, "order-catalogue", None), "nobody of this system sent it");
    }

    /// Counted one by one or by the store, it is the same.
    #[test]
    fn many_are_worth_what_each_is() {
        let mut one_by_one = WorthOfMany::default();
        for deadline in [5, 12, 20] {
            one_by_one.add(Worth::of(
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
        let mut together = WorthOfMany::default();
        together.add_counted(&counted);
        assert_eq!(together, one_by_one);
        assert_eq!((together.awaited, together.ended), (2, 1));
        assert_eq!((together.first_until, together.last_until), (Some(at(12)), Some(at(20))));
        together.add_counted(&Joined { their: Some("COMPENSATED".to_owned()), ..counted.clone() });
        assert_eq!((together.awaited, together.ended), (2, 4));
        let refunds =
            Joined { and: "payment-refund".to_owned(), their: Some("FAILED".to_owned()), ..counted };
        together.add_counted(&refunds);
        assert_eq!((together.awaited, together.last_until), (5, Some(at(20))), "refunds have no deadline");
    }
}
