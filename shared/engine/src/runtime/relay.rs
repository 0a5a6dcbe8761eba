//! Shell: the relay: publishes what the outbox promises, in order, under a lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::bus::Publish;
use super::clock::SharedClock;
use super::handover::{Handover, Next};
use super::observer::{Observer, SharedObserver};
use super::operation::Operation;
use super::refusal::Refusals;
use super::settling::Settling;
use super::tracer::{SpanDetails, Tracer};
use super::trouble::Trouble;
use crate::store::{Lease, OutboxEntry, PublishOutcome, PublishedRun, RELAY_LEASE, Store, StoreFault};

/// Settings of the relay.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RelaySettings {
    /// Looks at least this often, should a wake-up be lost.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// How long the lease lasts. After a crash others wait this long, the same instance does not wait.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// Entries taken at once.
    pub batch: usize,
    /// How long the next entry may not be taken, while others are, until it counts as refused.
    #[serde(with = "humantime_serde")]
    pub refused_for: Duration,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            batch: 1000,
            refused_for: Duration::from_mins(1),
        }
    }
}

/// What one round did.
#[derive(Debug, PartialEq, Eq)]
pub enum Round {
    /// There was nothing to publish.
    Idle,
    /// This many messages reached the broker.
    Published(usize),
    /// The broker did not take the next entry; it stays first in line.
    Delayed(String),
    /// Somebody else holds the lease.
    Standby,
}

/// A relay: the lease it holds, and when that must be renewed.
pub struct Relay {
    store: Arc<dyn Store>,
    owner: String,
    settings: RelaySettings,
    held: Option<(Lease, Timestamp)>,
    refusals: Refusals,
    tracer: Tracer,
    /// Where the engine leaves what it has promised; without it everything is read from the outbox.
    handover: Option<Arc<Handover>>,
    /// Up to where everything in line is published; `None` when only the outbox knows.
    published: Option<i64>,
    settling: Settling,
}

impl Relay {
    /// A relay for the outbox of `store`. `owner` names this instance; a restart must use the same name.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, owner: String, settings: RelaySettings) -> Self {
        let (refusals, tracer, settling) = (Refusals::default(), Tracer::off(), Settling::new(store.clone()));
        Self {
            store,
            owner,
            settings,
            held: None,
            refusals,
            tracer,
            handover: None,
            published: None,
            settling,
        }
    }

    /// The same, which writes down what it publishes.
    #[must_use]
    pub fn traced(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// The same, to which the engine hands over what it has promised.
    #[must_use]
    pub fn fed_by(self, handover: Arc<Handover>) -> Self {
        Self { handover: Some(handover), ..self }
    }

    /// One round: lease, look, publish, settle.
    ///
    /// Dying anywhere in it loses nothing: what was published but not settled is published again under the
    /// same message id.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn round(
        &mut self,
        publish: &dyn Publish,
        observer: &dyn Observer,
        now: Timestamp,
    ) -> Result<Round, StoreFault> {
        let Some(lease) = self.lease(now).await? else {
            // What the broker takes from this one is not known any more.
            self.refusals = Refusals::default();
            publish.judged(&PublishOutcome::default());
            return Ok(Round::Standby);
        };
        let next = self.handover.as_ref().map(|handover| handover.next(self.published, self.settings.batch));
        let round = match next {
            Some(Next::Entries(entries)) => self.go_on(lease, entries, publish, observer, now).await,
            Some(Next::Behind(position)) => match self.behind(position).await {
                Ok(Some(entries)) => self.go_on(lease, entries, publish, observer, now).await,
                Ok(None) => self.look(&lease, publish, observer, now).await,
                Err(fault) => Err(fault),
            },
            Some(Next::Look) | None => self.look(&lease, publish, observer, now).await,
        };
        if !matches!(round, Ok(Round::Idle | Round::Published(_))) {
            self.published = None;
        }
        round
    }

    /// What others have promised, among what was handed over.
    async fn behind(&self, position: i64) -> Result<Option<Vec<OutboxEntry>>, StoreFault> {
        let entries = self.store.entries_after(position, self.settings.batch).await?;
        if let Some(handover) = &self.handover
            && entries.as_ref().is_some_and(|entries| entries.len() >= self.settings.batch)
        {
            // There may be more.
            handover.look_behind();
        }
        Ok(entries)
    }

    /// Publishes what was handed over, or read behind it: it follows all that is published.
    async fn go_on(
        &mut self,
        lease: Lease,
        entries: Vec<OutboxEntry>,
        publish: &dyn Publish,
        observer: &dyn Observer,
        now: Timestamp,
    ) -> Result<Round, StoreFault> {
        if !self.settling.goes_on(observer).await? {
            return Ok(self.fenced_off());
        }
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(Round::Idle);
        };
        let (first, last) = (first.seq, last.seq);
        let (published, took) = self.publish(&entries, publish, now).await;
        if published.done.len() < entries.len() {
            if !self.settling.ends(observer).await? {
                return Ok(self.fenced_off());
            }
            self.published = None;
            return self.settle(&lease, entries, published, took, observer, now).await;
        }
        let count = entries.len();
        let run = PublishedRun { first, last, subjects: by_subject(&entries), at: after_all(now, took) };
        self.published = Some(last);
        self.settling.begin(lease, run, (count, took));
        self.write_down(entries, published.done, took);
        Ok(Round::Published(count))
    }

    /// Publishes what the outbox holds.
    async fn look(
        &mut self,
        lease: &Lease,
        publish: &dyn Publish,
        observer: &dyn Observer,
        now: Timestamp,
    ) -> Result<Round, StoreFault> {
        // What is not settled would be published again.
        if !self.settling.ends(observer).await? {
            return Ok(self.fenced_off());
        }
        let mut end = None;
        if let Some(handover) = &self.handover {
            handover.look_now();
            end = self.store.sequence_end().await?;
        }
        let entries = self.store.pending_entries(self.settings.batch).await?;
        let (count, is_all) = (entries.len(), entries.len() < self.settings.batch);
        let Some(last) = entries.iter().map(|entry| entry.seq).max() else {
            self.published = end;
            return Ok(Round::Idle);
        };
        let (published, took) = self.publish(&entries, publish, now).await;
        let is_all = is_all && published.done.len() == count;
        self.published = end.filter(|_| is_all).map(|end| end.max(last));
        self.settle(lease, entries, published, took, observer, now).await
    }

    async fn publish(
        &mut self,
        entries: &[OutboxEntry],
        publish: &dyn Publish,
        now: Timestamp,
    ) -> (PublishOutcome, Duration) {
        let began = Instant::now();
        let published = publish.publish(entries).await;
        let took = began.elapsed();
        let patience = (now, self.settings.refused_for);
        let published = self.refusals.judge(published, entries, publish, patience).await;
        publish.judged(&published);
        for (seq, reason) in &published.refused {
            error!(
                outbox_seq = seq,
                "the broker does not take this message, it waits for an operator: {reason}"
            );
        }
        (published, took)
    }

    async fn settle(
        &mut self,
        lease: &Lease,
        entries: Vec<OutboxEntry>,
        published: PublishOutcome,
        took: Duration,
        observer: &dyn Observer,
        now: Timestamp,
    ) -> Result<Round, StoreFault> {
        let (count, refused) = (published.done.len(), published.refused.len());
        let delayed = published.delayed.as_ref().map(|(_, reason)| reason.clone());
        if count + refused > 0 || delayed.is_some() {
            // Only who writes it down wants to know.
            let done = self.tracer.is_on().then(|| published.done.clone());
            if !self.store.settle(lease, published, after_all(now, took)).await? {
                return Ok(self.fenced_off());
            }
            // What nobody settled is published again, and counts then.
            observer.published(count, refused, took);
            self.write_down(entries, done.unwrap_or_default(), took);
        }
        Ok(delayed.map_or(Round::Published(count), Round::Delayed))
    }

    fn fenced_off(&mut self) -> Round {
        warn!("the relay's lease lapsed during a publish; another relay goes on");
        (self.held, self.published) = (None, None);
        Round::Standby
    }

    /// Writes down what was published of what is recorded: each message in its trace, and the batch, linked to each.
    fn write_down(&self, mut entries: Vec<OutboxEntry>, mut done: Vec<i64>, took: Duration) {
        if !self.tracer.is_on() {
            return;
        }
        done.sort_unstable();
        entries.retain(|entry| entry.trace.is_some() && done.binary_search(&entry.seq).is_ok());
        let traces = entries.iter().filter_map(|entry| entry.trace);
        let recorded: Vec<_> = traces.filter(|trace| trace.is_sampled).collect();
        let batch = self.tracer.begin_batch(&recorded);
        for OutboxEntry { id, saga, subject, trace, .. } in entries {
            let Some(begun) = self.tracer.begin(trace, saga) else { continue };
            let batch = batch.filter(|_| begun.context.is_sampled);
            self.tracer.end(begun, took, || SpanDetails {
                operation: Operation::Publish { subject, message_id: id },
                failed: None,
                links: batch.map(|batch| batch.context).into_iter().collect(),
            });
        }
        if let Some(batch) = batch {
            let operation = Operation::PublishBatch { messages: done.len() };
            self.tracer.end(batch, took, || SpanDetails { operation, failed: None, links: recorded });
        }
    }

    async fn lease(&mut self, now: Timestamp) -> Result<Option<Lease>, StoreFault> {
        // Renewed at half time: a round that takes longer than the other half loses it, and is fenced off.
        if let Some((lease, renew_at)) = &self.held
            && now < *renew_at
        {
            return Ok(Some(lease.clone()));
        }
        let span = SignedDuration::try_from(self.settings.lease).unwrap_or(SignedDuration::MAX);
        let (until, renew_at) = (after(now, span), after(now, span / 2));
        let held = self.held.as_ref().map(|(lease, _)| lease);
        let lease = self.store.acquire_lease(RELAY_LEASE, held, &self.owner, now, until).await?;
        // Taken anew, it may have been somebody else's in between, who may have published anything.
        if lease.as_ref() != held {
            self.published = None;
        }
        self.held = lease.clone().map(|lease| (lease, renew_at));
        Ok(lease)
    }
}

/// What the broker has got is not older than when it said so.
fn after_all(now: Timestamp, took: Duration) -> Timestamp {
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

fn after(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Repeats rounds until dropped.
pub fn run(
    mut relay: Relay,
    publish: Box<dyn Publish>,
    handover: Arc<Handover>,
    clock: SharedClock,
    observer: SharedObserver,
) -> BoxFuture<'static, ()> {
    /// After a failure; grows to the poll interval, so that a broker that is down is not hammered.
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    /// A settlement that nothing carries takes about as long, and they begin as far apart; what waits is begun then.
    const SETTLED_WITHIN: Duration = Duration::from_millis(100);
    Box::pin(async move {
        let mut pause = FIRST_PAUSE;
        let mut is_delayed = false;
        let mut trouble = Trouble::default();
        loop {
            // Armed before looking: an entry written after the look finds the wake-up already waiting.
            let woken = handover.woken();
            let round = relay.round(publish.as_ref(), observer.as_ref(), clock.now()).await;
            if round.is_ok() && trouble.ended() {
                info!("the relay uses its store again");
            }
            match round {
                Ok(Round::Published(_)) => {
                    if std::mem::take(&mut is_delayed) {
                        info!("the broker takes messages again");
                    }
                    pause = FIRST_PAUSE;
                }
                // What others commit is no reason to ask for the lease that one of them has.
                Ok(Round::Standby) => tokio::time::sleep(relay.settings.poll).await,
                Ok(Round::Idle) => {
                    let is_settled = relay.settling.is_done();
                    let pause = if is_settled { relay.settings.poll } else { SETTLED_WITHIN };
                    if tokio::time::timeout(pause, woken).await.is_err() && is_settled {
                        handover.look_again();
                    }
                }
                Ok(Round::Delayed(reason)) => {
                    if !std::mem::replace(&mut is_delayed, true) {
                        warn!("publishing waits for the broker: {reason}");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(relay.settings.poll);
                }
                Err(fault) => {
                    if let Some(what) = trouble.met(&fault) {
                        error!("the relay cannot use its store: {what}");
                    }
                    tokio::time::sleep(relay.settings.poll).await;
                }
            }
        }
    })
}
