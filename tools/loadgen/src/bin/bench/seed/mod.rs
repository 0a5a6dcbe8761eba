//! Shell: many finished orders, made of the few that a real system has had: its databases and streams as they would be.

mod databases;
mod streams;
mod template;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use self::template::Products;

/// The orders that are repeated: enough that not all are alike.
const TEMPLATES: usize = 200;
/// Orders of a product, about: its history is as long as that of one that sells well.
const ORDERS_OF_A_PRODUCT: u64 = 500;
/// Facts of a confirmed order.
const FACTS: u64 = 4;

/// What is to be made.
#[derive(Debug, clap::Args)]
pub struct Wanted {
    /// How many finished orders are added.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    orders: u64,
    /// The data of a local system that is down and has had some hundred orders: `sagactl up`, `load`, `down`.
    #[arg(long)]
    data: PathBuf,
    /// How many facts the streams get, of the newest of these orders; twice as many as orders unless given.
    #[arg(long)]
    messages: Option<u64>,
    /// The broker's program.
    #[arg(long, env = "NATS_SERVER_BIN", default_value = "nats-server")]
    nats_server: PathBuf,
}

/// One of the orders that are made.
struct Made {
    /// Which.
    number: u64,
    /// When it was placed: a millisecond that no other has, and with which its ids begin.
    at_ms: i64,
}

/// Adds the orders to all databases, and their facts to the streams.
pub async fn make(wanted: &Wanted) -> anyhow::Result<Value> {
    let began = Instant::now();
    let folder = wanted.data.as_path();
    let templates = template::read(folder, TEMPLATES)?;
    ensure!(!templates.is_empty(), "there is no confirmed order in {} to repeat", folder.display());
    let products = Products::read(folder, wanted.orders.div_ceil(ORDERS_OF_A_PRODUCT))?;
    let first_ms = first_ms(wanted.orders)?;
    let made = |number: u64| Made { number, at_ms: first_ms.saturating_add_unsigned(number) };
    databases::fill(folder, wanted.orders, &templates, &products, made)?;
    let databases_s = began.elapsed().as_secs_f64();
    let messages = wanted.messages.unwrap_or(wanted.orders * 2);
    let of = messages.div_ceil(FACTS).min(wanted.orders);
    let newest = (wanted.orders - of..wanted.orders).map(made);
    let told = streams::fill(folder, &wanted.nats_server, &templates, &products, newest).await?;
    Ok(json!({
        "orders": wanted.orders,
        "products": products.count(),
        "messages": told,
        "databases_s": databases_s,
        "all_s": began.elapsed().as_secs_f64(),
    }))
}

/// One a millisecond, and the last an hour ago: what is there already is younger.
fn first_ms(orders: u64) -> anyhow::Result<i64> {
    const HOUR_MS: i64 = 3_600_000;
    let all = i64::try_from(orders)?;
    Ok(Timestamp::now().as_millisecond() - HOUR_MS - all)
}

/// The database of a service of the system whose data is in `folder`.
fn open(folder: &Path, service: &str) -> anyhow::Result<Connection> {
    let path = folder.join(service).join(format!("{service}.db"));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(&path, flags).with_context(|| format!("no database {}", path.display()))
}
