//! Pure: the broker's model: streams that keep everything, deliveries that come in any order and any number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use saga_core::dead_letter::Delivery;
use saga_core::ids;
use saga_core::message::Envelope;
use saga_core::service::stream_of;
use uuid::Uuid;

/// A message without an acknowledgement comes again after this long.
pub const ACK_WAIT: Duration = Duration::from_secs(20);

/// A message in a stream.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its subject, which names its stream.
    pub subject: String,
    pub payload: Bytes,
    pub at: Duration,
}

/// A delivery: which step is to have which message.
pub type Place = (&'static str, usize);

/// What one durable consumer still is to have.
#[derive(Debug)]
struct Durable {
    step: &'static str,
    subjects: Vec<String>,
    /// Messages not acknowledged, each with the time from which on it may be delivered, again or at all.
    waiting: BTreeMap<usize, Duration>,
    /// What will never be delivered again.
    given_up: BTreeSet<usize>,
    /// What was given up and nobody has taken note of, each with the time from which on it is told.
    advisories: BTreeMap<usize, Duration>,
}

#[derive(Debug, Default)]
pub struct Broker {
    messages: Vec<Stored>,
    /// When each message id was first stored.
    known: BTreeMap<Uuid, Duration>,
    durables: BTreeMap<String, Durable>,
    is_away: bool,
    /// So many messages were lost with its disk.
    lost: usize,
}

impl Broker {
    /// Makes a durable of a step, from the first message on.
    pub fn declare(&mut self, name: String, step: &'static str, subjects: Vec<String>) {
        let (waiting, given_up, advisories) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        self.durables.insert(name, Durable { step, subjects, waiting, given_up, advisories });
    }

    pub fn durables(&self) -> impl Iterator<Item = &str> {
        self.durables.keys().map(String::as_str)
    }

    #[must_use]
    pub const fn is_away(&self) -> bool {
        self.is_away
    }

    /// From now on nobody reaches it, or everybody does.
    pub const fn set_away(&mut self, is_away: bool) {
        self.is_away = is_away;
    }

    /// Its disk is gone, and with it every message, every id and what each durable had yet to hear.
    pub fn lose_everything(&mut self) {
        self.lost = self.messages.len();
        self.known.clear();
        for durable in self.durables.values_mut() {
            durable.waiting.clear();
            durable.advisories.clear();
        }
    }

    /// Stores a message, unless its id is known and the window remembers it. Each durable gets it after a time of
    /// its own. Answers the durables that hear it.
    pub fn store(
        &mut self,
        (id, subject, payload): (Uuid, &str, Bytes),
        window_forgot: bool,
        at: Duration,
        mut latency: impl FnMut() -> Duration,
    ) -> Vec<String> {
        if self.known.contains_key(&id) && !window_forgot {
            return vec![];
        }
        self.known.entry(id).or_insert(at);
        let index = self.messages.len();
        self.messages.push(Stored { subject: subject.to_owned(), payload, at });
        let mut hearers = Vec::new();
        for (name, durable) in &mut self.durables {
            if durable.hears(subject) {
                durable.waiting.insert(index, at + latency());
                hearers.push(name.clone());
            }
        }
        hearers
    }

    /// The next message of a durable, if one is there.
    pub fn take(&mut self, durable: &str, at: Duration) -> Option<usize> {
        let durable = self.durables.get_mut(durable)?;
        let (index, visible) = durable.waiting.iter().min_by_key(|(index, visible)| (**visible, **index))?;
        if *visible > at {
            return None;
        }
        let index = *index;
        durable.waiting.insert(index, at + ACK_WAIT);
        Some(index)
    }

    /// When the next message of a durable will be there, if nothing else happens.
    #[must_use]
    pub fn next_of(&self, durable: &str) -> Option<Duration> {
        self.durables.get(durable)?.waiting.values().min().copied()
    }

    /// The next message that was given up of one of these.
    pub fn take_advisory(&mut self, durables: &[String], at: Duration) -> Option<(String, usize)> {
        for name in durables {
            let Some(durable) = self.durables.get_mut(name) else { continue };
            let due = durable.advisories.iter_mut().find(|(_, visible)| **visible <= at);
            if let Some((index, visible)) = due {
                *visible = at + ACK_WAIT;
                return Some((name.clone(), *index));
            }
        }
        None
    }

    /// When one of these will next be told of what was given up, if nothing else happens.
    #[must_use]
    pub fn next_advisory(&self, durables: &[String]) -> Option<Duration> {
        let known = durables.iter().filter_map(|name| self.durables.get(name));
        known.flat_map(|durable| durable.advisories.values()).min().copied()
    }

    /// Somebody has taken note that a message was given up.
    pub fn acknowledge_advisory(&mut self, durable: &str, index: usize) {
        if let Some(durable) = self.durables.get_mut(durable) {
            durable.advisories.remove(&index);
        }
    }

    /// The message is being worked on, and comes again that much later.
    pub fn in_progress(&mut self, durable: &str, index: usize, at: Duration) {
        let waiting = self.durables.get_mut(durable).and_then(|durable| durable.waiting.get_mut(&index));
        if let Some(visible) = waiting {
            *visible = at + ACK_WAIT;
        }
    }

    /// The message need not come again.
    pub fn acknowledge(&mut self, durable: &str, index: usize) {
        if let Some(durable) = self.durables.get_mut(durable) {
            durable.waiting.remove(&index);
        }
    }

    /// Every step that hears a message gets it once more, but for those that it was given up for.
    pub fn deliver_again(&mut self, index: usize, at: Duration) -> Vec<String> {
        let there = self.messages.get(index).filter(|_| index >= self.lost);
        let Some(subject) = there.map(|stored| stored.subject.clone()) else {
            return vec![];
        };
        let mut hearers = Vec::new();
        for (name, durable) in &mut self.durables {
            if durable.hears(&subject) && !durable.given_up.contains(&index) {
                durable.waiting.insert(index, at);
                hearers.push(name.clone());
            }
        }
        hearers
    }

    /// A message was delivered too often: never again. Its service is told so.
    pub fn give_up(&mut self, durable: &str, index: usize, at: Duration) {
        if let Some(durable) = self.durables.get_mut(durable) {
            durable.waiting.remove(&index);
            durable.given_up.insert(index);
            durable.advisories.insert(index, at);
        }
    }

    /// What is still on its way, as durable and message: nothing, when all is quiet.
    #[must_use]
    pub fn on_its_way(&self) -> Option<(&str, usize)> {
        let first = |(name, durable): (&'_ String, &'_ Durable)| {
            let waiting = durable.waiting.keys().chain(durable.advisories.keys()).next().copied()?;
            Some((name.clone(), waiting))
        };
        let (name, index) = self.durables.iter().find_map(first)?;
        self.durables.get_key_value(&name).map(|(name, _)| (name.as_str(), index))
    }

    /// How much a durable waits for, or waits to hear of.
    #[must_use]
    pub fn waiting(&self, durable: &str) -> u64 {
        self.durables.get(durable).map_or(0, |durable| durable.waiting.len() as u64)
    }

    /// When the oldest message was first stored that some step may still get.
    #[must_use]
    pub fn oldest_on_its_way(&self) -> Option<Duration> {
        let of = |durable: &Durable| {
            let waiting = durable.waiting.keys().chain(durable.advisories.keys());
            waiting.map(|index| self.first_stored(*index)).min()
        };
        self.durables.values().filter_map(of).min()
    }

    /// When a message was first stored, under whichever number.
    #[must_use]
    pub fn first_stored(&self, index: usize) -> Duration {
        self.known.get(&self.id(index)).copied().unwrap_or(self.messages[index].at)
    }

    #[must_use]
    pub fn messages(&self) -> &[Stored] {
        &self.messages
    }

    /// Where a message is, as the broker tells those it delivers it to.
    #[must_use]
    pub fn delivery(&self, index: usize) -> Delivery {
        let subject = self.messages[index].subject.clone();
        let stream = stream_of(subject.split('.').next().unwrap_or_default());
        Delivery { stream, sequence: index as u64, subject, headers: vec![] }
    }

    /// The id under which steps know a message: its place, when it has none.
    #[must_use]
    pub fn id(&self, index: usize) -> Uuid {
        let Delivery { stream, sequence, .. } = self.delivery(index);
        let envelope = Envelope::from_bytes(&self.messages[index].payload);
        envelope.map_or_else(|_| ids::of_stream_position(&stream, sequence), |envelope| envelope.id)
    }

    #[must_use]
    pub fn subjects(&self) -> Vec<String> {
        let subjects: BTreeSet<&String> =
            self.durables.values().flat_map(|durable| &durable.subjects).collect();
        subjects.into_iter().cloned().collect()
    }

    /// Steps that hear a message.
    #[must_use]
    pub fn hearers(&self, index: usize) -> Vec<&'static str> {
        let subject = &self.messages[index].subject;
        self.durables.values().filter(|durable| durable.hears(subject)).map(|durable| durable.step).collect()
    }
}

impl Durable {
    fn hears(&self, subject: &str) -> bool {
        self.subjects.iter().any(|heard| heard == subject)
    }
}
