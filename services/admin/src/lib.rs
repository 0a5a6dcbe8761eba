//! Shell: the admin service: the view of all sagas, dead letters, the audit of the books.
//!
//! Everything that comes in is on this screen: two steps hear everything that the services say of sagas, the
//! routes hear operators. What the steps keep is in [`policy`]; what the audit compares is in [`books`].

pub mod audit;
pub mod books;
pub mod http;
pub mod policy;
mod services;

use serde::{Deserialize, Serialize};
use shared::app::{App, Program, no_calls};
use shared::contract::FactType;
use shared::service::{Step, Subscription};

use self::policy::AdminService;

/// The admin service's name.
pub const NAME: &str = "admin";

/// Facts that the admin service hears.
pub static STEPS: [Step; 2] = [
    Step {
        name: "admin-saga-view",
        hears: &[
            Subscription {
                producer: "order",
                facts: &[FactType::OrderCreated, FactType::OrderConfirmed, FactType::OrderCancelled],
            },
            Subscription {
                producer: "inventory",
                facts: &[FactType::StockReserved, FactType::StockReservationFailed, FactType::StockReleased],
            },
            Subscription {
                producer: "payment",
                facts: &[FactType::PaymentProcessed, FactType::PaymentFailed, FactType::PaymentRefunded],
            },
        ],
    },
    Step {
        name: "admin-dead-letters",
        hears: &[
            Subscription { producer: "order", facts: &[FactType::DeadLettered] },
            Subscription { producer: "inventory", facts: &[FactType::DeadLettered] },
            Subscription { producer: "payment", facts: &[FactType::DeadLettered] },
            Subscription { producer: "admin", facts: &[FactType::DeadLettered] },
        ],
    },
];

/// What can be set of the admin service alone: where the others are.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSettings {
    /// The order service.
    pub order: String,
    /// The inventory service.
    pub inventory: String,
    /// The payment service.
    pub payment: String,
    /// The bank, for the audit.
    pub bank: String,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8080"
[service]
order = "http://127.0.0.1:8081"
inventory = "http://127.0.0.1:8082"
payment = "http://127.0.0.1:8083"
bank = "http://127.0.0.1:8084"
"#;

/// The running service, as its routes see it.
pub type AdminApp = App<AdminService, AdminSettings>;

/// Everything that makes this program the admin service.
#[must_use]
pub fn program() -> Program<AdminService, AdminSettings> {
    Program {
        defaults: DEFAULTS,
        on_bus: true,
        service: |_| AdminService,
        caller: no_calls,
        routes: http::routes,
        background: |_| Vec::new(),
    }
}
