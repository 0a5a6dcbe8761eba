//! Shell: the replenishment monitor: finds products that run low and adds pieces.

use saga_core::decider::{Decider, FieldValue};
use saga_core::input::CommandOutcome;
use saga_core::query::{FoundRow, Query};
use saga_core::retry::error_chain;
use tracing::{info, warn};
use uuid::Uuid;

use crate::domain::{Product, ProductCommand};
use crate::service::Command;
use crate::{InventoryApp, ReplenishSettings};

/// Products per read. Pages follow until all low products were seen.
const PAGE: usize = 500;

/// Runs until dropped; idle if switched off.
pub async fn run(app: InventoryApp) {
    let settings = app.settings.service.replenish.clone();
    if !settings.enabled {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(settings.interval).await;
        replenish_all(&app, &settings).await;
    }
}

/// Replenishes every low product. Products that stay low do not hide those on later pages.
async fn replenish_all(app: &InventoryApp, settings: &ReplenishSettings) {
    let mut after = None;
    loop {
        let low = match app.store.find(Product::KIND, low_stock(settings, after)).await {
            Ok(rows) => rows,
            Err(fault) => return warn!("replenishment cannot read the stock: {}", error_chain(&fault)),
        };
        for row in &low {
            replenish(app, settings, row).await;
        }
        match low.last() {
            Some(last) if low.len() == PAGE => after = Some(last.id.clone()),
            Some(_) | None => return,
        }
    }
}

fn low_stock(settings: &ReplenishSettings, after: Option<String>) -> Query {
    Query {
        equals: vec![("replenish", FieldValue::from(1))],
        below: vec![("on_hand", FieldValue::from(i64::from(settings.threshold)))],
        after,
        limit: PAGE,
        ..Query::default()
    }
}

async fn replenish(app: &InventoryApp, settings: &ReplenishSettings, row: &FoundRow) {
    let (threshold, amount) = (settings.threshold, settings.amount);
    // Decided again on the current row, so that two concurrent checks do not add twice.
    let change = ProductCommand::Replenish { threshold, amount };
    let command = Command { sku: row.id.clone(), change, operator: None };
    match app.engine.execute(Uuid::now_v7(), command, None).await {
        Ok(CommandOutcome::Rejected(rejection)) => info!(sku = row.id, "not replenished: {rejection}"),
        Ok(_) => {}
        Err(unavailable) => warn!(sku = row.id, "not replenished: {unavailable}"),
    }
}
