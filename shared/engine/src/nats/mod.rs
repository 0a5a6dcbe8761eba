//! The broker: NATS JetStream as the [`bus`](crate::runtime::bus) of the loops. Nothing outside this folder knows
//! NATS.

mod advisories;
pub(crate) mod anew;
mod atomic_batch;
mod connection;
mod deliveries;
mod entry;
mod marking;
mod pack;
mod packed;
mod permissions;
mod publisher;
mod pulling;
mod requests;
mod timing;

pub use connection::{BusFault, BusSettings, NatsBus};
pub use deliveries::Reach;
pub use entry::TlsSettings;
pub use permissions::Permissions;
pub use publisher::Publisher;
pub use pulling::payloads_of;
