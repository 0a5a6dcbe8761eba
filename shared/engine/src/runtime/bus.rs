//! Shell: the broker as the loops see it: durable consumers, acknowledgements, advisories and publishing.
//!
//! [`crate::nats`] implements these traits for NATS JetStream, and the simulation has its own. Every method returns within
//! a limited time, except [`FactStream::next`] and [`Advisories::next`], which wait for a message or a broken connection.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use saga_core::dead_letter::DeliveryInfo;
use saga_core::service::{Step, Subscription};

use super::in_progress::InProgress;
use crate::store::{OutboxEntry, PublishOutcome};

/// Durable consumer of one subscription of one step.
#[derive(Debug, Clone, Copy)]
pub struct Durable {
    /// Step that processes the messages.
    pub step: &'static Step,
    /// Message types of one producer that the consumer receives.
    pub subscription: &'static Subscription,
    /// Name of the service that owns the step.
    pub service: &'static str,
}

impl Durable {
    /// Name of the consumer at the broker.
    #[must_use]
    pub fn name(&self) -> String {
        self.step.durable(self.subscription)
    }

    /// Lists the durable consumers of these steps.
    pub fn all(service: &'static str, steps: &[&'static Step]) -> Vec<Self> {
        let of_step = |step: &&'static Step| {
            let step = *step;
            step.consumes.iter().map(move |subscription| Self { step, subscription, service })
        };
        steps.iter().flat_map(of_step).collect()
    }
}

/// Reason for a failed request to the broker, in one line.
pub type BusError = String;

/// Broker that delivers each message to each durable consumer at least once.
pub trait Bus: Clone + Send + Sync + 'static {
    /// Facts delivered to one durable consumer.
    type Facts: FactStream;
    /// Advisories about messages that the broker no longer delivers.
    type Advisories: Advisories;

    /// True if the connection to the broker is up.
    fn is_connected(&self) -> bool;

    /// Creates the durable consumer if it is missing, and starts to pull from it.
    fn consume(&self, durable: Durable) -> impl Future<Output = Result<Self::Facts, BusError>> + Send;

    /// Subscribes to the advisories about these consumers.
    fn advisories(
        &self,
        durables: &[Durable],
    ) -> impl Future<Output = Result<Self::Advisories, BusError>> + Send;

    /// Time without an acknowledgement after which a message is redelivered.
    fn ack_wait(&self) -> Duration;

    /// Reports a delivery as in progress, which restarts its [`ack_wait`](Self::ack_wait).
    fn in_progress(&self, handle: &HandleOf<Self>) -> impl Future<Output = Result<(), BusError>> + Send;

    /// Reads the progress of a durable consumer.
    fn progress(&self, durable: Durable) -> impl Future<Output = Result<ConsumerProgress, BusError>> + Send;
}

/// Progress of a durable consumer in its stream, over all processes that share it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConsumerProgress {
    /// Facts that are not acknowledged. Estimated where messages are packs.
    pub backlog: Backlog,
    /// Position in the stream of the last message that was delivered.
    pub delivered: u64,
    /// Position in the stream up to which all of its messages are acknowledged.
    pub acknowledged: u64,
}

/// Unacknowledged facts of a durable consumer, over all processes that share it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Facts that were delivered to no process yet.
    pub undelivered: u64,
    /// Facts that were delivered and are not acknowledged.
    pub unacknowledged: u64,
    /// True if the broker delivers no more until some are acknowledged.
    pub is_full: bool,
}

impl Backlog {
    /// Number of facts, delivered or not.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.undelivered + self.unacknowledged
    }

    /// True if a new pull request would receive messages.
    #[must_use]
    pub const fn has_deliverable(self) -> bool {
        self.undelivered > 0 && !self.is_full
    }
}

/// Handle of a delivery of broker `B`.
pub type HandleOf<B> = <<<B as Bus>::Facts as FactStream>::Fact as BusFact>::Handle;

/// Stream of facts delivered to one durable consumer.
pub trait FactStream: Send {
    /// Type of the delivered facts.
    type Fact: BusFact;

    /// Adds each delivery to `in_progress` from its arrival on, until the last of its facts is dropped.
    fn hold(&mut self, in_progress: &InProgress<<Self::Fact as BusFact>::Handle>);

    /// Waits for a further fact while the consumer waits to submit one. Pending if other processes should take it.
    fn prefetch(&mut self) -> impl Future<Output = Result<Self::Fact, BusError>> + Send {
        self.next()
    }

    /// Waits for the next fact. Implementations may request many at once.
    fn next(&mut self) -> impl Future<Output = Result<Self::Fact, BusError>> + Send;

    /// Takes up to `most` facts that are available now.
    fn fetch(&mut self, most: usize) -> impl Future<Output = Result<Vec<Self::Fact>, BusError>> + Send;

    /// Waits for a single fact for at most `time`.
    fn next_within(
        &mut self,
        time: Duration,
    ) -> impl Future<Output = Result<Option<Self::Fact>, BusError>> + Send;
}

/// Fact that the broker delivered. It is redelivered unless it is acknowledged.
pub trait BusFact: Send + 'static {
    /// Identifies the delivery for [`Bus::in_progress`]; cheap to clone. Facts of one message share it.
    type Handle: Clone + Ord + Send + Sync + 'static;

    /// Payload of the fact, byte for byte as published.
    fn payload(&self) -> Bytes;

    /// Position in the broker's stream, and headers.
    fn delivery(&self) -> DeliveryInfo;

    /// True if the broker has delivered the fact before.
    fn is_redelivery(&self) -> bool {
        false
    }

    /// Acknowledges the fact, so that the broker does not redeliver it.
    fn acknowledge(self) -> impl Future<Output = Result<(), BusError>> + Send;
}

/// Advisory about a message that the broker no longer delivers.
#[derive(Debug, Clone)]
pub struct Advisory {
    /// Name of the durable consumer that was to receive the message.
    pub durable: String,
    /// Payload of the message; empty if its stream no longer has it.
    pub payload: Bytes,
    /// Position of the message in its stream.
    pub delivery: DeliveryInfo,
    /// Cause in words, for the dead letter.
    pub reason: String,
    /// True if somebody terminated the message; false if it reached the maximum number of deliveries.
    pub is_terminated: bool,
    /// Number of times that this advisory was delivered, including this one. Earlier receivers did not acknowledge it.
    pub deliveries: u64,
}

/// Stream of advisories. One that is not acknowledged is delivered again.
pub trait Advisories: Send {
    /// Waits for the next advisory.
    fn next(&mut self) -> impl Future<Output = Result<Advisory, BusError>> + Send;

    /// Reports the last advisory from [`Advisories::next`] as in progress.
    fn in_progress(&mut self) -> impl Future<Output = Result<(), BusError>> + Send;

    /// Acknowledges the last advisory from [`Advisories::next`].
    fn acknowledge(&mut self) -> impl Future<Output = Result<(), BusError>> + Send;
}

/// Publishing side of the broker, for the relay.
pub trait Publish: Send + Sync {
    /// Publishes entries in order, and reports the result for each. An entry may have arrived without being reported as
    /// done. Repeating it is harmless, as its message id repeats too.
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome>;

    /// Verifies that the broker answers this process. A rejection is an answer. Fails with the reason if none comes.
    fn probe(&self) -> BoxFuture<'_, Result<(), BusError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Receives the result of a round, in which rejected entries no longer count as delayed.
    fn round_ended(&self, _published: &PublishOutcome) {}
}
