//! Shell: the relay: publishes what the outbox promises, in order, under a lease.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use saga_core::retry::error_chain;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::bus::Publish;
use super::clock::SharedClock;
use super::observer::{Observer, SharedObserver};
use super::operation::Operation;
use super::refusal::Refusals;
use super::tracer::{SpanDetails, Tracer};
use crate::store::{Lease, OutboxEntry, Store, StoreFault};

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
}

impl Relay {
    /// A relay for the outbox of `store`. `owner` names this instance; a restart must use the same name.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, owner: String, settings: RelaySettings) -> Self {
        let (refusals, tracer) = (Refusals::default(), Tracer::off());
        Self { store, owner, settings, held: None, refusals, tracer }
    }

    /// The same, which writes down what it publishes.
    #[must_use]
    pub fn traced(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
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
            return Ok(Round::Standby);
        };
        let entries = self.store.pending(self.settings.batch).await?;
        if entries.is_empty() {
            return Ok(Round::Idle);
        }
        let began = Instant::now();
        let published = publish.publish(&entries).await;
        let took = began.elapsed();
        let patience = (now, self.settings.refused_for);
        let published = self.refusals.judge(published, &entries, publish, patience).await;
        publish.judged(&published);
        for (seq, reason) in &published.refused {
            error!(
                outbox_seq = seq,
                "the broker does not take this message, it waits for an operator: {reason}"
            );
        }
        let count = published.done.len();
        let settled_something = count + published.refused.len() > 0;
        let delayed = published.delayed.as_ref().map(|(_, reason)| reason.clone());
        if settled_something || delayed.is_some() {
            let refused = published.refused.len();
            // Only who writes it down wants to know.
            let done = self.tracer.is_on().then(|| published.done.clone());
            // What the broker has got is not older than when it said so.
            let published_at = now.saturating_add(took).unwrap_or(now);
            if !self.store.settle(&lease, published, published_at).await? {
                warn!("the relay's lease lapsed during a publish; another relay goes on");
                self.held = None;
                return Ok(Round::Standby);
            }
            // What nobody settled is published again, and counts then.
            observer.published(count, refused, took);
            if let Some(done) = done {
                self.write_down(entries, done, took);
            }
        }
        Ok(delayed.map_or(Round::Published(count), Round::Delayed))
    }

    /// Writes down what was published of what is recorded: each message in its trace, and the batch, linked to each.
    fn write_down(&self, mut entries: Vec<OutboxEntry>, mut done: Vec<i64>, took: Duration) {
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
        let lease = self.store.take_lease(held, &self.owner, now, until).await?;
        self.held = lease.clone().map(|lease| (lease, renew_at));
        Ok(lease)
    }
}

fn after(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Repeats rounds until dropped.
pub fn run(
    mut relay: Relay,
    publish: Box<dyn Publish>,
    wake: Arc<Notify>,
    clock: SharedClock,
    observer: SharedObserver,
) -> BoxFuture<'static, ()> {
    /// After a failure; grows to the poll interval, so that a broker that is down is not hammered.
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    Box::pin(async move {
        let mut pause = FIRST_PAUSE;
        let mut is_delayed = false;
        loop {
            // Armed before looking: an entry written after the look finds the wake-up already waiting.
            let woken = wake.notified();
            let round = relay.round(publish.as_ref(), observer.as_ref(), clock.now()).await;
            match round {
                Ok(Round::Published(_)) => {
                    if std::mem::take(&mut is_delayed) {
                        info!("the broker takes messages again");
                    }
                    pause = FIRST_PAUSE;
                }
                Ok(Round::Idle | Round::Standby) => {
                    let _ = tokio::time::timeout(relay.settings.poll, woken).await;
                }
                Ok(Round::Delayed(reason)) => {
                    if !std::mem::replace(&mut is_delayed, true) {
                        warn!("publishing waits for the broker: {reason}");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(relay.settings.poll);
                }
                Err(fault) => {
                    error!("the relay cannot use its store: {}", error_chain(&fault));
                    tokio::time::sleep(relay.settings.poll).await;
                }
            }
        }
    })
}
