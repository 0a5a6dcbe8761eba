//! Pure: the broker's model: streams that keep everything, deliveries that come in any order and any number.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use uuid::Uuid;

/// A message in a stream.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Subject.
    pub subject: String,
    /// Envelope.
    pub payload: Bytes,
}

/// All streams.
#[derive(Debug, Default)]
pub struct Broker {
    messages: Vec<Stored>,
    known: BTreeSet<Uuid>,
    /// Per (step, subject): messages not acknowledged.
    unacknowledged: BTreeMap<(&'static str, String), BTreeSet<usize>>,
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
    pub fn deliverable(&self, steps: &[&'static str]) -> Vec<(&'static str, usize)> {
        self.unacknowledged
            .iter()
            .filter(|((step, _), _)| steps.contains(step))
            .flat_map(|((step, _), waiting)| waiting.iter().map(|index| (*step, *index)))
            .collect()
    }

    /// A message.
    #[must_use]
    pub fn message(&self, index: usize) -> &Stored {
        &self.messages[index]
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

    /// The step will not be told again, unless [`Broker::forget_acknowledgement`] says so.
    pub fn acknowledge(&mut self, step: &'static str, index: usize) {
        let subject = self.messages[index].subject.clone();
        if let Some(waiting) = self.unacknowledged.get_mut(&(step, subject)) {
            waiting.remove(&index);
        }
    }

    /// The acknowledgement was lost: the message comes again.
    pub fn forget_acknowledgement(&mut self, step: &'static str, index: usize) {
        let subject = self.messages[index].subject.clone();
        if let Some(waiting) = self.unacknowledged.get_mut(&(step, subject)) {
            waiting.insert(index);
        }
    }

    /// Steps that hear the message.
    #[must_use]
    pub fn hearers(&self, index: usize) -> Vec<&'static str> {
        let subject = &self.messages[index].subject;
        self.unacknowledged.keys().filter(|(_, heard)| heard == subject).map(|(step, _)| *step).collect()
    }
}
