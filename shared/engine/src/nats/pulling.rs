//! Shell: how messages are pulled from the broker, by whoever does.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use futures::future::BoxFuture;

use crate::runtime::bus::BusError;

/// One request for messages lasts this long; the broker beats twice meanwhile, so a dead one is noticed.
const PULL_EXPIRES: Duration = Duration::from_secs(4);
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A pull consumer of JetStream.
pub(super) type Pull = consumer::Consumer<pull::Config>;

/// The messages of a consumer, of which `pull` are asked for at once, until something goes wrong.
pub(super) fn messages_of(consumer: &Pull, pull: usize) -> BoxFuture<'_, Result<pull::Stream, BusError>> {
    let stream = consumer.stream().max_messages_per_batch(pull).expires(PULL_EXPIRES).heartbeat(HEARTBEAT);
    Box::pin(async move { stream.messages().await.map_err(|error| error.to_string()) })
}

/// Tells the broker that a message need not come again.
pub(super) fn acknowledge(message: &Message) -> BoxFuture<'_, Result<(), BusError>> {
    Box::pin(async { message.ack_with(AckKind::Ack).await.map_err(|error| error.to_string()) })
}

/// Headers, in the order of their names.
pub(super) fn headers_of(headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let all = headers.into_iter().flat_map(HeaderMap::iter);
    let mut headers: Vec<_> = all
        .flat_map(|(name, values)| values.iter().map(|value| (name.to_string(), value.to_string())))
        .collect();
    headers.sort();
    headers
}
