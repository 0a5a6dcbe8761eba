//! Shell: publishes outbox entries to JetStream: facts share packs, and the rest goes in atomic batches or one by one.
//!
//! Packs come first. If the broker does not accept one, its facts follow in atomic batches, and those of a failed batch
//! one by one. Only a single fact shows whether it is itself to blame.

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

use super::atomic_batch::{self, MAX_BATCH};
use super::connection::NatsBus;
use super::pack_publish::{self, Arrived};
use super::position_header::{self, PositionHeader};
use crate::runtime::bus::Publish;
use crate::runtime::injected_faults::InjectedFaults;
use crate::runtime::publish_stall::PublishStall;
use crate::store::{OutboxEntry, PublishOutcome, Store};

/// Number of entries from which an atomic batch is faster than single publishes. Measured with `sync_interval: always`:
/// below it 0.5 ms against 8 ms; at 256 entries 58,000 messages per second against 5,000.
const BATCH_FROM: usize = 16;

/// Publisher of one service's outbox.
pub struct Publisher {
    bus: NatsBus,
    service: &'static str,
    faults: InjectedFaults,
    position_header: Option<PositionHeader>,
    publish_stall: PublishStall,
}

impl Publisher {
    /// Creates a publisher for the outbox of `service`, whose subjects are all in its own stream.
    #[must_use]
    pub fn new(bus: NatsBus, service: &'static str, faults: InjectedFaults) -> Self {
        Self { bus, service, faults, position_header: None, publish_stall: PublishStall::default() }
    }

    /// Adds the position of `store`, which has the outbox, to each message.
    #[must_use]
    pub fn with_position_header(self, store: Arc<dyn Store>) -> Self {
        Self { position_header: Some(PositionHeader::new(store)), ..self }
    }

    /// Reports publish stalls to `publish_stall`, which readiness reads.
    #[must_use]
    pub fn with_publish_stall(self, publish_stall: PublishStall) -> Self {
        Self { publish_stall, ..self }
    }

    /// Publishes what injected faults add: copies that the broker cannot recognise, and invalid messages.
    async fn publish_injected(&self, entries: &[OutboxEntry], published: &PublishOutcome) {
        if !self.faults.is_any_active() {
            return;
        }
        for entry in entries.iter().filter(|entry| published.done.contains(&entry.seq)) {
            if self.faults.trigger(FaultKind::PUBLISH_TWICE, "").is_some() {
                self.publish_without_id(entry, entry.payload.clone()).await;
            }
            if self.faults.trigger(FaultKind::PUBLISH_GARBAGE, "").is_some() {
                self.publish_without_id(entry, Bytes::from_static(b"{\"this is\": \"no envelope\"")).await;
            }
        }
    }

    /// Publishes without a message id, so that the broker does not drop the message as a duplicate.
    async fn publish_without_id(&self, entry: &OutboxEntry, payload: Bytes) {
        let published = match self.bus.jetstream.publish(entry.subject.clone(), payload).await {
            Ok(ack) => ack.await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            warn!(subject = entry.subject, "message of an injected fault not published: {error}");
        }
    }

    async fn publish_all(&self, entries: &[OutboxEntry]) -> PublishOutcome {
        let position = match &self.position_header {
            Some(header) => header.value().await,
            None => None,
        };
        if self.bus.settings.max_pack <= 1 {
            return self.publish_each(entries, position.as_deref()).await;
        }
        let Arrived { entries: arrived, delayed } =
            pack_publish::publish(&self.bus, entries, position.as_deref()).await;
        if arrived.len() == entries.len() || delayed.is_some() {
            return PublishOutcome {
                done: arrived.into_iter().collect(),
                delayed,
                ..PublishOutcome::default()
            };
        }
        let rest: Vec<_> = entries.iter().filter(|entry| !arrived.contains(&entry.seq)).cloned().collect();
        let mut published = self.publish_each(&rest, position.as_deref()).await;
        published.done.extend(arrived);
        published
    }

    /// Publishes each fact in a message of its own.
    async fn publish_each(&self, entries: &[OutboxEntry], position: Option<&str>) -> PublishOutcome {
        let mut published = PublishOutcome::default();
        // Sagas with a rejected entry, whose later entries wait.
        let mut blocked = BTreeSet::new();
        for chunk in entries.chunks(MAX_BATCH) {
            let is_free = blocked.is_empty() || !chunk.iter().any(|entry| blocked.contains(&entry.saga));
            if chunk.len() >= BATCH_FROM && is_free {
                match atomic_batch::publish(&self.bus, chunk, position).await {
                    Ok(()) => {
                        published.done.extend(chunk.iter().map(|entry| entry.seq));
                        continue;
                    }
                    // Single publishes show which message is to blame, and succeed for those that have arrived.
                    Err(reason) => {
                        debug!(
                            messages = chunk.len(),
                            "batch not committed, publishing its messages one by one: {reason}"
                        );
                    }
                }
            }
            if !self.publish_singly(chunk, position, &mut published, &mut blocked).await {
                break;
            }
        }
        published
    }

    /// Publishes messages one by one, with a window in flight. False if one was delayed: later entries then count as not
    /// published, so that nothing overtakes it in the outbox.
    async fn publish_singly(
        &self,
        entries: &[OutboxEntry],
        position: Option<&str>,
        published: &mut PublishOutcome,
        blocked: &mut BTreeSet<Uuid>,
    ) -> bool {
        let mut rest = entries;
        while !rest.is_empty() {
            let (window, remaining) = window_of(rest, blocked);
            rest = remaining;
            let mut acks = Vec::with_capacity(window.len());
            for entry in &window {
                let message = message(entry, position);
                acks.push(self.bus.jetstream.send_publish(entry.subject.clone(), message).await);
            }
            for (entry, ack) in window.into_iter().zip(acks) {
                let answer = match ack {
                    Ok(ack) => ack.await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(_) => published.done.push(entry.seq),
                    Err(error) if self.is_permanent(&entry.subject, &error).await => {
                        blocked.insert(entry.saga);
                        published.rejected.push((entry.seq, error_chain(&error)));
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

    /// True if the broker will never accept this message.
    async fn is_permanent(&self, subject: &str, error: &PublishError) -> bool {
        use std::error::Error as _;
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => true,
            // The stream may be lost with the broker's disk, or changed by hand: it is repaired, and the message retried.
            // A subject outside the service's own never fits.
            PublishErrorKind::StreamNotFound => {
                if self.bus.is_connected()
                    && let Err(fault) = self.bus.ensure_stream(self.service).await
                {
                    warn!("the stream cannot be repaired: {}", error_chain(&fault));
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

/// Takes the entries that may be in flight together, without those of blocked sagas. Their number bounds how many are in
/// doubt after an outage. Each saga has one, as later entries must wait if the first is rejected.
fn window_of<'a>(
    entries: &'a [OutboxEntry],
    blocked: &BTreeSet<Uuid>,
) -> (Vec<&'a OutboxEntry>, &'a [OutboxEntry]) {
    let mut window: Vec<&OutboxEntry> = Vec::with_capacity(BATCH_FROM);
    let mut taken = 0;
    for entry in entries {
        if window.len() >= BATCH_FROM || window.iter().any(|other| other.saga == entry.saga) {
            break;
        }
        taken += 1;
        if !blocked.contains(&entry.saga) {
            window.push(entry);
        }
    }
    (window, &entries[taken..])
}

fn message(entry: &OutboxEntry, position: Option<&str>) -> PublishMessage {
    let mut message = PublishMessage::build().payload(entry.payload.clone()).message_id(entry.id.to_string());
    if let Some(position) = position {
        message = message.header(position_header::HEADER, position);
    }
    if let Some(trace) = entry.trace {
        message = message.header(TRACEPARENT, trace.to_string().as_str());
    }
    message
}

impl Publish for Publisher {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        Box::pin(async move {
            // The client would keep messages until the broker is back, and the relay publishes them again by then.
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

    fn round_ended(&self, published: &PublishOutcome) {
        match self.bus.is_connected() {
            true => self.publish_stall.record(published, Timestamp::now()),
            false => self.publish_stall.clear(),
        }
    }
}
