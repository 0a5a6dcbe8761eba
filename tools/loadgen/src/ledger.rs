//! Pure: what became of every order of a run. Times are counted from its start.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::FactType;
use contract::heard_fact::{FactDetail, HeardFact};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::Timestamp;
use uuid::Uuid;

use super::options::Kind;
use super::schedule::Schedule;

/// A saga of which no answer tells whose it is within this is none of ours: longer than an answer may take.
const STRANGER_AFTER: Duration = Duration::from_secs(45);

/// Counts of a run. All but `errors` leave the warm-up out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Orders that were sent during the warm-up, whatever became of them.
    pub warmup: u64,
    /// Orders that were sent, and not refused.
    pub started: u64,
    /// Those that ended confirmed.
    pub completed: u64,
    /// Those that ended cancelled, everything undone.
    pub compensated: u64,
    /// Those of them that ended otherwise than their kind says: a happy one cancelled, another confirmed.
    pub unexpected: u64,
    /// Orders that were not taken, by reason.
    pub errors: BTreeMap<String, u64>,
}

/// An order of this run that has not ended.
#[derive(Debug, Clone, Copy)]
struct Open {
    due: Duration,
    is_measured: bool,
    order: Option<Uuid>,
}

/// A saga that is heard of, or answered.
#[derive(Debug)]
struct Saga {
    /// Its number in this run; facts may come before the answer that tells.
    number: Option<u64>,
    confirmed_at: Option<Duration>,
    /// What is heard of one that does not simply end well.
    otherwise: Option<Box<Otherwise>>,
    since: Duration,
}

/// How a saga stands that goes another way.
#[derive(Debug)]
struct Otherwise {
    view: SagaView,
    ended_at: Option<Duration>,
}

/// An order that has ended, and is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// From when it was due until its end was heard; `None` of one whose end waited for its customer.
    pub latency: Option<Duration>,
    /// When its end was heard.
    pub at: Duration,
}

/// What is known of the orders of one run.
#[derive(Debug)]
pub struct Ledger {
    schedule: Schedule,
    open: BTreeMap<u64, Open>,
    sagas: BTreeMap<Uuid, Saga>,
    counts: Counts,
}

impl Ledger {
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, open: BTreeMap::new(), sagas: BTreeMap::new(), counts: Counts::default() }
    }

    /// An order became due.
    pub fn start(&mut self, number: u64, due: Duration) {
        let is_measured = due >= self.schedule.measured_from();
        self.open.insert(number, Open { due, is_measured, order: None });
        *if is_measured { &mut self.counts.started } else { &mut self.counts.warmup } += 1;
    }

    /// An order was not taken, as far as its answer tells. Answers since when it was due, if it is measured.
    pub fn refuse(&mut self, number: u64, reason: String) -> Option<Duration> {
        *self.counts.errors.entry(reason).or_default() += 1;
        let open = self.open.remove(&number)?;
        self.counts.started -= u64::from(open.is_measured);
        open.order.and_then(|order| self.sagas.remove(&order));
        open.is_measured.then_some(open.due)
    }

    /// An order was taken: from here on its saga is known, and what was heard of it counts. Answers when it was due, if it
    /// is measured, and its end, if that was heard before.
    pub fn answered(&mut self, number: u64, order: Uuid, at: Duration) -> (Option<Duration>, Option<Ended>) {
        let Some(open) = self.open.get_mut(&number) else { return (None, None) };
        open.order = Some(order);
        let due = open.is_measured.then_some(open.due);
        self.saga(order, at).number = Some(number);
        (due, self.end_of(order))
    }

    /// An order was confirmed: the end of nearly all. Answers with its end, if it is one of ours and measured.
    pub fn confirmed(&mut self, order: Uuid, at: Duration) -> Option<Ended> {
        self.saga(order, at).confirmed_at.get_or_insert(at);
        self.end_of(order)
    }

    /// Another fact was heard. Answers with the order that it ended, if it is one of ours and measured.
    pub fn hear(&mut self, order: Uuid, fact: &HeardFact, at: Duration) -> Option<Ended> {
        let saga = self.saga(order, at);
        let new = || Box::new(Otherwise { view: of_a_taken_order(), ended_at: None });
        let otherwise = saga.otherwise.get_or_insert_with(new);
        otherwise.view.record(fact);
        if otherwise.view.status() == SagaStatus::Compensated {
            otherwise.ended_at.get_or_insert(at);
        }
        self.end_of(order)
    }

    fn saga(&mut self, order: Uuid, at: Duration) -> &mut Saga {
        let new = || Saga { number: None, confirmed_at: None, otherwise: None, since: at };
        self.sagas.entry(order).or_insert_with(new)
    }

    fn end_of(&mut self, order: Uuid) -> Option<Ended> {
        let saga = self.sagas.get(&order)?;
        let number = saga.number?;
        let kind = self.schedule.kind(number);
        let cancelled_at = saga.otherwise.as_ref().and_then(|otherwise| otherwise.ended_at);
        // Who is about to be cancelled by its customer has not ended when it is confirmed, nor has what was cancelled.
        let is_cancelled = saga.otherwise.as_ref().is_some_and(|otherwise| otherwise.is_cancelled());
        let confirmed_at = saga.confirmed_at.filter(|_| kind != Kind::Cancelled && !is_cancelled);
        let at = cancelled_at.or(confirmed_at)?;
        self.sagas.remove(&order);
        let open = self.open.remove(&number).filter(|open| open.is_measured)?;
        let is_completed = cancelled_at.is_none();
        *if is_completed { &mut self.counts.completed } else { &mut self.counts.compensated } += 1;
        self.counts.unexpected += u64::from(is_completed != (kind == Kind::Happy));
        let latency = at.saturating_sub(open.due);
        Some(Ended { latency: (kind != Kind::Cancelled).then_some(latency), at })
    }

    /// Drops what was heard of orders that are none of this run.
    pub fn drop_strangers(&mut self, now: Duration) {
        self.sagas.retain(|_, saga| saga.number.is_some() || now.saturating_sub(saga.since) < STRANGER_AFTER);
    }

    /// Orders that were started and have not ended.
    pub fn in_flight(&self) -> u64 {
        self.open.len() as u64
    }

    /// Orders whose compensation is parked: they do not end without a human.
    pub fn failed(&self) -> u64 {
        let ours = self.sagas.values().filter(|saga| saga.number.is_some());
        let views = ours.filter_map(|saga| saga.otherwise.as_ref());
        views.filter(|otherwise| otherwise.view.status() == SagaStatus::Failed).count() as u64
    }

    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Otherwise {
    fn is_cancelled(&self) -> bool {
        self.view.heard.contains_key(FactType::OrderCancelled.name())
    }
}

/// That it was taken is known from its answer: the fact that says so is not listened to.
fn of_a_taken_order() -> SagaView {
    let mut view = SagaView::default();
    view.record(&HeardFact {
        message_id: Uuid::nil(),
        message_type: FactType::OrderCreated.name().to_owned(),
        producer: "order".to_owned(),
        causation_id: Uuid::nil(),
        occurred_at: Timestamp::UNIX_EPOCH,
        detail: FactDetail::default(),
    });
    view
}

#[cfg(test)]
mod tests {
    use contract::heard_fact::Parked;
    use contract::order::CancelReason;

    use super::*;

    const ORDER: Uuid = Uuid::from_u128(7);
    const DECLINED: [FactType; 4] =
        [FactType::PaymentFailed, FactType::StockReleased, FactType::PaymentVoided, FactType::OrderCancelled];

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A hundred orders per second, the first ten as warm-up, all started.
    fn ledger(mix: &str) -> Ledger {
        let mix = mix.parse().expect("a mix");
        let schedule = Schedule::at_rate(100, ms(100), ms(1_000), mix, "run");
        let mut ledger = Ledger::new(schedule.clone());
        (0..110).for_each(|number| ledger.start(number, schedule.due(number).expect("it is due")));
        ledger
    }

    fn fact(fact_type: FactType) -> HeardFact {
        let detail = FactDetail {
            cancelled_because: (fact_type == FactType::OrderCancelled).then_some(CancelReason::PaymentFailed),
            ..FactDetail::default()
        };
        HeardFact {
            message_id: Uuid::from_u128(fact_type as u128 + 1),
            message_type: fact_type.name().to_owned(),
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: Timestamp::UNIX_EPOCH,
            detail,
        }
    }

    #[test]
    fn latency_counts_from_when_the_order_was_due_to_when_its_end_was_heard() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.answered(20, ORDER, ms(205)), (Some(ms(200)), None));
        let ended = ledger.confirmed(ORDER, ms(215));
        assert_eq!(ended, Some(Ended { latency: Some(ms(15)), at: ms(215) }));
        assert_eq!((ledger.counts().completed, ledger.in_flight()), (1, 109));
        assert_eq!(
            ledger.answered(9, Uuid::from_u128(8), ms(216)),
            (None, None),
            "it belongs to the warm-up"
        );
    }

    #[test]
    fn facts_may_come_before_the_answer_that_tells_whose_they_are() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.confirmed(ORDER, ms(212)), None);
        let (due, ended) = ledger.answered(20, ORDER, ms(230));
        assert_eq!((due, ended.map(|ended| ended.at)), (Some(ms(200)), Some(ms(212))), "its end was heard");
        let other = Uuid::from_u128(8);
        for fact_type in [FactType::StockReservationFailed, FactType::OrderCancelled, FactType::PaymentVoided]
        {
            assert_eq!(ledger.hear(other, &fact(fact_type), ms(213)), None);
        }
        let (_, ended) = ledger.answered(21, other, ms(230));
        assert_eq!(ended.map(|ended| ended.at), Some(ms(213)));
        assert_eq!(
            (ledger.counts().compensated, ledger.counts().unexpected),
            (1, 1),
            "it was to be confirmed"
        );
    }

    #[test]
    fn a_late_fact_does_not_count_twice() {
        let mut ledger = ledger("happy=100");
        ledger.answered(20, ORDER, ms(205));
        assert!(ledger.confirmed(ORDER, ms(215)).is_some());
        assert_eq!(ledger.confirmed(ORDER, ms(216)), None);
        ledger.drop_strangers(ms(216) + STRANGER_AFTER);
        assert_eq!((ledger.counts().completed, ledger.sagas.len()), (1, 0));
    }

    #[test]
    fn an_order_that_was_not_taken_is_not_waited_for() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.refuse(30, "503".to_owned()), Some(ms(300)));
        assert_eq!((ledger.in_flight(), ledger.counts().started), (109, 99));
        // An order of the warm-up was never counted.
        assert_eq!(ledger.refuse(3, "503".to_owned()), None);
        assert_eq!(
            (ledger.counts().started, ledger.counts().errors["503"], ledger.in_flight()),
            (99, 2, 108)
        );
        // One that could not be cancelled is forgotten.
        ledger.answered(31, ORDER, ms(315));
        ledger.refuse(31, "cancel: 409".to_owned());
        assert_eq!((ledger.sagas.len(), ledger.in_flight()), (0, 107));
    }

    /// Its customer cancels it whenever: that it was confirmed before is not its end, and how long it took says nothing.
    #[test]
    fn an_order_that_its_customer_cancels_ends_when_everything_is_undone() {
        let mut ledger = ledger("cancelled=100");
        ledger.answered(20, ORDER, ms(205));
        assert_eq!(ledger.confirmed(ORDER, ms(215)), None);
        let undone = [FactType::OrderCancelled, FactType::StockReleased, FactType::PaymentRefunded];
        let ended: Vec<_> = undone.map(|said| ledger.hear(ORDER, &fact(said), ms(300))).into_iter().collect();
        assert_eq!(ended, [None, None, Some(Ended { latency: None, at: ms(300) })]);
        assert_eq!((ledger.counts().compensated, ledger.counts().unexpected), (1, 0));
    }

    /// Of a happy order as of another: once it is cancelled, it ends when all is undone, confirmed or not.
    #[test]
    fn what_was_cancelled_does_not_end_by_having_been_confirmed() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.hear(ORDER, &fact(FactType::OrderCancelled), ms(206)), None);
        ledger.answered(20, ORDER, ms(205));
        assert_eq!(ledger.confirmed(ORDER, ms(207)), None);
        assert_eq!(ledger.in_flight(), 110);
    }

    #[test]
    fn every_order_counts_once_as_what_it_became_and_the_warm_up_for_nothing() {
        let mut ledger = ledger("happy=50,declined=50");
        assert_eq!((ledger.counts().started, ledger.counts().warmup), (100, 10));
        let mut expected = Counts { started: 100, warmup: 10, ..Counts::default() };
        // Of each kind some end as they should and some do not; one in three is left open.
        for number in (0..110).filter(|number| number % 3 != 0) {
            let (is_happy, ends_well) = (ledger.schedule.kind(number) == Kind::Happy, number % 2 == 0);
            let order = Uuid::from_u128(1_000 + u128::from(number));
            assert_eq!(ledger.answered(number, order, ms(4_000)).1, None);
            let is_completed = is_happy == ends_well;
            let ended = if is_completed {
                ledger.confirmed(order, ms(5_000)).into_iter().count()
            } else {
                DECLINED.iter().filter_map(|said| ledger.hear(order, &fact(*said), ms(5_000))).count()
            };
            let is_measured = number >= 10;
            assert_eq!(ended, usize::from(is_measured), "{number}");
            if is_measured {
                *if is_completed { &mut expected.completed } else { &mut expected.compensated } += 1;
                expected.unexpected += u64::from(!ends_well);
            }
        }
        assert_eq!((ledger.counts(), ledger.in_flight()), (&expected, 37));
    }

    #[test]
    fn a_saga_whose_compensation_is_parked_has_failed_if_it_is_one_of_ours() {
        let mut ledger = ledger("happy=100");
        for order in [ORDER, Uuid::from_u128(8)] {
            let mut parked = fact(FactType::OrderConfirmed);
            parked.message_type = "DeadLettered".to_owned();
            let (dead_letter, step) = (Uuid::nil(), "payment-refund".to_owned());
            parked.detail.parked = Some(Parked { dead_letter, step });
            for heard in [parked, fact(FactType::OrderCancelled)] {
                assert_eq!(ledger.hear(order, &heard, Duration::ZERO), None);
            }
        }
        assert_eq!(ledger.failed(), 0, "nobody knows whose they are");
        ledger.answered(20, ORDER, ms(1));
        assert_eq!((ledger.failed(), ledger.in_flight()), (1, 110));
    }

    #[test]
    fn a_stranger_is_one_only_after_a_while_and_never_one_of_ours() {
        let mut ledger = ledger("happy=100");
        ledger.answered(20, ORDER, Duration::ZERO);
        let began = Duration::from_secs(60);
        ledger.confirmed(Uuid::from_u128(9), began);
        ledger.drop_strangers(began + STRANGER_AFTER - ms(1));
        assert_eq!(ledger.sagas.len(), 2);
        ledger.drop_strangers(began + STRANGER_AFTER);
        assert_eq!(ledger.sagas.keys().collect::<Vec<_>>(), [&ORDER]);
    }
}
