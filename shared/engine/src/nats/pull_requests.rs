//! Shell: pull requests for the messages of a durable consumer.
//!
//! A process requests only what it has room for, and keeps all that arrives. The pull stream of the client requests more
//! whenever it is polled, and buffers messages that nobody reports to the broker as in progress.
//!
//! Of several replicas, the leader's requests have a higher priority. The broker gives messages that the leader does not
//! request to the others at once, and all messages when the leader is gone.
//!
//! Source: NATS ADR-13, pull requests; ADR-42, consumers with priority groups, policy `prioritized`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{self, PriorityPolicy, pull};
use async_nats::{StatusCode, Subject, Subscriber};
use futures::future::{BoxFuture, pending};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::connection::{BoxedError, NatsBus};
use super::message::in_one_line;
use crate::runtime::bus::BusError;

/// Duration of one pull request, after which the broker ends it.
const PULL_EXPIRES: Duration = Duration::from_secs(4);
/// Interval of the broker's heartbeats in the client's own pull stream.
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

/// Opens a pull stream of the client, for messages of which each is taken as soon as it arrives.
pub(super) fn pull_stream<'a>(
    bus: &'a NatsBus,
    consumer: &'a PullConsumer,
    batch: usize,
) -> BoxFuture<'a, Result<pull::Stream, BusError>> {
    let stream = consumer.stream().max_messages_per_batch(batch).expires(PULL_EXPIRES).heartbeat(HEARTBEAT);
    Box::pin(async move { bus.in_time(stream.messages()).await.map_err(in_one_line) })
}

/// Pull requests of one process for one durable consumer.
pub(super) struct PullRequests {
    leads: Option<watch::Receiver<bool>>,
    /// Number of connections so far. A request does not survive its connection.
    connections: watch::Receiver<u64>,
    /// Requests that every process makes.
    standby: Lane,
    /// Additional requests of the leader.
    leader: Lane,
    /// Messages that had arrived for the leader's requests when it lost the lead.
    leftover: VecDeque<Message>,
}

impl PullRequests {
    pub(super) fn of(bus: &NatsBus) -> Self {
        let standby = Lane::new(bus.leads.as_ref().map(|_| STANDBY_PRIORITY));
        let (leads, connections) = (bus.leads.clone(), bus.connections());
        let leader = Lane::new(Some(LEADER_PRIORITY));
        Self { leads, connections, standby, leader, leftover: VecDeque::new() }
    }

    /// Waits for the next message, with requests for `count` messages. Cancel safe: dropped early, it has taken none.
    pub(super) async fn next(
        &mut self,
        bus: &NatsBus,
        consumer: &PullConsumer,
        count: usize,
    ) -> Result<Message, BusError> {
        loop {
            let leads = self.leads.as_mut().is_some_and(|leads| *leads.borrow_and_update());
            if self.connections.has_changed().unwrap_or(false) {
                self.connections.mark_unchanged();
                self.disconnected();
            }
            let count = if self.leads.is_some() { count.min(REPLICA_BATCH) } else { count };
            self.standby.refill(bus, consumer, count).await?;
            match leads {
                true => self.leader.refill(bus, consumer, count).await?,
                false => self.leftover.extend(self.leader.end(bus)),
            }
            if let Some(message) = self.leftover.pop_front() {
                return Ok(message);
            }
            let deadline = [&self.standby, &self.leader].into_iter().filter_map(|lane| lane.deadline()).min();
            // Not biased: neither lane may starve the other.
            let message = tokio::select! {
                message = self.leader.next(bus) => message?,
                message = self.standby.next(bus) => message?,
                () = changed(&mut self.leads) => None,
                _ = self.connections.changed() => {
                    self.disconnected();
                    None
                }
                () = passed(deadline) => {
                    self.standby.expire()?;
                    self.leader.expire()?;
                    None
                }
            };
            if let Some(message) = message {
                return Ok(message);
            }
        }
    }

    /// Marks all requests as lost with their connection.
    fn disconnected(&mut self) {
        self.standby.disconnected();
        self.leader.disconnected();
    }

    /// Waits for a message that was requested, without a further request. Pending if none comes.
    pub(super) async fn arriving(&mut self, bus: &NatsBus) -> Message {
        if let Some(message) = self.leftover.pop_front() {
            return message;
        }
        loop {
            let message = tokio::select! {
                message = self.leader.next(bus) => message,
                message = self.standby.next(bus) => message,
            };
            // A problem shows again at the next request.
            if let Ok(Some(message)) = message {
                return message;
            }
        }
    }
}

/// Requests of one priority.
struct Lane {
    priority: Option<usize>,
    requests: Vec<Request>,
}

/// Pull request with a subscription of its own.
struct Request {
    arriving: Subscriber,
    /// Messages that may still arrive.
    outstanding: usize,
    /// Time by which the broker must have ended the request.
    until: Instant,
    /// True if the connection was lost since: the broker may have lost the request too.
    is_disconnected: bool,
}

impl Lane {
    const fn new(priority: Option<usize>) -> Self {
        Self { priority, requests: Vec::new() }
    }

    /// Requests further messages once half of `count` have arrived.
    async fn refill(&mut self, bus: &NatsBus, consumer: &PullConsumer, count: usize) -> Result<(), BusError> {
        let current = self.requests.iter().filter(|request| !request.is_disconnected);
        let outstanding: usize = current.map(|request| request.outstanding).sum();
        if count > outstanding && outstanding <= count / 2 {
            let missing = count - outstanding;
            let sending = Box::pin(self.send(bus, consumer, missing));
            let arriving = bus.in_time(sending).await.map_err(in_one_line)?;
            let until = Instant::now() + PULL_EXPIRES + bus.settings.publish_timeout;
            self.requests.push(Request { arriving, outstanding: missing, until, is_disconnected: false });
        }
        Ok(())
    }

    async fn send(
        &self,
        bus: &NatsBus,
        consumer: &PullConsumer,
        count: usize,
    ) -> Result<Subscriber, BoxedError> {
        let config = pull::BatchConfig {
            batch: count,
            expires: Some(PULL_EXPIRES),
            group: self.priority.map(|_| GROUP.to_owned()),
            priority: self.priority,
            ..pull::BatchConfig::default()
        };
        let inbox = Subject::from(bus.client.new_inbox());
        let arriving = bus.client.subscribe(inbox.clone()).await?;
        consumer.request_batch(config, inbox).await?;
        Ok(arriving)
    }

    /// Waits until a message arrives, or a request ends. Pending without a request.
    async fn next(&mut self, bus: &NatsBus) -> Result<Option<Message>, BusError> {
        poll_fn(|cx| self.poll(bus, cx)).await
    }

    fn poll(&mut self, bus: &NatsBus, cx: &mut Context<'_>) -> Poll<Result<Option<Message>, BusError>> {
        for index in 0..self.requests.len() {
            if let Poll::Ready(arrived) = self.requests[index].arriving.poll_next_unpin(cx) {
                return Poll::Ready(match arrived {
                    Some(message) => self.take(bus, index, message),
                    None => Err("the subscription to messages ended".to_owned()),
                });
            }
        }
        Poll::Pending
    }

    /// Takes what arrived for a request: a message, or its end.
    fn take(
        &mut self,
        bus: &NatsBus,
        index: usize,
        message: async_nats::Message,
    ) -> Result<Option<Message>, BusError> {
        match message.status {
            None | Some(StatusCode::OK) => {
                let request = &mut self.requests[index];
                request.outstanding = request.outstanding.saturating_sub(1);
                if request.outstanding == 0 {
                    self.requests.swap_remove(index);
                }
                Ok(Some(Message { message, context: bus.jetstream.clone() }))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(status) => {
                self.requests.swap_remove(index);
                let description = message.description.as_deref().unwrap_or("no description");
                match status == StatusCode::TIMEOUT {
                    true => Ok(None),
                    false => Err(format!("request for messages ended with {status}: {description}")),
                }
            }
        }
    }

    /// Marks all requests as lost with their connection. What arrives for them all the same is taken.
    fn disconnected(&mut self) {
        self.requests.iter_mut().for_each(|request| request.is_disconnected = true);
    }

    /// Ends all requests. Returns the messages that have arrived. Those on their way are redelivered, to any replica.
    fn end(&mut self, bus: &NatsBus) -> Vec<Message> {
        let mut messages = Vec::new();
        for mut request in self.requests.drain(..) {
            while let Some(Some(message)) = request.arriving.next().now_or_never() {
                if message.status.is_none_or(|status| status == StatusCode::OK) {
                    messages.push(Message { message, context: bus.jetstream.clone() });
                }
            }
        }
        messages
    }

    fn deadline(&self) -> Option<Instant> {
        self.requests.iter().map(|request| request.until).min()
    }

    /// Drops requests that the broker should have ended.
    ///
    /// # Errors
    /// If the connection has been there all the time, so that the broker does not answer.
    fn expire(&mut self) -> Result<(), BusError> {
        let now = Instant::now();
        let is_unanswered =
            self.requests.iter().any(|request| request.until <= now && !request.is_disconnected);
        self.requests.retain(|request| request.until > now);
        if is_unanswered { Err("no answer to a request for messages".to_owned()) } else { Ok(()) }
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
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
