//! Shell: the replenishment monitor: looks for products that run low and asks for more.

use saga_core::decider::{Decider, FieldValue};
use saga_core::input::CommandOutcome;
use saga_core::query::Query;
use saga_core::retry::error_chain;
use tracing::{info, warn};
use uuid::Uuid;

use crate::InventoryApp;
use crate::domain::{Product, ProductCommand};
use crate::policy::Command;

/// Products looked at in one go; the next look finds the rest.
const LOOKED_AT: usize = 500;

/// Runs until dropped; does nothing when it is switched off.
pub async fn run(app: InventoryApp) {
    let settings = app.settings.service.replenish.clone();
    if !settings.enabled {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(settings.interval).await;
        let below = vec![("on_hand", FieldValue::from(i64::from(settings.threshold)))];
        let query = Query { below, limit: LOOKED_AT, ..Query::default() };
        let low = match app.store.find(Product::KIND, query).await {
            Ok(rows) => rows,
            Err(fault) => {
                warn!("the monitor cannot look: {}", error_chain(&fault));
                continue;
            }
        };
        for row in low {
            let (threshold, amount) = (settings.threshold, settings.amount);
            // Decided again on the row as it is then: two looks at once do not bring in twice as much.
            let asked = ProductCommand::Replenish { threshold, amount };
            let command = Command { sku: row.id.clone(), asked };
            match app.engine.ask(Uuid::now_v7(), command, None).await {
                Ok(CommandOutcome::Rejected(rejection)) => {
                    info!(sku = row.id, "not replenished: {rejection}")
                }
                Ok(_) => {}
                Err(unavailable) => warn!(sku = row.id, "not replenished: {unavailable}"),
            }
        }
    }
}
