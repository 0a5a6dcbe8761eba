//! Shell: the replenishment monitor: looks for products that run low and asks for more.

use saga_core::decider::{Decider, FieldValue};
use saga_core::input::CommandOutcome;
use saga_core::query::{FoundRow, Query};
use saga_core::retry::error_chain;
use tracing::{info, warn};
use uuid::Uuid;

use crate::domain::{Product, ProductCommand};
use crate::policy::Command;
use crate::{InventoryApp, ReplenishSettings};

/// Products read in one go; a look goes on until it has seen all that run low.
const PAGE: usize = 500;

/// Runs until dropped; does nothing when it is switched off.
pub async fn run(app: InventoryApp) {
    let settings = app.settings.service.replenish.clone();
    if !settings.enabled {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(settings.interval).await;
        look(&app, &settings).await;
    }
}

/// Asks for more of every product that runs low. One that stays low all the same does not hide those behind it.
async fn look(app: &InventoryApp, settings: &ReplenishSettings) {
    let mut after = None;
    loop {
        let low = match app.store.find(Product::KIND, low(settings, after)).await {
            Ok(rows) => rows,
            Err(fault) => return warn!("the monitor cannot look: {}", error_chain(&fault)),
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

fn low(settings: &ReplenishSettings, after: Option<String>) -> Query {
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
    // Decided again on the row as it is then: two looks at once do not bring in twice as much.
    let asked = ProductCommand::Replenish { threshold, amount };
    let command = Command { sku: row.id.clone(), asked };
    match app.engine.ask(Uuid::now_v7(), command, None).await {
        Ok(CommandOutcome::Rejected(rejection)) => info!(sku = row.id, "not replenished: {rejection}"),
        Ok(_) => {}
        Err(unavailable) => warn!(sku = row.id, "not replenished: {unavailable}"),
    }
}
