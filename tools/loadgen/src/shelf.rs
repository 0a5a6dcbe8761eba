//! Shell: the products that a load run orders.

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::schedule::{ITEMS, SOLD_OUT, item};
use client::http::Http;
use devstack::catalogue::{self, Product};
use devstack::{Member, Reach};

/// Most that inventory takes at once.
const DELIVERY: u32 = 1_000_000;

/// Makes sure that there are products enough for this many orders, and that one is sold out.
pub async fn fill(http: &Http, reach: &Reach, orders: u64) -> anyhow::Result<()> {
    let mut products: Vec<_> = (0..ITEMS).map(|number| product(&item(number), DELIVERY)).collect();
    products.push(product(SOLD_OUT, 0));
    // An order takes at most two pieces, spread over all items.
    let needed = orders.saturating_mul(2) / ITEMS + 2;
    for product in &products {
        let is_new = catalogue::list(http, reach, product).await?;
        if product.sku != SOLD_OUT && (!is_new || needed > u64::from(DELIVERY)) {
            fill_up(http, reach, &product.sku, needed).await?;
        }
    }
    catalogue::wait_until_known(http, reach, &products).await
}

fn product(sku: &str, quantity: u32) -> Product {
    let name = format!("Load test: {sku}");
    Product { sku: sku.to_owned(), name, price_minor: 1_299, quantity, replenish: false }
}

async fn fill_up(http: &Http, reach: &Reach, sku: &str, needed: u64) -> anyhow::Result<()> {
    let url = format!("{}/api/products/{sku}", reach.url_of(Member::INVENTORY));
    let answer = http.get(&url).await?;
    if !answer.status.is_success() {
        bail!("inventory does not show {sku}: {}", answer.complaint());
    }
    let on_hand = answer.body.get("on_hand").and_then(Value::as_u64);
    let on_hand = on_hand.with_context(|| format!("{url} does not say what is on hand"))?;
    let deliveries = needed.saturating_sub(on_hand).div_ceil(u64::from(DELIVERY));
    for _ in 0..deliveries {
        catalogue::restock(http, reach, sku, DELIVERY).await?;
    }
    Ok(())
}
