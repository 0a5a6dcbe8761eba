//! Shell: a model of the broker: streams that keep everything, and deliveries in any order and number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use saga_core::dead_letter::DeliveryInfo;
use saga_core::ids;
use saga_core::message::Envelope;
use saga_core::service::stream_of;
use saga_engine::nats::pack::{HEADER, PackedFact};
use uuid::Uuid;

/// Time after which an unacknowledged message is redelivered.
pub const ACK_WAIT: Duration = Duration::from_secs(20);

/// A message in a stream: one fact or a pack.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Subject, whose first part names the stream.
    pub subject: String,
    /// Facts, at least one.
    pub facts: Vec<PackedFact>,
    pub at: Duration,
}

/// A step and the index of a message it consumes.
pub type StepDelivery = (&'static str, usize);

/// State of one durable consumer.
#[derive(Debug)]
struct Durable {
    step: &'static str,
    subjects: Vec<String>,
    /// Unacknowledged messages, each with the time of its next delivery.
    waiting: BTreeMap<usize, Duration>,
    /// Messages that reached the delivery limit.
    exhausted: BTreeSet<usize>,
    /// Advisories about these that nobody has acknowledged, each with the time of its next delivery.
    advisories: BTreeMap<usize, Duration>,
}

#[derive(Debug, Default)]
pub struct Broker {
    messages: Vec<Stored>,
    /// Message ids in the deduplication window. A pack has one of its own.
    window: BTreeSet<Uuid>,
    /// First time at which each fact was stored, by the id under which steps know it.
    first_stored: BTreeMap<Uuid, Duration>,
    durables: BTreeMap<String, Durable>,
    is_away: bool,
    /// Number of messages lost with the disk.
    lost: usize,
}

impl Broker {
    /// Creates a durable that consumes from the first message on.
    pub fn declare(&mut self, name: String, step: &'static str, subjects: Vec<String>) {
        let (waiting, exhausted, advisories) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        self.durables.insert(name, Durable { step, subjects, waiting, exhausted, advisories });
    }

    pub fn durables(&self) -> impl Iterator<Item = &str> {
        self.durables.keys().map(String::as_str)
    }

    pub const fn is_away(&self) -> bool {
        self.is_away
    }

    /// Makes the broker unreachable or reachable.
    pub const fn set_away(&mut self, is_away: bool) {
        self.is_away = is_away;
    }

    /// Loses every message, every id and all pending deliveries.
    pub fn lose_disk(&mut self) {
        self.lost = self.messages.len();
        self.first_stored.clear();
        self.window.clear();
        for durable in self.durables.values_mut() {
            durable.waiting.clear();
            durable.advisories.clear();
        }
    }

    /// Stores a message unless the deduplication window knows its id. Delivers it to each durable after its
    /// own latency, and returns their names.
    pub fn store(
        &mut self,
        (id, subject, facts): (Uuid, &str, Vec<PackedFact>),
        window_forgot: bool,
        at: Duration,
        mut latency: impl FnMut() -> Duration,
    ) -> Vec<String> {
        if !self.window.insert(id) && !window_forgot {
            return vec![];
        }
        let index = self.messages.len();
        self.messages.push(Stored { subject: subject.to_owned(), facts, at });
        for fact in self.ids(index) {
            self.first_stored.entry(fact).or_insert(at);
        }
        let mut consumers = Vec::new();
        for (name, durable) in &mut self.durables {
            if durable.consumes(subject) {
                durable.waiting.insert(index, at + latency());
                consumers.push(name.clone());
            }
        }
        consumers
    }

    /// Takes the next message of a durable, if one is due.
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

    /// Time of the next delivery to a durable.
    pub fn next_delivery(&self, durable: &str) -> Option<Duration> {
        self.durables.get(durable)?.waiting.values().min().copied()
    }

    /// Takes the next advisory of any of these durables.
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

    /// Time of the next advisory for these durables.
    pub fn next_advisory(&self, durables: &[String]) -> Option<Duration> {
        let durables = durables.iter().filter_map(|name| self.durables.get(name));
        durables.flat_map(|durable| durable.advisories.values()).min().copied()
    }

    pub fn acknowledge_advisory(&mut self, durable: &str, index: usize) {
        if let Some(durable) = self.durables.get_mut(durable) {
            durable.advisories.remove(&index);
        }
    }

    /// Extends the time until redelivery.
    pub fn in_progress(&mut self, durable: &str, index: usize, at: Duration) {
        let waiting = self.durables.get_mut(durable).and_then(|durable| durable.waiting.get_mut(&index));
        if let Some(visible) = waiting {
            *visible = at + ACK_WAIT;
        }
    }

    pub fn acknowledge(&mut self, durable: &str, index: usize) {
        if let Some(durable) = self.durables.get_mut(durable) {
            durable.waiting.remove(&index);
        }
    }

    /// Redelivers a message to each durable, except those for which it reached the delivery limit.
    pub fn redeliver(&mut self, index: usize, at: Duration) -> Vec<String> {
        let stored = self.messages.get(index).filter(|_| index >= self.lost);
        let Some(subject) = stored.map(|stored| stored.subject.clone()) else {
            return vec![];
        };
        let mut consumers = Vec::new();
        for (name, durable) in &mut self.durables {
            if durable.consumes(&subject) && !durable.exhausted.contains(&index) {
                durable.waiting.insert(index, at);
                consumers.push(name.clone());
            }
        }
        consumers
    }

    /// Stops the delivery of a message to a durable, with an advisory.
    pub fn exhaust(&mut self, durable: &str, index: usize, at: Duration) {
        if let Some(durable) = self.durables.get_mut(durable) {
            durable.waiting.remove(&index);
            durable.exhausted.insert(index);
            durable.advisories.insert(index, at);
        }
    }

    /// Any pending delivery, as durable and message; `None` when idle.
    pub fn pending_delivery(&self) -> Option<(&str, usize)> {
        self.durables.iter().find_map(|(name, durable)| {
            let index = durable.waiting.keys().chain(durable.advisories.keys()).next()?;
            Some((name.as_str(), *index))
        })
    }

    /// Number of pending deliveries of a durable.
    pub fn waiting(&self, durable: &str) -> u64 {
        self.durables.get(durable).map_or(0, |durable| durable.waiting.len() as u64)
    }

    /// First storage time of the oldest message that may still be delivered.
    pub fn oldest_pending(&self) -> Option<Duration> {
        let of = |durable: &Durable| {
            let waiting = durable.waiting.keys().chain(durable.advisories.keys());
            waiting.map(|index| self.first_stored(*index)).min()
        };
        self.durables.values().filter_map(of).min()
    }

    /// Time at which the first of a message's facts was first stored.
    pub fn first_stored(&self, index: usize) -> Duration {
        let at = self.ids(index).into_iter().filter_map(|id| self.first_stored.get(&id)).min();
        at.copied().unwrap_or(self.messages[index].at)
    }

    pub fn messages(&self) -> &[Stored] {
        &self.messages
    }

    /// Position and headers of a fact, as its consumers receive it.
    pub fn delivery(&self, index: usize, part: usize) -> DeliveryInfo {
        let Stored { subject, facts, .. } = &self.messages[index];
        let stream = stream_of(subject.split('.').next().unwrap_or_default());
        let (subject, headers) = (subject.clone(), facts[part].headers.clone());
        DeliveryInfo { stream, sequence: index as u64, subject, headers }
    }

    /// Ids under which steps know the facts of a message: those without an envelope by their position.
    pub fn ids(&self, index: usize) -> Vec<Uuid> {
        let facts = self.messages[index].facts.iter().enumerate();
        facts.map(|(part, fact)| self.id(index, part, fact)).collect()
    }

    fn id(&self, index: usize, part: usize, fact: &PackedFact) -> Uuid {
        if let Ok(envelope) = Envelope::from_bytes(&fact.payload) {
            return envelope.id;
        }
        let DeliveryInfo { stream, sequence, headers, .. } = self.delivery(index, part);
        match headers.iter().find(|(name, _)| name == HEADER) {
            Some((_, part)) => ids::of_stream_part(&stream, sequence, part),
            None => ids::of_stream_position(&stream, sequence),
        }
    }

    pub fn subjects(&self) -> Vec<String> {
        let subjects: BTreeSet<&String> =
            self.durables.values().flat_map(|durable| &durable.subjects).collect();
        subjects.into_iter().cloned().collect()
    }

    /// Steps that consume a message.
    pub fn consumers(&self, index: usize) -> Vec<&'static str> {
        let subject = &self.messages[index].subject;
        self.durables
            .values()
            .filter(|durable| durable.consumes(subject))
            .map(|durable| durable.step)
            .collect()
    }
}

impl Durable {
    fn consumes(&self, subject: &str) -> bool {
        self.subjects.iter().any(|consumed| consumed == subject)
    }
}
