//! The stream of a service remembers the position of its database.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use saga_core::decision::Writes;
use saga_core::service::Service as _;
use saga_engine::nats::{Publisher, compare_position};
use saga_engine::runtime::bus::Publish as _;
use saga_engine::store::OpenOptions;
use saga_engine::store::roles::History as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{DatabasePosition, Store, StoreFault};

use super::all_done;
use crate::support::{
    Depot, Nats, commit, entries, id, in_time, new_postgres, no_faults, outbox_writes, put, recorded,
};

#[tokio::test]
async fn database_behind_its_stream_is_detected() -> Result<(), StoreFault> {
    let (nats, folder) = (Nats::start().await, tempfile::tempdir().expect("a folder"));
    let bus = nats.bus().await;
    let last = async || bus.last_position("depot").await.expect("the broker answers");
    assert_eq!(last().await, None, "nothing was said yet");
    let (path, copy) = (folder.path().join("depot.db"), folder.path().join("copy.db"));

    // The last message of several has the newest position.
    for (count, events) in [(1, 2), (20, 5)] {
        let store: Arc<dyn Store> = Arc::new(open(&path)?);
        let puts: Vec<_> = (0..events).map(|_| put(1)).collect();
        let before = usize::try_from(store.position().await?.events).expect("a few");
        let outbox = outbox_writes(1..=3).outbox;
        commit(store.as_ref(), Writes { outbox, ..recorded("tea", &puts[..before], &puts[before..]) })
            .await?;
        let publisher = Publisher::new(bus.clone(), "depot", no_faults()).with_position_header(store.clone());
        let first = u32::try_from(events * 100).expect("a few");
        all_done(publisher.publish(&entries(first..first + count)).await);
        let (header, position) = (last().await.expect("a mark"), store.position().await?);
        assert_eq!(
            (header.id, header.events, position.events),
            (position.id, position.events, i64::from(events))
        );
        assert_eq!(header.check(&position, ""), Ok(()));
        drop((store, publisher));
        if count == 1 {
            checkpointed(&path);
            std::fs::copy(&path, &copy).expect("a copy");
        }
    }
    // Strangers say nothing of it.
    let garbage = bus.jetstream().publish("depot.stored", Bytes::from_static(b"garbage")).await;
    garbage.expect("sent").await.expect("stored");

    let position = last().await.expect("a mark");
    for (path, lost) in
        [(copy, "it had come to event 5"), (folder.path().join("new.db"), "it is another one")]
    {
        let behind = open(&path)?.position().await?;
        let sentence = position.check(&behind, "").expect_err("it is behind");
        assert!(sentence.contains(lost), "{sentence}");
        let name = sentence.rsplit_once("accept_loss=").expect("a name").1;
        assert_eq!(position.check(&behind, name), Ok(()), "it was accepted");
    }
    Ok(())
}

/// An inbox, for example, changes without a fact.
#[tokio::test]
async fn progress_without_fact_is_recorded_in_stream() -> Result<(), StoreFault> {
    let ((_nats, bus), folder) = (Nats::with_bus().await, tempfile::tempdir().expect("a folder"));
    let (path, copy) = (folder.path().join("depot.db"), folder.path().join("copy.db"));
    let store = open(&path)?;
    commit(&store, Writes { inbox: vec![("filling", id(1))], ..outbox_writes([]) }).await?;
    for turn in 0..2 {
        compare_position(&bus, "depot", &store).await.expect("it is ahead");
        let last = bus.last_position("depot").await.expect("the broker answers").expect("a position");
        let position = store.position().await?;
        assert_eq!((last.id, last.events, last.messages), (position.id, 0, 1), "after turn {turn}");
    }
    assert_eq!(bus.last_sequence("DEPOT").await.expect("the broker answers"), 1, "only where it is ahead");

    drop(store);
    checkpointed(&path);
    std::fs::copy(&path, &copy).expect("a copy");
    let store = open(&path)?;
    commit(&store, Writes { inbox: vec![("filling", id(2))], ..outbox_writes([]) }).await?;
    compare_position(&bus, "depot", &store).await.expect("it is ahead");
    let older = open(&copy)?;
    let why = compare_position(&bus, "depot", &older).await.expect_err("it is behind");
    assert!(why.contains("it had come to event 0 and message 2"), "{why}");
    assert!(matches!(older.position().await, Err(StoreFault::DataLost(_))));
    let last = bus.last_position("depot").await.expect("the broker answers").expect("a position");
    assert_eq!(last.messages, 2, "not overwritten");
    Ok(())
}

/// A replica that did not see how far the database had come may become the leader after it has gone back.
#[tokio::test]
async fn new_leader_behind_its_stream_publishes_nothing() -> Result<(), StoreFault> {
    let (_nats, bus) = Nats::with_bus().await;
    let (_server, store) = new_postgres().await;
    let store: Arc<dyn Store> = Arc::new(store);
    commit(store.as_ref(), recorded("tea", &[], &[put(1)])).await?;
    let published = DatabasePosition { events: 2, ..store.position().await? };
    bus.record_position("depot", &published, None).await.expect("recorded");
    let publisher = Publisher::new(bus.clone(), "depot", no_faults()).with_position_header(store.clone());
    let outcome = publisher.publish(&entries(1..2)).await;
    assert_eq!(outcome.done, Vec::<i64>::new());
    let (_, why) = outcome.delayed.expect("it waits");
    assert!(why.contains("it had come to event 2"), "{why}");
    let last = bus.last_position("depot").await.expect("the broker answers").expect("a position");
    assert_eq!(last.events, 2, "not overwritten");
    Ok(())
}

#[tokio::test]
async fn position_of_paused_process_is_not_recorded() -> Result<(), StoreFault> {
    let (_nats, bus) = Nats::with_bus().await;
    let position = DatabasePosition { events: 2, ..DatabasePosition::default() };
    bus.record_position("depot", &position, Some(0)).await.expect("the stream is empty");
    let lower = DatabasePosition { events: 1, ..position };
    bus.record_position("depot", &lower, Some(0)).await.expect_err("somebody published meanwhile");
    let last = bus.last_position("depot").await.expect("the broker answers").expect("a position");
    assert_eq!(last.events, 2);
    Ok(())
}

#[tokio::test]
async fn missing_stream_has_no_position() {
    let (_nats, bus) = Nats::with_bus().await;
    bus.jetstream().delete_stream("DEPOT").await.expect("it was there");
    assert_eq!(bus.last_position("depot").await.expect("the broker answers"), None);
}

#[tokio::test]
async fn position_that_cannot_be_read_is_an_error() -> Result<(), StoreFault> {
    let mut nats = Nats::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let store: Arc<dyn Store> = Arc::new(open(&folder.path().join("depot.db"))?);
    let publisher =
        Publisher::new(nats.bus().await, "depot", no_faults()).with_position_header(store.clone());
    all_done(publisher.publish(&entries(1..2)).await);
    nats.restart_denying("$JS.API.STREAM.MSG.GET.>").await;
    let bus = nats.bus().await;
    in_time("nobody says how far it came", bus.last_position("depot")).await.expect_err("no answer");
    Ok(())
}

fn open(path: &Path) -> Result<SqliteStore, StoreFault> {
    SqliteStore::open_as(path, Depot::rows(), &OpenOptions { service: "depot", ..OpenOptions::default() })
}

/// What is in its log is copied back.
fn checkpointed(path: &Path) {
    let conn = rusqlite::Connection::open(path).expect("the file");
    conn.execute_batch("PRAGMA user_version = 0").expect("a pragma");
}
