//! Shell: pull requests for the messages of a durable consumer.
//!
//! Of several replicas, the leader's requests have a higher priority. The broker gives messages that the leader does not
//! request to the others at once, and all messages when the leader is gone.
//!
//! Source: NATS ADR-42, consumers with priority groups, policy `prioritized`.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{self, PriorityPolicy, pull};
use futures::future::{BoxFuture, OptionFuture, pending};
use futures::stream::Next;
use futures::{FutureExt as _, StreamExt};
use saga_core::retry::error_chain;
use tokio::sync::watch;

use super::connection::NatsBus;
use super::message::in_one_line;
use crate::runtime::bus::BusError;

/// Duration of one pull request. The broker sends heartbeats meanwhile, so that a dead one is noticed.
const PULL_EXPIRES: Duration = Duration::from_secs(4);
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Priority group of all replicas of a service.
pub(super) const GROUP: &str = "replicas";

/// Messages that one of several replicas requests at once, each of which may be a pack. Messages that a busy replica has
/// requested are not available to others.
const REPLICA_BATCH: usize = 16;

/// Priority of the leader's requests: the broker serves lower numbers first.
const LEADER_PRIORITY: usize = 0;
/// Priority of requests that every replica makes.
const STANDBY_PRIORITY: usize = 1;

pub(super) type PullConsumer = consumer::Consumer<pull::Config>;

/// Adds the priority group of replicas to the configuration of a consumer.
pub(super) fn with_priorities(config: pull::Config) -> pull::Config {
    let (priority_policy, priority_groups) = (PriorityPolicy::Prioritized, vec![GROUP.to_owned()]);
    pull::Config { priority_policy, priority_groups, ..config }
}

/// Requests messages, `batch` at once, until an error occurs. With a priority, the broker serves lower ones first.
pub(super) fn messages_of<'a>(
    bus: &'a NatsBus,
    consumer: &'a PullConsumer,
    batch: usize,
    priority: Option<usize>,
) -> BoxFuture<'a, Result<pull::Stream, BusError>> {
    let stream = consumer.stream().max_messages_per_batch(batch).expires(PULL_EXPIRES).heartbeat(HEARTBEAT);
    let stream = match priority {
        Some(priority) => stream.group(GROUP).priority(priority),
        None => stream,
    };
    Box::pin(async move { bus.in_time(stream.messages()).await.map_err(in_one_line) })
}

/// Pull requests of one process, each for many messages and renewed by the client. Opened at the first [`next`](Self::next).
pub(super) struct PullRequests {
    leads: Option<watch::Receiver<bool>>,
    /// Requests that every process makes.
    standby: Option<pull::Stream>,
    /// Additional requests of the leader.
    leader: Option<pull::Stream>,
    /// Messages that had arrived for the leader's requests when it lost the lead.
    leftover: VecDeque<Message>,
}

impl PullRequests {
    pub(super) fn of(bus: &NatsBus) -> Self {
        Self { leads: bus.leads.clone(), standby: None, leader: None, leftover: VecDeque::new() }
    }

    /// Waits for the next message. Cancel safe: dropped early, it has taken none.
    pub(super) async fn next(&mut self, bus: &NatsBus, consumer: &PullConsumer) -> Result<Message, BusError> {
        loop {
            let leads = self.leads.as_mut().is_some_and(|leads| *leads.borrow_and_update());
            let (batch, priority) = match self.leads {
                Some(_) => (bus.settings.pull_batch.min(REPLICA_BATCH), Some(STANDBY_PRIORITY)),
                None => (bus.settings.pull_batch, None),
            };
            if self.standby.is_none() {
                self.standby = Some(messages_of(bus, consumer, batch, priority).await?);
            }
            if leads && self.leader.is_none() {
                self.leader = Some(messages_of(bus, consumer, batch, Some(LEADER_PRIORITY)).await?);
            }
            if !leads && let Some(leader) = self.leader.take() {
                self.leftover.extend(arrived(leader));
            }
            if let Some(message) = self.leftover.pop_front() {
                return Ok(message);
            }
            // Not biased: neither stream may starve the other.
            let message = tokio::select! {
                Some(message) = next_of(&mut self.leader) => message,
                Some(message) = next_of(&mut self.standby) => message,
                () = changed(&mut self.leads) => continue,
            };
            let message = message.ok_or("the stream of messages ended")?;
            return message.map_err(|error| error_chain(&error));
        }
    }
}

fn next_of(stream: &mut Option<pull::Stream>) -> OptionFuture<Next<'_, pull::Stream>> {
    stream.as_mut().map(StreamExt::next).into()
}

/// Takes messages that have arrived, at most two batches. Messages still on their way are redelivered, to any replica.
fn arrived(mut stream: pull::Stream) -> Vec<Message> {
    let mut messages = Vec::new();
    while messages.len() < 2 * REPLICA_BATCH
        && let Some(Some(Ok(message))) = stream.next().now_or_never()
    {
        messages.push(message);
    }
    messages
}

/// Resolves when this replica gains or loses the lead.
async fn changed(leads: &mut Option<watch::Receiver<bool>>) {
    let is_changed = match leads {
        Some(leads) => leads.changed().await.is_ok(),
        None => false,
    };
    if !is_changed {
        pending().await
    }
}
