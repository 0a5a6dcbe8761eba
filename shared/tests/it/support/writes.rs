//! Batches for the store, made by hand.

use bytes::Bytes;
use jiff::Timestamp;
use shared::contract::{DeadLettered, LetterOrigin};
use shared::decider::Decider;
use shared::ids;
use shared::row::{RowKey, RowKind};
use shared::store::{
    EventWrite, KeyedAnswer, Loaded, Look, OutboxWrite, Reads, Retry, RowWrite, Store, StoreFault, Task,
    Writes,
};
use uuid::Uuid;

use super::shelf::{Shelf, ShelfEvent};

/// A time of day, long past: seconds after some midnight.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + second).expect("a time")
}

/// A message id or task id.
pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub fn shelf(sku: &str) -> RowKey {
    RowKey::of::<Shelf>(sku)
}

pub fn put(pieces: u32) -> ShelfEvent {
    ShelfEvent::Put { pieces }
}

/// What a batch changes that finds a shelf with the history `before` and records `new`.
pub fn recorded(sku: &str, before: &[ShelfEvent], new: &[ShelfEvent]) -> Writes {
    let read_version = i64::try_from(before.len()).expect("a short history");
    let json = |event: &ShelfEvent| serde_json::to_string(event).expect("an event has a JSON form");
    let projected = (RowKind::of::<Shelf>().fold)(sku, &mut before.iter().chain(new).map(json))
        .expect("a state has a JSON form");
    let event = |(version, event): (i64, &ShelfEvent)| EventWrite {
        key: shelf(sku),
        version,
        name: Shelf::event_name(event),
        data: json(event),
        causation_id: id(1),
    };
    let events: Vec<_> = (read_version + 1..).zip(new).map(event).collect();
    let version = events.last().map_or(read_version, |event| event.version);
    let rows = vec![RowWrite { key: shelf(sku), read_version, version, projected }];
    Writes { rows, events, decided_at: at(0), ..Writes::default() }
}

/// A promise to publish message `number`, which tells the `event`-th event of its batch.
pub fn promise(number: u128, event: Option<usize>) -> OutboxWrite {
    let (subject, payload) = ("order.confirmed".to_owned(), Bytes::from(format!("payload {number}")));
    OutboxWrite { id: id(number), subject, payload, event }
}

/// Promises to publish these messages.
pub fn promises(numbers: impl IntoIterator<Item = u128>) -> Writes {
    let outbox = numbers.into_iter().map(|number| promise(number, None)).collect();
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
        letter: None,
    }
}

pub fn task(number: u128, created_at: Timestamp) -> Task {
    Task {
        id: id(number),
        kind: "supply".to_owned(),
        correlation_id: id(7),
        payload: r#"{"sku":"tea"}"#.to_owned(),
        attempts: 0,
        claim: 1,
        created_at,
        letter: None,
    }
}

/// New tasks, claimed by `owner` until `until`.
pub fn tasks(tasks: impl IntoIterator<Item = Task>, owner: &str, until: Timestamp) -> Writes {
    let claim = Some((owner.to_owned(), until));
    Writes { tasks: tasks.into_iter().collect(), claim, decided_at: at(0), ..Writes::default() }
}

pub fn dead_letter(step: &str, number: u128, last_failed_at: Timestamp) -> DeadLettered {
    DeadLettered {
        id: ids::derived(&["dead-letter", step, &id(number).to_string()]),
        service: "order".to_owned(),
        step: step.to_owned(),
        origin: LetterOrigin::Message,
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

/// Commits `writes`, whatever is there.
pub async fn commit(store: &dyn Store, writes: Writes) -> Result<(), StoreFault> {
    store.transact(Reads::default(), Box::new(move |_| writes.clone())).await
}

/// What a batch that asks for `reads` is given.
pub async fn load(store: &dyn Store, reads: Reads) -> Result<Loaded, StoreFault> {
    let (given, taken) = std::sync::mpsc::channel();
    let decide = move |loaded| {
        let _ = given.send(loaded);
        Writes::default()
    };
    store.transact(reads, Box::new(decide)).await?;
    Ok(taken.into_iter().last().expect("the batch was decided"))
}

/// A look of `owner` at what is due until `now`: at most `limit` of each sort, tasks claimed until `until`.
pub fn look(now: Timestamp, limit: usize, owner: &str, until: Timestamp) -> Look {
    let (paused, owner) = (vec![], owner.to_owned());
    Look { now, limit, tasks: limit, paused, owner, until, recover: false }
}

/// The newest dead letters, as they were parked.
pub async fn letters(store: &dyn Store, limit: usize) -> Result<Vec<DeadLettered>, StoreFault> {
    Ok(store.dead_letters(limit).await?.into_iter().map(|stored| stored.letter).collect())
}

/// Reads of one row.
pub fn of_row(sku: &str) -> Reads {
    Reads { rows: [shelf(sku)].into(), ..Reads::default() }
}

/// The state of a shelf, when it is there.
pub async fn state(store: &dyn Store, sku: &str) -> Result<Option<Shelf>, StoreFault> {
    let row = store.row(shelf(sku)).await?;
    Ok(row.map(|row| serde_json::from_str(&row.state).expect("the state of a shelf")))
}
