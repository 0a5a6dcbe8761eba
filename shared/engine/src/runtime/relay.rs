//! Shell: the relay: publishes outbox entries in order, under a lease.
//!
//! [`run`] repeats [`Relay::round`]. A round takes the lease, takes the next entries, publishes them and settles them.
//! Entries come from the queue of the engine or, where it has gaps, from the outbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::background_settle::BackgroundSettle;
use super::bus::Publish;
use super::clock::SharedClock;
use super::error_throttle::ErrorThrottle;
use super::observer::{Observer, SharedObserver};
use super::relay_lease::{LeaseState, RelayLease};
use super::relay_queue::{Next, RelayQueue};
use super::span_operation::SpanOperation;
use super::stuck_subjects::StuckSubjects;
use super::tracer::Tracer;
use crate::store::{Lease, OutboxEntry, PublishOutcome, PublishedRun, Store, StoreFault};

/// Settings of the relay (section `relay`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelaySettings {
    /// Maximum time between two reads of the outbox. Bounds the delay after a lost wake-up.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// Duration of the relay's lease. After a crash other instances wait this long; the same instance does not.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// Maximum number of entries that one round publishes.
    pub max_batch: usize,
    /// Time after which an entry that the broker does not take, while it takes others, becomes `FAILED`.
    #[serde(with = "humantime_serde")]
    pub fail_after: Duration,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            max_batch: 1000,
            fail_after: Duration::from_mins(1),
        }
    }
}

/// Result of one round of the relay.
#[derive(Debug, PartialEq, Eq)]
pub enum Round {
    /// The outbox has no pending entry.
    Idle,
    /// This many messages reached the broker.
    Published(usize),
    /// The broker did not accept the head of the outbox, which stays first, or does not answer. Holds the reason.
    Delayed(String),
    /// Another relay holds the lease.
    Standby,
}

/// Relay of one process, with its lease and its position in the outbox.
pub struct Relay {
    store: Arc<dyn Store>,
    settings: RelaySettings,
    lease: RelayLease,
    stuck: StuckSubjects,
    tracer: Tracer,
    /// Entries that the engine has committed. Without a queue all entries are read from the outbox.
    queue: Option<Arc<RelayQueue>>,
    /// Position up to which all entries are published; `None` if only the outbox knows.
    published_to: Option<i64>,
    settle: BackgroundSettle,
}

#[derive(Clone, Copy)]
struct Context<'a> {
    publish: &'a dyn Publish,
    observer: &'a dyn Observer,
    now: Timestamp,
}

impl Relay {
    /// Creates a relay for the outbox of `store`. `owner` names this instance, and must survive a restart.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, owner: String, settings: RelaySettings) -> Self {
        let settle = BackgroundSettle::new(store.clone());
        let lease = RelayLease::new(store.clone(), owner, settings.lease);
        Self {
            store,
            settings,
            lease,
            stuck: StuckSubjects::default(),
            tracer: Tracer::off(),
            queue: None,
            published_to: None,
            settle,
        }
    }

    /// Records spans of published messages with `tracer`.
    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Takes entries from the engine's queue where possible.
    #[must_use]
    pub fn with_queue(self, queue: Arc<RelayQueue>) -> Self {
        Self { queue: Some(queue), ..self }
    }

    /// Runs one round: takes the lease and the next entries, publishes them, and settles them.
    ///
    /// A crash at any point loses nothing: entries that were published but not settled are published again under the same
    /// message ids.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn round(
        &mut self,
        publish: &dyn Publish,
        observer: &dyn Observer,
        now: Timestamp,
    ) -> Result<Round, StoreFault> {
        let fence = self.lease.fence();
        let state = self.lease.take(publish, now).await?;
        // Another relay may have held a new lease in between, and have published anything.
        if self.lease.fence() != fence {
            self.published_to = None;
        }
        let lease = match state {
            LeaseState::Leader(lease) => lease,
            LeaseState::Standby => {
                // Another relay publishes now, so what the broker accepts from this one is unknown.
                self.stuck = StuckSubjects::default();
                publish.round_ended(&PublishOutcome::default());
                return Ok(Round::Standby);
            }
            LeaseState::Unanswered(reason) => {
                self.on_unanswered(Instant::now(), observer).await?;
                return Ok(Round::Delayed(reason));
            }
        };
        let (context, began) = (Context { publish, observer, now }, Instant::now());
        let next = self.queue.as_ref().map(|queue| queue.next(self.published_to, self.settings.max_batch));
        let round = match next {
            Some(Next::Entries(entries)) => self.publish_next(lease, entries, context).await,
            Some(Next::Tail(position)) => match self.read_tail(position).await {
                Ok(Some(entries)) => self.publish_next(lease, entries, context).await,
                Ok(None) => self.scan(&lease, context).await,
                Err(fault) => Err(fault),
            },
            Some(Next::Scan) | None => self.scan(&lease, context).await,
        };
        if !matches!(round, Ok(Round::Idle | Round::Published(_))) {
            self.published_to = None;
        }
        match &round {
            Ok(Round::Published(_)) => self.lease.record_published(),
            // An earlier probe may have failed, and nothing that is published will show the end of that.
            Ok(Round::Idle) => publish.round_ended(&PublishOutcome::default()),
            // Entries that the broker rejects are delayed too, for every relay.
            Ok(Round::Delayed(_)) if self.lease.is_shared() && publish.probe().await.is_err() => {
                self.on_unanswered(began, observer).await?;
            }
            Ok(_) | Err(_) => {}
        }
        round
    }

    /// Reads the entries behind `position`, which other processes have written between those in the queue.
    async fn read_tail(&self, position: i64) -> Result<Option<Vec<OutboxEntry>>, StoreFault> {
        let entries = self.store.entries_after(position, self.settings.max_batch).await?;
        if let Some(queue) = &self.queue
            && entries.as_ref().is_some_and(|entries| entries.len() >= self.settings.max_batch)
        {
            // There may be more than one batch.
            queue.request_tail();
        }
        Ok(entries)
    }

    /// Publishes entries that directly follow the published ones, and settles them in the background.
    async fn publish_next(
        &mut self,
        lease: Lease,
        entries: Vec<OutboxEntry>,
        context: Context<'_>,
    ) -> Result<Round, StoreFault> {
        if !self.settle.advance(context.observer).await? {
            return Ok(self.lease_lost());
        }
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(Round::Idle);
        };
        let (first, last) = (first.seq, last.seq);
        let (published, took) = self.publish(&entries, context).await;
        if published.done.len() < entries.len() {
            if !self.settle.flush(context.observer).await? {
                return Ok(self.lease_lost());
            }
            self.published_to = None;
            return self.settle_now(&lease, entries, (published, took), context).await;
        }
        let count = entries.len();
        let at = acknowledged_at(context.now, took);
        let run = PublishedRun { first, last, subjects: by_subject(&entries), at };
        self.published_to = Some(last);
        self.settle.add(lease, run, (count, took));
        self.record_spans(entries, published.done, took);
        Ok(Round::Published(count))
    }

    /// Publishes pending entries as the outbox has them.
    async fn scan(&mut self, lease: &Lease, context: Context<'_>) -> Result<Round, StoreFault> {
        // Entries that are not settled yet would be published twice.
        if !self.settle.flush(context.observer).await? {
            return Ok(self.lease_lost());
        }
        let mut end = None;
        if let Some(queue) = &self.queue {
            queue.begin_scan();
            end = self.store.sequence_end().await?;
        }
        let entries = self.store.pending_entries(self.settings.max_batch).await?;
        let (count, is_all) = (entries.len(), entries.len() < self.settings.max_batch);
        let Some(last) = entries.iter().map(|entry| entry.seq).max() else {
            self.published_to = end;
            return Ok(Round::Idle);
        };
        let (published, took) = self.publish(&entries, context).await;
        let is_all = is_all && published.done.len() == count;
        self.published_to = end.filter(|_| is_all).map(|end| end.max(last));
        self.settle_now(lease, entries, (published, took), context).await
    }

    async fn publish(&mut self, entries: &[OutboxEntry], context: Context<'_>) -> (PublishOutcome, Duration) {
        let Context { publish, now, .. } = context;
        let began = Instant::now();
        let published = publish.publish(entries).await;
        let took = began.elapsed();
        let patience = (now, self.settings.fail_after);
        let published = self.stuck.isolate(published, entries, publish, patience).await;
        publish.round_ended(&published);
        for (seq, reason) in &published.rejected {
            error!(
                outbox_seq = seq,
                "the broker rejects this message, it is FAILED until an operator retries it: {reason}"
            );
        }
        (published, took)
    }

    async fn settle_now(
        &mut self,
        lease: &Lease,
        entries: Vec<OutboxEntry>,
        (published, took): (PublishOutcome, Duration),
        context: Context<'_>,
    ) -> Result<Round, StoreFault> {
        let (count, rejected) = (published.done.len(), published.rejected.len());
        let delayed = published.delayed.as_ref().map(|(_, reason)| reason.clone());
        if count + rejected > 0 || delayed.is_some() {
            let done = self.tracer.is_on().then(|| published.done.clone());
            if !self.store.settle(lease, published, acknowledged_at(context.now, took)).await? {
                return Ok(self.lease_lost());
            }
            // Counted only now: entries that are not settled are published again, and counted then.
            context.observer.published(count, rejected, took);
            self.record_spans(entries, done.unwrap_or_default(), took);
        }
        Ok(delayed.map_or(Round::Published(count), Round::Delayed))
    }

    fn lease_lost(&mut self) -> Round {
        warn!("the relay's lease expired during a publish; another relay continues");
        self.lease.forget();
        self.published_to = None;
        Round::Standby
    }

    /// Gives the lease back once the broker has not answered for a while. `since` is the start of the last attempt.
    async fn on_unanswered(&mut self, since: Instant, observer: &dyn Observer) -> Result<(), StoreFault> {
        if !self.lease.record_unanswered(since) {
            return Ok(());
        }
        // The next leader would publish unsettled entries again. If the lease is lost already, it does so anyway.
        let _ = self.settle.flush(observer).await?;
        self.lease.give_back().await?;
        (self.published_to, self.stuck) = (None, StuckSubjects::default());
        Ok(())
    }

    /// Records a span for each published message that has a trace.
    fn record_spans(&self, entries: Vec<OutboxEntry>, mut done: Vec<i64>, took: Duration) {
        if !self.tracer.is_on() {
            return;
        }
        done.sort_unstable();
        let round = done.len();
        for OutboxEntry { seq, id, saga, subject, trace, is_repetition, .. } in entries {
            let Some(cause) = trace.filter(|_| done.binary_search(&seq).is_ok()) else { continue };
            let span = match is_repetition {
                false => self.tracer.begin_publish(cause, id),
                // The span of the first publish has the id already.
                true => self.tracer.begin(Some(cause.of_publish(id)), saga),
            };
            let Some(span) = span else { continue };
            self.tracer.end(span, took, || SpanOperation::Publish {
                subject,
                message_id: id,
                correlation_id: saga,
                round,
            });
        }
    }
}

/// Time at which the broker had acknowledged a publish that began at `now`.
fn acknowledged_at(now: Timestamp, took: Duration) -> Timestamp {
    now.saturating_add(took).unwrap_or(now)
}

fn by_subject(entries: &[OutboxEntry]) -> BTreeMap<String, i64> {
    let mut subjects = BTreeMap::new();
    for entry in entries {
        match subjects.get_mut(&entry.subject) {
            Some(count) => *count += 1,
            None => drop(subjects.insert(entry.subject.clone(), 1)),
        }
    }
    subjects
}

/// Repeats rounds until dropped, woken by the queue or the poll interval.
pub fn run(
    mut relay: Relay,
    publish: Box<dyn Publish>,
    queue: Arc<RelayQueue>,
    clock: SharedClock,
    observer: SharedObserver,
) -> BoxFuture<'static, ()> {
    /// Pause after the first failure. It doubles up to the poll interval, so that a broker that is down is not flooded.
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    /// Maximum idle time while entries wait for a settle: about the duration of one, and the interval between two.
    const SETTLE_POLL: Duration = Duration::from_millis(100);
    Box::pin(async move {
        let mut pause = FIRST_PAUSE;
        let mut is_delayed = false;
        let mut errors = ErrorThrottle::default();
        loop {
            // Armed before the round: an entry that is written during it finds the wake-up waiting.
            let woken = queue.woken();
            let round = relay.round(publish.as_ref(), observer.as_ref(), clock.now()).await;
            if round.is_ok() && errors.recovered() {
                info!("store available again, the relay continues");
            }
            match round {
                Ok(Round::Published(_)) => {
                    if std::mem::take(&mut is_delayed) {
                        info!("the broker accepts messages again");
                    }
                    pause = FIRST_PAUSE;
                }
                // Not woken by commits: they do not free the lease.
                Ok(Round::Standby) => tokio::time::sleep(relay.settings.poll).await,
                Ok(Round::Idle) => {
                    let is_settled = relay.settle.is_idle();
                    let wait = if is_settled { relay.settings.poll } else { SETTLE_POLL };
                    if tokio::time::timeout(wait, woken).await.is_err() && is_settled {
                        queue.request_scan();
                    }
                }
                Ok(Round::Delayed(reason)) => {
                    if !std::mem::replace(&mut is_delayed, true) {
                        warn!("the broker does not accept messages, publishing waits: {reason}");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(relay.settings.poll);
                }
                Err(fault) => {
                    if let Some(what) = errors.failed(&fault) {
                        error!("the relay cannot use its store, publishing waits: {what}");
                    }
                    tokio::time::sleep(relay.settings.poll).await;
                }
            }
        }
    })
}
