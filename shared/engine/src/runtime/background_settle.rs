//! Shell: settles published outbox entries in the background, while the relay publishes the next ones.
//!
//! One settle covers everything published while the last one ran or the minimum interval passed. Entries that a stopped or
//! killed relay has not settled are published again under the same ids.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::observer::Observer;
use crate::store::{Lease, PublishedRun, Store, StoreFault};

/// Number of messages of one publish, and its duration.
type Batch = (usize, Duration);
/// Settle that runs in the store. Its result is false if the lease was lost, so that it had no effect.
type InFlight = AbortOnDropHandle<Result<bool, StoreFault>>;

/// Settle in flight, and entries that wait for the next one.
pub(super) struct BackgroundSettle {
    store: Arc<dyn Store>,
    in_flight: Option<(InFlight, Vec<Batch>)>,
    waiting: Option<(Lease, PublishedRun, Vec<Batch>)>,
    /// Minimum time between two settles, unless [`flush`](Self::flush) is called.
    interval: Duration,
    last_start: Option<Instant>,
}

impl BackgroundSettle {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let interval = store.min_settle_interval();
        Self { store, in_flight: None, waiting: None, interval, last_start: None }
    }

    /// Adds published entries that directly follow those added before.
    pub(super) fn add(&mut self, lease: Lease, run: PublishedRun, batch: Batch) {
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
        self.start_if_due();
    }

    /// True if everything added is settled.
    pub(super) const fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_none()
    }

    /// Takes the result of a finished settle, and starts the next one if it is due. False if the lease was lost.
    pub(super) async fn advance(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        let is_finished = self.in_flight.as_ref().is_some_and(|(task, _)| task.is_finished());
        let is_effective = if is_finished { self.finish(observer).await? } else { true };
        self.start_if_due();
        Ok(is_effective)
    }

    /// Settles everything now, and waits for it. False if the lease was lost.
    pub(super) async fn flush(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        loop {
            if self.is_idle() {
                return Ok(true);
            }
            self.start();
            if !self.finish(observer).await? {
                return Ok(false);
            }
        }
    }

    fn start_if_due(&mut self) {
        if self.last_start.is_none_or(|at| at.elapsed() >= self.interval) {
            self.start();
        }
    }

    fn start(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        if let Some((lease, run, batches)) = self.waiting.take() {
            let store = self.store.clone();
            self.last_start = Some(Instant::now());
            let task = tokio::spawn(async move { store.settle_run(&lease, run).await });
            self.in_flight = Some((AbortOnDropHandle::new(task), batches));
        }
    }

    async fn finish(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        let Some((task, _)) = &mut self.in_flight else {
            return Ok(true);
        };
        let settled = task.await.unwrap_or(Err(StoreFault::Closed));
        let batches = self.in_flight.take().map(|(_, batches)| batches).unwrap_or_default();
        if !matches!(settled, Ok(true)) {
            // These entries are published again, together with those that waited behind them.
            self.waiting = None;
            return settled;
        }
        // Counted only now: entries that are not settled are published again, and counted then.
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

    struct NoObserver;
    impl Observer for NoObserver {}

    fn entry(number: u128) -> OutboxWrite {
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

    #[tokio::test]
    async fn entries_published_within_the_interval_wait_for_the_next_settle_or_a_flush() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory(vec![]).expect("a database"));
        let writes = Writes { outbox: (1..=3).map(entry).collect(), ..Writes::default() };
        let written = store.transact(Reads::default(), Box::new(move |_| writes.clone())).await;
        assert_eq!(written.expect("committed").len(), 3);
        let (now, span) = (Timestamp::now(), SignedDuration::from_hours(1));
        let lease =
            store.acquire_lease(RELAY_LEASE, None, "depot-1", now, now + span).await.expect("an answer");
        let lease = lease.expect("the lease is free");

        let mut settle =
            BackgroundSettle { interval: Duration::from_hours(1), ..BackgroundSettle::new(store.clone()) };
        for seq in 1..=3 {
            settle.add(lease.clone(), run(seq), (1, Duration::ZERO));
            while settle.in_flight.is_some() {
                tokio::task::yield_now().await;
                assert!(settle.advance(&NoObserver).await.expect("an answer"));
            }
        }
        assert_eq!((unpublished(store.as_ref()).await, settle.is_idle()), (2, false));
        assert!(settle.flush(&NoObserver).await.expect("an answer"));
        assert_eq!((unpublished(store.as_ref()).await, settle.is_idle()), (0, true));
    }
}
