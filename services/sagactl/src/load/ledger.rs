//! Pure: what became of every order of a run. Times are counted from its start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use shared::saga::{HeardFact, SagaStatus, SagaView};
use uuid::Uuid;

use super::plan::Plan;

/// Ended sagas that are remembered, so that a late fact does not start them again. Facts of one saga are
/// seconds apart at most; this is half a minute at thousands of orders per second.
const REMEMBERED: usize = 100_000;
/// A saga whose `OrderCreated` is not heard within this is none of ours.
const STRANGER_AFTER: Duration = Duration::from_mins(2);

/// Counts of a run. All but `errors` and `unfinished` leave the warm-up out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Orders that were sent, and not refused.
    pub started: u64,
    /// Confirmed.
    pub completed: u64,
    /// Cancelled, everything undone.
    pub compensated: u64,
    /// Orders that were not taken, by reason.
    pub errors: BTreeMap<String, u64>,
}

/// An order of this run that has not ended.
#[derive(Debug, Clone, Copy)]
struct Open {
    due: Duration,
    is_measured: bool,
}

/// A saga that is heard of.
#[derive(Debug, Default)]
struct Saga {
    view: SagaView,
    /// Its number in this run; facts from elsewhere may come before the one that tells.
    number: Option<u64>,
    first_heard: Duration,
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

/// The books of one run.
#[derive(Debug)]
pub struct Ledger {
    plan: Plan,
    open: BTreeMap<u64, Open>,
    sagas: BTreeMap<Uuid, Saga>,
    remembered: (BTreeSet<Uuid>, VecDeque<Uuid>),
    counts: Counts,
}

impl Ledger {
    /// Empty books.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            open: BTreeMap::new(),
            sagas: BTreeMap::new(),
            remembered: (BTreeSet::new(), VecDeque::new()),
            counts: Counts::default(),
        }
    }

    /// An order became due.
    pub fn start(&mut self, number: u64) {
        let is_measured = number >= self.plan.first_measured;
        self.open.insert(number, Open { due: self.plan.due(number), is_measured });
        self.counts.started += u64::from(is_measured);
    }

    /// An order was not taken.
    pub fn refused(&mut self, number: u64, reason: String) {
        *self.counts.errors.entry(reason).or_default() += 1;
        // It may have been taken all the same, when only the answer was lost: then its facts tell.
        let is_heard_of = self.sagas.values().any(|saga| saga.number == Some(number));
        if !is_heard_of && let Some(open) = self.open.remove(&number) {
            self.counts.started -= u64::from(open.is_measured);
        }
    }

    /// A fact was heard. Answers with the order that it ended, if it is one of ours and measured.
    pub fn hear(&mut self, order: Uuid, fact: &HeardFact, at: Duration) -> Option<Ended> {
        if self.remembered.0.contains(&order) {
            return None;
        }
        let saga = self.sagas.entry(order).or_insert_with(|| Saga { first_heard: at, ..Saga::default() });
        saga.view.hear(fact);
        let customer = fact.detail.customer.as_deref();
        if let Some(customer) = customer {
            saga.number = self.plan.number_of(customer);
        }
        let status = saga.view.status();
        if status.is_terminal() {
            saga.ended.get_or_insert((at, status));
        }
        let (number, ended) = (saga.number, saga.ended);
        if customer.is_some() && number.is_none() {
            self.close(order);
            return None;
        }
        let ((at, status), open) = ended.zip(self.open.remove(&number?)).or_else(|| {
            // Not ended yet, or ended and not open: the second is an order whose refusal was counted.
            ended.is_some().then(|| self.close(order));
            None
        })?;
        self.close(order);
        self.settle(open, status, at)
    }

    fn settle(&mut self, open: Open, status: SagaStatus, at: Duration) -> Option<Ended> {
        if !open.is_measured {
            return None;
        }
        match status {
            SagaStatus::Completed => self.counts.completed += 1,
            SagaStatus::Compensated => self.counts.compensated += 1,
            SagaStatus::Started
            | SagaStatus::InProgress
            | SagaStatus::TimedOut
            | SagaStatus::Compensating
            | SagaStatus::Failed => return None,
        }
        Some(Ended { latency: at.saturating_sub(open.due), at })
    }
}
