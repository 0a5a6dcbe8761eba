//! Publishing and consuming with a real nats-server: what arrives, how often, in which order, whatever dies.

mod advisories;
mod connecting;
pub mod consuming;
mod entering;
mod faults;
mod holding;
mod losing;
mod marking;
mod outages;
mod packs;
mod publishing;
mod replays;
mod replicas;
mod shut;
mod silent;
mod strangers;
mod timing;

use saga_engine::store::PublishOutcome;

/// Positions of what was published; nothing was refused or delayed.
#[track_caller]
fn all_done(published: PublishOutcome) -> Vec<i64> {
    assert!(published.refused.is_empty() && published.delayed.is_none(), "{published:?}");
    published.done
}
