//! Shell: a simulated card processor: a third party with its own ledger that honours `Idempotency-Key`.
//!
//! It runs on the same engine and store as the services, so its answers are as durable as theirs. It speaks HTTP only
//! and takes no part on the broker. The card token selects the answer, as in payment sandboxes.
//! - [`domain`]: the states of a charge
//! - [`service`]: handlers of commands
//! - [`ledger`]: charges as a merchant's reconciliation sees them
//! - `ledger_id`: rejects merchants that have worked with another ledger

pub mod domain;
pub mod http;
pub mod ledger;
mod ledger_id;
pub mod service;

use std::time::Duration;

use saga_engine::host::app::{App, Program};
use serde::{Deserialize, Serialize};

use self::service::BankService;

pub const NAME: &str = "bank";

/// Settings of the bank (section `service`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankSettings {
    /// Amount in major units above which a charge is refused.
    pub limit_major: i64,
    /// Delay of `tok_slow`.
    #[serde(with = "humantime_serde")]
    pub slow: Duration,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8084"
[trace]
# Only services of this system call the bank.
callers = "follow"
[service]
limit_major = 10000
slow = "2s"
"#;

/// State that the routes share.
pub type BankApp = App<BankService, BankSettings>;

#[must_use]
pub fn program() -> Program<BankService, BankSettings> {
    Program {
        faults: &contract::bank::FAULTS,
        ..Program::new(
            DEFAULTS,
            |settings| BankService { limit_major: settings.service.limit_major },
            http::routes,
            &contract::access::ACCESS,
        )
    }
}
