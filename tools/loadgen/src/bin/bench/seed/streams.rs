//! Shell: the facts of many orders, in the streams, and every consumer behind them: all were handled.

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

use super::Made;
use super::template::{Products, Template};
use crate::server::Server;

/// Facts that are published together.
const AT_ONCE: usize = 4_000;
/// Messages that a consumer takes together.
const TAKEN: usize = 1_000;
/// The producers of facts of orders.
const PRODUCERS: [&str; 3] = ["order", "inventory", "payment"];

/// Publishes the facts of these orders, and lets every consumer take them. Answers how many there are.
pub async fn fill(
    folder: &Path,
    nats_server: &Path,
    templates: &[Template],
    products: &Products,
    orders: impl Iterator<Item = Made>,
) -> anyhow::Result<u64> {
    let server = Server::start(nats_server, &folder.join("nats")).await?;
    let settings = BusSettings { url: server.url.clone(), ..BusSettings::default() };
    let bus = NatsBus::connect(settings, "bench").await?;
    bus.wait_until_connected().await?;
    let mut publishers = BTreeMap::new();
    for producer in PRODUCERS {
        let faults = InjectedFaults::new(FaultSettings::default(), &[], Vec::new());
        publishers.insert(producer, Publisher::new(bus.clone(), producer, faults));
    }
    // By subject: facts of one saga wait for each other, and those of one order would travel alone.
    let mut waiting: BTreeMap<String, Vec<OutboxEntry>> = BTreeMap::new();
    let mut told = 0;
    for made in orders {
        let template = &templates[usize::try_from(made.number)? % templates.len()];
        let repeated = template.repeated(&made, products.each());
        for (subject, parts) in &template.facts {
            let Some(publisher) = publisher_of(&publishers, subject) else { continue };
            let payload = Bytes::from(repeated.text(parts));
            let (saga, id) = (repeated.order(), uuid::Uuid::now_v7());
            let waiting = waiting.entry(subject.clone()).or_default();
            let subject = subject.clone();
            waiting.push(OutboxEntry { trace: None, seq: told, id, saga, subject, payload });
            told += 1;
            if waiting.len() >= AT_ONCE {
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
        take_all(&jetstream, &producer.to_uppercase()).await?;
    }
    server.stop()?;
    Ok(u64::try_from(told)?)
}

fn publisher_of<'p>(publishers: &'p BTreeMap<&str, Publisher>, subject: &str) -> Option<&'p Publisher> {
    publishers.get(subject.split('.').next()?)
}

async fn publish(publisher: &Publisher, entries: Vec<OutboxEntry>) -> anyhow::Result<()> {
    let published = publisher.publish(&entries).await;
    ensure!(published.done.len() == entries.len(), "the broker does not take it: {:?}", published.delayed);
    Ok(())
}

/// Has every consumer of a stream acknowledge all that is in it.
async fn take_all(jetstream: &jetstream::Context, stream: &str) -> anyhow::Result<()> {
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
                consumer.fetch().max_messages(TAKEN).expires(Duration::from_secs(1)).messages().await?;
            let mut fetched = std::pin::pin!(fetched);
            while let Some(message) = fetched.next().await {
                message.map_err(anyhow::Error::from_boxed)?.ack().await.map_err(anyhow::Error::from_boxed)?;
            }
        }
    }
    Ok(())
}
