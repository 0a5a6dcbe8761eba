//! Publish stalls: their start, and the broker's reason.

use std::time::Duration;

use async_nats::jetstream::stream::{self, DiscardPolicy};
use saga_engine::nats::Publisher;
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::publish_stall::PublishStall;
use saga_engine::store::PublishOutcome;
use tokio::time::Instant;

use crate::support::{Nats, entries, moment, no_faults};

const LIMIT: Duration = Duration::from_secs(5);

fn delayed(done: &[i64], why: &str) -> PublishOutcome {
    PublishOutcome { done: done.to_vec(), delayed: Some((9, why.to_owned())), ..PublishOutcome::default() }
}

#[test]
fn stall_lasts_from_the_first_failure_to_the_first_success() {
    let publish_stall = PublishStall::default();
    publish_stall.record(&delayed(&[], "timed out"), moment(0));
    publish_stall.record(&delayed(&[], "no space left"), moment(5));
    assert_eq!(publish_stall.describe(LIMIT, moment(5).instant), None, "not longer than that");
    let words = "the broker takes no messages since 1970-01-01T00:00:00Z: no space left";
    assert_eq!(publish_stall.describe(LIMIT, moment(6).instant).as_deref(), Some(words));
    publish_stall.record(&delayed(&[8], "timed out"), moment(7));
    assert_eq!(publish_stall.describe(LIMIT, moment(12).instant), None, "it began anew");
    assert!(publish_stall.describe(LIMIT, moment(13).instant).is_some());
    publish_stall.record(&PublishOutcome { done: vec![9], ..PublishOutcome::default() }, moment(14));
    assert_eq!(publish_stall.describe(LIMIT, moment(99).instant), None);
}

#[tokio::test]
async fn stall_has_the_reason_of_the_broker_and_ends_with_the_connection() {
    let (mut nats, bus) = Nats::with_bus().await;
    let mut config: stream::Config =
        bus.jetstream().get_stream("DEPOT").await.expect("the stream").cached_info().config.clone();
    config.max_messages = 1;
    config.discard = DiscardPolicy::New;
    bus.jetstream().update_stream(config).await.expect("a stream that is soon full");
    let publish_stall = PublishStall::default();
    let publisher =
        Publisher::new(bus.clone(), "depot", no_faults()).with_publish_stall(publish_stall.clone());
    let description = || publish_stall.describe(Duration::ZERO, Instant::now());
    let publish = async |number| publisher.round_ended(&publisher.publish(&entries(number..=number)).await);
    publish(1).await;
    assert_eq!(description(), None);
    publish(2).await;
    let words = description().unwrap_or_default();
    assert!(words.contains("maximum messages exceeded"), "{words}");
    nats.kill();
    crate::support::wait_until("it is away", async || !bus.is_connected()).await;
    publish(2).await;
    assert_eq!(description(), None);
}
