//! Shell: subscription to the facts that end orders. A fact counts once the broker has stored it.
//!
//! Of a confirmed saga only the last fact is subscribed to, and only its correlation id is parsed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_nats::Subscriber;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageError, RawMessageErrorKind, Stream};
use contract::saga_fact::SagaFact;
use contract::{Fact, FactType};
use futures::{FutureExt as _, StreamExt as _};
use saga_core::dead_letter::{DEAD_LETTER_TYPES, OperatorMessage};
use saga_core::message::{Envelope, Message as _};
use saga_core::service::stream_of;
use saga_engine::nats::{NatsBus, payloads_of};
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use cli::note;
use devstack::{Endpoints, SAGACTL};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for an answer of the broker.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval while nothing is published, and after an error.
const POLL: Duration = Duration::from_secs(1);
/// Poll interval after a publication, which is announced before it is stored.
const POLL_STORED: Duration = Duration::from_millis(2);
/// Time after the last publication within which the broker has stored it.
const STORED_WITHIN: Duration = Duration::from_millis(500);
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
///
/// It has no consumer at the broker, so that it needs no permission to create, delete or drain one.
pub struct Subscription {
    sources: Vec<Source>,
}

/// Facts of a producer, read from its stream by position.
struct Source {
    stream: Stream<()>,
    producer: &'static str,
    facts: &'static [FactType],
    /// Position of the next message to read.
    next: u64,
    /// Publications, as hints that there is something to read.
    published: Subscriber,
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
        let missing = || format!("stream {name} does not exist");
        // Before the position is read: no publication is missed in between.
        let published = bus.jetstream().client().subscribe(format!("{producer}.>")).await?;
        let stream = bus.jetstream().get_stream(&name).await.with_context(missing)?;
        let next = stream.cached_info().state.last_sequence + 1;
        let stream = bus.jetstream().get_stream_no_info(&name).await.with_context(missing)?;
        sources.push(Source { stream, producer, facts, next, published });
    }
    Ok(Subscription { sources })
}

impl Subscription {
    /// Delivers all facts until the process ends.
    pub fn deliver(self, to: impl Fn(Uuid, EndingFact) + Send + Sync + 'static) {
        let to = Arc::new(to);
        for source in self.sources {
            tokio::spawn(source.receive(to.clone()));
        }
    }
}

impl Source {
    async fn receive(mut self, to: Arc<impl Fn(Uuid, EndingFact)>) {
        let types = self.facts.iter().map(|fact| fact.message_type()).chain(DEAD_LETTER_TYPES);
        let subjects: Vec<_> = types.map(|message_type| message_type.subject(self.producer, "")).collect();
        let confirmed = FactType::OrderConfirmed.message_type().subject("order", "");
        let mut heard = Instant::now();
        loop {
            let message = match timeout(READ_TIMEOUT, self.read()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => {
                    let poll = if heard.elapsed() < STORED_WITHIN { POLL_STORED } else { POLL };
                    if self.wait(poll).await {
                        heard = Instant::now();
                    }
                    continue;
                }
                Ok(Err(error)) => {
                    note(&format!("broker: {error}"));
                    tokio::time::sleep(POLL).await;
                    continue;
                }
                Err(_elapsed) => continue,
            };
            self.next = message.sequence + 1;
            if !subjects.iter().any(|subject| *subject == *message.subject) {
                continue;
            }
            for payload in payloads_of(&message.payload, Some(&message.headers)) {
                if let Some((order, fact)) = parse(&message.subject, &payload, &confirmed) {
                    to(order, fact);
                }
            }
        }
    }

    /// Reads the next message; `None` at the end of the stream.
    async fn read(&self) -> Result<Option<StreamMessage>, RawMessageError> {
        let all = format!("{}.>", self.producer);
        match self.stream.get_first_raw_message_by_subject(all, self.next).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for a publication, up to `poll`. True if there was one.
    async fn wait(&mut self, poll: Duration) -> bool {
        let is_published = matches!(timeout(poll, self.published.next()).await, Ok(Some(_)));
        // One wake-up is enough for all.
        while let Some(Some(_)) = self.published.next().now_or_never() {}
        is_published
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
