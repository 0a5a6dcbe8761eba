//! Shell: facts of the copied orders in the streams, acknowledged by every consumer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use async_nats::jetstream::{self, consumer};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use saga_engine::nats::{BusSettings, NatsBus, Publisher};
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::injected_faults::{FaultSettings, InjectedFaults};
use saga_engine::store::OutboxEntry;

use super::OrderCopy;
use super::order_template::{Products, Template};
use crate::nats_server::NatsServer;

const BATCH: usize = 4_000;
const PULL: usize = 1_000;
/// The producers of facts of orders.
const PRODUCERS: [&str; 3] = ["order", "inventory", "payment"];

/// Publishes the facts of the orders, and acknowledges them for every consumer. Returns their number.
pub async fn fill(
    folder: &Path,
    nats_server: &Path,
    templates: &[Template],
    products: &Products,
    orders: impl Iterator<Item = OrderCopy>,
) -> anyhow::Result<u64> {
    let server = NatsServer::start(nats_server, &folder.join("nats")).await?;
    let settings = BusSettings { url: server.url.clone(), ..BusSettings::default() };
    let bus = NatsBus::connect(settings, "bench").await?;
    bus.wait_until_connected().await?;
    let mut publishers = BTreeMap::new();
    for producer in PRODUCERS {
        let faults = InjectedFaults::new(FaultSettings::default(), &[], Vec::new());
        publishers.insert(producer, Publisher::new(bus.clone(), producer, faults));
    }
    // By subject: facts of one saga are published in order, so that batches of one order would be small.
    let mut waiting: BTreeMap<String, Vec<OutboxEntry>> = BTreeMap::new();
    let mut published = 0;
    for copy in orders {
        let template = &templates[usize::try_from(copy.number)? % templates.len()];
        let instance = template.instance(&copy, products.each());
        for (subject, parts) in &template.facts {
            let Some(publisher) = publisher_of(&publishers, subject) else { continue };
            let payload = Bytes::from(instance.text(parts));
            let (saga, id) = (instance.order(), uuid::Uuid::now_v7());
            let waiting = waiting.entry(subject.clone()).or_default();
            let subject = subject.clone();
            waiting.push(OutboxEntry { trace: None, seq: published, id, saga, subject, payload });
            published += 1;
            if waiting.len() >= BATCH {
                publish(publisher, std::mem::take(waiting)).await?;
            }
        }
    }
    for (subject, waiting) in waiting {
        if let Some(publisher) = publisher_of(&publishers, &subject) {
            publish(publisher, waiting).await?;
        }
    }
    let jetstream = jetstream::new(server.connect().await?);
    for producer in PRODUCERS {
        acknowledge_all(&jetstream, &producer.to_uppercase()).await?;
    }
    server.stop()?;
    Ok(u64::try_from(published)?)
}

fn publisher_of<'p>(publishers: &'p BTreeMap<&str, Publisher>, subject: &str) -> Option<&'p Publisher> {
    publishers.get(subject.split('.').next()?)
}

async fn publish(publisher: &Publisher, entries: Vec<OutboxEntry>) -> anyhow::Result<()> {
    let outcome = publisher.publish(&entries).await;
    ensure!(outcome.done.len() == entries.len(), "the broker rejects a batch: {:?}", outcome.delayed);
    Ok(())
}

/// Acknowledges all messages of a stream for every consumer.
async fn acknowledge_all(jetstream: &jetstream::Context, stream: &str) -> anyhow::Result<()> {
    let stream = jetstream.get_stream(stream).await?;
    let names: Vec<String> = stream.consumer_names().try_collect().await?;
    for name in names {
        let mut consumer: consumer::PullConsumer =
            stream.get_consumer(&name).await.map_err(anyhow::Error::from_boxed)?;
        loop {
            let info = consumer.info().await?;
            if info.num_pending == 0 && info.num_ack_pending == 0 {
                break;
            }
            let fetched =
                consumer.fetch().max_messages(PULL).expires(Duration::from_secs(1)).messages().await?;
            let mut fetched = std::pin::pin!(fetched);
            while let Some(message) = fetched.next().await {
                message.map_err(anyhow::Error::from_boxed)?.ack().await.map_err(anyhow::Error::from_boxed)?;
            }
        }
    }
    Ok(())
}
