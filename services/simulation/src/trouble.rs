//! Shell: what befalls the world by itself: crashes, repetitions, poison, and a broker that gives up.

use bytes::Bytes;
use shared::contract::FactType;
use shared::envelope::Envelope;

use crate::world::World;

/// Why a step fails that may work later.
pub const NOT_NOW: &str = "injected: not now";
/// Why a step fails that can never work.
pub const BROKEN: &str = "injected: this can never work";
/// Why the broker does not deliver a message any more.
pub const GIVEN_UP: &str = "the broker gave it up";
/// Why a call to the bank fails.
pub const NO_ANSWER: &str = "the bank: ";

/// The versions of a build that nobody has yet.
const VERSIONS_AHEAD: u32 = 98;

/// The same message as a newer build would say it.
#[must_use]
pub fn in_newer_version(payload: &[u8]) -> Option<Vec<u8>> {
    let mut envelope = Envelope::from_bytes(payload).ok()?;
    envelope.version += VERSIONS_AHEAD;
    serde_json::to_vec(&envelope).ok()
}

impl World {
    /// An acknowledgement that was lost, or a message that the stream holds twice: delivered again, much later.
    pub(crate) fn deliver_again(&mut self) {
        if self.broker.is_empty() {
            return;
        }
        let index = self.rng.usize(0..self.broker.len());
        for step in self.broker.hearers(index) {
            self.broker.forget_acknowledgement((step, index));
        }
    }

    pub(crate) fn crash_somebody(&mut self) {
        if self.weather.dies == 0 {
            return;
        }
        let now = self.now;
        match self.rng.u8(0..4) {
            0 => self.order.crash(now),
            1 => self.inventory.crash(now),
            2 => self.payment.crash(now),
            _ => self.admin.crash(now),
        }
        self.note(|| "somebody crashed".to_owned());
    }

    /// A message was delivered so often, to no effect, that the broker does not deliver it any more.
    pub(crate) fn give_up_on_something(&mut self) {
        if !self.chance(self.weather.gives_up) {
            return;
        }
        let waiting = self.broker.deliverable(&Self::all_steps());
        if !waiting.is_empty() {
            let place = waiting[self.rng.usize(0..waiting.len())];
            self.note(|| format!("the broker gives {place:?} up"));
            self.broker.give_up(place);
        }
    }

    /// Somebody publishes something that nobody can read.
    pub(crate) fn publish_poison(&mut self) {
        if !self.chance(self.weather.poison) {
            return;
        }
        let subjects = self.broker.subjects();
        let subject = subjects[self.rng.usize(0..subjects.len())].clone();
        let id = self.fresh_id();
        let forged = self.forged(id, &subject);
        let payload = match forged {
            Some(forged) => {
                *self.forged.entry(subject.clone()).or_default() += 1;
                forged
            }
            None => [&b"no message"[..], b"{}", b"", b"\xff\xfe"][self.rng.usize(0..4)].to_vec(),
        };
        self.note(|| format!("poison on {subject}: {:?}", String::from_utf8_lossy(&payload)));
        self.broker.store(id, &subject, Bytes::from(payload), false);
    }

    /// A message with an envelope that can be read and with something inside that cannot; half of the time.
    fn forged(&mut self, id: uuid::Uuid, subject: &str) -> Option<Vec<u8>> {
        let of_subject = self.broker.messages().iter().filter(|stored| stored.subject == subject);
        let mut envelope =
            of_subject.filter_map(|stored| Envelope::from_bytes(&stored.payload).ok()).last()?;
        envelope.id = id;
        match self.rng.u8(0..6) {
            0 => envelope.version += VERSIONS_AHEAD,
            1 => envelope.message_type = "OrderTeleported".to_owned(),
            2 => envelope.data = serde_json::value::to_raw_value(&FactType::ALL).ok()?,
            _ => return None,
        }
        serde_json::to_vec(&envelope).ok()
    }
}
