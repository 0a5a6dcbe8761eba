//! Shell: writing down what was published of the line, behind the publishing: nobody waits for it, and one settlement
//! takes all that was published while the last was under way, or too short a time ago. What a relay that is stopped, or
//! killed, has not settled the next one publishes again, under the same ids.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::observer::Observer;
use crate::store::{Lease, PublishedRun, Store, StoreFault};

/// What a publish brought to the broker, and how long it took.
type Batch = (usize, Duration);
/// A settlement that has been handed to the store.
type UnderWay = AbortOnDropHandle<Result<bool, StoreFault>>;

/// The settlement under way, and what is still to be settled.
pub(super) struct Settling {
    store: Arc<dyn Store>,
    under_way: Option<(UnderWay, Vec<Batch>)>,
    waiting: Option<(Lease, PublishedRun, Vec<Batch>)>,
    /// So far apart they begin, unless somebody waits.
    apart: Duration,
    /// When the last was begun.
    began: Option<Instant>,
}

impl Settling {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let apart = store.min_settle_interval();
        Self { store, under_way: None, waiting: None, apart, began: None }
    }

    /// Settles this, which follows what was settled before.
    pub(super) fn begin(&mut self, lease: Lease, run: PublishedRun, batch: Batch) {
        match &mut self.waiting {
            Some((newest, before, batches)) => {
                *newest = lease;
                (before.last, before.at) = (run.last, run.at);
                for (subject, count) in run.subjects {
                    *before.subjects.entry(subject).or_default() += count;
                }
                batches.push(batch);
            }
            None => self.waiting = Some((lease, run, vec![batch])),
        }
        self.start_in_time();
    }

    /// Whether everything is settled.
    pub(super) const fn is_done(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_none()
    }

    /// Goes on with what waits when the settlement under way is over. `false` when it had no effect.
    pub(super) async fn goes_on(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        let is_over = self.under_way.as_ref().is_some_and(|(task, _)| task.is_finished());
        let settled = if is_over { self.end_one(observer).await? } else { true };
        self.start_in_time();
        Ok(settled)
    }

    /// Waits until everything is settled, which is at once. `false` when something had no effect.
    pub(super) async fn ends(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        loop {
            if self.is_done() {
                return Ok(true);
            }
            self.start();
            if !self.end_one(observer).await? {
                return Ok(false);
            }
        }
    }

    /// Begins with what waits, unless the last was begun too short a time ago.
    fn start_in_time(&mut self) {
        if self.began.is_none_or(|began| began.elapsed() >= self.apart) {
            self.start();
        }
    }

    /// Begins with what waits, unless a settlement is under way.
    fn start(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        if let Some((lease, run, batches)) = self.waiting.take() {
            let store = self.store.clone();
            self.began = Some(Instant::now());
            let task = tokio::spawn(async move { store.settle_run(&lease, run).await });
            self.under_way = Some((AbortOnDropHandle::new(task), batches));
        }
    }

    async fn end_one(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        let Some((task, _)) = &mut self.under_way else {
            return Ok(true);
        };
        let settled = task.await.unwrap_or(Err(StoreFault::Closed));
        let batches = self.under_way.take().map(|(_, batches)| batches).unwrap_or_default();
        if !matches!(settled, Ok(true)) {
            // It is published again, with what was to be settled after it.
            self.waiting = None;
            return settled;
        }
        // What nobody settled is published again, and counts then.
        for (count, took) in batches {
            observer.published(count, 0, took);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jiff::{SignedDuration, Timestamp};
    use saga_core::decision::{OutboxWrite, Reads, Writes};
    use uuid::Uuid;

    use super::*;
    use crate::store::RELAY_LEASE;
    use crate::store::sqlite::SqliteStore;

    struct Nobody;
    impl Observer for Nobody {}

    fn promise(number: u128) -> OutboxWrite {
        let (id, subject, payload) = (Uuid::from_u128(number), "depot.stored".to_owned(), Bytes::new());
        OutboxWrite { id, saga: id, subject, payload, event: None, trace: None }
    }

    fn run(seq: i64) -> PublishedRun {
        PublishedRun {
            first: seq,
            last: seq,
            subjects: [("depot.stored".to_owned(), 1)].into(),
            at: Timestamp::now(),
        }
    }

    async fn unpublished(store: &dyn Store) -> usize {
        store.pending_entries(9).await.expect("an answer").len()
    }

    /// The second comes too short a time after the first: it waits, and with it the third, until somebody wants all to be
    /// settled.
    #[tokio::test]
    async fn what_comes_shortly_after_a_settlement_waits_for_the_next_or_for_whoever_cannot_wait() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory(vec![]).expect("a database"));
        let writes = Writes { outbox: (1..=3).map(promise).collect(), ..Writes::default() };
        let promised = store.transact(Reads::default(), Box::new(move |_| writes.clone())).await;
        assert_eq!(promised.expect("committed").len(), 3);
        let (now, span) = (Timestamp::now(), SignedDuration::from_hours(1));
        let lease =
            store.acquire_lease(RELAY_LEASE, None, "depot-1", now, now + span).await.expect("an answer");
        let lease = lease.expect("nobody has it");

        let mut settling = Settling { apart: Duration::from_hours(1), ..Settling::new(store.clone()) };
        for seq in 1..=3 {
            settling.begin(lease.clone(), run(seq), (1, Duration::ZERO));
            while settling.under_way.is_some() {
                tokio::task::yield_now().await;
                assert!(settling.goes_on(&Nobody).await.expect("an answer"));
            }
        }
        assert_eq!((unpublished(store.as_ref()).await, settling.is_done()), (2, false));
        assert!(settling.ends(&Nobody).await.expect("an answer"));
        assert_eq!((unpublished(store.as_ref()).await, settling.is_done()), (0, true));
    }
}
