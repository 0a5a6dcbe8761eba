//! Hand-made batches for the store.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use saga_core::dead_letter::{DeadLetterOrigin, DeadLettered};
use saga_core::decider::Decider;
use saga_core::decision::{EventWrite, KeyedAnswer, Loaded, OutboxWrite, Reads, RowWrite, Writes};
use saga_core::ids;
use saga_core::row::{RowKey, RowKind};
use saga_core::waiting::{Retry, Task};
use saga_engine::runtime::clock::Moment;
use saga_engine::store::{DueQuery, OutboxEntry, Store, StoreFault};
use tokio::time::Instant;
use uuid::Uuid;

use super::depot::{FILLING, LISTENING};
use super::shelf::{Shelf, ShelfEvent};

/// Time in seconds after a fixed midnight.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + second).expect("a time")
}

/// Moment, in seconds since the tests began. The clock that shows it is set back by an hour each second.
pub fn moment(second: i64) -> Moment {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let instant = *ORIGIN + Duration::from_secs(second.unsigned_abs());
    Moment { instant, time: Timestamp::UNIX_EPOCH - SignedDuration::from_hours(second) }
}

/// Message or task id.
pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub fn shelf(label: &str) -> RowKey {
    RowKey::of::<Shelf>(label)
}

pub fn put(pieces: u32) -> ShelfEvent {
    ShelfEvent::Put { pieces }
}

/// Writes of a batch that finds a shelf with the history `before` and records `new`.
pub fn recorded(label: &str, before: &[ShelfEvent], new: &[ShelfEvent]) -> Writes {
    let read_version = i64::try_from(before.len()).expect("a short history");
    let json = |event: &ShelfEvent| serde_json::to_string(event).expect("an event has a JSON form");
    let projected = RowKind::of::<Shelf>()
        .fold(label, None, before.iter().chain(new).map(json))
        .expect("a state has a JSON form");
    let event = |(version, event): (i64, &ShelfEvent)| EventWrite {
        key: shelf(label),
        version,
        name: Shelf::event_name(event),
        data: json(event),
        causation_id: id(1),
    };
    let events: Vec<_> = (read_version + 1..).zip(new).map(event).collect();
    let version = events.last().map_or(read_version, |event| event.version);
    let rows = vec![RowWrite { key: shelf(label), read_version, version, projected, searched_by: None }];
    Writes { rows, events, decided_at: at(0), ..Writes::default() }
}

/// Outbox entry `number` for the `event`-th event of its batch.
pub fn outbox_write(number: u128, event: Option<usize>) -> OutboxWrite {
    let (subject, payload) = ("depot.stored".to_owned(), Bytes::from(format!("payload {number}")));
    OutboxWrite { trace: None, id: id(number), saga: id(number), subject, payload, event }
}

/// Outbox entries with these numbers.
pub fn outbox_writes(numbers: impl IntoIterator<Item = u128>) -> Writes {
    let outbox = numbers.into_iter().map(|number| outbox_write(number, None)).collect();
    Writes { outbox, decided_at: at(0), ..Writes::default() }
}

pub fn retry(step: &str, number: u128, next_attempt: Timestamp) -> Retry {
    Retry {
        step: step.to_owned(),
        message_id: id(number),
        payload: Bytes::from_static(b"\x00 any bytes \xff"),
        attempts: 1,
        next_attempt,
        first_failed_at: at(0),
        last_error: "not yet".to_owned(),
        delivery: None,
        dead_letter: None,
    }
}

pub fn task(number: u128, created_at: Timestamp) -> Task {
    Task {
        trace: None,
        id: id(number),
        kind: "supply".to_owned(),
        correlation_id: id(7),
        payload: r#"{"label":"tea"}"#.to_owned(),
        attempts: 0,
        claim: 1,
        created_at,
        dead_letter: None,
    }
}

/// New tasks, claimed by `owner` until `until`.
pub fn tasks(tasks: impl IntoIterator<Item = Task>, owner: &str, until: Timestamp) -> Writes {
    let claim = Some((owner.to_owned(), until));
    Writes { tasks: tasks.into_iter().collect(), claim, decided_at: at(0), ..Writes::default() }
}

pub fn dead(step: &str, number: u128, last_failed_at: Timestamp) -> DeadLettered {
    DeadLettered {
        trace: None,
        id: ids::derived(&["dead-letter", step, &id(number).to_string()]),
        service: "depot".to_owned(),
        step: step.to_owned(),
        origin: DeadLetterOrigin::Message,
        message_id: id(number),
        message_type: None,
        saga: None,
        reason: "not an envelope".to_owned(),
        error_chain: vec!["not an envelope".to_owned()],
        fingerprint: "f00".to_owned(),
        attempts: 1,
        first_failed_at: at(0),
        last_failed_at,
        replays: 0,
        delivery: None,
        payload_base64: "AP8=".to_owned(),
        original: None,
    }
}

pub fn keyed(key: &str, reply: &str) -> (String, KeyedAnswer) {
    (key.to_owned(), KeyedAnswer { fingerprint: format!("digest of {key}"), reply: reply.to_owned() })
}

/// Commits `writes`.
pub async fn commit(store: &dyn Store, writes: Writes) -> Result<(), StoreFault> {
    commit_entries(store, writes).await.map(drop)
}

/// Commits `writes`, and returns the outbox entries with their positions.
pub async fn commit_entries(store: &dyn Store, writes: Writes) -> Result<Vec<OutboxEntry>, StoreFault> {
    store.transact(Reads::default(), Box::new(move |_| writes.clone())).await
}

/// Loads `reads` as a batch does.
pub async fn load(store: &dyn Store, reads: Reads) -> Result<Loaded, StoreFault> {
    let (given, taken) = std::sync::mpsc::channel();
    let decide = move |loaded| {
        let _ = given.send(loaded);
        Writes::default()
    };
    store.transact(reads, Box::new(decide)).await?;
    Ok(taken.into_iter().last().expect("the batch was decided"))
}

/// Query of `owner` for what is due at `now`.
pub fn due_query(now: Timestamp, limit: usize, owner: &str, until: Timestamp) -> DueQuery {
    let steps = ["filling", "listening", FILLING.name, LISTENING.name].map(str::to_owned).to_vec();
    let owner = owner.to_owned();
    let (lease, longest_delay) = (until.duration_since(now), SignedDuration::MAX);
    DueQuery { now, limit, tasks: limit, steps, owner, lease, longest_delay, recover: false }
}

/// Newest dead letters.
pub async fn newest_dead_letters(store: &dyn Store, limit: usize) -> Result<Vec<DeadLettered>, StoreFault> {
    Ok(store.dead_letters(limit).await?.readable.into_iter().map(|stored| stored.dead_letter).collect())
}

/// Reads of one row.
pub fn of_row(label: &str) -> Reads {
    Reads { rows: [shelf(label)].into(), ..Reads::default() }
}

/// State of a shelf, if it exists.
pub async fn state(store: &dyn Store, label: &str) -> Result<Option<Shelf>, StoreFault> {
    let row = store.row(shelf(label)).await?;
    Ok(row.map(|row| serde_json::from_str(&row.state).expect("the state of a shelf")))
}
