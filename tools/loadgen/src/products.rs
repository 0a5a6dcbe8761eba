//! Shell: products that a load run orders.

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::schedule::{ITEMS, SOLD_OUT, item};
use client::http::Http;
use devstack::catalogue::{self, Product};
use devstack::{Component, Endpoints};

/// Maximum quantity of a restock.
const MAX_RESTOCK: u32 = 1_000_000;

/// Lists the products with stock for this many orders, and one without stock.
pub async fn ensure(http: &Http, endpoints: &Endpoints, orders: u64) -> anyhow::Result<()> {
    let mut products: Vec<_> = (0..ITEMS).map(|number| product(&item(number), MAX_RESTOCK)).collect();
    products.push(product(SOLD_OUT, 0));
    // An order has at most two pieces, spread over all items.
    let needed = orders.saturating_mul(2) / ITEMS + 2;
    for product in &products {
        let is_new = catalogue::list(http, endpoints, product).await?;
        if product.sku != SOLD_OUT && (!is_new || needed > u64::from(MAX_RESTOCK)) {
            restock_to(http, endpoints, &product.sku, needed).await?;
        }
    }
    catalogue::wait_until_orderable(http, endpoints, &products).await
}

fn product(sku: &str, quantity: u32) -> Product {
    let name = format!("Load test: {sku}");
    Product { sku: sku.to_owned(), name, price_minor: 1_299, quantity, replenish: false }
}

async fn restock_to(http: &Http, endpoints: &Endpoints, sku: &str, needed: u64) -> anyhow::Result<()> {
    let url = format!("{}/api/products/{sku}", endpoints.url_of(Component::INVENTORY));
    let answer = http.get(&url).await?;
    if !answer.status.is_success() {
        bail!("inventory does not show {sku}: {}", answer.error_text());
    }
    let on_hand = answer.body.get("on_hand").and_then(Value::as_u64);
    let on_hand = on_hand.with_context(|| format!("{url} answers without on_hand"))?;
    let restocks = needed.saturating_sub(on_hand).div_ceil(u64::from(MAX_RESTOCK));
    for _ in 0..restocks {
        catalogue::restock(http, endpoints, sku, MAX_RESTOCK).await?;
    }
    Ok(())
}
