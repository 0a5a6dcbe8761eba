//! Shell: how messages of a durable are asked for. Of the replicas of a service the one that leads asks first: what it does
//! not ask for goes to the others at once, and all of it when it is gone.
//!
//! Source: NATS ADR-42, of consumers with priority groups, policy `prioritized`.

use std::collections::VecDeque;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{PriorityPolicy, pull};
use futures::future::{OptionFuture, pending};
use futures::stream::Next;
use futures::{FutureExt as _, StreamExt};
use saga_core::retry::error_chain;
use tokio::sync::watch;

use super::connection::NatsBus;
use super::pulling::{GROUP, Pull, messages_of};
use crate::runtime::bus::BusError;

/// So many messages one of several replicas asks for at once, each of which may be a pack: what it has asked for and cannot
/// take yet is nobody else's.
const FEW: usize = 16;

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
    /// What it asks for before the others, as long as it leads.
    first: Option<pull::Stream>,
    /// What had come of that when it ended.
    left: VecDeque<Message>,
}

impl Requests {
    pub(super) fn of(bus: &NatsBus) -> Self {
        Self { leads: bus.leads.clone(), standing: None, first: None, left: VecDeque::new() }
    }

    /// The next message. Dropped before it is done, it has taken none.
    pub(super) async fn next(&mut self, bus: &NatsBus, consumer: &Pull) -> Result<Message, BusError> {
        loop {
            let leads = self.leads.as_mut().is_some_and(|leads| *leads.borrow_and_update());
            let (pull, priority) = match self.leads {
                Some(_) => (bus.settings.pull.min(FEW), Some(SECOND)),
                None => (bus.settings.pull, None),
            };
            if self.standing.is_none() {
                self.standing = Some(messages_of(bus, consumer, pull, priority).await?);
            }
            if leads && self.first.is_none() {
                self.first = Some(messages_of(bus, consumer, pull, Some(FIRST)).await?);
            }
            if !leads && let Some(first) = self.first.take() {
                self.left.extend(arrived(first));
            }
            if let Some(message) = self.left.pop_front() {
                return Ok(message);
            }
            // None before the other: what has come waits for neither.
            let message = tokio::select! {
                Some(message) = next_of(&mut self.first) => message,
                Some(message) = next_of(&mut self.standing) => message,
                () = changed(&mut self.leads) => continue,
            };
            let message = message.ok_or("the stream of messages ended")?;
            return message.map_err(|error| error_chain(&error));
        }
    }
}

/// The next of it, if there is one.
fn next_of(stream: &mut Option<pull::Stream>) -> OptionFuture<Next<'_, pull::Stream>> {
    stream.as_mut().map(StreamExt::next).into()
}

/// What has come already, no more than it may have asked for; what is still on its way comes again, to whoever asks.
fn arrived(mut stream: pull::Stream) -> Vec<Message> {
    let mut messages = Vec::new();
    while messages.len() < 2 * FEW
        && let Some(Some(Ok(message))) = stream.next().now_or_never()
    {
        messages.push(message);
    }
    messages
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
