//! Shell: putting products into the catalogue, and waiting until orders for them are taken.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::member::Member;
use super::process::POLL;
use super::reach::Reach;
use client::http::Http;

/// A product as inventory takes it. Prices are in euro cents.
#[derive(Debug, Clone)]
pub struct Product {
    pub sku: String,
    pub name: String,
    pub price_minor: i64,
    pub quantity: u32,
    /// Whether the monitor replenishes it.
    pub replenish: bool,
}

/// What the demo's shop sells.
const SHOP: [(&str, &str, i64, u32); 12] = [
    ("coffee-beans-1kg", "Coffee beans, 1 kg", 1_899, 250),
    ("espresso-machine", "Espresso machine, 15 bar", 34_900, 40),
    ("burr-grinder", "Burr grinder, 40 settings", 12_900, 60),
    ("pour-over-kit", "Pour-over kit with 100 filters", 4_450, 120),
    ("milk-frother", "Milk frother", 2_990, 150),
    ("ceramic-mug", "Ceramic mug, 350 ml", 1_250, 500),
    ("travel-mug", "Insulated travel mug, 450 ml", 2_699, 200),
    ("kettle-gooseneck", "Gooseneck kettle, 1 l", 7_900, 80),
    ("kitchen-scale", "Kitchen scale, 0.1 g", 3_490, 110),
    ("tea-assam-250g", "Assam tea, 250 g", 1_120, 300),
    ("oat-drink-6x1l", "Oat drink, 6 x 1 l", 1_434, 220),
    ("chocolate-dark-5x100g", "Dark chocolate, 5 x 100 g", 1_595, 260),
];

/// A sku that nobody lists: an order with it is refused, so asking with it orders nothing.
const NEVER_LISTED: &str = "sagactl-asks-what-is-known";
/// An order takes at most 100 lines, one of which is the sku that nobody lists.
const ASK_AT_ONCE: usize = 99;
/// The order service hears of a product a few milliseconds after it was listed, unless something hangs.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

pub fn shop() -> Vec<Product> {
    let product = |(sku, name, price_minor, quantity): (&str, &str, i64, u32)| Product {
        sku: sku.to_owned(),
        name: name.to_owned(),
        price_minor,
        quantity,
        replenish: true,
    };
    SHOP.into_iter().map(product).collect()
}

/// Lists a product; `false` when it was listed before.
pub async fn list(http: &Http, reach: &Reach, product: &Product) -> anyhow::Result<bool> {
    let body = json!({
        "sku": product.sku,
        "name": product.name,
        "unit_price": { "amount_minor": product.price_minor, "currency": "EUR" },
        "quantity": product.quantity,
        "replenish": product.replenish,
    });
    let answer = http.post(&format!("{}/api/products", reach.url_of(Member::INVENTORY)), &body).await?;
    match answer.status {
        StatusCode::CREATED => Ok(true),
        StatusCode::CONFLICT => Ok(false),
        _ => bail!("inventory does not list {}: {}", product.sku, answer.complaint()),
    }
}

/// Brings in more pieces.
pub async fn restock(http: &Http, reach: &Reach, sku: &str, quantity: u32) -> anyhow::Result<()> {
    let url = format!("{}/api/products/{sku}/restock", reach.url_of(Member::INVENTORY));
    let answer = http.post(&url, &json!({ "quantity": quantity })).await?;
    if !answer.status.is_success() {
        bail!("inventory does not restock {sku}: {}", answer.complaint());
    }
    Ok(())
}

/// Waits until the order service takes orders for these products.
pub async fn wait_until_known(http: &Http, reach: &Reach, products: &[Product]) -> anyhow::Result<()> {
    let until = Instant::now() + KNOWN_WITHIN;
    for some in products.chunks(ASK_AT_ONCE) {
        while let Some(why) = why_not_known(http, reach, some).await? {
            if Instant::now() >= until {
                bail!("after {}s {why}", KNOWN_WITHIN.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

/// Asks for an order of all of them and one more that does not exist: it is refused at its first unknown line.
async fn why_not_known(http: &Http, reach: &Reach, products: &[Product]) -> anyhow::Result<Option<String>> {
    let skus = products.iter().map(|product| product.sku.as_str()).chain([NEVER_LISTED]);
    let lines: Vec<Value> = skus.map(|sku| json!({ "sku": sku, "quantity": 1 })).collect();
    let body = json!({ "customer": "sagactl", "lines": lines, "payment": { "token": "tok_ok" } });
    let answer = http.post(&format!("{}/api/orders", reach.url_of(Member::ORDER)), &body).await?;
    // It takes no orders for now, and says nothing else either.
    if answer.status == StatusCode::SERVICE_UNAVAILABLE {
        return Ok(Some(format!("the order service takes no orders: {}", answer.complaint())));
    }
    if answer.status != StatusCode::UNPROCESSABLE_ENTITY {
        bail!("order does not say what it knows: {}", answer.complaint());
    }
    let field = answer.body.pointer("/errors/0/field").and_then(Value::as_str);
    let line =
        field.and_then(|field| field.strip_prefix("lines[")?.strip_suffix("].sku")?.parse::<usize>().ok());
    let line = line.with_context(|| format!("order refuses for another reason: {}", answer.complaint()))?;
    let unknown = products.get(line);
    Ok(unknown.map(|product| format!("the order service has not heard of {}: is nats running?", product.sku)))
}
