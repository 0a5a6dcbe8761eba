//! Shell: JetStream's atomic batch publish (NATS ADR-50): all messages of a batch are stored, or none.

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::{publish::PublishAck, response::Response};
use async_nats::{HeaderMap, Message};
use saga_core::trace::TRACEPARENT;
use uuid::Uuid;

use super::connection::{BoxedError, NatsBus};
use super::marking;
use super::pulling::in_words;
use crate::store::OutboxEntry;

/// Most messages that the server takes in one batch (error 10199 above).
pub(super) const BATCH_MAX: usize = 1000;

/// Publishes `entries` (at most [`BATCH_MAX`], all of one stream) as one batch and awaits its commit.
///
/// # Errors
/// Why it was not committed, or not certainly so. Which message is to blame is not known: a single known
/// message id rejects the whole batch (10201).
pub(super) async fn publish(
    bus: &NatsBus,
    entries: &[OutboxEntry],
    mark: Option<&str>,
) -> Result<(), String> {
    let Some((last, rest)) = entries.split_last() else {
        return Ok(());
    };
    let sending = send(bus, last, rest, mark);
    let answer = bus.in_time(sending).await.map_err(in_words)?;
    match serde_json::from_slice::<Response<PublishAck>>(&answer.payload) {
        Ok(Response::Ok(_)) => Ok(()),
        Ok(Response::Err { error }) => Err(error.to_string()),
        Err(error) => Err(format!("the broker's answer cannot be read: {error}")),
    }
}

/// Sends all of a batch and answers what the broker says to the last of it.
async fn send(
    bus: &NatsBus,
    last: &OutboxEntry,
    rest: &[OutboxEntry],
    mark: Option<&str>,
) -> Result<Message, BoxedError> {
    let batch_id = Uuid::now_v7().simple().to_string();
    let headers = |entry: &OutboxEntry, sequence: usize| {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Batch-Id", batch_id.as_str());
        headers.insert("Nats-Batch-Sequence", sequence.to_string());
        headers.insert(NATS_MESSAGE_ID, entry.id.to_string());
        if let Some(mark) = mark {
            headers.insert(marking::HEADER, mark);
        }
        if let Some(trace) = entry.trace {
            headers.insert(TRACEPARENT, trace.to_string());
        }
        headers
    };
    for (index, entry) in rest.iter().enumerate() {
        bus.client
            .publish_with_headers(entry.subject.clone(), headers(entry, index + 1), entry.payload.clone())
            .await?;
    }
    let mut commit = headers(last, rest.len() + 1);
    commit.insert("Nats-Batch-Commit", "1");
    Ok(bus.client.request_with_headers(last.subject.clone(), commit, last.payload.clone()).await?)
}
