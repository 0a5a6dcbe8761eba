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
use saga_engine::nats::NatsBus;
use serde::Deserialize;
use tokio::time::timeout;
use uuid::Uuid;

use crate::local::{Reach, SAGACTL};
use crate::output::note;

/// A broker on the same machine connects at once.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// After a missed heartbeat the client's stream wakes nobody: it is asked again this often.
const ASK_AGAIN: Duration = Duration::from_secs(1);
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

/// What is published from now on. The streams last as long as what they come from.
pub struct Facts {
    _bus: NatsBus,
    streams: Vec<Ordered>,
}

/// Begins with the next fact that is published.
pub async fn listen(reach: &Reach) -> anyhow::Result<Facts> {
    let settings = reach.bus.clone();
    let url = settings.shown_url();
    let bus = NatsBus::connect_as(settings, SAGACTL, "sagactl-load").await?;
    let reached = timeout(CONNECT_WITHIN, bus.reached()).await;
    reached.with_context(|| format!("nobody answers at {url}: is the system running?"))??;
    let mut streams = Vec::new();
    for (producer, facts) in PRODUCERS {
        streams.push(subscribe(&bus, producer, facts).await?);
    }
    Ok(Facts { _bus: bus, streams })
}

impl Facts {
    /// Tells all of them, until the process ends.
    pub fn tell(self, to: impl Fn(Uuid, Heard) + Send + Sync + 'static) {
        let to = Arc::new(to);
        for stream in self.streams {
            tokio::spawn(hear(stream, to.clone()));
        }
    }
}

async fn subscribe(bus: &NatsBus, producer: &str, facts: &[FactType]) -> anyhow::Result<Ordered> {
    let name = stream_of(producer);
    let stream =
        bus.jetstream().get_stream(&name).await.with_context(|| format!("stream {name} is not there"))?;
    let types = facts.iter().map(|fact| fact.message_type()).chain(DEAD_LETTER_TYPES);
    let start_sequence = stream.cached_info().state.last_sequence + 1;
    let config = OrderedConfig {
        filter_subjects: types.map(|message_type| message_type.subject(producer, "")).collect(),
        // By number, not "new": when the client makes the consumer anew, nothing in between is missed.
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
        ..OrderedConfig::default()
    };
    let consumer =
        stream.create_consumer(config).await.with_context(|| format!("stream {name} cannot be read"))?;
    consumer.messages().await.with_context(|| format!("stream {name} cannot be read"))
}

async fn hear(mut messages: Ordered, to: Arc<impl Fn(Uuid, Heard)>) {
    let confirmed = FactType::OrderConfirmed.message_type().subject("order", "");
    loop {
        let message = match timeout(ASK_AGAIN, messages.next()).await {
            Err(_elapsed) => continue,
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(error))) => {
                // The stream mends itself; an order whose facts are lost all the same counts as unfinished.
                note(&format!("the broker: {error}"));
                tokio::time::sleep(ASK_AGAIN).await;
                continue;
            }
            Ok(None) => return,
        };
        if *message.subject == *confirmed {
            // Anything else than this is a fact of nobody.
            if let Ok(Head { correlation_id }) = serde_json::from_slice(&message.payload) {
                to(correlation_id, Heard::Confirmed);
            }
            continue;
        }
        let opened = Envelope::from_bytes(&message.payload)
            .and_then(|envelope| envelope.open::<OperatorMessage<Fact>>());
        let Ok(opened) = opened else { continue };
        let Some(order) = opened.fact.saga() else { continue };
        to(order, Heard::Other(Box::new(HeardFact::of(&opened))));
    }
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
