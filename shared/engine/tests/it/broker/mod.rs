//! Publishing and consuming with a real nats-server.

mod advisories;
mod blocked;
mod broker_time;
mod connecting;
pub mod consuming;
mod credentials;
mod faults;
mod foreign_messages;
mod in_progress;
mod outages;
mod packs;
mod position_header;
mod publishing;
mod recovery;
mod replays;
mod replicas;
mod unresponsive;

use saga_engine::store::PublishOutcome;

/// Positions of what was published; nothing was refused or delayed.
#[track_caller]
fn all_done(published: PublishOutcome) -> Vec<i64> {
    assert!(published.rejected.is_empty() && published.delayed.is_none(), "{published:?}");
    published.done
}
