//! Shell: one durable pull consumer per step, each message an input of the engine.

use std::time::Duration;

use async_nats::jetstream::{AckKind, Message, consumer, consumer::pull};
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::connection::{Bus, BusFault};
use crate::engine::{Engine, Input, error_chain};
use crate::ids;
use crate::service::{Service, Step, Subscription};

/// Pause before a consumer that was lost is made again.
const REMAKE_PAUSE: Duration = Duration::from_millis(200);
/// One request for messages lasts this long; the broker beats twice meanwhile, so a dead one is noticed.
const PULL_EXPIRES: Duration = Duration::from_secs(4);
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Feeds the engine with what `subscription` of `step` hears, until dropped.
///
/// A message is acknowledged once its outcome is durable, and not otherwise: what dies with this process is
/// delivered again. A consumer that vanishes (broker restarted, deleted by hand) is made again.
pub async fn run<S: Service>(
    bus: Bus,
    engine: Engine<S>,
    step: &'static Step,
    subscription: &'static Subscription,
) {
    loop {
        if let Err(reason) = consume(&bus, &engine, step, subscription).await {
            // During an outage this repeats: once a pause is enough, and the connection itself logs the outage.
            debug!(step = step.name, "consumer interrupted: {reason}");
        }
        tokio::time::sleep(REMAKE_PAUSE).await;
    }
}

async fn consume<S: Service>(
    bus: &Bus,
    engine: &Engine<S>,
    step: &'static Step,
    subscription: &'static Subscription,
) -> Result<(), String> {
    let consumer = ensure(bus, step, subscription).await.map_err(|fault| error_chain(&fault))?;
    let mut messages = consumer
        .stream()
        .max_messages_per_batch(bus.settings.pull)
        .expires(PULL_EXPIRES)
        .heartbeat(HEARTBEAT)
        .messages()
        .await
        .map_err(|error| error.to_string())?;
    let stream = subscription.stream();
    // Beside the engine, which must not wait for a broker that is away.
    let (acknowledge, settled) = mpsc::channel(bus.settings.max_ack_pending as usize);
    let _acknowledging = AbortOnDropHandle::new(tokio::spawn(acknowledge_all(settled)));
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| error_chain(&error))?;
        engine.calls().room().await;
        let sequence = message.info().map_or(0, |info| info.stream_sequence);
        let fallback_id = ids::of_stream_position(&stream, sequence);
        let input = Input::message(step, message.payload.clone(), fallback_id, None, fastrand::u32(..));
        let acknowledge = acknowledge.clone();
        let handed_in = engine.hand_in(input, move |_outcome| {
            // Full only while the broker is away, and then the message comes again anyway.
            let _ = acknowledge.try_send(message);
        });
        let handed_in = handed_in.await;
        if handed_in.is_err() {
            return Err("the service is stopping".to_owned());
        }
    }
    Err("the stream of messages ended".to_owned())
}

async fn acknowledge_all(mut settled: mpsc::Receiver<Message>) {
    while let Some(message) = settled.recv().await {
        if let Err(error) = message.ack_with(AckKind::Ack).await {
            warn!("acknowledgement not sent, the message will come again: {error}");
        }
    }
}

async fn ensure(
    bus: &Bus,
    step: &Step,
    subscription: &Subscription,
) -> Result<consumer::Consumer<pull::Config>, BusFault> {
    let stream = subscription.stream();
    let subjects = subscription.facts.iter().map(|fact| fact.subject(subscription.producer)).collect();
    let config = pull::Config {
        durable_name: Some(step.durable(subscription)),
        deliver_policy: consumer::DeliverPolicy::All,
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: bus.settings.ack_wait,
        max_ack_pending: i64::from(bus.settings.max_ack_pending),
        filter_subjects: subjects,
        ..pull::Config::default()
    };
    match bus.jetstream.create_consumer_on_stream(config, &stream).await {
        Ok(consumer) => Ok(consumer),
        Err(error) => {
            // The stream may have gone with the broker's disk.
            bus.ensure_stream(subscription.producer).await?;
            Err(BusFault::Stream { stream, source: Box::new(error) })
        }
    }
}

/// How far a step's durable has come: (waiting or under way, delivered again).
///
/// # Errors
/// When the broker does not answer.
pub async fn waiting(bus: &Bus, step: &Step, subscription: &Subscription) -> Result<u64, BusFault> {
    let stream = subscription.stream();
    let durable = step.durable(subscription);
    let fault = |source: Box<dyn std::error::Error + Send + Sync>| BusFault::Stream {
        stream: stream.clone(),
        source,
    };
    let mut consumer: consumer::Consumer<pull::Config> = bus
        .jetstream
        .get_consumer_from_stream(&durable, &stream)
        .await
        .map_err(|error| fault(Box::new(error)))?;
    let info = consumer.info().await.map_err(|error| fault(Box::new(error)))?;
    Ok(info.num_pending + info.num_ack_pending as u64)
}
