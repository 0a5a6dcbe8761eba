//! Shell: deliveries that a consumer holds and has not settled: the broker is told that they are in progress, so that
//! it does not deliver them again, and in the end gives them up, only because they wait here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::bus::{Bus, HoldOf};

/// How often the broker is told, in the time after which it would deliver again.
const TELLINGS: u32 = 3;

/// What is held. Clones are the same.
pub(super) struct Held<H>(Arc<Mutex<Slots<H>>>);

/// Slots are used again, so that holding allocates nothing once as much was held before.
struct Slots<H> {
    /// What is held, with the telling after which it came.
    slots: Vec<Option<(u64, H)>>,
    free: Vec<usize>,
    tellings: u64,
}

/// Holds one delivery; dropped, it holds it no more.
pub(super) struct Holding<H> {
    held: Held<H>,
    slot: usize,
}

impl<H> Clone for Held<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H: Clone + PartialEq> Held<H> {
    pub(super) fn nothing() -> Self {
        Self(Arc::new(Mutex::new(Slots { slots: vec![], free: vec![], tellings: 0 })))
    }

    pub(super) fn hold(&self, hold: H) -> Holding<H> {
        let mut all = self.0.lock();
        let entry = Some((all.tellings, hold));
        let slot = match all.free.pop() {
            Some(slot) => {
                all.slots[slot] = entry;
                slot
            }
            None => {
                all.slots.push(entry);
                all.slots.len() - 1
            }
        };
        drop(all);
        Holding { held: self.clone(), slot }
    }

    /// What has been held since before the last telling: what came after it is too young to be told.
    fn to_be_told(&self) -> Vec<H> {
        let mut all = self.0.lock();
        let tellings = all.tellings;
        all.tellings += 1;
        let held = all.slots.iter().flatten().filter(|(since, _)| *since < tellings);
        let mut told: Vec<_> = held.map(|(_, hold)| hold.clone()).collect();
        // What came together lies together mostly, and is one delivery.
        told.dedup();
        told
    }
}

impl<H> Drop for Holding<H> {
    fn drop(&mut self) {
        let mut all = self.held.0.lock();
        all.slots[self.slot] = None;
        all.free.push(self.slot);
    }
}

/// Tells the broker what is held, in time and until dropped.
pub(super) async fn tell<B: Bus>(bus: &B, held: Held<HoldOf<B>>) {
    let mut tick = interval((bus.ack_wait() / TELLINGS).max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for hold in held.to_be_told() {
            if let Err(error) = bus.in_progress(&hold).await {
                // What is not told comes again.
                debug!("what is held is not told: {error}");
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_held_over_a_telling_and_still_is_gets_told() {
        let held = Held::nothing();
        let first = held.hold(1);
        assert!(held.to_be_told().is_empty(), "too young");
        let second = held.hold(2);
        assert_eq!(held.to_be_told(), [1]);
        drop(first);
        let third = held.hold(3);
        assert_eq!(held.to_be_told(), [2]);
        assert_eq!(held.to_be_told(), [3, 2], "in the slot of the first");
        drop((second, third));
        assert!(held.to_be_told().is_empty());
        assert_eq!(held.0.lock().slots.len(), 2);
    }
}
