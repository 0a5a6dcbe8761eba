//! Shell: hearing what the services say, as the streams hold it: a fact counts once the broker has stored it.

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
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::measured::Arrival;
use crate::local::{Reach, SAGACTL};
use crate::output::note;

/// A broker on the same machine connects at once.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// After a missed heartbeat the client's stream wakes nobody: it is asked again this often.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The facts of a saga, by who publishes them; dead letters are everybody's.
const PRODUCERS: [(&str, &[FactType]); 3] = [
    ("order", &[FactType::OrderCreated, FactType::OrderConfirmed, FactType::OrderCancelled]),
    ("inventory", &[FactType::StockReserved, FactType::StockReservationFailed, FactType::StockReleased]),
    (
        "payment",
        &[
            FactType::PaymentProcessed,
            FactType::PaymentFailed,
            FactType::PaymentRefunded,
            FactType::PaymentVoided,
        ],
    ),
];

/// Starts hearing all facts of sagas that are published from now on.
pub async fn listen(reach: &Reach, to: &mpsc::Sender<Arrival>) -> anyhow::Result<()> {
    let settings = reach.bus.clone();
    let url = settings.shown_url();
    let bus = NatsBus::connect_as(settings, SAGACTL, "sagactl-load").await?;
    let reached = timeout(CONNECT_WITHIN, bus.reached()).await;
    reached.with_context(|| format!("nobody answers at {url}: is the system running?"))??;
    for (producer, facts) in PRODUCERS {
        let messages = subscribe(&bus, producer, facts).await?;
        tokio::spawn(hear(messages, to.clone()));
    }
    Ok(())
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

async fn hear(mut messages: Ordered, to: mpsc::Sender<Arrival>) {
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
        let opened = Envelope::from_bytes(&message.payload)
            .and_then(|envelope| envelope.open::<OperatorMessage<Fact>>());
        let Ok(opened) = opened else { continue };
        let Some(order) = opened.fact.saga() else { continue };
        if to.send(Arrival::Fact(order, Box::new(HeardFact::of(&opened)))).await.is_err() {
            return;
        }
    }
}
