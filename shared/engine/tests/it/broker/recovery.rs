//! Lost consumers, lost streams, and unacknowledged messages are recovered.

use async_nats::jetstream::consumer::{AckPolicy, pull};
use saga_engine::nats::{NatsBus, Publisher};

use super::consuming::{durable, listening, say, waiting};
use super::publish_until_arrived;
use crate::support::{
    DepotCommand, Disk, EngineHarness, FILLING, LISTENING, Nats, Pace, entries, no_faults, stored, wait_until,
};

/// Guarantee 1.
#[tokio::test]
async fn message_that_cannot_be_committed_is_redelivered() {
    let (_nats, bus) = Nats::with_bus().await;
    let disk = Disk::new();
    let mut harness = EngineHarness::over(disk.store(), Pace::default()).await;
    harness.execute(DepotCommand::List("tea")).await;
    disk.rejects("inbox", "ABORT");
    harness.listens(&bus, FILLING);
    say(&bus, 1..=3).await;
    let has_failed = async || !harness.metrics.text().expect("metrics").contains("store_faults_total 0");
    wait_until("a batch could not be stored", has_failed).await;
    assert_eq!(waiting(&bus, FILLING).await, 3);
    assert_eq!(harness.tea().await.pieces, 0);

    disk.works("inbox");
    harness.has_handled(FILLING, 3).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 3);
}

/// Guarantee 2: the new consumer receives everything again.
#[tokio::test]
async fn deleted_consumer_is_created_again_and_processes_nothing_twice() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    say(&bus, 1..=5).await;
    harness.has_handled(FILLING, 5).await;
    bus.jetstream().delete_consumer_from_stream(FILLING.name, "COURIER").await.expect("it is there");
    say(&bus, 6..=7).await;
    harness.has_handled(FILLING, 7).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 7);
    harness.has_handled(LISTENING, 7).await;
}

/// Guarantee 2: the broker passes over what a wrong filter excludes, and reports no backlog.
#[tokio::test]
async fn consumer_whose_filter_is_changed_while_it_runs_is_put_right_and_skips_nothing() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    say(&bus, 1..=3).await;
    harness.has_handled(FILLING, 3).await;
    consume_only(&bus, "courier.nothing").await;
    say(&bus, 4..=5).await;
    harness.has_handled(FILLING, 5).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    assert_eq!(harness.tea().await.pieces, 5);
    let consumer = durable(&bus, FILLING).await.expect("it is there");
    assert_eq!(consumer.cached_info().config.filter_subjects, ["courier.parcels_arrived"]);
}

/// Guarantee 2.
#[tokio::test]
async fn consumer_of_the_same_name_with_another_filter_is_put_right_at_the_start() {
    let (_nats, bus) = Nats::with_bus().await;
    let config = pull::Config { ack_policy: AckPolicy::None, ..other_filter("courier.nothing") };
    bus.jetstream().create_consumer_on_stream(config, "COURIER").await.expect("the operator may");
    say(&bus, 1..=3).await;
    let harness = listening(&bus, Pace::default()).await;
    harness.has_handled(FILLING, 3).await;
    assert_eq!(harness.tea().await.pieces, 3);
}

fn other_filter(subject: &str) -> pull::Config {
    let durable_name = Some(FILLING.name.to_owned());
    pull::Config { durable_name, filter_subject: subject.to_owned(), ..pull::Config::default() }
}

/// Changes the filter of the step's consumer, as an operator does.
async fn consume_only(bus: &NatsBus, subject: &str) {
    let mut config = durable(bus, FILLING).await.expect("it is there").cached_info().config.clone();
    config.filter_subjects = vec![subject.to_owned()];
    let changed = bus.jetstream().create_consumer_on_stream(config, "COURIER").await;
    assert_eq!(changed.expect("the operator may").cached_info().config.filter_subjects, [subject]);
}

#[tokio::test]
async fn lost_stream_is_created_again_by_its_consumer() {
    let (_nats, bus) = Nats::with_bus().await;
    let harness = listening(&bus, Pace::default()).await;
    say(&bus, 1..=2).await;
    harness.has_handled(FILLING, 2).await;
    wait_until("all is acknowledged", async || waiting(&bus, FILLING).await == 0).await;
    bus.jetstream().delete_stream("COURIER").await.expect("it is there");
    wait_until("the consumer is there again", async || durable(&bus, FILLING).await.is_some()).await;
    say(&bus, 3..=4).await;
    harness.has_handled(FILLING, 4).await;
    assert_eq!(harness.tea().await.pieces, 4);
}

/// Guarantee 2: a missing stream is not the fault of the message.
#[tokio::test]
async fn lost_stream_is_created_again_by_its_publisher() {
    let (_nats, bus) = Nats::with_bus().await;
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    for (first, last) in [(1, 3), (11, 40)] {
        bus.jetstream().delete_stream("DEPOT").await.expect("it is there");
        publish_until_arrived(&publisher, entries(first..=last)).await;
        let arrived: Vec<_> = stored(&bus, "DEPOT").await.iter().map(|it| it.id.as_u128()).collect();
        assert_eq!(arrived, (first.into()..=last.into()).collect::<Vec<u128>>());
    }
}

/// Guarantee 7: the same error occurs while a stream is being created, or has no leader.
#[tokio::test]
async fn stream_changed_by_hand_is_repaired_and_rejects_nothing() {
    let (_nats, bus) = Nats::with_bus().await;
    let mut stream = bus.jetstream().get_stream("DEPOT").await.expect("the stream");
    let mut config = stream.info().await.expect("its state").config.clone();
    config.subjects = vec!["depot.created".to_owned()];
    bus.jetstream().update_stream(config).await.expect("the operator may");
    let publisher = Publisher::new(bus.clone(), "depot", no_faults());
    publish_until_arrived(&publisher, entries(1..=3)).await;
    assert_eq!(stored(&bus, "DEPOT").await.len(), 3);
}
