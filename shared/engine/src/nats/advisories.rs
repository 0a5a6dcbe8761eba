//! Shell: what the broker gives up on. It says so once, in an advisory that nobody may hear; a stream keeps the
//! advisories until they are taken care of.
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

use super::connection::{ADVISORY_KINDS, NatsBus};
use super::pack::Packed;
use super::permissions::{ADVISORY_STREAM, advisories_of};
use super::pulling::{facts_of, in_words, messages_of, said_on, stored, tell};
use crate::runtime::bus::{BusError, Durable, GivenUp, GivenUps};

/// Advisories asked for at once: one that waits here for another would come again, and count as told twice.
const PULL: usize = 1;

/// The part of both advisories that matters here.
#[derive(Debug, Deserialize)]
struct Advisory {
    stream: String,
    consumer: String,
    stream_seq: u64,
    deliveries: u64,
    /// Why it was terminated, when whoever did so said why.
    #[serde(default)]
    reason: String,
}

impl Advisory {
    fn why(&self, is_terminated: bool) -> String {
        let deliveries = self.deliveries;
        match (is_terminated, self.reason.as_str()) {
            (false, _) => format!("the broker gave it up after {deliveries} deliveries"),
            (true, "") => "it was terminated at the broker".to_owned(),
            (true, reason) => format!("it was terminated at the broker: {reason}"),
        }
    }
}

/// The advisories about some durables.
pub struct Advisories {
    bus: NatsBus,
    messages: pull::Stream,
    /// The one that is being taken care of.
    current: Option<Message>,
    /// Facts that came together with the one that was told last, and are yet to be told.
    more: VecDeque<GivenUp>,
}

impl Advisories {
    /// Hears those about `durables`, all of one listener.
    pub(super) fn of<'a>(bus: &'a NatsBus, durables: &'a [Durable]) -> BoxFuture<'a, Result<Self, BusError>> {
        Box::pin(Self::hearing(bus, durables))
    }

    async fn hearing(bus: &NatsBus, durables: &[Durable]) -> Result<Self, BusError> {
        bus.ensure_advisory_stream().await.map_err(|fault| error_chain(&fault))?;
        let subjects = |durable: &Durable| {
            let (stream, name) = (durable.subscription.stream(), durable.name());
            ADVISORY_KINDS.map(|kind| format!("$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream}.{name}"))
        };
        let listener = durables.first().map_or("nobody", |durable| durable.listener);
        let config = pull::Config {
            durable_name: Some(advisories_of(listener)),
            deliver_policy: consumer::DeliverPolicy::All,
            ack_policy: consumer::AckPolicy::Explicit,
            ack_wait: bus.settings.ack_wait,
            filter_subjects: durables.iter().flat_map(subjects).collect(),
            ..pull::Config::default()
        };
        let creating = bus.jetstream.create_consumer_on_stream(config, ADVISORY_STREAM);
        let consumer = bus.in_time(creating).await.map_err(in_words)?;
        let messages = messages_of(bus, &consumer, PULL, None).await?;
        Ok(Self { bus: bus.clone(), messages, current: None, more: VecDeque::new() })
    }
}

impl GivenUps for Advisories {
    async fn next(&mut self) -> Result<GivenUp, BusError> {
        self.hear_one().await
    }

    async fn in_progress(&mut self) -> Result<(), BusError> {
        match &self.current {
            Some(message) => tell(&self.bus, message, AckKind::Progress).await,
            None => Ok(()),
        }
    }

    async fn acknowledge(&mut self) -> Result<(), BusError> {
        if !self.more.is_empty() {
            return Ok(());
        }
        match self.current.take() {
            Some(message) => tell(&self.bus, &message, AckKind::Ack).await,
            None => Ok(()),
        }
    }
}

impl Advisories {
    fn hear_one(&mut self) -> BoxFuture<'_, Result<GivenUp, BusError>> {
        Box::pin(self.hear())
    }

    async fn hear(&mut self) -> Result<GivenUp, BusError> {
        if let Some(given_up) = self.more.pop_front() {
            return Ok(given_up);
        }
        loop {
            let message = self.messages.next().await.ok_or("the stream of advisories ended")?;
            let message = message.map_err(|error| error_chain(&error))?;
            let read = serde_json::from_slice::<Advisory>(&message.payload);
            let is_terminated = message.subject.contains(".MSG_TERMINATED.");
            let subject = message.subject.clone();
            let told = message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1));
            self.current = Some(message);
            match read {
                Ok(advisory) => {
                    let facts = fetch(&self.bus, &advisory).await?;
                    let why = advisory.why(is_terminated);
                    self.more.extend(facts.into_iter().map(|(payload, delivery)| {
                        let (durable, why) = (advisory.consumer.clone(), why.clone());
                        GivenUp { durable, payload, delivery, why, is_terminated, told }
                    }));
                    if let Some(first) = self.more.pop_front() {
                        return Ok(first);
                    }
                }
                Err(error) => {
                    error!(%subject, "an advisory that cannot be read: {error}");
                    self.acknowledge().await?;
                }
            }
        }
    }
}

/// The facts of the message as the stream has it; an empty one when the stream no longer does.
async fn fetch(bus: &NatsBus, advisory: &Advisory) -> Result<Vec<(Bytes, DeliveryInfo)>, BusError> {
    let (stream, sequence) = (&advisory.stream, advisory.stream_seq);
    let found = async {
        let stream = bus.jetstream.get_stream_no_info(stream).await?;
        stored(&stream, sequence).await
    };
    let place = DeliveryInfo { stream: stream.clone(), sequence, ..DeliveryInfo::default() };
    Ok(match bus.in_time(found).await.map_err(in_words)? {
        Some(stored) => {
            let headers = Some(&stored.headers);
            let subject = said_on(&stored.subject, headers);
            let facts = facts_of(&stored.payload, headers).into_iter();
            let there = |fact: Packed| {
                let (subject, headers) = (subject.clone(), fact.headers);
                (fact.payload, DeliveryInfo { subject, headers, ..place.clone() })
            };
            facts.map(there).collect()
        }
        None => {
            error!(stream, sequence, "given up, and gone from its stream");
            vec![(Bytes::new(), place)]
        }
    })
}
