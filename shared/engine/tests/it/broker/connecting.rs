//! Connecting to the broker, and rejecting an unsuitable one.

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use saga_engine::nats::{BusFault, BusSettings, NatsBus, Publisher};
use saga_engine::runtime::bus::Publish as _;

use super::all_done;
use crate::support::{Nats, PRODUCERS, entries, in_time, is_new_enough, no_faults};

#[tokio::test]
async fn broker_that_starts_later_is_connected() {
    let mut nats = Nats::not_yet_started();
    let bus = NatsBus::connect(nats.settings(), "test").await.expect("an address is enough");
    assert!(!bus.is_connected());
    let mut reached = Box::pin(bus.wait_until_connected());
    assert!(futures::poll!(&mut reached).is_pending());
    nats.restart().await;
    in_time("the broker is reached", reached).await.expect("it is new enough");
    assert!(bus.is_connected());
    bus.ensure_streams(&PRODUCERS).await.expect("streams");
}

#[tokio::test]
async fn broker_below_the_minimum_version_is_rejected() {
    for version in ["2.9.0", "2.14.9", "1.99.0", "nonsense"] {
        let url = greeter(version);
        let bus = NatsBus::connect(BusSettings { url: url.clone(), ..BusSettings::default() }, "test").await;
        let fault = in_time("the refusal", bus.expect("an address").wait_until_connected())
            .await
            .expect_err("it is too old");
        assert!(matches!(fault, BusFault::TooOld { .. }), "{fault:?}");
        let sentence = fault.to_string();
        for part in [&url, version, "2.15", "scripts/setup.sh"] {
            assert!(sentence.contains(part), "{sentence:?} does not say {part}");
        }
    }
}

#[tokio::test]
async fn newer_broker_is_accepted() {
    for version in ["2.15.0", "2.15.0-RC.1", "2.100.0", "3.0.0"] {
        let url = greeter(version);
        let bus = NatsBus::connect(BusSettings { url, ..BusSettings::default() }, "test").await;
        in_time("the welcome", bus.expect("an address").wait_until_connected())
            .await
            .expect("it is new enough");
    }
}

/// The client is connected a moment before it knows the server's version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_check_waits_for_the_server_information() {
    for _ in 0..50 {
        let settings = BusSettings { url: greeter("2.15.0"), ..BusSettings::default() };
        let bus = NatsBus::connect(settings, "test").await.expect("an address");
        let version_check = tokio::spawn(async move {
            while !bus.is_connected() {
                tokio::task::yield_now().await;
            }
            bus.wait_until_connected().await
        });
        in_time("the welcome", version_check).await.expect("it is asked").expect("it is new enough");
    }
}

#[tokio::test]
async fn invalid_address_is_rejected_by_name() {
    let settings = BusSettings { url: "nats://127.0.0.1:port".to_owned(), ..BusSettings::default() };
    let Err(fault) = NatsBus::connect(settings, "test").await else { panic!("that is no address") };
    assert!(fault.to_string().contains("nats://127.0.0.1:port"), "{fault}");
}

#[tokio::test]
async fn streams_are_created_once_and_updated_to_the_settings() {
    let (nats, bus) = Nats::with_bus().await;
    all_done(Publisher::new(bus.clone(), "depot", no_faults()).publish(&entries(1..=3)).await);
    let settings = BusSettings { duplicate_window: Duration::from_secs(7), ..nats.settings() };
    let other = NatsBus::connect(settings, "test").await.expect("an address");
    in_time("the broker is reached", other.wait_until_connected()).await.expect("a new broker");
    other.ensure_streams(&PRODUCERS).await.expect("the same streams");
    for (service, name) in
        [("depot", "DEPOT"), ("courier", "COURIER"), ("ferry", "FERRY"), ("admin", "ADMIN")]
    {
        let mut stream = other.jetstream().get_stream(name).await.expect("a stream");
        let config = &stream.info().await.expect("its state").config;
        assert_eq!(config.subjects, [format!("{service}.>")]);
        assert_eq!(config.duplicate_window, Duration::from_secs(7));
    }
    let counts = bus.subject_counts("depot").await.expect("the counts");
    assert_eq!(counts, [("depot.stored".to_owned(), 3)].into(), "what they held they hold");
}

#[test]
fn version_of_the_test_broker_is_parsed() {
    assert!(is_new_enough("nats-server: v2.15.1"));
    assert!(is_new_enough("nats-server: v3.0.0-beta.1"));
    assert!(!is_new_enough("nats-server: v2.9.10"));
    assert!(!is_new_enough("ls (GNU coreutils) 9.1"));
}

/// Something that greets like a nats-server of this version and answers pings. Answers its address.
fn greeter(version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        stream.set_nodelay(true).expect("a socket");
        let info = format!(
            "INFO {{\"server_id\":\"x\",\"server_name\":\"x\",\"version\":\"{version}\",\"go\":\"go1\",\
             \"host\":\"127.0.0.1\",\"port\":4222,\"headers\":true,\"max_payload\":1048576,\"proto\":1}}\r\n"
        );
        let _ = stream.write_all(info.as_bytes());
        let mut input = [0; 4096];
        while let Ok(count @ 1..) = std::io::Read::read(&mut stream, &mut input) {
            if input[..count].windows(4).any(|word| word == b"PING") {
                let _ = stream.write_all(b"PONG\r\n");
            }
        }
    });
    url
}
