//! Pure: what became of every order of a run. Times are counted from its start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use contract::FactType;
use contract::heard_fact::HeardFact;
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use uuid::Uuid;

use super::options::Kind;
use super::schedule::Schedule;

/// Ended sagas that are remembered, so that a late fact does not start them again. Facts of one saga are
/// seconds apart at most; this is half a minute at thousands of orders per second.
const REMEMBERED: usize = 100_000;
/// A saga whose `OrderCreated` is not heard within this is none of ours.
const STRANGER_AFTER: Duration = Duration::from_mins(2);

/// Counts of a run. All but `errors` leave the warm-up out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
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
    is_heard_of: bool,
}

/// A saga that is heard of.
#[derive(Debug, Default)]
struct Saga {
    view: SagaView,
    first_heard: Duration,
    last_heard: Duration,
    /// Its number in this run; facts from elsewhere may come before the one that tells.
    number: Option<u64>,
    ended: Option<(Duration, SagaStatus)>,
}

/// An order that has ended, and is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// From when it was due until its end was heard.
    pub latency: Duration,
    /// When its end was heard.
    pub at: Duration,
}

/// What is known of the orders of one run.
#[derive(Debug)]
pub struct Ledger {
    schedule: Schedule,
    open: BTreeMap<u64, Open>,
    sagas: BTreeMap<Uuid, Saga>,
    remembered: BTreeSet<Uuid>,
    remembered_in_order: VecDeque<Uuid>,
    counts: Counts,
}

impl Ledger {
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            open: BTreeMap::new(),
            sagas: BTreeMap::new(),
            remembered: BTreeSet::new(),
            remembered_in_order: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// An order became due.
    pub fn start(&mut self, number: u64) {
        let is_measured = number >= self.schedule.first_measured;
        self.open.insert(number, Open { due: self.schedule.due(number), is_measured, is_heard_of: false });
        self.counts.started += u64::from(is_measured);
    }

    /// An order was not taken, as far as its answer tells: when only the answer was lost, its facts tell better.
    pub fn refuse(&mut self, number: u64, reason: String) {
        *self.counts.errors.entry(reason).or_default() += 1;
        if let Some(open) = self.open.get(&number).copied()
            && !open.is_heard_of
        {
            self.open.remove(&number);
            self.counts.started -= u64::from(open.is_measured);
        }
    }

    /// A fact was heard. Answers with the order that it ended, if it is one of ours and measured.
    pub fn hear(&mut self, order: Uuid, fact: &HeardFact, at: Duration) -> Option<Ended> {
        if self.remembered.contains(&order) {
            return None;
        }
        let new = || Saga { first_heard: at, last_heard: at, ..Saga::default() };
        let saga = self.sagas.entry(order).or_insert_with(new);
        saga.view.hear(fact);
        let status = saga.view.status();
        if status.is_terminal() {
            // What tells whose it is may come last: it had ended by then.
            let is_late = fact.message_type == FactType::OrderCreated.name();
            saga.ended.get_or_insert((if is_late { saga.last_heard } else { at }, status));
        }
        saga.last_heard = at;
        if let Some(customer) = &fact.detail.customer {
            saga.number = self.schedule.number_of(customer);
            let open = saga.number.and_then(|number| self.open.get_mut(&number));
            let Some(open) = open else {
                self.forget(order);
                return None;
            };
            open.is_heard_of = true;
        }
        let (number, (at, status)) = saga.number.zip(saga.ended)?;
        self.forget(order);
        let open = self.open.remove(&number)?;
        self.settle(number, open, status, at)
    }

    fn settle(&mut self, number: u64, open: Open, status: SagaStatus, at: Duration) -> Option<Ended> {
        if !open.is_measured {
            return None;
        }
        let is_completed = status == SagaStatus::Completed;
        *if is_completed { &mut self.counts.completed } else { &mut self.counts.compensated } += 1;
        self.counts.unexpected += u64::from(is_completed != (self.schedule.kind(number) == Kind::Happy));
        Some(Ended { latency: at.saturating_sub(open.due), at })
    }

    fn forget(&mut self, order: Uuid) {
        self.sagas.remove(&order);
        self.remembered.insert(order);
        self.remembered_in_order.push_back(order);
        if self.remembered_in_order.len() > REMEMBERED
            && let Some(oldest) = self.remembered_in_order.pop_front()
        {
            self.remembered.remove(&oldest);
        }
    }

    /// Drops what was heard of orders that are none of this run.
    pub fn drop_strangers(&mut self, now: Duration) {
        self.sagas
            .retain(|_, saga| saga.number.is_some() || now.saturating_sub(saga.first_heard) < STRANGER_AFTER);
    }

    /// Orders that were started and have not ended.
    pub fn in_flight(&self) -> u64 {
        self.open.len() as u64
    }

    /// Orders whose compensation is parked: they do not end without a human.
    pub fn failed(&self) -> u64 {
        let ours = self.sagas.values().filter(|saga| saga.number.is_some());
        ours.filter(|saga| saga.view.status() == SagaStatus::Failed).count() as u64
    }

    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use contract::heard_fact::FactDetail;
    use contract::order::CancelReason;
    use jiff::Timestamp;

    use super::*;

    const ORDER: Uuid = Uuid::from_u128(7);

    /// A hundred orders per second, the first ten as warm-up, all started.
    fn ledger() -> Ledger {
        let mix = "happy=100".parse().expect("a mix");
        let schedule = Schedule::new(100, Duration::from_millis(100), Duration::from_secs(1), mix, "run");
        let mut ledger = Ledger::new(schedule);
        (0..110).for_each(|number| ledger.start(number));
        ledger
    }

    fn fact(fact_type: FactType) -> HeardFact {
        let is_created = fact_type == FactType::OrderCreated;
        let detail = FactDetail {
            customer: is_created.then(|| "load-run-20".to_owned()),
            cancelled_because: (fact_type == FactType::OrderCancelled).then_some(CancelReason::PaymentFailed),
            ..FactDetail::default()
        };
        HeardFact {
            message_id: Uuid::from_u128(fact_type as u128),
            message_type: fact_type.name().to_owned(),
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: Timestamp::UNIX_EPOCH,
            detail,
        }
    }

    fn hear(ledger: &mut Ledger, fact_type: FactType, at_ms: u64) -> Option<Ended> {
        ledger.hear(ORDER, &fact(fact_type), Duration::from_millis(at_ms))
    }

    #[test]
    fn latency_counts_from_when_the_order_was_due_to_when_its_end_was_heard() {
        let mut ledger = ledger();
        assert_eq!(hear(&mut ledger, FactType::OrderCreated, 210), None);
        assert_eq!(hear(&mut ledger, FactType::StockReserved, 211), None);
        let ended = hear(&mut ledger, FactType::OrderConfirmed, 215);
        assert_eq!(ended, Some(Ended { latency: Duration::from_millis(15), at: Duration::from_millis(215) }));
        assert_eq!((ledger.counts().completed, ledger.in_flight()), (1, 109));
    }

    #[test]
    fn facts_may_come_before_the_one_that_tells_whose_they_are() {
        let mut ledger = ledger();
        assert_eq!(hear(&mut ledger, FactType::StockReservationFailed, 210), None);
        assert_eq!(hear(&mut ledger, FactType::OrderCancelled, 211), None);
        assert_eq!(hear(&mut ledger, FactType::PaymentVoided, 212), None);
        let ended = hear(&mut ledger, FactType::OrderCreated, 230);
        assert_eq!(ended.map(|ended| ended.at), Some(Duration::from_millis(212)), "when its end was heard");
        assert_eq!(
            (ledger.counts().compensated, ledger.counts().unexpected),
            (1, 1),
            "it was to be confirmed"
        );
    }

    #[test]
    fn a_late_fact_does_not_count_twice() {
        let mut ledger = ledger();
        hear(&mut ledger, FactType::OrderCreated, 210);
        assert!(hear(&mut ledger, FactType::OrderConfirmed, 215).is_some());
        assert_eq!(hear(&mut ledger, FactType::PaymentProcessed, 216), None);
        assert_eq!(hear(&mut ledger, FactType::OrderConfirmed, 217), None);
        assert_eq!((ledger.counts().completed, ledger.sagas.len()), (1, 0));
    }

    #[test]
    fn a_refused_order_is_not_waited_for_unless_it_was_heard_of() {
        let mut ledger = ledger();
        ledger.refuse(30, "503".to_owned());
        assert_eq!((ledger.in_flight(), ledger.counts().started), (109, 99));
        hear(&mut ledger, FactType::OrderCreated, 210);
        ledger.refuse(20, "timeout".to_owned());
        assert_eq!((ledger.in_flight(), ledger.counts().started), (109, 99));
        assert!(hear(&mut ledger, FactType::OrderConfirmed, 215).is_some());
    }

    #[test]
    fn orders_of_others_are_forgotten() {
        let mut ledger = ledger();
        let mut other = fact(FactType::OrderCreated);
        other.detail.customer = Some("ada".to_owned());
        assert_eq!(ledger.hear(Uuid::from_u128(8), &other, Duration::ZERO), None);
        ledger.hear(Uuid::from_u128(9), &fact(FactType::StockReserved), Duration::ZERO);
        assert_eq!(ledger.sagas.len(), 1);
        ledger.drop_strangers(STRANGER_AFTER);
        assert_eq!(ledger.sagas.len(), 0);
    }

    /// Five of each hundred are declined, each is measured from the tenth on.
    #[test]
    fn every_order_counts_once_as_what_it_became_and_the_warm_up_for_nothing() {
        let mix: crate::load::options::Mix = "happy=50,declined=50".parse().expect("a mix");
        let schedule = Schedule::new(100, Duration::from_millis(100), Duration::from_secs(1), mix, "run");
        let kinds: Vec<_> = (0..110).map(|number| schedule.kind(number)).collect();
        let mut ledger = Ledger::new(schedule);
        (0..110).for_each(|number| ledger.start(number));
        assert_eq!(ledger.counts().started, 100);
        let declined = [
            FactType::PaymentFailed,
            FactType::StockReleased,
            FactType::PaymentVoided,
            FactType::OrderCancelled,
        ];
        let mut expected = Counts { started: 100, ..Counts::default() };
        // Of each kind some end as they should and some do not; one in three is left open.
        for number in (0..110).filter(|number| number % 3 != 0) {
            let (is_happy, ends_well) = (kinds[number] == Kind::Happy, number % 2 == 0);
            let order = Uuid::from_u128(1_000 + number as u128);
            let mut created = fact(FactType::OrderCreated);
            created.detail.customer = Some(format!("load-run-{number}"));
            let at = |ms| Duration::from_millis(ms);
            assert_eq!(ledger.hear(order, &created, at(1)), None);
            let is_completed = is_happy == ends_well;
            let facts = if is_completed { &[FactType::OrderConfirmed][..] } else { &declined[..] };
            let ended = facts.iter().filter_map(|said| ledger.hear(order, &fact(*said), at(5_000))).count();
            let is_measured = number >= 10;
            assert_eq!(ended, usize::from(is_measured), "{number}");
            if is_measured {
                *if is_completed { &mut expected.completed } else { &mut expected.compensated } += 1;
                expected.unexpected += u64::from(!ends_well);
            }
        }
        assert_eq!((ledger.counts(), ledger.in_flight()), (&expected, 37));
        // An order of the warm-up that is refused was never counted.
        ledger.refuse(3, "503".to_owned());
        ledger.refuse(12, "503".to_owned());
        assert_eq!((ledger.counts().started, ledger.counts().errors["503"], ledger.in_flight()), (99, 2, 35));
    }

    #[test]
    fn a_saga_whose_compensation_is_parked_has_failed_if_it_is_one_of_ours() {
        let mut ledger = ledger();
        for order in [ORDER, Uuid::from_u128(8)] {
            let mut parked = fact(FactType::OrderConfirmed);
            parked.message_type = "DeadLettered".to_owned();
            let (dead_letter, step) = (Uuid::nil(), "payment-refund".to_owned());
            parked.detail.parked = Some(contract::heard_fact::Parked { dead_letter, step });
            for heard in [parked, fact(FactType::OrderCancelled)] {
                assert_eq!(ledger.hear(order, &heard, Duration::ZERO), None);
            }
        }
        assert_eq!(ledger.failed(), 0, "nobody knows whose they are");
        hear(&mut ledger, FactType::OrderCreated, 1);
        assert_eq!((ledger.failed(), ledger.in_flight()), (1, 110));
    }

    #[test]
    fn a_stranger_is_one_only_after_a_while_and_never_one_of_ours() {
        let mut ledger = ledger();
        hear(&mut ledger, FactType::OrderCreated, 0);
        let began = Duration::from_secs(60);
        ledger.hear(Uuid::from_u128(9), &fact(FactType::StockReserved), began);
        ledger.drop_strangers(began + STRANGER_AFTER - Duration::from_millis(1));
        assert_eq!(ledger.sagas.len(), 2);
        ledger.drop_strangers(began + STRANGER_AFTER);
        assert_eq!(ledger.sagas.keys().collect::<Vec<_>>(), [&ORDER]);
    }

    #[test]
    fn the_last_ended_sagas_are_remembered_and_no_more() {
        let mut ledger = ledger();
        let mut others = fact(FactType::OrderCreated);
        others.detail.customer = Some("ada".to_owned());
        let ids = |number: usize| Uuid::from_u128(1_000 + number as u128);
        let is_known = |ledger: &mut Ledger, number| {
            let before = ledger.sagas.len();
            ledger.hear(ids(number), &fact(FactType::StockReserved), Duration::ZERO);
            ledger.sagas.len() == before
        };
        for number in 0..REMEMBERED {
            ledger.hear(ids(number), &others, Duration::ZERO);
        }
        assert!(is_known(&mut ledger, 0));
        ledger.hear(ids(REMEMBERED), &others, Duration::ZERO);
        assert!(!is_known(&mut ledger, 0) && is_known(&mut ledger, 1));
    }
}
