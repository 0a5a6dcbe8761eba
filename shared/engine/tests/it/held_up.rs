//! A broker that is there and takes nothing: since when, and in its own words.

use std::time::Duration;

use async_nats::jetstream::stream::{self, DiscardPolicy};
use jiff::{SignedDuration, Timestamp};
use saga_engine::nats::Publisher;
use saga_engine::runtime::bus::Publish as _;
use saga_engine::runtime::held_up::HeldUp;
use saga_engine::store::PublishOutcome;

use crate::support::{Nats, entries, no_faults};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const LIMIT: Duration = Duration::from_secs(5);

fn after(seconds: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(seconds)
}

fn refused(done: &[i64], why: &str) -> PublishOutcome {
    PublishOutcome { done: done.to_vec(), delayed: Some((9, why.to_owned())), ..PublishOutcome::default() }
}

#[test]
fn publishing_is_held_up_from_the_first_failure_on_until_something_gets_through() {
    let held_up = HeldUp::default();
    held_up.published(&refused(&[], "timed out"), NOW);
    held_up.published(&refused(&[], "no space left"), after(5));
    assert_eq!(held_up.in_words(LIMIT, after(5)), None, "not longer than that");
    let words = "the broker takes no messages since 1970-01-01T00:00:00Z: no space left";
    assert_eq!(held_up.in_words(LIMIT, after(6)).as_deref(), Some(words));
    held_up.published(&refused(&[8], "timed out"), after(7));
    assert_eq!(held_up.in_words(LIMIT, after(12)), None, "it began anew");
    assert!(held_up.in_words(LIMIT, after(13)).is_some());
    held_up.published(&PublishOutcome { done: vec![9], ..PublishOutcome::default() }, after(14));
    assert_eq!(held_up.in_words(LIMIT, after(99)), None);
}

/// The words are the broker's, and a broker that is away is another matter.
#[tokio::test]
async fn what_the_broker_says_is_told_while_it_is_there() {
    let mut nats = Nats::start().await;
    let bus = nats.bus().await;
    let mut config: stream::Config =
        bus.jetstream().get_stream("DEPOT").await.expect("the stream").cached_info().config.clone();
    config.max_messages = 1;
    config.discard = DiscardPolicy::New;
    bus.jetstream().update_stream(config).await.expect("a stream that is soon full");
    let held_up = HeldUp::default();
    let publisher = Publisher::new(bus.clone(), "depot", no_faults()).telling(held_up.clone());
    let told = || held_up.in_words(Duration::ZERO, Timestamp::now());
    let publish = async |number| publisher.judged(&publisher.publish(&entries(number..=number)).await);
    publish(1).await;
    assert_eq!(told(), None);
    publish(2).await;
    let words = told().unwrap_or_default();
    assert!(words.contains("maximum messages exceeded"), "{words}");
    nats.kill();
    crate::support::wait_until("it is away", async || !bus.is_connected()).await;
    publish(2).await;
    assert_eq!(told(), None);
}
