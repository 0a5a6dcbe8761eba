//! Shell: the way from an outbox to the broker, and how it goes wrong.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use shared::bus::Publish;
use shared::service::Service;
use shared::store::{OutboxEntry, Published};

use crate::broker::Broker;
use crate::network::Pick;
use crate::sabotage::Sabotage;
use crate::trouble;
use crate::world::World;

/// A broker that may take only the first few, or take them and lose the acknowledgement.
struct RoughBroker<'a> {
    broker: Mutex<&'a mut Broker>,
    /// Entries it takes at most.
    takes: usize,
    /// Whether the acknowledgements get back.
    answers: bool,
    /// Whether it forgot the ids it knew.
    window_forgot: bool,
    /// Whether it pretends to have taken what it did not.
    lies: bool,
    /// The entry that says something in a version that nobody reads yet.
    too_new: Option<usize>,
}

impl Publish for RoughBroker<'_> {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Published> {
        let mut published = Published::default();
        let mut broker = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, entry) in entries.iter().enumerate() {
            if index >= self.takes && !self.lies {
                published.delayed = Some((entry.seq, "the broker does not answer".to_owned()));
                break;
            }
            if index < self.takes {
                let newer = (self.too_new == Some(index)).then(|| trouble::in_newer_version(&entry.payload));
                let payload = newer.flatten().map_or_else(|| entry.payload.clone(), Bytes::from);
                broker.store(entry.id, &entry.subject, payload, self.window_forgot);
            }
            published.done.push(entry.seq);
        }
        if !self.answers {
            published = Published::default();
        }
        Box::pin(std::future::ready(published))
    }
}

/// One round of a node's relay; the broker or the node may fail in it.
pub(crate) fn relay<S: Service>(world: &mut World, pick: Pick<S>) {
    let (fails, forgets) = (world.weather.publish_fails, world.weather.window_forgets);
    let is_cut_short = world.chance(fails);
    let takes = match (world.is_broker_away(), is_cut_short) {
        (true, _) => 0,
        (false, true) => world.rng.usize(0..2),
        (false, false) => usize::MAX,
    };
    let lies = world.sabotage == Sabotage::SettleWithoutPublish;
    let (answers, window_forgot) = (!world.chance(fails), world.chance(forgets));
    let too_new = world.chance(world.weather.too_new).then_some(0);
    let (now, mut broker) = (world.now, std::mem::take(&mut world.broker));
    let rough = RoughBroker { broker: Mutex::new(&mut broker), takes, answers, window_forgot, lies, too_new };
    pick(world).relay_round(&rough, now);
    world.broker = broker;
    if !answers {
        // It died between the publish and the settlement.
        pick(world).crash(now);
    }
}
