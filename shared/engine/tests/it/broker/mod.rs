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

use saga_engine::nats::Publisher;
use saga_engine::runtime::bus::Publish as _;
use saga_engine::store::{OutboxEntry, PublishOutcome};

use crate::support::wait_until;

/// Positions of what was published; nothing was rejected or delayed.
#[track_caller]
fn all_done(published: PublishOutcome) -> Vec<i64> {
    assert!(published.rejected.is_empty() && published.delayed.is_none(), "{published:?}");
    published.done
}

/// Publishes entries again and again until all have arrived. None may be rejected.
async fn publish_until_arrived(publisher: &Publisher, mut left: Vec<OutboxEntry>) {
    let has_arrived = async || {
        let published = publisher.publish(&left).await;
        assert_eq!(published.rejected, []);
        left.retain(|entry| !published.done.contains(&entry.seq));
        left.is_empty()
    };
    wait_until("everything has arrived", has_arrived).await;
}
