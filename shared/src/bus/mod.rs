//! The broker: connection and streams, publishing, consuming. Nothing outside this folder knows NATS.

pub mod advisories;
mod batch;
mod connection;
pub mod consumer;
mod publisher;

pub use connection::{Bus, BusFault, BusSettings};
pub use publisher::Publisher;

use futures::future::BoxFuture;

use crate::store::{OutboxEntry, Published};

/// Where the relay publishes to.
pub trait Publish: Send + Sync {
    /// Publishes in order and says what became of each entry. An entry may have arrived although it is not
    /// reported as done: repeating is harmless, because message ids repeat too.
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Published>;
}
