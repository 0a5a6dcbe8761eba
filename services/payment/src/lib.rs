//! Shell: the payment service: payments, and the calls to the bank.
//!
//! Lists every input: the steps consume facts, the routes serve people, task results come from the bank.
//! - [`domain`], `decider`: the states of a payment, and the decisions for each state and command
//! - [`service`]: handlers of commands, messages and task results
//! - [`policy`]: what follows from each event
//! - [`bank_task`], `bank_client`: calls to the bank; [`bank_ledger`]: the ledger that answers them
//! - [`extension`], [`manual_resolution`]: what operators requested for an order
//! - [`view`], [`ledger`]: payments as the API and the reconciliation show them

mod bank_client;
pub mod bank_ledger;
pub mod bank_task;
mod decider;
pub mod domain;
pub mod extension;
pub mod http;
pub mod ledger;
pub mod manual_resolution;
pub mod policy;
pub mod service;
pub mod view;

use contract::FactType::{DeadlineExtended, ManualResolutionRequested, OrderCancelled, StockReserved};
use contract::topology;
use saga_core::service::{Step, Subscription};
use saga_engine::host::app::{App, Program};
use serde::{Deserialize, Serialize};

use self::service::PaymentService;

pub const NAME: &str = "payment";

/// Steps and the facts they consume.
pub static STEPS: [Step; 4] = [
    Step::new("payment-processing", &[Subscription::to("inventory", &[StockReserved.message_type()])])
        .needing(&["bank"]),
    // Does not need the bank: only its tasks wait for it, and cancellations without a refund go on.
    Step::new("payment-refund", &[Subscription::to("order", &[OrderCancelled.message_type()])]),
    Step::new("payment-extension", &[Subscription::to("order", &[DeadlineExtended.message_type()])]),
    Step::new(
        "payment-manual-resolution",
        &[Subscription::to(topology::OPERATOR, &[ManualResolutionRequested.message_type()])],
    ),
];

/// Settings of the payment service (section `service`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaymentSettings {
    /// Base URL of the bank.
    pub bank: String,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8083"
[service]
bank = "http://127.0.0.1:8084"
"#;

/// State that the routes share.
pub type PaymentApp = App<PaymentService, PaymentSettings>;

#[must_use]
pub fn program() -> Program<PaymentService, PaymentSettings> {
    Program {
        producers: topology::producers().collect(),
        handler: bank_client::BankClient::of,
        tasks: &[bank_task::CHARGE, bank_task::REFUND],
        metrics: &contract::metrics::OF_PAYMENT,
        ..Program::new(DEFAULTS, |_| PaymentService, http::routes, &contract::access::ACCESS)
    }
}
