//! Pure: outcome of every order of a run. Times count from its start.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::FactType;
use contract::saga::SagaStatus;
use contract::saga_fact::{FactDetail, SagaFact};
use contract::saga_view::SagaView;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::options::Kind;
use super::schedule::Schedule;

/// A saga without an answer that names it within this time, which is longer than any answer takes, belongs to another run.
const UNKNOWN_AFTER: Duration = Duration::from_secs(45);

/// Counts of a run. All but the errors exclude the warm-up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Orders sent during the warm-up.
    pub warmup_orders: u64,
    /// Orders sent and not rejected.
    pub started: u64,
    pub completed: u64,
    pub compensated: u64,
    /// Orders that ended otherwise than their kind demands.
    pub unexpected: u64,
    pub errors_by_reason: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    due: Duration,
    is_measured: bool,
    order: Option<Uuid>,
}

#[derive(Debug)]
struct Saga {
    /// Number of the order in this run; unknown until its answer, which facts may precede.
    number: Option<u64>,
    confirmed_at: Option<Duration>,
    /// State of a saga that is not simply confirmed.
    detour: Option<Box<Detour>>,
    since: Duration,
}

/// State of a saga that is not simply confirmed.
#[derive(Debug)]
struct Detour {
    view: SagaView,
    ended_at: Option<Duration>,
}

/// End of a measured order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// From due time to end; `None` if the end depended on the customer.
    pub latency: Option<Duration>,
    /// Receipt of its last fact.
    pub at: Duration,
}

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

    /// Records an order that became due.
    pub fn start(&mut self, number: u64, due: Duration) {
        let is_measured = due >= self.schedule.measured_from();
        self.open.insert(number, Open { due, is_measured, order: None });
        *if is_measured { &mut self.counts.started } else { &mut self.counts.warmup_orders } += 1;
    }

    /// Records a rejected order. Returns its due time if it is measured.
    pub fn reject(&mut self, number: u64, reason: String) -> Option<Duration> {
        *self.counts.errors_by_reason.entry(reason).or_default() += 1;
        let open = self.open.remove(&number)?;
        self.counts.started -= u64::from(open.is_measured);
        open.order.and_then(|order| self.sagas.remove(&order));
        open.is_measured.then_some(open.due)
    }

    /// Records an accepted order. Returns its due time if it is measured, and its end if that was received before.
    pub fn answered(&mut self, number: u64, order: Uuid, at: Duration) -> (Option<Duration>, Option<Ended>) {
        let Some(open) = self.open.get_mut(&number) else { return (None, None) };
        open.order = Some(order);
        let due = open.is_measured.then_some(open.due);
        self.saga(order, at).number = Some(number);
        (due, self.end_of(order))
    }

    /// Records a confirmed order. Returns its end if it belongs to this run and is measured.
    pub fn on_confirmed(&mut self, order: Uuid, at: Duration) -> Option<Ended> {
        self.saga(order, at).confirmed_at.get_or_insert(at);
        self.end_of(order)
    }

    /// Records another fact. Returns the end of the order if this was it, it belongs to this run and is measured.
    pub fn on_fact(&mut self, order: Uuid, fact: &SagaFact, at: Duration) -> Option<Ended> {
        let saga = self.saga(order, at);
        let new = || Box::new(Detour { view: accepted_order(), ended_at: None });
        let detour = saga.detour.get_or_insert_with(new);
        detour.view.record(fact);
        if detour.view.status() == SagaStatus::Compensated {
            detour.ended_at.get_or_insert(at);
        }
        self.end_of(order)
    }

    fn saga(&mut self, order: Uuid, at: Duration) -> &mut Saga {
        let new = || Saga { number: None, confirmed_at: None, detour: None, since: at };
        self.sagas.entry(order).or_insert_with(new)
    }

    fn end_of(&mut self, order: Uuid) -> Option<Ended> {
        let saga = self.sagas.get(&order)?;
        let number = saga.number?;
        let kind = self.schedule.kind(number);
        let cancelled_at = saga.detour.as_ref().and_then(|detour| detour.ended_at);
        // Confirmation does not end an order that is cancelled or that its customer will cancel.
        let is_cancelled = saga.detour.as_ref().is_some_and(|detour| detour.is_cancelled());
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

    /// Drops sagas of other runs.
    pub fn drop_unknown(&mut self, now: Duration) {
        self.sagas.retain(|_, saga| saga.number.is_some() || now.saturating_sub(saga.since) < UNKNOWN_AFTER);
    }

    pub fn in_flight(&self) -> u64 {
        self.open.len() as u64
    }

    /// Number of orders whose compensation is dead-lettered: they do not end without a human.
    pub fn failed(&self) -> u64 {
        let ours = self.sagas.values().filter(|saga| saga.number.is_some());
        let views = ours.filter_map(|saga| saga.detour.as_ref());
        views.filter(|detour| detour.view.status() == SagaStatus::CompensationStuck).count() as u64
    }

    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Detour {
    fn is_cancelled(&self) -> bool {
        self.view.facts.contains_key(FactType::OrderCancelled.name())
    }
}

/// View of an accepted order. `OrderCreated` is not subscribed to: the answer replaces it.
fn accepted_order() -> SagaView {
    let mut view = SagaView::default();
    view.record(&SagaFact {
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
    use contract::order::CancelReason;
    use contract::saga_fact::DeadLetterRef;

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

    fn fact(fact_type: FactType) -> SagaFact {
        let detail = FactDetail {
            cancelled_because: (fact_type == FactType::OrderCancelled).then_some(CancelReason::PaymentFailed),
            ..FactDetail::default()
        };
        SagaFact {
            message_id: Uuid::from_u128(fact_type as u128 + 1),
            message_type: fact_type.name().to_owned(),
            producer: "test".to_owned(),
            causation_id: Uuid::nil(),
            occurred_at: Timestamp::UNIX_EPOCH,
            detail,
        }
    }

    #[test]
    fn latency_counts_from_due_time_to_last_fact() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.answered(20, ORDER, ms(205)), (Some(ms(200)), None));
        let ended = ledger.on_confirmed(ORDER, ms(215));
        assert_eq!(ended, Some(Ended { latency: Some(ms(15)), at: ms(215) }));
        assert_eq!((ledger.counts().completed, ledger.in_flight()), (1, 109));
        assert_eq!(
            ledger.answered(9, Uuid::from_u128(8), ms(216)),
            (None, None),
            "it belongs to the warm-up"
        );
    }

    #[test]
    fn facts_before_the_answer_count() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.on_confirmed(ORDER, ms(212)), None);
        let (due, ended) = ledger.answered(20, ORDER, ms(230));
        assert_eq!(
            (due, ended.map(|ended| ended.at)),
            (Some(ms(200)), Some(ms(212))),
            "its end was received"
        );
        let other = Uuid::from_u128(8);
        for fact_type in [FactType::StockReservationFailed, FactType::OrderCancelled, FactType::PaymentVoided]
        {
            assert_eq!(ledger.on_fact(other, &fact(fact_type), ms(213)), None);
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
    fn repeated_fact_does_not_count_twice() {
        let mut ledger = ledger("happy=100");
        ledger.answered(20, ORDER, ms(205));
        assert!(ledger.on_confirmed(ORDER, ms(215)).is_some());
        assert_eq!(ledger.on_confirmed(ORDER, ms(216)), None);
        ledger.drop_unknown(ms(216) + UNKNOWN_AFTER);
        assert_eq!((ledger.counts().completed, ledger.sagas.len()), (1, 0));
    }

    #[test]
    fn rejected_order_is_not_in_flight() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.reject(30, "503".to_owned()), Some(ms(300)));
        assert_eq!((ledger.in_flight(), ledger.counts().started), (109, 99));
        // An order of the warm-up was never counted.
        assert_eq!(ledger.reject(3, "503".to_owned()), None);
        assert_eq!(
            (ledger.counts().started, ledger.counts().errors_by_reason["503"], ledger.in_flight()),
            (99, 2, 108)
        );
        // One that could not be cancelled is forgotten.
        ledger.answered(31, ORDER, ms(315));
        ledger.reject(31, "cancel: 409".to_owned());
        assert_eq!((ledger.sagas.len(), ledger.in_flight()), (0, 107));
    }

    #[test]
    fn order_cancelled_by_its_customer_ends_when_compensated_without_latency() {
        let mut ledger = ledger("cancelled=100");
        ledger.answered(20, ORDER, ms(205));
        assert_eq!(ledger.on_confirmed(ORDER, ms(215)), None);
        let undone = [FactType::OrderCancelled, FactType::StockReleased, FactType::PaymentRefunded];
        let ended: Vec<_> =
            undone.map(|fact_type| ledger.on_fact(ORDER, &fact(fact_type), ms(300))).into_iter().collect();
        assert_eq!(ended, [None, None, Some(Ended { latency: None, at: ms(300) })]);
        assert_eq!((ledger.counts().compensated, ledger.counts().unexpected), (1, 0));
    }

    #[test]
    fn confirmation_does_not_end_a_cancelled_order() {
        let mut ledger = ledger("happy=100");
        assert_eq!(ledger.on_fact(ORDER, &fact(FactType::OrderCancelled), ms(206)), None);
        ledger.answered(20, ORDER, ms(205));
        assert_eq!(ledger.on_confirmed(ORDER, ms(207)), None);
        assert_eq!(ledger.in_flight(), 110);
    }

    #[test]
    fn each_order_counts_once_by_its_outcome_without_warm_up() {
        let mut ledger = ledger("happy=50,declined=50");
        assert_eq!((ledger.counts().started, ledger.counts().warmup_orders), (100, 10));
        let mut expected = Counts { started: 100, warmup_orders: 10, ..Counts::default() };
        // Of each kind some end as they should and some do not; one in three is left open.
        for number in (0..110).filter(|number| number % 3 != 0) {
            let (is_happy, ends_well) = (ledger.schedule.kind(number) == Kind::Happy, number % 2 == 0);
            let order = Uuid::from_u128(1_000 + u128::from(number));
            assert_eq!(ledger.answered(number, order, ms(4_000)).1, None);
            let is_completed = is_happy == ends_well;
            let ended = if is_completed {
                ledger.on_confirmed(order, ms(5_000)).into_iter().count()
            } else {
                DECLINED
                    .iter()
                    .filter_map(|fact_type| ledger.on_fact(order, &fact(*fact_type), ms(5_000)))
                    .count()
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
    fn saga_with_dead_lettered_compensation_counts_as_failed_only_in_its_run() {
        let mut ledger = ledger("happy=100");
        for order in [ORDER, Uuid::from_u128(8)] {
            let mut dead_lettered = fact(FactType::OrderConfirmed);
            dead_lettered.message_type = "DeadLettered".to_owned();
            let (dead_letter, step) = (Uuid::nil(), "payment-refund".to_owned());
            dead_lettered.detail.dead_lettered = Some(DeadLetterRef { dead_letter, step });
            for received in [dead_lettered, fact(FactType::OrderCancelled)] {
                assert_eq!(ledger.on_fact(order, &received, Duration::ZERO), None);
            }
        }
        assert_eq!(ledger.failed(), 0, "they belong to no known order");
        ledger.answered(20, ORDER, ms(1));
        assert_eq!((ledger.failed(), ledger.in_flight()), (1, 110));
    }

    #[test]
    fn unknown_sagas_are_dropped_after_a_while_and_own_ones_never() {
        let mut ledger = ledger("happy=100");
        ledger.answered(20, ORDER, Duration::ZERO);
        let began = Duration::from_secs(60);
        ledger.on_confirmed(Uuid::from_u128(9), began);
        ledger.drop_unknown(began + UNKNOWN_AFTER - ms(1));
        assert_eq!(ledger.sagas.len(), 2);
        ledger.drop_unknown(began + UNKNOWN_AFTER);
        assert_eq!(ledger.sagas.keys().collect::<Vec<_>>(), [&ORDER]);
    }
}
