//! Shell: state of a service's messaging, as its routes and health checks see it.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::nats::NatsBus;
use crate::runtime::consumer_stall::ConsumerStalls;
use crate::runtime::outbox_progress::OutboxProgress;
use crate::runtime::publish_stall::PublishStall;

/// State of a service's messaging, as its routes and health checks see it.
pub struct Messaging {
    /// Connection to the broker; `None` for a program without messaging.
    pub bus: Option<NatsBus>,
    /// Publish stall: the broker is connected and takes no messages.
    pub publish_stall: PublishStall,
    /// Progress of the outbox that another replica publishes.
    pub outbox_progress: OutboxProgress,
    /// Consumer stalls: steps that process none of their waiting messages.
    pub consumer_stalls: ConsumerStalls,
    /// Cancelled once database and clock are checked against the broker.
    pub(super) startup_checked: CancellationToken,
}

impl Messaging {
    /// Messaging over a connection, before its start-up check.
    #[must_use]
    pub fn new(bus: Option<NatsBus>) -> Self {
        Self {
            bus,
            publish_stall: PublishStall::default(),
            outbox_progress: OutboxProgress::default(),
            consumer_stalls: ConsumerStalls::default(),
            startup_checked: CancellationToken::new(),
        }
    }

    /// Describes a stall for longer than `limit`: messages cannot be published, by whichever replica does that.
    #[must_use]
    pub fn describe_publish_stall(&self, limit: Duration) -> Option<String> {
        self.publish_stall.describe(limit, Instant::now()).or_else(|| self.describe_outbox_stall(limit))
    }

    /// Describes a stall for longer than `limit` of the replica that publishes.
    pub(super) fn describe_outbox_stall(&self, limit: Duration) -> Option<String> {
        self.outbox_progress.describe_stall(limit, Instant::now())
    }

    /// Records the oldest unpublished entry, if another replica is to publish it and the broker answers here.
    pub(super) fn observe_outbox(&self, oldest: Option<Timestamp>) {
        let is_follower = self.bus.as_ref().is_some_and(|bus| bus.is_follower() && bus.is_connected());
        self.outbox_progress.observe(oldest.filter(|_| is_follower), Instant::now());
    }

    /// Returns the reason for which nothing new may begin yet. A database that has lost events would begin it as if the
    /// lost events had never happened.
    #[must_use]
    pub fn startup_pending(&self) -> Option<&'static str> {
        let is_checked = self.bus.is_none() || self.startup_checked.is_cancelled();
        (!is_checked).then_some("waits for the broker, to verify that the database is current")
    }
}
