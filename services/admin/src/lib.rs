//! Shell: the admin service: the view of all sagas, dead letters and what operators do with them, the audit of the
//! books.
//!
//! Everything that comes in is on this screen: two steps hear everything that the services say of sagas and dead
//! letters, the routes hear operators, one loop drives redrives. What the steps and the operators change is in
//! [`policy`]; what the audit compares is in [`books`].

pub mod audit;
pub mod books;
pub mod commands;
mod driver;
pub mod edit;
pub mod filter;
pub mod http;
pub mod letter_events;
pub mod letter_view;
pub mod letters;
pub mod operations;
pub mod pace;
pub mod policy;
mod progress;
mod reading;
pub mod redrive;
pub mod roster;
mod services;

use serde::{Deserialize, Serialize};
use shared::app::{App, Program, no_calls};
use shared::contract::FactType;
use shared::faults::FaultKind;
use shared::service::{OPERATIONS, Step, Subscription};

use self::policy::AdminService;

/// The admin service's name.
pub const NAME: &str = "admin";

/// What services say of their dead letters.
const DEAD_LETTERS: &[FactType] = &[FactType::DeadLettered, FactType::DeadLetterResolved];

/// Facts that the admin service hears.
pub static STEPS: [Step; 3] = [
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
        needs: &[],
    },
    Step {
        name: "admin-dead-letters",
        hears: &[
            Subscription { producer: "order", facts: DEAD_LETTERS },
            Subscription { producer: "inventory", facts: DEAD_LETTERS },
            Subscription { producer: "payment", facts: DEAD_LETTERS },
            Subscription { producer: "admin", facts: DEAD_LETTERS },
        ],
        needs: &[],
    },
    Step { name: "admin-operations", hears: OPERATIONS, needs: &[] },
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
    /// The bank, for the audit and its faults.
    pub bank: String,
    /// Whether whoever changes something must say who they are.
    #[serde(default)]
    pub require_operator: bool,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8080"
body_limit_bytes = 524288
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
        faults: &FaultKind::OF_A_SERVICE,
        service: |_| AdminService,
        caller: no_calls,
        routes: http::routes,
        background: |app| vec![Box::pin(driver::run(app))],
    }
}
