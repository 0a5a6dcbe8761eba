//! The broker: NATS JetStream as the [`bus`](crate::runtime::bus) of the loops. Nothing outside this folder knows
//! NATS.

mod advisories;
pub(crate) mod anew;
mod atomic_batch;
mod connection;
mod deliveries;
mod marking;
mod publisher;
mod pulling;
mod timing;

pub use connection::{BusFault, BusSettings, NatsBus};
pub use publisher::Publisher;
