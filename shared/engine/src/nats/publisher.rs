//! Shell: how a batch of outbox entries reaches the broker: pipelined singles when few, atomic batches when many.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::fault::FaultKind;
use saga_core::retry::error_chain;
use saga_core::trace::TRACEPARENT;
use tracing::{debug, warn};
use uuid::Uuid;

use super::atomic_batch::{self, BATCH_MAX};
use super::connection::NatsBus;
use super::marking::{self, Marker};
use super::packed::{self, Arrived};
use crate::runtime::bus::Publish;
use crate::runtime::faults::Faults;
use crate::runtime::held_up::HeldUp;
use crate::store::{OutboxEntry, PublishOutcome, Store};

/// From this many entries on a batch is quicker than pipelined singles (measured with `sync_interval: always`:
/// below, 0.5 ms against 8 ms; at 256, 58k messages/s against 5k).
const BATCH_FROM: usize = 16;

/// Publishes to JetStream.
pub struct Publisher {
    bus: NatsBus,
    service: &'static str,
    faults: Faults,
    /// How far the store has come, which holds the outbox.
    marker: Option<Marker>,
    held_up: HeldUp,
}

impl Publisher {
    /// For the outbox of `service`, all of whose subjects are in its own stream.
    #[must_use]
    pub fn new(bus: NatsBus, service: &'static str, faults: Faults) -> Self {
        Self { bus, service, faults, marker: None, held_up: HeldUp::default() }
    }

    /// The same, whose messages say how far `store` has come, which holds the outbox.
    #[must_use]
    pub fn marking(self, store: Arc<dyn Store>) -> Self {
        Self { marker: Some(Marker::new(store)), ..self }
    }

    /// The same, which says in `held_up` when the broker takes nothing although it is connected.
    #[must_use]
    pub fn telling(self, held_up: HeldUp) -> Self {
        Self { held_up, ..self }
    }

    /// What injected faults add to a batch: copies that the broker cannot know, and messages that are none.
    async fn publish_injected(&self, entries: &[OutboxEntry], published: &PublishOutcome) {
        if !self.faults.are_any() {
            return;
        }
        for entry in entries.iter().filter(|entry| published.done.contains(&entry.seq)) {
            if self.faults.strikes(FaultKind::PUBLISH_TWICE, "").is_some() {
                self.publish_unknown(entry, entry.payload.clone()).await;
            }
            if self.faults.strikes(FaultKind::PUBLISH_GARBAGE, "").is_some() {
                self.publish_unknown(entry, Bytes::from_static(b"{\"this is\": \"no envelope\"")).await;
            }
        }
    }

    /// Publishes under no message id, so that the broker does not take it for a repetition.
    async fn publish_unknown(&self, entry: &OutboxEntry, payload: Bytes) {
        let published = match self.bus.jetstream.publish(entry.subject.clone(), payload).await {
            Ok(ack) => ack.await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            warn!(subject = entry.subject, "a fault could not be published: {error}");
        }
    }

    async fn publish_all(&self, entries: &[OutboxEntry]) -> PublishOutcome {
        let mark = match &self.marker {
            Some(marker) => marker.say().await,
            None => None,
        };
        if self.bus.settings.pack <= 1 {
            return self.publish_each(entries, mark.as_deref()).await;
        }
        let Arrived { entries: arrived, delayed } =
            packed::publish(&self.bus, entries, mark.as_deref()).await;
        if arrived.len() == entries.len() || delayed.is_some() {
            return PublishOutcome {
                done: arrived.into_iter().collect(),
                delayed,
                ..PublishOutcome::default()
            };
        }
        // Whatever is wrong with a pack, its facts alone tell which of them is to blame.
        let rest: Vec<_> = entries.iter().filter(|entry| !arrived.contains(&entry.seq)).cloned().collect();
        let mut published = self.publish_each(&rest, mark.as_deref()).await;
        published.done.extend(arrived);
        published
    }

    /// Each fact in a message of its own.
    async fn publish_each(&self, entries: &[OutboxEntry], mark: Option<&str>) -> PublishOutcome {
        let mut published = PublishOutcome::default();
        // Sagas of what was refused: what follows it waits.
        let mut blocked = BTreeSet::new();
        for chunk in entries.chunks(BATCH_MAX) {
            let is_free = blocked.is_empty() || !chunk.iter().any(|entry| blocked.contains(&entry.saga));
            if chunk.len() >= BATCH_FROM && is_free {
                match atomic_batch::publish(&self.bus, chunk, mark).await {
                    Ok(()) => {
                        published.done.extend(chunk.iter().map(|entry| entry.seq));
                        continue;
                    }
                    // Singles tell which message is to blame, and answer "duplicate" for those that arrived.
                    Err(reason) => {
                        debug!(messages = chunk.len(), "batch not committed, going single: {reason}")
                    }
                }
            }
            if !self.publish_singly(chunk, mark, &mut published, &mut blocked).await {
                break;
            }
        }
        published
    }

    /// Sends all, then awaits the acknowledgements in order. `false` when one was not taken: what comes behind
    /// it counts as not published, so that nothing overtakes it in the outbox.
    async fn publish_singly(
        &self,
        entries: &[OutboxEntry],
        mark: Option<&str>,
        published: &mut PublishOutcome,
        blocked: &mut BTreeSet<Uuid>,
    ) -> bool {
        // A window, not everything at once: an outage leaves at most this many unclear. And with each saga in it once:
        // what follows a refused entry of its saga has to wait.
        let same_saga =
            |window: &[&OutboxEntry], entry: &OutboxEntry| window.iter().any(|e| e.saga == entry.saga);
        let mut rest = entries.iter().peekable();
        while rest.peek().is_some() {
            let mut window: Vec<&OutboxEntry> = Vec::with_capacity(BATCH_FROM);
            while let Some(entry) =
                rest.next_if(|entry| window.len() < BATCH_FROM && !same_saga(&window, entry))
            {
                if !blocked.contains(&entry.saga) {
                    window.push(entry);
                }
            }
            let mut acks = Vec::with_capacity(window.len());
            for entry in &window {
                let mut message =
                    PublishMessage::build().payload(entry.payload.clone()).message_id(entry.id.to_string());
                if let Some(mark) = mark {
                    message = message.header(marking::HEADER, mark);
                }
                if let Some(trace) = entry.trace {
                    message = message.header(TRACEPARENT, trace.to_string().as_str());
                }
                acks.push(self.bus.jetstream.send_publish(entry.subject.clone(), message).await);
            }
            for (entry, ack) in window.into_iter().zip(acks) {
                let answer = match ack {
                    Ok(ack) => ack.await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(_) => published.done.push(entry.seq),
                    Err(error) if self.is_about_the_message(&entry.subject, &error).await => {
                        blocked.insert(entry.saga);
                        published.refused.push((entry.seq, error_chain(&error)));
                    }
                    Err(error) => {
                        published.delayed = Some((entry.seq, error_chain(&error)));
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Whether repeating cannot help, because the broker will never take this very message.
    async fn is_about_the_message(&self, subject: &str, error: &PublishError) -> bool {
        use std::error::Error as _;
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => true,
            // The stream may have been lost with the broker's disk, or changed by hand: it is mended, and the
            // message tried again. One whose subject is no business of the stream never fits.
            PublishErrorKind::StreamNotFound => {
                if self.bus.is_connected()
                    && let Err(fault) = self.bus.ensure_stream(self.service).await
                {
                    warn!("the stream cannot be mended: {}", error_chain(&fault));
                }
                !subject.strip_prefix(self.service).is_some_and(|rest| rest.starts_with('.'))
            }
            PublishErrorKind::Other => error
                .source()
                .and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>())
                .is_some_and(|error| error.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM),
            PublishErrorKind::WrongLastMessageId
            | PublishErrorKind::WrongLastSequence
            | PublishErrorKind::TimedOut
            | PublishErrorKind::BrokenPipe
            | PublishErrorKind::MaxAckPending => false,
        }
    }
}

impl Publish for Publisher {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        Box::pin(async move {
            // Without this the client would queue for the broker's return what is published again by then.
            if !self.bus.is_connected() {
                let first = entries.first().map(|entry| (entry.seq, "not connected".to_owned()));
                return PublishOutcome { delayed: first, ..PublishOutcome::default() };
            }
            let published = self.publish_all(entries).await;
            self.publish_injected(entries, &published).await;
            if !published.done.is_empty() {
                self.faults.crash(FaultKind::CRASH_AFTER_PUBLISH);
            }
            published
        })
    }

    fn judged(&self, published: &PublishOutcome) {
        match self.bus.is_connected() {
            true => self.held_up.published(published, Timestamp::now()),
            false => self.held_up.clear(),
        }
    }
}
