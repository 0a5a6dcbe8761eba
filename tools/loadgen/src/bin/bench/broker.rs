//! Shell: throughput of the broker alone, with the messages and deliveries of sagas.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, Context, stream};
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::try_join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::nats_server::NatsServer;
use crate::proc::cpu_us;

const BATCH: usize = 256;
/// Messages of a confirmed saga: stream, subject, size in bytes.
const MESSAGES: [(&str, &str, usize); 4] = [
    ("ORDER", "order.created", 800),
    ("INVENTORY", "inventory.stock-reserved", 560),
    ("PAYMENT", "payment.processed", 480),
    ("ORDER", "order.confirmed", 360),
];
/// Durable consumers: stream, name, filter. Admin consumes everything.
const CONSUMERS: [(&str, &str, &str); 7] = [
    ("ORDER", "admin", "order.>"),
    ("ORDER", "inventory-reservation", "order.created"),
    ("ORDER", "inventory-sale", "order.confirmed"),
    ("INVENTORY", "admin", "inventory.>"),
    ("INVENTORY", "payment", "inventory.>"),
    ("PAYMENT", "admin", "payment.>"),
    ("PAYMENT", "order", "payment.>"),
];
/// Number of deliveries of a saga.
const DELIVERIES: u64 = 8;
/// Concurrent publishers, so that the broker is busy while one waits for the disk.
const PUBLISHERS: u64 = 3;
/// Maximum number of sagas that a publisher is ahead of the consumers.
const MAX_AHEAD: u64 = 4_096;
const MAX_ACK_PENDING: i64 = 4_096;

/// Measures sagas per second and their cost, with acknowledged deliveries and atomic batches, the fastest way of the broker
/// to store messages one by one. The services publish packs instead.
pub async fn measure(folder: &Path, nats_server: &Path, length: Duration) -> anyhow::Result<Value> {
    let server = NatsServer::start(nats_server, folder).await?;
    let jetstream = jetstream::new(server.connect().await?);
    for name in ["ORDER", "INVENTORY", "PAYMENT"] {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{}.>", name.to_lowercase())],
            allow_atomic_publish: true,
            duplicate_window: Duration::from_secs(2),
            ..stream::Config::default()
        };
        jetstream.create_stream(config).await?;
    }
    let delivered = Arc::new(AtomicU64::new(0));
    for (name, durable, filter) in CONSUMERS {
        // The system has a connection for each service; one for each consumer costs the broker no less.
        let jetstream = jetstream::new(server.connect().await?);
        consume(&jetstream, name, durable, filter, delivered.clone()).await?;
    }
    let (us_of_broker, us_of_self) = (cpu_us(server.pid())?, cpu_us(std::process::id())?);
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..PUBLISHERS {
        clients.push(server.connect().await?);
    }
    let publishers = clients.iter().map(|client| publish_until(client, began + length, &delivered));
    let sagas = try_join_all(publishers).await?.into_iter().sum::<u64>();
    let until = Instant::now() + Duration::from_secs(30);
    while delivered.load(Ordering::Relaxed) < sagas * DELIVERIES && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let (took, deliveries) = (began.elapsed(), delivered.load(Ordering::Relaxed));
    if deliveries < sagas * DELIVERIES {
        bail!("the broker delivered {deliveries} of {} messages", sagas * DELIVERIES);
    }
    let per_second = |count: u64| u128::from(count) * 1_000 / took.as_millis().max(1);
    let per_saga = |us: u64| us / sagas.max(1);
    Ok(json!({
        "sagas_per_s": per_second(sagas),
        "messages_per_s": per_second(sagas * MESSAGES.len() as u64),
        "deliveries_per_s": per_second(deliveries),
        "broker_cpu_us_per_saga": per_saga(cpu_us(server.pid())? - us_of_broker),
        "client_cpu_us_per_saga": per_saga(cpu_us(std::process::id())? - us_of_self),
        "batch": BATCH,
    }))
}

/// Publishes sagas until a time, each subject in batches. Returns their number.
async fn publish_until(client: &Client, until: Instant, delivered: &AtomicU64) -> anyhow::Result<u64> {
    let mut sagas = 0;
    while Instant::now() < until {
        if sagas > delivered.load(Ordering::Relaxed) / DELIVERIES / PUBLISHERS + MAX_AHEAD {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        try_join_all(MESSAGES.map(|(_, subject, bytes)| publish(client, subject, bytes))).await?;
        sagas += BATCH as u64;
    }
    Ok(sagas)
}

async fn consume(
    jetstream: &Context,
    name: &str,
    durable: &str,
    filter: &str,
    delivered: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let config = pull::Config {
        durable_name: Some(durable.to_owned()),
        filter_subject: filter.to_owned(),
        ack_policy: AckPolicy::Explicit,
        max_ack_pending: MAX_ACK_PENDING,
        ..pull::Config::default()
    };
    let stream = jetstream.get_stream(name).await?;
    let consumer = stream.create_consumer(config).await?;
    let mut messages = consumer.stream().max_messages_per_batch(1_000).messages().await?;
    tokio::spawn(async move {
        // Ends with the broker.
        while let Some(Ok(message)) = messages.next().await {
            if message.ack().await.is_err() {
                return;
            }
            delivered.fetch_add(1, Ordering::Relaxed);
        }
    });
    Ok(())
}

async fn publish(client: &Client, subject: &'static str, bytes: usize) -> anyhow::Result<()> {
    let batch = Uuid::now_v7().simple().to_string();
    let payload = Bytes::from(vec![b'x'; bytes]);
    let headers = |number: usize| {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Batch-Id", batch.as_str());
        headers.insert("Nats-Batch-Sequence", number.to_string());
        headers.insert("Nats-Msg-Id", Uuid::now_v7().to_string());
        headers
    };
    for number in 1..BATCH {
        client.publish_with_headers(subject, headers(number), payload.clone()).await?;
    }
    let mut last = headers(BATCH);
    last.insert("Nats-Batch-Commit", "1");
    let answer = client.request_with_headers(subject, last, payload).await?;
    let answer: Value = serde_json::from_slice(&answer.payload).context("the broker's answer")?;
    if let Some(error) = answer.get("error") {
        bail!("the broker rejected a batch: {error}");
    }
    Ok(())
}
