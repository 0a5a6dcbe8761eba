//! Shell: messages of JetStream: the facts that they carry, and the subject on which they were published.

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use saga_core::retry::error_chain;

use super::connection::BoxedError;
use super::pack::{self, PackedFact};
use crate::runtime::bus::BusError;

/// Reads the message at a position of a stream; `None` if the stream has nothing there any more.
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

/// Formats an error in one line.
pub(super) fn in_one_line(error: BoxedError) -> BusError {
    error_chain(error.as_ref())
}

/// Subject on which a message was published.
///
/// The broker can copy messages to another subject, for those who may change a stream (NATS ADR-28, ADR-31), and names the
/// original in a header. Anybody can write that header. A message with another original subject gets a subject that no step
/// consumes.
pub(super) fn published_subject(subject: &str, headers: Option<&HeaderMap>) -> String {
    let originals = headers.into_iter().flat_map(|headers| headers.get_all("Nats-Subject"));
    let other = originals.map(HeaderValue::as_str).find(|original| *original != subject);
    other.map_or_else(|| subject.to_owned(), |original| format!("{original:?}, copied to {subject}"))
}

/// Facts of a message, each with its headers: one, or those of a pack. An invalid pack is one fact that nobody can read.
pub(super) fn facts_of(payload: &Bytes, headers: Option<&HeaderMap>) -> Vec<PackedFact> {
    let count = headers.and_then(|headers| headers.get(pack::HEADER));
    match count.and_then(|count| pack::unpack(count.as_str(), payload)) {
        Some(facts) => facts,
        None => vec![PackedFact { payload: payload.clone(), headers: headers_of(headers) }],
    }
}

/// Payloads of the facts of a message, for readers that are no step, such as a load generator or a test.
#[must_use]
pub fn payloads_of(payload: &Bytes, headers: Option<&HeaderMap>) -> Vec<Bytes> {
    facts_of(payload, headers).into_iter().map(|fact| fact.payload).collect()
}

fn headers_of(headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let all = headers.into_iter().flat_map(HeaderMap::iter);
    let mut headers: Vec<_> = all
        .flat_map(|(name, values)| values.iter().map(|value| (name.to_string(), value.to_string())))
        .collect();
    headers.sort();
    headers
}
