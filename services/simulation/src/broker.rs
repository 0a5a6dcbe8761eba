//! Pure: the broker's model: streams that keep everything, deliveries that come in any order and any number.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use shared::contract::Delivery;
use shared::envelope::{Envelope, Message};
use shared::ids;
use uuid::Uuid;

/// A message in a stream.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Subject.
    pub subject: String,
    /// Envelope, if it is one.
    pub payload: Bytes,
}

/// A delivery: which step is to have which message.
pub type Place = (&'static str, usize);

/// All streams.
#[derive(Debug, Default)]
pub struct Broker {
    messages: Vec<Stored>,
    known: BTreeSet<Uuid>,
    /// Per (step, subject): messages not acknowledged.
    unacknowledged: BTreeMap<(&'static str, String), BTreeSet<usize>>,
    /// What it will never deliver again.
    given_up: BTreeSet<Place>,
    /// What it has given up and the step's service has not heard of.
    advisories: BTreeSet<Place>,
}

impl Broker {
    /// Makes a step hear a subject, from the first message on.
    pub fn subscribe(&mut self, step: &'static str, subject: String) {
        self.unacknowledged.insert((step, subject), BTreeSet::new());
    }

    /// Stores a message. One with a known id is dropped, unless the window has forgotten it.
    pub fn store(&mut self, id: Uuid, subject: &str, payload: Bytes, window_forgot: bool) {
        if !self.known.insert(id) && !window_forgot {
            return;
        }
        let index = self.messages.len();
        self.messages.push(Stored { subject: subject.to_owned(), payload });
        for ((_, heard), waiting) in &mut self.unacknowledged {
            if heard == subject {
                waiting.insert(index);
            }
        }
    }

    /// Everything that may be delivered now to one of `steps`, in no meaning order.
    #[must_use]
    pub fn deliverable(&self, steps: &[&'static str]) -> Vec<Place> {
        self.unacknowledged
            .iter()
            .filter(|((step, _), _)| steps.contains(step))
            .flat_map(|((step, _), waiting)| waiting.iter().map(|index| (*step, *index)))
            .collect()
    }

    /// Whether nothing waits to be delivered or told.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.advisories.is_empty() && self.unacknowledged.values().all(BTreeSet::is_empty)
    }

    /// A message.
    #[must_use]
    pub fn message(&self, index: usize) -> &Stored {
        &self.messages[index]
    }

    /// All messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Stored] {
        &self.messages
    }

    /// Where it is, as the broker tells those it delivers it to.
    #[must_use]
    pub fn delivery(&self, index: usize) -> Delivery {
        let producer = self.messages[index].subject.split('.').next().unwrap_or_default();
        let stream = shared::service::stream_of(producer);
        Delivery { stream, sequence: index as u64, headers: vec![] }
    }

    /// The id of one that has none.
    #[must_use]
    pub fn fallback_id(&self, index: usize) -> Uuid {
        let Delivery { stream, sequence, .. } = self.delivery(index);
        ids::of_stream_position(&stream, sequence)
    }

    /// The id under which steps know it.
    #[must_use]
    pub fn id(&self, index: usize) -> Uuid {
        let envelope = Envelope::from_bytes(&self.messages[index].payload);
        envelope.map_or_else(|_| self.fallback_id(index), |envelope| envelope.id)
    }

    /// How many messages there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Subjects that somebody hears.
    #[must_use]
    pub fn subjects(&self) -> Vec<String> {
        let subjects: BTreeSet<&String> = self.unacknowledged.keys().map(|(_, subject)| subject).collect();
        subjects.into_iter().cloned().collect()
    }

    /// The step will not be told again, unless [`Broker::forget_acknowledgement`] says so.
    pub fn acknowledge(&mut self, (step, index): Place) {
        let subject = self.messages[index].subject.clone();
        if let Some(waiting) = self.unacknowledged.get_mut(&(step, subject)) {
            waiting.remove(&index);
        }
    }

    /// The acknowledgement was lost: the message comes again.
    pub fn forget_acknowledgement(&mut self, (step, index): Place) {
        if self.given_up.contains(&(step, index)) {
            return;
        }
        let subject = self.messages[index].subject.clone();
        if let Some(waiting) = self.unacknowledged.get_mut(&(step, subject)) {
            waiting.insert(index);
        }
    }

    /// It was delivered too often: never again. The step's service is told so.
    pub fn give_up(&mut self, place: Place) {
        self.acknowledge(place);
        self.given_up.insert(place);
        self.advisories.insert(place);
    }

    /// What was given up and should be told one of `steps`.
    #[must_use]
    pub fn advisories(&self, steps: &[&'static str]) -> Vec<Place> {
        self.advisories.iter().filter(|(step, _)| steps.contains(step)).copied().collect()
    }

    /// The service has heard of it.
    pub fn advised(&mut self, place: Place) {
        self.advisories.remove(&place);
    }

    /// Steps that hear the message.
    #[must_use]
    pub fn hearers(&self, index: usize) -> Vec<&'static str> {
        let subject = &self.messages[index].subject;
        self.unacknowledged.keys().filter(|(_, heard)| heard == subject).map(|(step, _)| *step).collect()
    }
}

impl Stored {
    /// What it says, if it can be read.
    #[must_use]
    pub fn opened(&self) -> Option<Message> {
        Envelope::from_bytes(&self.payload).ok()?.open().ok()
    }
}
