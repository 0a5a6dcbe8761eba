//! Shell: average number of facts in the messages of each durable consumer.
//!
//! The broker counts messages, each of which may be a pack. Requests for messages and the lag are about facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Messages over which the moving average extends.
const SPAN: u64 = 16;
/// Averages are counted in thousandths of a fact.
const ONE: u64 = 1_000;

/// Moving averages of all consumers of a connection. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct PackSizes(Arc<Mutex<BTreeMap<String, u64>>>);

impl PackSizes {
    /// Records the number of facts in a delivered message.
    pub(super) fn record(&self, durable: &str, facts: usize) {
        let (mut averages, facts) = (self.0.lock(), facts as u64 * ONE);
        match averages.get_mut(durable) {
            Some(average) => *average = (*average * (SPAN - 1) + facts) / SPAN,
            None => drop(averages.insert(durable.to_owned(), facts)),
        }
    }

    /// Estimates the number of facts in so many messages. Before the first delivery each message counts as one fact.
    pub(super) fn facts_in(&self, durable: &str, messages: u64) -> u64 {
        (messages.saturating_mul(self.average(durable).unwrap_or(ONE)) + ONE / 2) / ONE
    }

    /// Estimates how many messages hold at most so many facts: at least one, unless `facts` is zero. Before the first
    /// delivery each message counts as a pack of `max_pack` facts.
    pub(super) fn messages_of(&self, durable: &str, facts: usize, max_pack: usize) -> usize {
        let average = self.average(durable).unwrap_or(max_pack as u64 * ONE).max(ONE);
        let messages = facts as u64 * ONE / average;
        usize::try_from(messages).unwrap_or(usize::MAX).max(facts.min(1))
    }

    fn average(&self, durable: &str) -> Option<u64> {
        self.0.lock().get(durable).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_follows_the_size_of_packs() {
        let sizes = PackSizes::default();
        assert_eq!((sizes.facts_in("a", 60), sizes.messages_of("a", 2_000, 100)), (60, 20));
        sizes.record("a", 50);
        assert_eq!((sizes.facts_in("a", 60), sizes.messages_of("a", 2_000, 100)), (3_000, 40));
        assert_eq!((sizes.messages_of("a", 49, 100), sizes.messages_of("a", 0, 100)), (1, 0));
        assert_eq!(sizes.facts_in("b", 60), 60, "another consumer");
        for _ in 0..300 {
            sizes.record("a", 1);
        }
        assert_eq!((sizes.facts_in("a", 60), sizes.messages_of("a", 100, 100)), (60, 100));
    }
}
