//! Shell: hearing how orders end, as the streams hold it: a fact counts once the broker has stored it.
//!
//! Of a saga that ends well only its last fact is listened to, and of that only whose it is.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use contract::heard_fact::HeardFact;
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
use devstack::{Reach, SAGACTL};

/// A broker on the same machine connects at once.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// After a missed heartbeat the client's stream wakes nobody: it is asked again this often.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Nothing came so often: either nothing was published, or the client's stream has died with the broker that it was at.
const QUIET: u32 = 4;
/// The facts that tell how a saga ends, by who publishes them; dead letters are everybody's.
const PRODUCERS: [(&str, &[FactType]); 3] = [
    ("order", &[FactType::OrderConfirmed, FactType::OrderCancelled]),
    ("inventory", &[FactType::StockReservationFailed, FactType::StockReleased]),
    ("payment", &[FactType::PaymentFailed, FactType::PaymentRefunded, FactType::PaymentVoided]),
];

/// What was heard of a saga.
pub enum Heard {
    /// It was confirmed.
    Confirmed,
    /// Anything else.
    Other(Box<HeardFact>),
}

/// What is published from now on.
pub struct Facts {
    sources: Vec<(Source, Ordered)>,
}

/// Whose facts they are, and which is the next: when the broker has forgotten the consumer, as one that was restarted has,
/// another goes on from there.
struct Source {
    bus: NatsBus,
    producer: &'static str,
    facts: &'static [FactType],
    next: u64,
}

/// Begins with the next fact that is published.
pub async fn listen(reach: &Reach) -> anyhow::Result<Facts> {
    let settings = reach.bus.clone();
    let url = settings.shown_url();
    let bus = NatsBus::connect_as(settings, SAGACTL, "sagactl-load").await?;
    let reached = timeout(CONNECT_WITHIN, bus.reached()).await;
    reached.with_context(|| format!("nobody answers at {url}: is the system running?"))??;
    let mut sources = Vec::new();
    for (producer, facts) in PRODUCERS {
        let name = stream_of(producer);
        let stream = bus.jetstream().get_stream(&name).await;
        let stream = stream.with_context(|| format!("stream {name} is not there"))?;
        let next = stream.cached_info().state.last_sequence + 1;
        let source = Source { bus: bus.clone(), producer, facts, next };
        let messages = source.subscribe().await?;
        sources.push((source, messages));
    }
    Ok(Facts { sources })
}

impl Facts {
    /// Tells all of them, until the process ends.
    pub fn tell(self, to: impl Fn(Uuid, Heard) + Send + Sync + 'static) {
        let to = Arc::new(to);
        for (source, messages) in self.sources {
            tokio::spawn(source.hear(messages, to.clone()));
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
            // By number, not "new": when the consumer is made anew, nothing in between is missed.
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            ..OrderedConfig::default()
        };
        let stream = self.bus.jetstream().get_stream(&name).await.with_context(unreadable)?;
        let consumer = stream.create_consumer(config).await.with_context(unreadable)?;
        consumer.messages().await.with_context(unreadable)
    }

    async fn hear(mut self, mut messages: Ordered, to: Arc<impl Fn(Uuid, Heard)>) {
        let confirmed = FactType::OrderConfirmed.message_type().subject("order", "");
        let mut quiet: u32 = 0;
        loop {
            let next = timeout(ASK_AGAIN, messages.next()).await;
            quiet = if next.is_err() { quiet + 1 } else { 0 };
            let message = match next {
                Err(_elapsed) => {
                    if quiet.is_multiple_of(QUIET)
                        && let Ok(anew) = self.subscribe().await
                    {
                        messages = anew;
                    }
                    continue;
                }
                Ok(Some(Ok(message))) => message,
                Ok(broken @ (Some(Err(_)) | None)) => {
                    if let Some(Err(error)) = broken {
                        note(&format!("the broker: {error}"));
                    }
                    messages = self.subscribe_anew().await;
                    continue;
                }
            };
            if let Ok(info) = message.info() {
                self.next = info.stream_sequence + 1;
            }
            for payload in payloads_of(&message) {
                if let Some((order, heard)) = heard(&message.subject, &payload, &confirmed) {
                    to(order, heard);
                }
            }
        }
    }

    /// As soon as the broker lets it.
    async fn subscribe_anew(&self) -> Ordered {
        loop {
            tokio::time::sleep(ASK_AGAIN).await;
            if let Ok(messages) = self.subscribe().await {
                return messages;
            }
        }
    }
}

/// What a fact says of whose order; `None` of what says nothing of any.
fn heard(subject: &str, payload: &[u8], confirmed: &str) -> Option<(Uuid, Heard)> {
    if subject == confirmed {
        let Head { correlation_id } = serde_json::from_slice(payload).ok()?;
        return Some((correlation_id, Heard::Confirmed));
    }
    let envelope = Envelope::from_bytes(payload).ok()?;
    let opened = envelope.open::<OperatorMessage<Fact>>().ok()?;
    Some((opened.fact.saga()?, Heard::Other(Box::new(HeardFact::of(&opened)))))
}

/// Of an envelope, whose it is.
#[derive(Deserialize)]
struct Head {
    correlation_id: Uuid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_fact_is_stands_in_its_envelope() {
        let text = r#"{"id":"01890000-0000-7000-8000-000000000001","data":{"correlation_id":7},
            "correlation_id":"01890000-0000-7000-8000-000000000002"}"#;
        let Head { correlation_id } = serde_json::from_str(text).expect("an envelope");
        assert_eq!(correlation_id.to_string(), "01890000-0000-7000-8000-000000000002");
    }
}
