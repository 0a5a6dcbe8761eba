//! Shell: what the broker gives up on. It says so once, in an advisory that nobody may hear; a stream keeps the
//! advisories, and each service parks what one of its steps was to have.
//!
//! Source: NATS ADR-1 (JSON API: `io.nats.jetstream.advisory.v1.max_deliver` and `….terminated`).

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull, stream};
use bytes::Bytes;
use futures::StreamExt as _;
use serde::Deserialize;
use tracing::{debug, error, warn};

use super::connection::{Bus, BusFault};
use super::consumer::{headers_of, messages_of};
use crate::contract::Delivery;
use crate::engine::{Engine, Input, error_chain};
use crate::gate::Gate;
use crate::ids;
use crate::retry::{FailedTry, Severity};
use crate::service::{Service, Subscription};

/// The stream of advisories.
const STREAM: &str = "ADVISORY";
/// What it keeps.
const KINDS: [&str; 2] = ["MAX_DELIVERIES", "MSG_TERMINATED"];
/// Advisories asked for at once: each costs a look into a stream, and there are few.
const PULL: usize = 100;
/// Pause after something went wrong.
const PAUSE: Duration = Duration::from_secs(1);

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
    /// In words.
    fn why(&self, is_terminated: bool) -> String {
        let deliveries = self.deliveries;
        match (is_terminated, self.reason.as_str()) {
            (false, _) => format!("the broker gave it up after {deliveries} deliveries"),
            (true, "") => "it was terminated at the broker".to_owned(),
            (true, reason) => format!("it was terminated at the broker: {reason}"),
        }
    }
}

/// Makes the stream of advisories.
///
/// # Errors
/// When the broker refuses or does not answer.
pub(super) async fn ensure_stream(bus: &Bus) -> Result<(), BusFault> {
    let config = stream::Config {
        name: STREAM.to_owned(),
        subjects: KINDS.map(|kind| format!("$JS.EVENT.ADVISORY.CONSUMER.{kind}.>")).to_vec(),
        storage: stream::StorageType::File,
        num_replicas: bus.settings.replicas,
        max_age: bus.settings.retention,
        ..stream::Config::default()
    };
    bus.keep_stream(config).await
}

/// Parks what the broker gives up on, until dropped.
pub async fn run<S: Service>(bus: Bus, engine: Engine<S>, gates: Vec<Gate>) {
    let mut heard = Heard::new();
    for gate in gates {
        let step = gate.step();
        heard.extend(step.hears.iter().map(|heard| (step.durable(heard), (gate.clone(), heard))));
    }
    loop {
        if let Err(reason) = listen(&bus, &engine, &heard).await {
            debug!("advisories interrupted: {reason}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

type Heard = BTreeMap<String, (Gate, &'static Subscription)>;

async fn listen<S: Service>(bus: &Bus, engine: &Engine<S>, heard: &Heard) -> Result<(), String> {
    ensure_stream(bus).await.map_err(|fault| error_chain(&fault))?;
    let subject = |durable: &String, (_, subscription): &(Gate, &Subscription)| {
        let stream = subscription.stream();
        KINDS.map(|kind| format!("$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream}.{durable}"))
    };
    let config = pull::Config {
        durable_name: Some(format!("{}-advisories", S::NAME)),
        deliver_policy: consumer::DeliverPolicy::All,
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: bus.settings.ack_wait,
        filter_subjects: heard.iter().flat_map(|(durable, place)| subject(durable, place)).collect(),
        ..pull::Config::default()
    };
    let consumer =
        bus.jetstream.create_consumer_on_stream(config, STREAM).await.map_err(|error| error.to_string())?;
    let mut messages = messages_of(&consumer, PULL).await?;
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| error_chain(&error))?;
        take(bus, engine, heard, &message).await?;
        message.ack_with(AckKind::Ack).await.map_err(|error| error.to_string())?;
    }
    Err("the stream of advisories ended".to_owned())
}

/// Parks the message that an advisory is about. What the step has handled meanwhile stays handled.
async fn take<S: Service>(
    bus: &Bus,
    engine: &Engine<S>,
    heard: &Heard,
    message: &Message,
) -> Result<(), String> {
    let advisory: Advisory = match serde_json::from_slice(&message.payload) {
        Ok(advisory) => advisory,
        Err(error) => {
            error!(subject = %message.subject, "an advisory that cannot be read: {error}");
            return Ok(());
        }
    };
    let Some((gate, _)) = heard.get(&advisory.consumer) else {
        return Ok(());
    };
    let step = gate.step();
    let (payload, headers) = fetch(bus, &advisory).await?;
    let is_terminated = message.subject.contains(".MSG_TERMINATED.");
    let why = advisory.why(is_terminated);
    warn!(step = step.name, stream = advisory.stream, sequence = advisory.stream_seq, "{why}");
    let fallback_id = ids::of_stream_position(&advisory.stream, advisory.stream_seq);
    let delivery = Delivery { stream: advisory.stream, sequence: advisory.stream_seq, headers };
    // What this very process left alone, because a breaker was open or nothing could be stored, has done nothing
    // wrong and is handled now. What kills the process finds one that remembers nothing of the kind.
    let is_ours = !is_terminated && gate.was_interrupted();
    let trouble = (!is_ours).then(|| FailedTry::new(Severity::Permanent, why));
    let input =
        Input::message(step, payload, fallback_id, fastrand::u32(..)).delivered(delivery).in_trouble(trouble);
    engine.settle(input).await.map(|_| ()).map_err(|unavailable| unavailable.to_string())
}

/// The message as the stream has it; empty when the stream no longer does.
async fn fetch(bus: &Bus, advisory: &Advisory) -> Result<(Bytes, Vec<(String, String)>), String> {
    use async_nats::jetstream::stream::RawMessageErrorKind;
    let stream =
        bus.jetstream.get_stream_no_info(&advisory.stream).await.map_err(|error| error.to_string())?;
    match stream.get_raw_message(advisory.stream_seq).await {
        Ok(stored) => Ok((stored.payload, headers_of(Some(&stored.headers)))),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
            error!(
                stream = advisory.stream,
                sequence = advisory.stream_seq,
                "given up, and gone from its stream"
            );
            Ok((Bytes::new(), vec![]))
        }
        Err(error) => Err(error.to_string()),
    }
}
