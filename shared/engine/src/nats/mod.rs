//! Shell: NATS JetStream as the [`bus`](crate::runtime::bus) of the loops. Nothing outside this folder knows NATS.
//!
//! - Connection: `settings`, `credentials`, `connection`, `connection_log`, `permissions`, `streams`
//! - Consuming: `durables`, `facts` (with `pull_requests`, `message`, [`pack`], `pack_sizes`), `advisories`
//! - Publishing: `publisher` (with [`pack`], [`pack_publishing`]), `position_header`
//! - Watching the broker: `stream_reset`, `clock_offset`
//! - Traces: `kept_traces`

mod advisories;
mod clock_offset;
mod connection;
mod connection_log;
mod credentials;
mod durables;
mod facts;
mod kept_traces;
mod message;
pub mod pack;
pub mod pack_publishing;
mod pack_sizes;
mod permissions;
mod position_header;
mod publisher;
mod pull_requests;
mod settings;
pub(crate) mod stream_reset;
mod streams;

pub use connection::{BusFault, MINIMUM_VERSION, NatsBus};
pub use credentials::TlsSettings;
pub use kept_traces::exchange_kept_traces;
pub use message::payloads_of;
pub use permissions::Permissions;
pub use position_header::{compare_position, watch_position};
pub use publisher::Publisher;
pub use settings::BusSettings;
