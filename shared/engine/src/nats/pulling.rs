//! Shell: how messages are pulled from the broker, by whoever does.

use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use futures::future::BoxFuture;
use saga_core::retry::error_chain;

use super::connection::{BoxedError, NatsBus};
use super::pack::{self, Packed};
use crate::runtime::bus::BusError;

/// One request for messages lasts this long; the broker beats twice meanwhile, so a dead one is noticed.
const PULL_EXPIRES: Duration = Duration::from_secs(4);
const HEARTBEAT: Duration = Duration::from_secs(2);

/// All replicas of a service are in this group of its durables.
pub(super) const GROUP: &str = "replicas";

/// A pull consumer of JetStream.
pub(super) type Pull = consumer::Consumer<pull::Config>;

/// The messages of a consumer, of which `pull` are asked for at once, until something goes wrong; of one with a group, those
/// that nobody with a smaller `priority` asks for.
pub(super) fn messages_of<'a>(
    bus: &'a NatsBus,
    consumer: &'a Pull,
    pull: usize,
    priority: Option<usize>,
) -> BoxFuture<'a, Result<pull::Stream, BusError>> {
    let stream = consumer.stream().max_messages_per_batch(pull).expires(PULL_EXPIRES).heartbeat(HEARTBEAT);
    let stream = match priority {
        Some(priority) => stream.group(GROUP).priority(priority),
        None => stream,
    };
    Box::pin(async move { bus.in_time(stream.messages()).await.map_err(in_words) })
}

/// Tells the broker what became of a message.
pub(super) fn tell<'a>(
    bus: &'a NatsBus,
    message: &'a Message,
    kind: AckKind,
) -> BoxFuture<'a, Result<(), BusError>> {
    Box::pin(async move { bus.in_time(message.ack_with(kind)).await.map_err(in_words) })
}

/// What a stream has at a place; `None` when it has nothing there any more.
pub(super) async fn stored<I: Send + Sync>(
    stream: &Stream<I>,
    sequence: u64,
) -> Result<Option<StreamMessage>, BoxedError> {
    match stream.get_raw_message(sequence).await {
        Ok(stored) => Ok(Some(stored)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An error in one line.
pub(super) fn in_words(error: BoxedError) -> BusError {
    error_chain(error.as_ref())
}

/// The subject on which a message was said. What the broker itself has copied to `subject`, as it does for whoever may
/// change a stream or ask one, was said where the original was (NATS ADR-28, ADR-31). The header that tells so is anybody's
/// to write: what bears another subject than its own was said nowhere that a step knows.
pub(super) fn said_on(subject: &str, headers: Option<&HeaderMap>) -> String {
    let of_originals = headers.into_iter().flat_map(|headers| headers.get_all("Nats-Subject"));
    let elsewhere = of_originals.map(HeaderValue::as_str).find(|original| *original != subject);
    elsewhere.map_or_else(|| subject.to_owned(), |original| format!("{original:?}, copied to {subject}"))
}

/// The facts that a message carries, each with its headers: one, or those of a pack. What says that it is a pack and is
/// none is one message, which nobody can read.
pub(super) fn facts_of(payload: &Bytes, headers: Option<&HeaderMap>) -> Vec<Packed> {
    let count = headers.and_then(|headers| headers.get(pack::HEADER));
    match count.and_then(|count| pack::unpack(count.as_str(), payload)) {
        Some(facts) => facts,
        None => vec![Packed { payload: payload.clone(), headers: headers_of(headers) }],
    }
}

/// The payloads of the facts that a message carries, for readers that are no step (a load generator, a test).
#[must_use]
pub fn payloads_of(message: &async_nats::Message) -> Vec<Bytes> {
    let facts = facts_of(&message.payload, message.headers.as_ref());
    facts.into_iter().map(|fact| fact.payload).collect()
}

/// Headers, in the order of their names.
fn headers_of(headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let all = headers.into_iter().flat_map(HeaderMap::iter);
    let mut headers: Vec<_> = all
        .flat_map(|(name, values)| values.iter().map(|value| (name.to_string(), value.to_string())))
        .collect();
    headers.sort();
    headers
}
