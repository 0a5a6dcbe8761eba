//! Shell: JetStream's atomic batch publish (NATS ADR-50): the broker stores all messages of a batch, or none.

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::{publish::PublishAck, response::Response};
use async_nats::{HeaderMap, Message};
use saga_core::trace::TRACEPARENT;
use uuid::Uuid;

use super::connection::{BoxedError, NatsBus};
use super::message::in_one_line;
use super::position_header;
use crate::store::OutboxEntry;

/// Maximum number of messages in one batch (the server rejects more with error 10199).
pub(super) const MAX_BATCH: usize = 1000;

/// Publishes `entries` (at most [`MAX_BATCH`], all of one stream) as one batch, and waits for its commit.
///
/// # Errors
/// If the batch was not committed, or not certainly. The message to blame is unknown: a single duplicate message id
/// rejects the whole batch (error 10201).
pub(super) async fn publish(
    bus: &NatsBus,
    entries: &[OutboxEntry],
    position: Option<&str>,
) -> Result<(), String> {
    let Some((last, rest)) = entries.split_last() else {
        return Ok(());
    };
    let sending = send(bus, last, rest, position);
    let answer = bus.in_time(sending).await.map_err(in_one_line)?;
    match serde_json::from_slice::<Response<PublishAck>>(&answer.payload) {
        Ok(Response::Ok(_)) => Ok(()),
        Ok(Response::Err { error }) => Err(error.to_string()),
        Err(error) => Err(format!("the broker's answer cannot be read: {error}")),
    }
}

/// Sends all messages of a batch. Returns the broker's answer to the last one.
async fn send(
    bus: &NatsBus,
    last: &OutboxEntry,
    rest: &[OutboxEntry],
    position: Option<&str>,
) -> Result<Message, BoxedError> {
    let batch_id = Uuid::now_v7().simple().to_string();
    let headers = |entry: &OutboxEntry, sequence: usize| {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Batch-Id", batch_id.as_str());
        headers.insert("Nats-Batch-Sequence", sequence.to_string());
        headers.insert(NATS_MESSAGE_ID, entry.id.to_string());
        if let Some(position) = position {
            headers.insert(position_header::HEADER, position);
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
