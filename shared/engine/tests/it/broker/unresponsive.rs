//! A broker that accepts requests and answers none: every request ends in time.

use std::sync::Arc;
use std::time::Duration;

use saga_core::breaker::BreakerPolicy;
use saga_engine::nats::{NatsBus, Publisher};
use saga_engine::runtime::bus::{Advisories as _, Bus as _, BusFact as _, FactStream as _, Publish as _};

use super::consuming::{durable, durable_of, say};
use crate::support::{
    DepotCommand, EngineHarness, FILLING, Nats, Pace, entries, in_memory, in_time, no_faults, wait_until,
};

/// A defect: a fetch behind a half-open breaker waited for ever.
#[tokio::test]
async fn requests_to_a_broker_that_dies_end_in_time() {
    let (nats, bus) = Nats::with_bus().await;
    say(&bus, 1..=3).await;
    let durable = durable_of(FILLING);
    let mut deliveries = bus.consume(durable).await.expect("a consumer");
    let message = deliveries.next().await.expect("a message");
    let mut advisories = bus.advisories(&[durable]).await.expect("advisories");
    nats.freeze();

    in_time("nothing is fetched", deliveries.fetch(3)).await.err().expect("nobody answers");
    let next = deliveries.next_within(Duration::from_millis(10));
    in_time("nothing comes", next).await.err().expect("nobody answers");
    let next = async { while deliveries.next().await.is_ok() {} };
    in_time("the deliveries end", next).await;
    in_time("no advisory comes", advisories.next()).await.expect_err("nobody answers");
    in_time("no consumer is made", bus.consume(durable)).await.err().expect("nobody answers");
    in_time("no advisories are heard", bus.advisories(&[durable])).await.err().expect("nobody answers");
    in_time("nobody knows what waits", bus.progress(durable)).await.expect_err("nobody answers");
    in_time("no streams are made", bus.ensure_streams(&["depot"])).await.expect_err("nobody answers");
    let position = bus.last_position("depot");
    in_time("nobody knows how far a database had come", position).await.expect_err("nobody answers");
    in_time("nothing is counted", bus.subject_counts("depot")).await.expect_err("nobody answers");
    in_time("nobody knows how far it came", bus.last_position("depot")).await.expect_err("nobody answers");
    in_time("nothing is proved", publisher(&bus).probe()).await.expect_err("nobody answers");
    // Whether this one arrives is not known to anybody.
    let _ = in_time("the acknowledgement is sent or not", message.acknowledge()).await;
    for last in [3, 40] {
        let published = in_time("nothing is published", publisher(&bus).publish(&entries(1..=last))).await;
        assert!(published.done.is_empty() && published.delayed.is_some(), "{published:?}");
    }
}

/// The leader creates a lost stream again, so that somebody must lead.
#[tokio::test]
async fn broker_that_has_lost_a_stream_counts_as_answering() {
    let (mut nats, bus) = Nats::with_bus().await;
    bus.jetstream().delete_stream("DEPOT").await.expect("it was there");
    in_time("the broker answers", publisher(&bus).probe()).await.expect("an answer");
    nats.kill();
    wait_until("the broker is gone", async || !bus.is_connected()).await;
    publisher(&bus).probe().await.expect_err("there is no connection");
}

#[tokio::test]
async fn requests_end_in_time_although_the_client_has_no_buffer_space() {
    let (mut nats, bus) = Nats::with_bus().await;
    say(&bus, 1..=3).await;
    let durable = durable_of(FILLING);
    let mut deliveries = bus.consume(durable).await.expect("a consumer");
    let message = deliveries.next().await.expect("a message");
    let client = bus.jetstream().client();
    nats.kill();
    wait_until("the broker is gone", async || !bus.is_connected()).await;
    let is_full = async || {
        let more = client.publish("anything", "".into());
        tokio::time::timeout(Duration::from_millis(50), more).await.is_err()
    };
    wait_until("the client holds all it can", is_full).await;

    in_time("nothing is fetched", deliveries.fetch(3)).await.err().expect("there is no room");
    in_time("no consumer is made", bus.consume(durable)).await.err().expect("there is no room");
    in_time("no advisories are heard", bus.advisories(&[durable])).await.err().expect("there is no room");
    in_time("nobody knows what waits", bus.progress(durable)).await.expect_err("there is no room");
    in_time("no streams are made", bus.ensure_streams(&["depot"])).await.expect_err("there is no room");
    in_time("nothing is counted", bus.subject_counts("depot")).await.expect_err("there is no room");
    in_time("nobody knows how far it came", bus.last_position("depot")).await.expect_err("there is no room");
    in_time("nothing is acknowledged", message.acknowledge()).await.expect_err("there is no room");
}

/// As behind a half-open breaker, where the step fetches few messages at a time.
#[tokio::test]
async fn step_continues_after_the_broker_died_with_its_request() {
    let (mut nats, bus) = Nats::with_bus().await;
    let policy = BreakerPolicy { open_for: Duration::from_millis(50), ..BreakerPolicy::default() };
    let mut harness = EngineHarness::guarded(in_memory(), Pace::default(), Arc::default(), policy).await;
    harness.execute(DepotCommand::List("tea")).await;
    harness.fail_until_open(FILLING.name);
    harness.listens(&bus, FILLING);
    let requests = async || match durable(&bus, FILLING).await {
        Some(consumer) => consumer.cached_info().num_waiting > 0,
        None => false,
    };
    wait_until("the step asks for the next message", requests).await;
    nats.freeze();
    // By then it has asked again and again.
    wait_until("the client misses the broker", async || !bus.is_connected()).await;
    nats.kill();
    nats.restart().await;
    wait_until("it is back", async || bus.is_connected()).await;
    say(&bus, 1..=9).await;
    harness.has_handled(FILLING, 9).await;
}

fn publisher(bus: &NatsBus) -> Publisher {
    Publisher::new(bus.clone(), "depot", no_faults())
}
