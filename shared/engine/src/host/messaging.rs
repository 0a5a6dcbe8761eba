//! Shell: state of a service's messaging, as its routes and health checks see it.

use tokio_util::sync::CancellationToken;

use crate::nats::NatsBus;
use crate::runtime::consumer_stall::ConsumerStalls;
use crate::runtime::publish_stall::PublishStall;

/// State of a service's messaging, as its routes and health checks see it.
pub struct Messaging {
    /// Connection to the broker; `None` for a program without messaging.
    pub bus: Option<NatsBus>,
    /// Publish stall: the broker is connected and takes no messages.
    pub publish_stall: PublishStall,
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
            consumer_stalls: ConsumerStalls::default(),
            startup_checked: CancellationToken::new(),
        }
    }

    /// Returns the reason for which nothing new may begin yet. A database that has lost events would begin it as if the
    /// lost events had never happened.
    #[must_use]
    pub fn startup_pending(&self) -> Option<&'static str> {
        let is_checked = self.bus.is_none() || self.startup_checked.is_cancelled();
        (!is_checked).then_some("waits for the broker, to verify that the database is current")
    }
}
