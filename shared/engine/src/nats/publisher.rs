//! Shell: publishes outbox entries to JetStream, in windows of packs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures::future::BoxFuture;
use saga_core::fault::FaultKind;
use saga_core::retry::error_chain;
use saga_core::trace::TRACEPARENT;
use tracing::warn;
use uuid::Uuid;

use super::connection::NatsBus;
use super::pack;
use super::pack_publishing::{PackAnswer, PackSender, publish_in_packs};
use super::position_header::{self, PositionHeader};
use crate::runtime::bus::{BusError, Publish};
use crate::runtime::clock::{Moment, SystemClock};
use crate::runtime::injected_faults::InjectedFaults;
use crate::runtime::publish_stall::PublishStall;
use crate::store::{OutboxEntry, PublishOutcome, Store};

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
            Some(header) => header.value(&self.bus, self.service).await,
            None => Ok(None),
        };
        let position = match position {
            Ok(position) => position,
            Err(why) => {
                let delayed = entries.first().map(|entry| (entry.seq, why));
                return PublishOutcome { delayed, ..PublishOutcome::default() };
            }
        };
        let sender =
            PositionedSender { publisher: self, position, has_checked_limit: AtomicBool::new(false) };
        publish_in_packs(entries, self.bus.settings.max_pack, &sender).await
    }

    /// True if the broker will never accept this message. Looks for a raised message limit once per batch.
    async fn is_permanent(
        &self,
        subject: &str,
        error: &PublishError,
        has_checked_limit: &AtomicBool,
    ) -> bool {
        use std::error::Error as _;
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                has_checked_limit.swap(true, Ordering::Relaxed) || !self.bus.adopt_raised_limit().await
            }
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

/// Sends packs with the position of the database.
struct PositionedSender<'a> {
    publisher: &'a Publisher,
    position: Option<String>,
    has_checked_limit: AtomicBool,
}

impl PackSender for PositionedSender<'_> {
    type Sent = Result<PublishAckFuture, PublishError>;

    async fn send(&self, entries: &[&OutboxEntry]) -> Self::Sent {
        let message = message(entries, self.position.as_deref());
        self.publisher.bus.jetstream.send_publish(entries[0].subject.clone(), message).await
    }

    async fn answer(&self, entries: &[&OutboxEntry], sent: Self::Sent) -> PackAnswer {
        let answer = match sent {
            Ok(ack) => ack.await,
            Err(error) => Err(error),
        };
        match (answer, entries) {
            (Ok(_), _) => PackAnswer::Accepted,
            (Err(error), [single]) => {
                let is_permanent =
                    self.publisher.is_permanent(&single.subject, &error, &self.has_checked_limit).await;
                PackAnswer::NotAccepted { reason: error_chain(&error), is_permanent }
            }
            (Err(error), _) if is_unanswered(&error) => PackAnswer::Unanswered(error_chain(&error)),
            (Err(error), _) => PackAnswer::NotAccepted { reason: error.to_string(), is_permanent: false },
        }
    }
}

/// Builds the message of a pack. A single fact is an ordinary message.
fn message(entries: &[&OutboxEntry], position: Option<&str>) -> PublishMessage {
    let message = match entries {
        [entry] => {
            let message = PublishMessage::build().payload(entry.payload.clone());
            let message = identified(message, entries, || entry.id);
            match entry.sent_context() {
                Some(trace) => message.header(TRACEPARENT, trace.to_string().as_str()),
                None => message,
            }
        }
        several => {
            let message = PublishMessage::build().payload(pack::pack(several));
            identified(message, several, || pack::id_of(several))
                .header(pack::HEADER, several.len().to_string().as_str())
        }
    };
    match position {
        Some(position) => message.header(position_header::HEADER, position),
        None => message,
    }
}

/// Adds the id by which the broker recognises duplicates. A repetition has none: within the duplicate window the broker would
/// accept it and drop it.
fn identified(
    message: PublishMessage,
    entries: &[&OutboxEntry],
    id: impl FnOnce() -> Uuid,
) -> PublishMessage {
    match entries.iter().any(|entry| entry.is_repetition) {
        true => message,
        false => message.message_id(id().to_string()),
    }
}

/// True if the broker did not answer, which says nothing about the message.
fn is_unanswered(error: &PublishError) -> bool {
    matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe)
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

    fn probe(&self) -> BoxFuture<'_, Result<(), BusError>> {
        Box::pin(async move {
            if let Some(reason) = self.bus.disconnected() {
                self.publish_stall.clear();
                return Err(reason);
            }
            let answered = self.bus.is_answered(self.service).await;
            if let Err(reason) = &answered {
                self.publish_stall.stalled(reason, Moment::now(&SystemClock));
            }
            answered
        })
    }

    fn round_ended(&self, published: &PublishOutcome) {
        match self.bus.is_connected() {
            true => self.publish_stall.record(published, Moment::now(&SystemClock)),
            false => self.publish_stall.clear(),
        }
    }
}
