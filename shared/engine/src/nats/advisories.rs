//! Shell: the broker's advisories about messages that it no longer delivers.
//!
//! The broker publishes each advisory once. A stream keeps them until they are processed.
//!
//! Source: NATS ADR-1 (JSON API: `io.nats.jetstream.advisory.v1.max_deliver` and `….terminated`).

use std::collections::VecDeque;

use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use saga_core::dead_letter::DeliveryInfo;
use saga_core::retry::error_chain;
use serde::Deserialize;
use tracing::error;

use super::connection::NatsBus;
use super::durables;
use super::message::{facts_of, in_one_line, published_subject, stored};
use super::pack::PackedFact;
use super::permissions::{ADVISORY_STREAM, advisories_of};
use super::pull_requests::pull_stream;
use super::streams::ADVISORY_KINDS;
use crate::runtime::bus::{Advisories, Advisory, BusError, Durable};

/// Advisories in one pull request. A second one would wait here, be redelivered, and count as delivered twice.
const PULL_BATCH: usize = 1;

/// Members of both advisories that are used here.
#[derive(Debug, Deserialize)]
struct AdvisoryBody {
    stream: String,
    consumer: String,
    stream_seq: u64,
    deliveries: u64,
    /// Reason of a termination, if it was given.
    #[serde(default)]
    reason: String,
}

impl AdvisoryBody {
    fn describe(&self, is_terminated: bool) -> String {
        let deliveries = self.deliveries;
        match (is_terminated, self.reason.as_str()) {
            (false, _) => format!("the broker gave it up after {deliveries} deliveries"),
            (true, "") => "it was terminated at the broker".to_owned(),
            (true, reason) => format!("it was terminated at the broker: {reason}"),
        }
    }
}

/// Advisories about the durable consumers of one service.
pub struct NatsAdvisories {
    bus: NatsBus,
    messages: pull::Stream,
    /// Advisory that is not acknowledged yet.
    current: Option<Message>,
    /// Further facts of the message of that advisory.
    more: VecDeque<Advisory>,
}

impl NatsAdvisories {
    /// Subscribes to the advisories about `durables`, all of one service.
    pub(super) fn subscribe<'a>(
        bus: &'a NatsBus,
        durables: &'a [Durable],
    ) -> BoxFuture<'a, Result<Self, BusError>> {
        Box::pin(Self::open(bus, durables))
    }

    async fn open(bus: &NatsBus, durables: &[Durable]) -> Result<Self, BusError> {
        bus.ensure_advisory_stream().await.map_err(|fault| error_chain(&fault))?;
        let subjects = |durable: &Durable| {
            let (stream, name) = (durable.subscription.stream(), durable.name());
            ADVISORY_KINDS.map(|kind| format!("$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream}.{name}"))
        };
        let service = durables.first().map_or("nobody", |durable| durable.service);
        let config = pull::Config {
            durable_name: Some(advisories_of(service)),
            deliver_policy: consumer::DeliverPolicy::All,
            ack_policy: consumer::AckPolicy::Explicit,
            ack_wait: bus.settings.ack_wait,
            filter_subjects: durables.iter().flat_map(subjects).collect(),
            ..pull::Config::default()
        };
        let consumer = durables::ensure(bus, ADVISORY_STREAM, config).await.map_err(in_one_line)?;
        let messages = pull_stream(bus, &consumer, PULL_BATCH).await?;
        Ok(Self { bus: bus.clone(), messages, current: None, more: VecDeque::new() })
    }

    fn next_boxed(&mut self) -> BoxFuture<'_, Result<Advisory, BusError>> {
        Box::pin(self.receive())
    }

    async fn receive(&mut self) -> Result<Advisory, BusError> {
        if let Some(advisory) = self.more.pop_front() {
            return Ok(advisory);
        }
        loop {
            let message = self.messages.next().await.ok_or("the stream of advisories ended")?;
            let message = message.map_err(|error| error_chain(&error))?;
            let body = serde_json::from_slice::<AdvisoryBody>(&message.payload);
            let is_terminated = message.subject.contains(".MSG_TERMINATED.");
            let subject = message.subject.clone();
            let deliveries = message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1));
            self.current = Some(message);
            match body {
                Ok(body) => {
                    let facts = fetch(&self.bus, &body).await?;
                    let reason = body.describe(is_terminated);
                    self.more.extend(facts.into_iter().map(|(payload, delivery)| {
                        let (durable, reason) = (body.consumer.clone(), reason.clone());
                        Advisory { durable, payload, delivery, reason, is_terminated, deliveries }
                    }));
                    if let Some(first) = self.more.pop_front() {
                        return Ok(first);
                    }
                }
                Err(error) => {
                    error!(%subject, "advisory of the broker cannot be read and is ignored: {error}");
                    self.acknowledge().await?;
                }
            }
        }
    }
}

impl Advisories for NatsAdvisories {
    async fn next(&mut self) -> Result<Advisory, BusError> {
        self.next_boxed().await
    }

    async fn in_progress(&mut self) -> Result<(), BusError> {
        match &self.current {
            Some(message) => send_ack(&self.bus, message, AckKind::Progress).await,
            None => Ok(()),
        }
    }

    async fn acknowledge(&mut self) -> Result<(), BusError> {
        if !self.more.is_empty() {
            return Ok(());
        }
        match self.current.take() {
            Some(message) => send_ack(&self.bus, &message, AckKind::Ack).await,
            None => Ok(()),
        }
    }
}

fn send_ack<'a>(
    bus: &'a NatsBus,
    message: &'a Message,
    kind: AckKind,
) -> BoxFuture<'a, Result<(), BusError>> {
    Box::pin(async move { bus.in_time(message.ack_with(kind)).await.map_err(in_one_line) })
}

/// Reads the facts of the message from its stream; an empty fact if the stream no longer has it.
async fn fetch(bus: &NatsBus, advisory: &AdvisoryBody) -> Result<Vec<(Bytes, DeliveryInfo)>, BusError> {
    let (stream, sequence) = (&advisory.stream, advisory.stream_seq);
    let found = async {
        let stream = bus.jetstream.get_stream_no_info(stream).await?;
        stored(&stream, sequence).await
    };
    let position = DeliveryInfo { stream: stream.clone(), sequence, ..DeliveryInfo::default() };
    Ok(match bus.in_time(found).await.map_err(in_one_line)? {
        Some(stored) => {
            let headers = Some(&stored.headers);
            let subject = published_subject(&stored.subject, headers);
            let facts = facts_of(&stored.payload, headers).into_iter();
            let with_position = |fact: PackedFact| {
                let (subject, headers) = (subject.clone(), fact.headers);
                (fact.payload, DeliveryInfo { subject, headers, ..position.clone() })
            };
            facts.map(with_position).collect()
        }
        None => {
            error!(stream, sequence, "message given up by the broker is no longer in its stream");
            vec![(Bytes::new(), position)]
        }
    })
}
