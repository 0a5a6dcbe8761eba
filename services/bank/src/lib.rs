//! Shell: a simulated card processor: a third party with its own ledger, honouring `Idempotency-Key`.
//!
//! It stands on the same engine and store as the services, so that its answers are as durable as theirs, but it
//! meets nobody on the broker: plain HTTP is all it speaks. The card token chooses its answer, as payment
//! sandboxes do.

pub mod domain;
pub mod http;
pub mod policy;

use std::time::Duration;

use saga_engine::host::app::{App, Program, no_calls};
use serde::{Deserialize, Serialize};

use self::policy::BankService;

/// The bank's name.
pub const NAME: &str = "bank";

/// What can be set of the bank alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankSettings {
    /// Charges over this many major units (10,000.00) are declined.
    pub limit_major: i64,
    /// How long `tok_slow` takes.
    #[serde(with = "humantime_serde")]
    pub slow: Duration,
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8084"
[trace]
# Nobody but merchants of this system asks here.
callers = "follow"
[service]
limit_major = 10000
slow = "2s"
"#;

/// The running bank, as its routes see it.
pub type BankApp = App<BankService, BankSettings>;

/// Everything that makes this program the bank.
#[must_use]
pub fn program() -> Program<BankService, BankSettings> {
    Program {
        defaults: DEFAULTS,
        producers: Vec::new(),
        faults: &contract::bank::FAULTS,
        service: |settings| BankService { limit_major: settings.service.limit_major },
        handler: no_calls,
        routes: http::routes,
        access: &contract::access::ACCESS,
        tasks: &[],
        metrics: &[],
        background: |_| Vec::new(),
        overload: |_| None,
        in_flight_limit: None,
    }
}
