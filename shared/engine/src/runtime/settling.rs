//! Shell: writing down what was published of the line, behind the publishing: nobody waits for it, and one settlement
//! takes all that was published while the last was under way.

use std::sync::Arc;
use std::time::Duration;

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
}

impl Settling {
    pub(super) const fn new(store: Arc<dyn Store>) -> Self {
        Self { store, under_way: None, waiting: None }
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
        self.start();
    }

    /// Whether anything is not settled yet.
    pub(super) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Goes on with what waits when the settlement under way is over. `false` when it had no effect.
    pub(super) async fn goes_on(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        if self.under_way.as_ref().is_some_and(|(task, _)| task.is_finished()) {
            let settled = self.end_one(observer).await?;
            self.start();
            return Ok(settled);
        }
        Ok(true)
    }

    /// Waits until everything is settled. `false` when something had no effect.
    pub(super) async fn ends(&mut self, observer: &dyn Observer) -> Result<bool, StoreFault> {
        loop {
            if self.under_way.is_none() && self.waiting.is_none() {
                return Ok(true);
            }
            self.start();
            if !self.end_one(observer).await? {
                return Ok(false);
            }
        }
    }

    /// Begins with what waits, unless a settlement is under way.
    fn start(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        if let Some((lease, run, batches)) = self.waiting.take() {
            let store = self.store.clone();
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
