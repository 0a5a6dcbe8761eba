//! Shell: the broker, as the loops see it: durable deliveries, acknowledgements, publishing, and what it gave up on.
//!
//! [`crate::nats`] is one; the simulation has another. No method may wait without an end, but for
//! [`Deliveries::next`] and [`GivenUps::next`], which end when a message comes or the connection breaks.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use saga_core::dead_letter::DeliveryInfo;
use saga_core::service::{Step, Subscription};

use crate::store::{OutboxEntry, PublishOutcome};

/// A durable consumer: what one subscription of one step is to have.
#[derive(Debug, Clone, Copy)]
pub struct Durable {
    /// The step that reacts to what is delivered.
    pub step: &'static Step,
    /// The messages of one producer that it hears.
    pub subscription: &'static Subscription,
    /// The service that the step is of.
    pub listener: &'static str,
}

impl Durable {
    /// Its name at the broker.
    #[must_use]
    pub fn name(&self) -> String {
        self.step.durable(self.subscription)
    }

    /// Every durable of a service's steps.
    pub fn all(listener: &'static str, steps: &[&'static Step]) -> Vec<Self> {
        let of_step = |step: &&'static Step| {
            let step = *step;
            step.consumes.iter().map(move |subscription| Self { step, subscription, listener })
        };
        steps.iter().flat_map(of_step).collect()
    }
}

/// Why the broker could not do what it was asked, in one line.
pub type BusError = String;

/// A broker that delivers each message to each durable at least once.
pub trait Bus: Clone + Send + Sync + 'static {
    /// Messages on their way to one durable.
    type Deliveries: Deliveries;
    /// What it gave up on.
    type GivenUps: GivenUps;

    /// Whether it is there right now.
    fn is_connected(&self) -> bool;

    /// Makes the durable when it is not there, and begins to pull from it.
    fn consume(&self, durable: Durable) -> impl Future<Output = Result<Self::Deliveries, BusError>> + Send;

    /// Begins to hear what was given up of these.
    fn given_ups(
        &self,
        durables: &[Durable],
    ) -> impl Future<Output = Result<Self::GivenUps, BusError>> + Send;

    /// A message that is not acknowledged within this time comes again.
    fn ack_wait(&self) -> Duration;

    /// Tells it that a delivery is still being worked on: the time begins anew.
    fn in_progress(&self, hold: &HoldOf<Self>) -> impl Future<Output = Result<(), BusError>> + Send;

    /// What the durable still waits for, or waits to hear of.
    fn waiting(&self, durable: Durable) -> impl Future<Output = Result<Waiting, BusError>> + Send;
}

/// Messages that a durable has yet to settle, whoever takes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Nobody has been delivered these.
    pub undelivered: u64,
    /// Somebody has, and has not acknowledged them.
    pub delivered: u64,
    /// So many are delivered that no more is, until some are acknowledged.
    pub is_full: bool,
}

impl Waiting {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.undelivered + self.delivered
    }

    /// Whether whoever asked for more now would get some.
    #[must_use]
    pub const fn gives_some(self) -> bool {
        self.undelivered > 0 && !self.is_full
    }
}

/// What names a delivery of this broker.
pub type HoldOf<B> = <<<B as Bus>::Deliveries as Deliveries>::Message as BusMessage>::Hold;

/// Messages on their way to one durable.
pub trait Deliveries: Send {
    /// One of them.
    type Message: BusMessage;

    /// Whether what comes is held here while it cannot be handed in. Where others would take it, it is not: what a process
    /// that is busy has asked for should be little.
    fn are_held(&self) -> bool {
        true
    }

    /// The next message, many of which may be asked for at once behind the scenes.
    fn next(&mut self) -> impl Future<Output = Result<Self::Message, BusError>> + Send;

    /// At most so many of the messages that are there at once.
    fn fetch(&mut self, most: usize) -> impl Future<Output = Result<Vec<Self::Message>, BusError>> + Send;

    /// The next message alone, if one comes in time.
    fn next_within(
        &mut self,
        time: Duration,
    ) -> impl Future<Output = Result<Option<Self::Message>, BusError>> + Send;
}

/// A message that was delivered, and waits for its acknowledgement: without one it comes again.
pub trait BusMessage: Send + 'static {
    /// What names this delivery to the broker, at little cost.
    type Hold: Clone + PartialEq + Send + Sync + 'static;

    /// As [`BusMessage::Hold`].
    fn hold(&self) -> Self::Hold;

    /// The payload, byte for byte.
    fn payload(&self) -> Bytes;

    /// Where the broker has it, and its headers.
    fn delivery(&self) -> DeliveryInfo;

    /// Whether it was delivered before.
    fn is_redelivery(&self) -> bool {
        false
    }

    /// Tells the broker that it need not come again; once, so it takes the message.
    fn acknowledge(self) -> impl Future<Output = Result<(), BusError>> + Send;
}

/// A message that the broker delivers no more.
#[derive(Debug, Clone)]
pub struct GivenUp {
    /// Name of the durable that was to have it.
    pub durable: String,
    /// The payload; empty when the stream no longer has it.
    pub payload: Bytes,
    /// Where the broker has, or had, it.
    pub delivery: DeliveryInfo,
    /// Why it was given up, in words.
    pub why: String,
    /// Whether somebody said so; otherwise it was delivered too often.
    pub is_terminated: bool,
    /// How often it was told, this time counted. Who was told before did not get to acknowledge it.
    pub told: u64,
}

/// What a broker gave up on. What is not acknowledged comes again.
pub trait GivenUps: Send {
    /// The next one.
    fn next(&mut self) -> impl Future<Output = Result<GivenUp, BusError>> + Send;

    /// The one that [`GivenUps::next`] answered last is still being taken care of.
    fn in_progress(&mut self) -> impl Future<Output = Result<(), BusError>> + Send;

    /// The one that [`GivenUps::next`] answered last is taken care of.
    fn acknowledge(&mut self) -> impl Future<Output = Result<(), BusError>> + Send;
}

/// Where the relay publishes to.
pub trait Publish: Send + Sync {
    /// Publishes in order and says what became of each entry. An entry may have arrived although it is not
    /// reported as done: repeating is harmless, because message ids repeat too.
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome>;

    /// Hears what a round comes to once it was judged: what counts as refused holds nothing up any more.
    fn judged(&self, _published: &PublishOutcome) {}
}
