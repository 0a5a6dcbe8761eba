//! Shell: how far a service's database had come, as the service's own stream remembers it: each message says it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::service::stream_of;
use uuid::Uuid;

use super::connection::{BusFault, NatsBus};
use super::pulling::stored;
use crate::store::{DatabasePosition, Store};

/// The header: the database's id and the position of its last event, as `id/position`.
pub(super) const HEADER: &str = "Saga-Mark";

/// How long one mark is said: an older one only finds less.
const SAID_FOR: Duration = Duration::from_secs(1);

/// Messages without a mark that are passed over, from the last one on: older builds and strangers say none.
const PASSED_OVER: u64 = 100;

/// Says how far a database has come.
pub(super) struct Marker {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, String)>>,
}

impl Marker {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: Mutex::default() }
    }

    /// What the header says. Asked for after what is to be published was read: it is committed.
    pub(super) async fn say(&self) -> Option<String> {
        let last = self.last.lock().clone();
        if let Some((at, said)) = last
            && at.elapsed() < SAID_FOR
        {
            return Some(said);
        }
        let mark = self.store.position().await.ok()?;
        let said = format!("{}/{}", mark.id, mark.events);
        *self.last.lock() = Some((Instant::now(), said.clone()));
        Some(said)
    }
}

impl NatsBus {
    /// How far the database of a service had come when the service last said something here; `None` when its stream
    /// does not tell.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn last_mark<'a>(
        &'a self,
        service: &'a str,
    ) -> BoxFuture<'a, Result<Option<DatabasePosition>, BusFault>> {
        Box::pin(async move {
            let name = stream_of(service);
            let fault = |source| BusFault::Stream { stream: name.clone(), source };
            let found = async {
                match self.jetstream.get_stream(&name).await {
                    Ok(stream) => Ok(Some(stream)),
                    // It may have gone with the broker's disk since it was made.
                    Err(error) if is_not_there(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            };
            let Some(stream) = self.in_time(found).await.map_err(fault)? else { return Ok(None) };
            let state = &stream.cached_info().state;
            // An empty stream begins at 0, where nothing ever is.
            let places = state.first_sequence.max(1)..=state.last_sequence;
            for sequence in places.rev().take(PASSED_OVER as usize) {
                // One that is gone meanwhile says nothing.
                let stored = self.in_time(stored(&stream, sequence)).await.map_err(fault)?;
                let Some(message) = stored else { continue };
                let said = message.headers.get(HEADER).and_then(|said| read(service, said.as_str()));
                if said.is_some() {
                    return Ok(said);
                }
            }
            Ok(None)
        })
    }
}

fn is_not_there(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn read(service: &str, said: &str) -> Option<DatabasePosition> {
    let (id, events) = said.split_once('/')?;
    let (id, events): (Uuid, _) = (id.parse().ok()?, events.parse().ok()?);
    Some(DatabasePosition { service: service.to_owned(), id, events, messages: 0 })
}
