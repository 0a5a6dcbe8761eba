//! Shell: listing products, and waiting until they can be ordered.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cli::note;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::component::Component;
use super::endpoints::Endpoints;
use super::process::POLL;
use super::users::SAGACTL;
use client::http::{Http, fetch};

/// A product as inventory takes it. Prices are in euro cents.
#[derive(Debug, Clone)]
pub struct Product {
    pub sku: String,
    pub name: String,
    pub price_minor: i64,
    pub quantity: u32,
    /// True if inventory replenishes it automatically.
    pub replenish: bool,
}

/// Product of the order that `up` suggests.
pub const FIRST_SKU: &str = "ceramic-mug";

/// Sku, name, price and stock of the demo's products.
const SHOP: [(&str, &str, i64, u32); 12] = [
    ("coffee-beans-1kg", "Coffee beans, 1 kg", 1_899, 250),
    ("espresso-machine", "Espresso machine, 15 bar", 34_900, 40),
    ("burr-grinder", "Burr grinder, 40 settings", 12_900, 60),
    ("pour-over-kit", "Pour-over kit with 100 filters", 4_450, 120),
    ("milk-frother", "Milk frother", 2_990, 150),
    (FIRST_SKU, "Ceramic mug, 350 ml", 1_250, 500),
    ("travel-mug", "Insulated travel mug, 450 ml", 2_699, 200),
    ("kettle-gooseneck", "Gooseneck kettle, 1 l", 7_900, 80),
    ("kitchen-scale", "Kitchen scale, 0.1 g", 3_490, 110),
    ("tea-assam-250g", "Assam tea, 250 g", 1_120, 300),
    ("oat-drink-6x1l", "Oat drink, 6 x 1 l", 1_434, 220),
    ("chocolate-dark-5x100g", "Dark chocolate, 5 x 100 g", 1_595, 260),
];

/// Sku that does not exist: an order with it is rejected, so that a probe orders nothing.
const NEVER_LISTED: &str = "sagactl-unlisted";
/// An order has at most 100 lines, one of which is [`NEVER_LISTED`].
const PROBE_SIZE: usize = 99;
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// `sagactl seed`: lists the demo's products and waits until they can be ordered. Existing ones stay as they are.
pub async fn seed(endpoints: &Endpoints) -> anyhow::Result<()> {
    let http = &Http::with_access(&endpoints.access)?;
    let products = shop();
    let mut new = 0;
    for product in &products {
        new += usize::from(list(http, endpoints, product).await?);
    }
    wait_until_orderable(http, endpoints, &products).await?;
    note(&format!("  catalogue  {} products, {new} of them new", products.len()));
    Ok(())
}

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

/// Lists a product. Returns `false` if it existed.
pub async fn list(http: &Http, endpoints: &Endpoints, product: &Product) -> anyhow::Result<bool> {
    let body = json!({
        "sku": product.sku,
        "name": product.name,
        "unit_price": { "amount_minor": product.price_minor, "currency": "EUR" },
        "quantity": product.quantity,
        "replenish": product.replenish,
    });
    let url = format!("{}/api/products", endpoints.url_of(Component::INVENTORY));
    let answer = fetch(as_sagactl(http, &url).json(&body), &url).await?;
    match answer.status {
        StatusCode::CREATED => Ok(true),
        StatusCode::CONFLICT => Ok(false),
        _ => bail!("inventory does not list {}: {}", product.sku, answer.error_text()),
    }
}

pub async fn restock(http: &Http, endpoints: &Endpoints, sku: &str, quantity: u32) -> anyhow::Result<()> {
    let url = format!("{}/api/products/{sku}/restock", endpoints.url_of(Component::INVENTORY));
    let answer = fetch(as_sagactl(http, &url).json(&json!({ "quantity": quantity })), &url).await?;
    if !answer.status.is_success() {
        bail!("inventory does not restock {sku}: {}", answer.error_text());
    }
    Ok(())
}

/// Creates a request that the audit log attributes to sagactl, also where tokens are off.
fn as_sagactl(http: &Http, url: &str) -> RequestBuilder {
    http.request(Method::POST, url).header("X-Operator", SAGACTL)
}

/// Waits until the order service accepts orders for these products.
pub async fn wait_until_orderable(
    http: &Http,
    endpoints: &Endpoints,
    products: &[Product],
) -> anyhow::Result<()> {
    let until = Instant::now() + TIME_LIMIT;
    for some in products.chunks(PROBE_SIZE) {
        while let Some(why) = missing_product(http, endpoints, some).await? {
            if Instant::now() >= until {
                bail!("after {}s {why}", TIME_LIMIT.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

/// Probes with an order of all of them and [`NEVER_LISTED`]: it is rejected at its first unknown line.
async fn missing_product(
    http: &Http,
    endpoints: &Endpoints,
    products: &[Product],
) -> anyhow::Result<Option<String>> {
    let skus = products.iter().map(|product| product.sku.as_str()).chain([NEVER_LISTED]);
    let lines: Vec<Value> = skus.map(|sku| json!({ "sku": sku, "quantity": 1 })).collect();
    let body = json!({ "customer": "sagactl", "lines": lines, "payment": { "token": "tok_ok" } });
    let answer = http.post(&format!("{}/api/orders", endpoints.url_of(Component::ORDER)), &body).await?;
    if answer.status == StatusCode::SERVICE_UNAVAILABLE {
        return Ok(Some(format!("the order service accepts no orders: {}", answer.error_text())));
    }
    if answer.status != StatusCode::UNPROCESSABLE_ENTITY {
        bail!("unexpected answer of order: {}", answer.error_text());
    }
    let field = answer.body.pointer("/errors/0/field").and_then(Value::as_str);
    let line =
        field.and_then(|field| field.strip_prefix("lines[")?.strip_suffix("].sku")?.parse::<usize>().ok());
    let line =
        line.with_context(|| format!("order rejects the probe for another reason: {}", answer.error_text()))?;
    let unknown = products.get(line);
    Ok(unknown.map(|product| format!("the order service does not know {}: is nats running?", product.sku)))
}
