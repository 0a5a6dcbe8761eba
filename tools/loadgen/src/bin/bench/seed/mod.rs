//! Shell: a large history: many finished orders, copied from a few real ones into all databases and streams.

mod databases;
mod order_template;
mod streams;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use self::order_template::Products;

/// Number of orders to copy.
const TEMPLATES: usize = 200;
/// Orders per product, which determines the number of products.
const ORDERS_PER_PRODUCT: u64 = 500;
/// Facts of a confirmed order.
const FACTS_PER_ORDER: u64 = 4;

#[derive(Debug, clap::Args)]
pub struct SeedOptions {
    /// Number of orders to add.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    orders: u64,
    /// Data folder of a stopped local system with some hundred orders: `sagactl up`, `load`, `down`.
    #[arg(long)]
    data: PathBuf,
    /// Number of facts in the streams, those of the newest orders. Default: two per order.
    #[arg(long)]
    messages: Option<u64>,
    /// Path of nats-server.
    #[arg(long, env = "NATS_SERVER_BIN", default_value = "nats-server")]
    nats_server: PathBuf,
}

/// A copy of an order.
struct OrderCopy {
    number: u64,
    /// Time of its creation, with which its ids begin; unique among the copies.
    at_ms: i64,
}

/// Adds orders to all databases, and their facts to the streams.
pub async fn add_orders(options: &SeedOptions) -> anyhow::Result<Value> {
    let began = Instant::now();
    let folder = options.data.as_path();
    let templates = order_template::read(folder, TEMPLATES)?;
    ensure!(!templates.is_empty(), "there is no confirmed order in {} to copy", folder.display());
    let products = Products::read(folder, options.orders.div_ceil(ORDERS_PER_PRODUCT))?;
    let first_ms = first_ms(options.orders)?;
    let copy = |number: u64| OrderCopy { number, at_ms: first_ms.saturating_add_unsigned(number) };
    databases::fill(folder, options.orders, &templates, &products, copy)?;
    let databases_s = began.elapsed().as_secs_f64();
    let messages = options.messages.unwrap_or(options.orders * 2);
    let with_facts = messages.div_ceil(FACTS_PER_ORDER).min(options.orders);
    let newest = (options.orders - with_facts..options.orders).map(copy);
    let published = streams::fill(folder, &options.nats_server, &templates, &products, newest).await?;
    Ok(json!({
        "orders": options.orders,
        "products": products.count(),
        "messages": published,
        "databases_s": databases_s,
        "all_s": began.elapsed().as_secs_f64(),
    }))
}

/// Creation time of the first copy. Copies are a millisecond apart, and the last is an hour old.
fn first_ms(orders: u64) -> anyhow::Result<i64> {
    const HOUR_MS: i64 = 3_600_000;
    let all = i64::try_from(orders)?;
    Ok(Timestamp::now().as_millisecond() - HOUR_MS - all)
}

/// Opens the database of a service.
fn open(folder: &Path, service: &str) -> anyhow::Result<Connection> {
    let path = folder.join(service).join(format!("{service}.db"));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(&path, flags).with_context(|| format!("no database {}", path.display()))
}
