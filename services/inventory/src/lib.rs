//! Shell: the inventory service: products, stock, reservations, replenishment.
//!
//! Lists every input: the steps consume facts, the routes serve people, the replenishment monitor polls the stock.
//! - [`domain`]: the states of products and reservations
//! - [`service`]: handlers of commands and messages
//! - [`policy`]: what follows from each event
//! - [`view`], [`ledger`]: stock as the API and the reconciliation show it
//! - `replenishment`, `reserved_gauge`: background loops

pub mod domain;
pub mod http;
pub mod ledger;
pub mod policy;
mod replenishment;
mod reserved_gauge;
pub mod service;
pub mod view;

use std::time::Duration;

use contract::FactType::{OrderCancelled, OrderConfirmed, OrderCreated};
use contract::topology;
use saga_core::service::{Step, Subscription};
use saga_engine::host::app::{App, Program};
use serde::{Deserialize, Serialize};

use self::service::InventoryService;

pub const NAME: &str = "inventory";

/// Steps and the facts they consume.
pub static STEPS: [Step; 3] = [
    Step::new("inventory-stock-reservation", &[Subscription::to("order", &[OrderCreated.message_type()])]),
    Step::new("inventory-stock-release", &[Subscription::to("order", &[OrderCancelled.message_type()])]),
    Step::new("inventory-sale", &[Subscription::to("order", &[OrderConfirmed.message_type()])]),
];

/// Settings of the inventory service (section `service`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InventorySettings {
    pub replenish: ReplenishSettings,
}

/// Settings of the replenishment monitor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplenishSettings {
    /// True to replenish products that run low.
    pub enabled: bool,
    /// Pieces on hand below which a product is replenished.
    pub threshold: u32,
    /// Pieces added to a product at once.
    pub amount: u32,
    /// Pause between two checks of the stock.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8082"
[service.replenish]
enabled = true
threshold = 20
amount = 200
interval = "5s"
"#;

/// State that the routes share.
pub type InventoryApp = App<InventoryService, InventorySettings>;

#[must_use]
pub fn program() -> Program<InventoryService, InventorySettings> {
    Program {
        producers: topology::producers().collect(),
        metrics: &contract::metrics::OF_INVENTORY,
        background: |app| vec![Box::pin(replenishment::run(app.clone())), Box::pin(reserved_gauge::run(app))],
        ..Program::new(DEFAULTS, |_| InventoryService, http::routes, &contract::access::ACCESS)
    }
}
