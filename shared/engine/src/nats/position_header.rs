//! Shell: the position of a service's database in the header of each message, so that the stream remembers it.
//!
//! A database that is behind its stream has lost data. The start of a service checks that, and each replica goes on
//! checking. What changes without a fact, such as an inbox, is recorded by messages that nobody consumes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::message::PublishMessage;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::retry::error_chain;
use saga_core::service::stream_of;
use tokio::sync::watch;
use tracing::debug;
use uuid::Uuid;

use super::connection::{BoxedError, BusFault, NatsBus};
use super::message::stored;
use super::permissions::position_subject;
use crate::runtime::bus::BusError;
use crate::store::{DatabasePosition, Store, StoreFault};

/// Header with the database's id, the position of its last event, and its number of messages: `id/events/messages`.
pub(super) const HEADER: &str = "Saga-Position";

/// Time for which a value is reused. An older position only detects less.
const REUSED_FOR: Duration = Duration::from_secs(1);

/// Interval between two comparisons with the stream. Bounds the age of the position in it, where no fact is published.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of messages to search from the end of the stream. Messages of other clients have no header.
const MAX_SEARCHED: usize = 100;

/// Source of the header's value.
pub(super) struct PositionHeader {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, String)>>,
    /// Leadership of this replica, marked as changed until the position was compared; `None` for a single process.
    leadership: Option<Mutex<watch::Receiver<bool>>>,
}

impl PositionHeader {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let leadership = store.leadership().map(|mut leadership| {
            leadership.mark_changed();
            Mutex::new(leadership)
        });
        Self { store, last: Mutex::default(), leadership }
    }

    /// Reads the value, which may be reused for [`REUSED_FOR`]. `None` if the database does not answer.
    ///
    /// # Errors
    /// If the database has gone back in time, or may have.
    pub(super) async fn value(&self, bus: &NatsBus, service: &str) -> Result<Option<String>, BusError> {
        if self.is_new_leader() {
            // Another replica has published meanwhile, and this one may not have seen how far that had come.
            self.compare(bus, service).await?;
        } else if let Some((at, value)) = self.last.lock().clone()
            && at.elapsed() < REUSED_FOR
        {
            return Ok(Some(value));
        }
        let position = match self.store.position().await {
            Ok(position) => position,
            Err(lost @ StoreFault::DataLost(_)) => return Err(lost.to_string()),
            Err(_) => return Ok(None),
        };
        let value = header_of(&position);
        *self.last.lock() = Some((Instant::now(), value.clone()));
        Ok(Some(value))
    }

    /// Compares the database with the stream, as far as another replica had come.
    async fn compare(&self, bus: &NatsBus, service: &str) -> Result<(), BusError> {
        if let Some(last) = bus.last_position(service).await.map_err(described)? {
            self.store.check_position(last).await.map_err(described)?;
        }
        if let Some(leadership) = &self.leadership {
            leadership.lock().borrow_and_update();
        }
        Ok(())
    }

    fn is_new_leader(&self) -> bool {
        self.leadership.as_ref().is_some_and(|leadership| leadership.lock().has_changed().unwrap_or(false))
    }
}

/// Compares the database with the stream at an interval, and records its position where it is ahead. Never returns.
pub async fn watch_position(bus: &NatsBus, service: &str, store: Arc<dyn Store>) {
    loop {
        tokio::time::sleep(COMPARE_EVERY).await;
        if bus.is_connected()
            && let Err(why) = compare_position(bus, service, store.as_ref()).await
        {
            debug!("the position of the database is not compared with the stream: {why}");
        }
    }
}

/// Compares the database with the stream once.
///
/// # Errors
/// If broker or database do not answer, or the database is behind the stream.
pub async fn compare_position(bus: &NatsBus, service: &str, store: &dyn Store) -> Result<(), BusError> {
    let (end, last) = bus.recorded_position(service).await.map_err(described)?;
    if let Some(last) = &last {
        store.check_position(last.clone()).await.map_err(described)?;
    }
    let position = store.position().await.map_err(described)?;
    let is_ahead =
        last.is_none_or(|last| (position.events, position.messages) != (last.events, last.messages));
    if is_ahead && !bus.is_follower() {
        bus.record_position(service, &position, Some(end)).await.map_err(described)?;
    }
    Ok(())
}

fn described(fault: impl std::error::Error) -> BusError {
    error_chain(&fault)
}

fn header_of(position: &DatabasePosition) -> String {
    format!("{}/{}/{}", position.id, position.events, position.messages)
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
        Box::pin(async move { Ok(self.recorded_position(service).await?.1) })
    }

    /// Reads the last position of a service's database from its stream, with the end of the stream; `None` if the stream has
    /// none.
    fn recorded_position<'a>(
        &'a self,
        service: &'a str,
    ) -> BoxFuture<'a, Result<(u64, Option<DatabasePosition>), BusFault>> {
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
            let Some(stream) = self.in_time(found).await.map_err(fault)? else { return Ok((0, None)) };
            let state = &stream.cached_info().state;
            // An empty stream begins at 0, where no message is.
            let sequences = state.first_sequence.max(1)..=state.last_sequence;
            for sequence in sequences.rev().take(MAX_SEARCHED) {
                let stored = self.in_time(stored(&stream, sequence)).await.map_err(fault)?;
                let Some(message) = stored else { continue };
                let position = message.headers.get(HEADER).and_then(|value| parse(service, value.as_str()));
                if position.is_some() {
                    return Ok((state.last_sequence, position));
                }
            }
            Ok((state.last_sequence, None))
        })
    }

    /// Records a position in a service's stream, by a message that nobody consumes. With `end`, only if the stream still
    /// ends there: a process that was paused would hide a higher position.
    ///
    /// # Errors
    /// If the broker does not store it.
    pub fn record_position<'a>(
        &'a self,
        service: &'a str,
        position: &'a DatabasePosition,
        end: Option<u64>,
    ) -> BoxFuture<'a, Result<(), BusFault>> {
        Box::pin(async move {
            let message = PublishMessage::build().header(HEADER, header_of(position).as_str());
            let message = match end {
                Some(end) => message.expected_last_sequence(end),
                None => message,
            };
            let sent = async {
                let sent = self.jetstream.send_publish(position_subject(service), message).await?;
                sent.await.map(drop).map_err(BoxedError::from)
            };
            let fault = |source| BusFault::Stream { stream: stream_of(service), source };
            self.in_time(sent).await.map_err(fault)
        })
    }
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn parse(service: &str, value: &str) -> Option<DatabasePosition> {
    let mut parts = value.split('/');
    let id: Uuid = parts.next()?.parse().ok()?;
    let (events, messages) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(DatabasePosition { service: service.to_owned(), id, events, messages })
}
