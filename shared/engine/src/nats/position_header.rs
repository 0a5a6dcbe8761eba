//! Shell: the position of a service's database in the header of each message, so that the stream remembers it.
//!
//! A database that is behind its stream has lost data. The start of a service checks that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::service::stream_of;
use uuid::Uuid;

use super::connection::{BusFault, NatsBus};
use super::message::stored;
use crate::store::{DatabasePosition, Store};

/// Header with the database's id and the position of its last event: `id/position`.
pub(super) const HEADER: &str = "Saga-Position";

/// Time for which a value is reused. An older position only detects less.
const REUSED_FOR: Duration = Duration::from_secs(1);

/// Maximum number of messages to search from the end of the stream. Messages of other clients have no header.
const MAX_SEARCHED: usize = 100;

/// Source of the header's value.
pub(super) struct PositionHeader {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, String)>>,
}

impl PositionHeader {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: Mutex::default() }
    }

    /// Reads the value, which may be reused for [`REUSED_FOR`]: an older position only detects less.
    pub(super) async fn value(&self) -> Option<String> {
        let last = self.last.lock().clone();
        if let Some((at, value)) = last
            && at.elapsed() < REUSED_FOR
        {
            return Some(value);
        }
        let position = self.store.position().await.ok()?;
        let value = format!("{}/{}", position.id, position.events);
        *self.last.lock() = Some((Instant::now(), value.clone()));
        Some(value)
    }
}

impl NatsBus {
    /// Reads the last position of a service's database from its stream; `None` if the stream has none.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub fn last_position<'a>(
        &'a self,
        service: &'a str,
    ) -> BoxFuture<'a, Result<Option<DatabasePosition>, BusFault>> {
        Box::pin(async move {
            let name = stream_of(service);
            let fault = |source| BusFault::Stream { stream: name.clone(), source };
            let found = async {
                match self.jetstream.get_stream(&name).await {
                    Ok(stream) => Ok(Some(stream)),
                    // The stream may be lost with the broker's disk.
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            };
            let Some(stream) = self.in_time(found).await.map_err(fault)? else { return Ok(None) };
            let state = &stream.cached_info().state;
            // An empty stream begins at 0, where no message is.
            let sequences = state.first_sequence.max(1)..=state.last_sequence;
            for sequence in sequences.rev().take(MAX_SEARCHED) {
                let stored = self.in_time(stored(&stream, sequence)).await.map_err(fault)?;
                let Some(message) = stored else { continue };
                let position = message.headers.get(HEADER).and_then(|value| parse(service, value.as_str()));
                if position.is_some() {
                    return Ok(position);
                }
            }
            Ok(None)
        })
    }
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn parse(service: &str, value: &str) -> Option<DatabasePosition> {
    let (id, events) = value.split_once('/')?;
    let (id, events): (Uuid, _) = (id.parse().ok()?, events.parse().ok()?);
    Some(DatabasePosition { service: service.to_owned(), id, events, messages: 0 })
}
