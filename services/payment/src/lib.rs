//! Shell: the payment service: payments, and the calls to the bank.
//!
//! Everything that comes in is on this screen: the steps hear facts, the routes hear people, the bank answers
//! calls. What each causes is in [`policy`]; what may happen to a payment is in [`domain`]; what is remembered of an
//! order beside its payment is in [`extension`] and [`settlement`]; what others get to see of payments is in [`ledger`].

mod bank_client;
pub mod domain;
pub mod extension;
pub mod http;
pub mod ledger;
pub mod policy;
pub mod settlement;

use contract::FactType::{DeadlineExtended, OrderCancelled, SettlementRequested, StockReserved};
use contract::topology;
use saga_core::fault::FaultKind;
use saga_core::service::{Step, Subscription};
use saga_engine::host::app::{App, Program};
use serde::{Deserialize, Serialize};

use self::policy::PaymentService;

/// The payment service's name.
pub const NAME: &str = "payment";

/// Facts that the payment service hears.
pub static STEPS: [Step; 4] = [
    Step::new("payment-processing", &[Subscription::to("inventory", &[StockReserved.message_type()])])
        .needing(&["bank"]),
    // Only what ends in a call waits for the bank, as a task; the rest of a cancellation goes on.
    Step::new("payment-refund", &[Subscription::to("order", &[OrderCancelled.message_type()])]),
    Step::new("payment-extension", &[Subscription::to("order", &[DeadlineExtended.message_type()])]),
    Step::new(
        "payment-settlement",
        &[Subscription::to(topology::OPERATOR, &[SettlementRequested.message_type()])],
    ),
];

/// What can be set of the payment service alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaymentSettings {
    /// Where the bank is.
    pub bank: String,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8083"
[service]
bank = "http://127.0.0.1:8084"
"#;

/// The running service, as its routes see it.
pub type PaymentApp = App<PaymentService, PaymentSettings>;

/// Everything that makes this program the payment service.
#[must_use]
pub fn program() -> Program<PaymentService, PaymentSettings> {
    Program {
        defaults: DEFAULTS,
        producers: topology::producers().collect(),
        faults: &FaultKind::OF_A_SERVICE,
        service: |_| PaymentService,
        handler: bank_client::BankClient::of,
        routes: http::routes,
        access: &contract::access::ACCESS,
        tasks: &[policy::CHARGE, policy::GIVE_BACK],
        metrics: &contract::metrics::OF_PAYMENT,
        background: |_| Vec::new(),
        overload: |_| None,
        in_flight_limit: None,
    }
}
