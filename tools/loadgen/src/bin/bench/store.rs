//! Shell: throughput of the store alone, with the writes of saga steps by transaction size.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::decider::Decider;
use saga_core::decision::{Decide, EventWrite, OutboxWrite, Reads, RowWrite, Writes};
use saga_core::ids::message_id;
use saga_core::row::{Projected, RowKey, RowKind};
use saga_engine::store::postgres::{DbLocation, PostgresStore};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{OpenOptions, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::proc::cpu_us;

/// Events in a large transaction.
pub const BATCH: usize = 256;
/// Sizes of an event, a row and a message, about those of a payment.
const EVENT_BYTES: usize = 120;
const STATE_BYTES: usize = 260;
const MESSAGE_BYTES: usize = 480;
const STEP: &str = "bench-step";
/// Bounds on the transactions that are prepared before each measurement.
const MAX_EVENTS: usize = 4096;
const MAX_TRANSACTIONS: usize = 256;

const SIZES: [usize; 4] = [1, 16, 64, BATCH];

/// Measures each transaction size with a new SQLite database.
pub async fn measure_sqlite(folder: &Path, length: Duration) -> anyhow::Result<Value> {
    let mut sizes = Vec::new();
    for batch in SIZES {
        let folder = tempfile::tempdir_in(folder)?;
        sizes.push(of(folder.path(), batch, length / 4).await?);
    }
    Ok(Value::from(sizes))
}

/// Measures each transaction size with an empty PostgreSQL database.
pub async fn measure_postgres(url: &str, length: Duration) -> anyhow::Result<Value> {
    let location = DbLocation::of(url, None).map_err(anyhow::Error::msg)?;
    let options = OpenOptions { service: "bench", ..OpenOptions::default() };
    let store = PostgresStore::open(&location, vec![RowKind::of::<Ticket>()], &options).await?;
    let mut sizes = Vec::new();
    for batch in SIZES {
        sizes.push(of_store(&store, batch, length / 4).await?);
    }
    Ok(Value::from(sizes))
}

/// Measures one transaction size with a new SQLite database.
pub async fn of(folder: &Path, batch: usize, length: Duration) -> anyhow::Result<Value> {
    of_store(open(folder)?.as_ref(), batch, length).await
}

/// Measures transactions of a size. Each event reads and marks the inbox, and writes a row, itself and an outbox entry.
/// Transactions are prepared before the measurement.
async fn of_store(store: &dyn Store, batch: usize, length: Duration) -> anyhow::Result<Value> {
    let (mut took, mut us, mut transactions) = (Duration::ZERO, 0, 0);
    while took < length {
        let ahead = (MAX_EVENTS / batch).clamp(1, MAX_TRANSACTIONS);
        let prepared: Vec<_> = (0..ahead).map(|_| transaction(batch)).collect();
        transactions += prepared.len();
        let (began, us_before) = (Instant::now(), cpu_us(std::process::id())?);
        for (reads, writes) in prepared {
            store.transact(reads, once(writes)).await?;
        }
        took += began.elapsed();
        us += cpu_us(std::process::id())? - us_before;
    }
    let events = (transactions * batch) as u64;
    Ok(json!({
        "batch": batch,
        "events_per_s": u128::from(events) * 1_000 / took.as_millis().max(1),
        "cpu_us_per_event": us / events.max(1),
    }))
}

/// Opens an empty SQLite database.
pub fn open(folder: &Path) -> anyhow::Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(&folder.join("store.db"), vec![RowKind::of::<Ticket>()])?))
}

/// Runs a transaction of events of different sagas.
pub async fn write(store: &dyn Store, events: usize) -> anyhow::Result<()> {
    let (reads, writes) = transaction(events);
    store.transact(reads, once(writes)).await?;
    Ok(())
}

/// Prepared writes. Without other writers no store decides a second time.
fn once(writes: Writes) -> Decide {
    let mut writes = Some(writes);
    Box::new(move |_| match writes.take() {
        Some(writes) => writes,
        None => unreachable!("a transaction of the benchmark was decided a second time"),
    })
}

fn transaction(events: usize) -> (Reads, Writes) {
    let mut reads = Reads::default();
    let mut writes = Writes { decided_at: Timestamp::now(), ..Writes::default() };
    for index in 0..events {
        let saga = Uuid::now_v7();
        let (key, causation_id) = (RowKey::of::<Ticket>(&saga), message_id(saga, "elsewhere", saga, 0));
        reads.rows.insert(key.clone());
        reads.inbox.insert((STEP, causation_id));
        writes.rows.push(RowWrite {
            key: key.clone(),
            read_version: 0,
            version: 1,
            projected: Projected { state: text(STATE_BYTES), fields: vec![], due: None },
            searched_by: None,
        });
        writes.events.push(EventWrite {
            key,
            version: 1,
            name: "Written",
            data: text(EVENT_BYTES),
            causation_id,
        });
        writes.outbox.push(OutboxWrite {
            id: message_id(saga, "bench", causation_id, 0),
            saga,
            subject: "bench.written".to_owned(),
            payload: Bytes::from(text(MESSAGE_BYTES)),
            event: Some(index),
            trace: None,
        });
        writes.inbox.push((STEP, causation_id));
    }
    (reads, writes)
}

fn text(bytes: usize) -> String {
    format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - 8))
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Ticket {
    x: String,
}

impl Decider for Ticket {
    const KIND: &'static str = "ticket";
    type Command = String;
    type Event = String;
    type Rejection = String;

    fn decide(&self, command: &String) -> Result<Vec<String>, String> {
        Ok(vec![command.clone()])
    }

    fn evolve(&mut self, event: &String) {
        self.x.clone_from(event);
    }

    fn event_name(_: &String) -> &'static str {
        "Written"
    }
}
