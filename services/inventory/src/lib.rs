//! Shell: the inventory service: products, stock, reservations, the replenishment monitor.
//!
//! Everything that comes in is on this screen: the steps hear facts, the routes hear people, the monitor looks
//! at the stock, another loop at what is held of it. What each causes is in [`policy`]; what may happen to stock is in
//! [`domain`].

pub mod domain;
mod held;
pub mod http;
mod monitor;
pub mod policy;

use std::time::Duration;

use contract::FactType::{OrderCancelled, OrderConfirmed, OrderCreated};
use contract::topology;
use saga_core::fault::FaultKind;
use saga_core::service::{Step, Subscription};
use saga_engine::host::app::{App, Program, no_calls};
use serde::{Deserialize, Serialize};

use self::policy::InventoryService;

/// The inventory service's name.
pub const NAME: &str = "inventory";

/// Facts that the inventory service hears.
pub static STEPS: [Step; 3] = [
    Step::new("inventory-stock-reservation", &[Subscription::to("order", &[OrderCreated.message_type()])]),
    Step::new("inventory-stock-release", &[Subscription::to("order", &[OrderCancelled.message_type()])]),
    Step::new("inventory-sale", &[Subscription::to("order", &[OrderConfirmed.message_type()])]),
];

/// What can be set of the inventory service alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InventorySettings {
    /// The replenishment monitor.
    pub replenish: ReplenishSettings,
}

/// What the replenishment monitor does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplenishSettings {
    /// Whether it runs.
    pub enabled: bool,
    /// Products with fewer free pieces than this get more.
    pub threshold: u32,
    /// Pieces that come in at once.
    pub amount: u32,
    /// Pause between looks.
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

/// The running service, as its routes see it.
pub type InventoryApp = App<InventoryService, InventorySettings>;

/// Everything that makes this program the inventory service.
#[must_use]
pub fn program() -> Program<InventoryService, InventorySettings> {
    Program {
        defaults: DEFAULTS,
        producers: topology::producers().collect(),
        faults: &FaultKind::OF_A_SERVICE,
        service: |_| InventoryService,
        handler: no_calls,
        routes: http::routes,
        access: &contract::access::ACCESS,
        tasks: &[],
        metrics: &contract::metrics::OF_INVENTORY,
        background: |app| vec![Box::pin(monitor::run(app.clone())), Box::pin(held::run(app))],
        overload: |_| None,
        in_flight_limit: None,
    }
}
