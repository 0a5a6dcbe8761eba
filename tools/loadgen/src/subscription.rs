//! Shell: subscription to the facts that end orders. A fact counts once the broker has stored it.
//!
//! Of a confirmed saga only the last fact is subscribed to, and only its correlation id is parsed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use contract::saga_fact::SagaFact;
use contract::{Fact, FactType};
use futures::StreamExt as _;
use saga_core::dead_letter::{DEAD_LETTER_TYPES, OperatorMessage};
use saga_core::message::{Envelope, Message as _};
use saga_core::service::stream_of;
use saga_engine::nats::{NatsBus, payloads_of};
use serde::Deserialize;
use tokio::time::timeout;
use uuid::Uuid;

use cli::note;
use devstack::{Endpoints, SAGACTL};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval: after a missed heartbeat the stream of the client does not wake its task.
const POLL: Duration = Duration::from_secs(1);
/// Number of empty polls after which to subscribe again: the stream may have died with its broker.
const MAX_EMPTY_POLLS: u32 = 4;
/// Facts that end a saga, by producer. Dead letters are added for all.
const PRODUCERS: [(&str, &[FactType]); 3] = [
    ("order", &[FactType::OrderConfirmed, FactType::OrderCancelled]),
    ("inventory", &[FactType::StockReservationFailed, FactType::StockReleased]),
    ("payment", &[FactType::PaymentFailed, FactType::PaymentRefunded, FactType::PaymentVoided]),
];

pub enum EndingFact {
    Confirmed,
    Other(Box<SagaFact>),
}

/// Subscription to the facts from now on.
pub struct Subscription {
    sources: Vec<(Source, Ordered)>,
}

/// Facts of a producer. After a restart of the broker, which loses the consumer, another one continues at `next`.
struct Source {
    bus: NatsBus,
    producer: &'static str,
    facts: &'static [FactType],
    next: u64,
}

/// Subscribes from the next published fact on.
pub async fn begin(endpoints: &Endpoints) -> anyhow::Result<Subscription> {
    let settings = endpoints.bus.clone();
    let url = settings.shown_url();
    let bus = NatsBus::connect_as(settings, SAGACTL, "sagactl-load").await?;
    let reached = timeout(CONNECT_TIMEOUT, bus.wait_until_connected()).await;
    reached.with_context(|| format!("nobody answers at {url}: is the system running?"))??;
    let mut sources = Vec::new();
    for (producer, facts) in PRODUCERS {
        let name = stream_of(producer);
        let stream = bus.jetstream().get_stream(&name).await;
        let stream = stream.with_context(|| format!("stream {name} does not exist"))?;
        let next = stream.cached_info().state.last_sequence + 1;
        let source = Source { bus: bus.clone(), producer, facts, next };
        let messages = source.subscribe().await?;
        sources.push((source, messages));
    }
    Ok(Subscription { sources })
}

impl Subscription {
    /// Delivers all facts until the process ends.
    pub fn deliver(self, to: impl Fn(Uuid, EndingFact) + Send + Sync + 'static) {
        let to = Arc::new(to);
        for (source, messages) in self.sources {
            tokio::spawn(source.receive(messages, to.clone()));
        }
    }
}

impl Source {
    async fn subscribe(&self) -> anyhow::Result<Ordered> {
        let name = stream_of(self.producer);
        let unreadable = || format!("stream {name} cannot be read");
        let types = self.facts.iter().map(|fact| fact.message_type()).chain(DEAD_LETTER_TYPES);
        let config = OrderedConfig {
            filter_subjects: types.map(|message_type| message_type.subject(self.producer, "")).collect(),
            // By sequence, not "new": another consumer misses nothing in between.
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            ..OrderedConfig::default()
        };
        let stream = self.bus.jetstream().get_stream(&name).await.with_context(unreadable)?;
        let consumer = stream.create_consumer(config).await.with_context(unreadable)?;
        consumer.messages().await.with_context(unreadable)
    }

    async fn receive(mut self, mut messages: Ordered, to: Arc<impl Fn(Uuid, EndingFact)>) {
        let confirmed = FactType::OrderConfirmed.message_type().subject("order", "");
        let mut empty_polls: u32 = 0;
        loop {
            let next = timeout(POLL, messages.next()).await;
            empty_polls = if next.is_err() { empty_polls + 1 } else { 0 };
            let message = match next {
                Err(_elapsed) => {
                    if empty_polls.is_multiple_of(MAX_EMPTY_POLLS)
                        && let Ok(again) = self.subscribe().await
                    {
                        messages = again;
                    }
                    continue;
                }
                Ok(Some(Ok(message))) => message,
                Ok(broken @ (Some(Err(_)) | None)) => {
                    if let Some(Err(error)) = broken {
                        note(&format!("broker: {error}"));
                    }
                    messages = self.resubscribe().await;
                    continue;
                }
            };
            if let Ok(info) = message.info() {
                self.next = info.stream_sequence + 1;
            }
            for payload in payloads_of(&message) {
                if let Some((order, fact)) = parse(&message.subject, &payload, &confirmed) {
                    to(order, fact);
                }
            }
        }
    }

    async fn resubscribe(&self) -> Ordered {
        loop {
            tokio::time::sleep(POLL).await;
            if let Ok(messages) = self.subscribe().await {
                return messages;
            }
        }
    }
}

/// Parses a fact; `None` if it belongs to no saga.
fn parse(subject: &str, payload: &[u8], confirmed: &str) -> Option<(Uuid, EndingFact)> {
    if subject == confirmed {
        let Head { correlation_id } = serde_json::from_slice(payload).ok()?;
        return Some((correlation_id, EndingFact::Confirmed));
    }
    let envelope = Envelope::from_bytes(payload).ok()?;
    let opened = envelope.open::<OperatorMessage<Fact>>().ok()?;
    Some((opened.fact.saga()?, EndingFact::Other(Box::new(SagaFact::of(&opened)))))
}

#[derive(Deserialize)]
struct Head {
    correlation_id: Uuid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_id_is_parsed_from_the_envelope() {
        let text = r#"{"id":"01890000-0000-7000-8000-000000000001","data":{"correlation_id":7},
            "correlation_id":"01890000-0000-7000-8000-000000000002"}"#;
        let Head { correlation_id } = serde_json::from_str(text).expect("an envelope");
        assert_eq!(correlation_id.to_string(), "01890000-0000-7000-8000-000000000002");
    }
}
