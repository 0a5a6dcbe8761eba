//! Shell: how messages of a durable are asked for. Of the replicas of a service the one that leads asks first: what it does
//! not ask for goes to the others at once, and all of it when it is gone.
//!
//! Source: NATS ADR-42, of consumers with priority groups, policy `prioritized`.

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{PriorityPolicy, pull};
use futures::StreamExt;
use futures::future::{OptionFuture, pending};
use saga_core::retry::error_chain;
use tokio::sync::watch;

use super::connection::NatsBus;
use super::pulling::{GROUP, Pull, messages_of};
use crate::runtime::bus::BusError;

const FIRST: usize = 0;
const SECOND: usize = 1;

/// The same durable, as it is where replicas ask one before the other.
pub(super) fn of_replicas(config: pull::Config) -> pull::Config {
    let (priority_policy, priority_groups) = (PriorityPolicy::Prioritized, vec![GROUP.to_owned()]);
    pull::Config { priority_policy, priority_groups, ..config }
}

/// The requests of one process, each for many messages and made again and again; begun with the first look.
pub(super) struct Requests {
    leads: Option<watch::Receiver<bool>>,
    /// What it asks for anyway.
    standing: Option<pull::Stream>,
    /// What it asks for before the others, as long as it leads. What comes is taken from here first.
    first: Option<pull::Stream>,
}

impl Requests {
    pub(super) fn of(bus: &NatsBus) -> Self {
        Self { leads: bus.leads.clone(), standing: None, first: None }
    }

    /// The next message. Dropped before it is done, it has taken none.
    pub(super) async fn next(&mut self, bus: &NatsBus, consumer: &Pull) -> Result<Message, BusError> {
        loop {
            let leads = self.leads.as_mut().is_some_and(|leads| *leads.borrow_and_update());
            let priority = self.leads.as_ref().map(|_| SECOND);
            let standing = match &mut self.standing {
                Some(standing) => standing,
                None => self.standing.insert(messages_of(bus, consumer, bus.settings.pull, priority).await?),
            };
            match (leads, &self.first) {
                (true, None) => {
                    self.first = Some(messages_of(bus, consumer, bus.settings.pull, Some(FIRST)).await?);
                }
                // What was on its way comes again.
                (false, Some(_)) => self.first = None,
                (true, Some(_)) | (false, None) => {}
            }
            let first = OptionFuture::from(self.first.as_mut().map(StreamExt::next));
            let message = tokio::select! {
                biased;
                Some(message) = first => message,
                message = standing.next() => message,
                () = changed(&mut self.leads) => continue,
            };
            let message = message.ok_or("the stream of messages ended")?;
            return message.map_err(|error| error_chain(&error));
        }
    }
}

/// Resolves when it leads, or does not any more.
async fn changed(leads: &mut Option<watch::Receiver<bool>>) {
    let is_told = match leads {
        Some(leads) => leads.changed().await.is_ok(),
        None => false,
    };
    if !is_told {
        pending().await
    }
}
