//! Shell: the admin service: the view of all sagas, dead letters and what operators do with them, the reconciliation.
//!
//! Everything that comes in is on this screen: two steps hear everything that the services say of sagas and dead
//! letters, the routes hear operators, one loop drives redrives, another tells people what they must know, a third looks
//! at the books. In reading order; each knows only what stands before it, and what this file declares:
//!
//! - [`request`]: who asks for something, and why
//! - `rows`: single rows, read from the store
//! - [`dead_letter`]: dead letters as admin knows them, and what operators make of them
//! - [`redrive`]: many of them handed back one after another
//! - `glance`: where sagas and dead letters stand, counted
//! - [`audit_log`]: who did what, and why
//! - [`books`]: what the last look at the books came to
//! - [`push`]: what people are told by itself, and what they have been told
//! - [`settling`]: what operators settle outside, and what goes with it
//! - [`commands`]: what operators, and the loops, may ask for, and what they get for an answer
//! - [`policy`]: what the steps and the commands change, and whom that tells
//! - `by_itself`: what the loops ask
//! - `other_services`: calls to the services that hold what admin only shows
//! - [`driver`]: the loop that drives redrives
//! - `look`: everything in one look
//! - `gauges`: what metrics show of that
//! - `webhook`: what sends notices
//! - `watch`: the loop that looks whether somebody must be told
//! - [`reconciliation`]: whether stock, money, messages and rows of all services agree
//! - [`auditing`]: looks at the books, asked and by itself
//! - [`http`]: the routes

pub mod audit_log;
pub mod auditing;
pub mod books;
mod by_itself;
pub mod commands;
pub mod dead_letter;
pub mod driver;
mod gauges;
mod glance;
pub mod http;
mod look;
mod other_services;
pub mod policy;
pub mod push;
pub mod reconciliation;
pub mod redrive;
pub mod request;
mod rows;
pub mod settling;
mod watch;
pub mod webhook;

use std::collections::BTreeMap;
use std::time::Duration;

use contract::FactType::{
    DeadlineExtended, OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, PaymentProcessed,
    PaymentRefunded, PaymentVoided, StockReleased, StockReservationFailed, StockReserved,
};
use contract::topology;
use saga_core::dead_letter::DEAD_LETTER_TYPES;
use saga_core::fault::FaultKind;
use saga_core::service::{Step, Subscription};
use saga_engine::host::app::{App, Program};
use serde::{Deserialize, Serialize};

use self::auditing::AuditEvery;
use self::policy::AdminService;
use self::push::settings::PushSettings;

/// The admin service's name.
pub const NAME: &str = "admin";

/// What the admin service hears.
pub static STEPS: [Step; 2] = [
    Step::new(
        "admin-saga-view",
        &[
            Subscription::to(
                "order",
                &[
                    OrderCreated.message_type(),
                    OrderConfirmed.message_type(),
                    OrderCancelled.message_type(),
                    DeadlineExtended.message_type(),
                ],
            ),
            Subscription::to(
                "inventory",
                &[
                    StockReserved.message_type(),
                    StockReservationFailed.message_type(),
                    StockReleased.message_type(),
                ],
            ),
            Subscription::to(
                "payment",
                &[
                    PaymentProcessed.message_type(),
                    PaymentFailed.message_type(),
                    PaymentRefunded.message_type(),
                    PaymentVoided.message_type(),
                ],
            ),
        ],
    ),
    Step::new(
        "admin-dead-letters",
        &[
            Subscription::to("order", &DEAD_LETTER_TYPES),
            Subscription::to("inventory", &DEAD_LETTER_TYPES),
            Subscription::to("payment", &DEAD_LETTER_TYPES),
            Subscription::to("admin", &DEAD_LETTER_TYPES),
        ],
    ),
];

/// What can be set of the admin service alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdminSettings {
    /// Whether whoever changes something must say who they are.
    #[serde(default)]
    pub require_operator: bool,
    /// How often the books are looked at by themselves.
    #[serde(default)]
    pub audit_every: AuditEvery,
    /// How often such a look reads everything, and not only what has changed.
    #[serde(default = "a_day", with = "humantime_serde")]
    pub audit_whole_every: Duration,
    /// With fewer orders than this every look reads everything: it takes a second.
    #[serde(default = "few_orders")]
    pub audit_whole_below: u64,
    /// Who is told what they must know, and how often.
    #[serde(default)]
    pub push: PushSettings,
    /// Where the others are: `order = "http://…"` and so on.
    #[serde(flatten)]
    pub addresses: Addresses,
}

const fn a_day() -> Duration {
    Duration::from_hours(24)
}

const fn few_orders() -> u64 {
    20_000
}

/// The address of every other participant, by name; on this machine at its own port unless told otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Addresses(BTreeMap<String, String>);

impl Addresses {
    /// Where this participant is.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl TryFrom<BTreeMap<String, String>> for Addresses {
    type Error = String;

    fn try_from(given: BTreeMap<String, String>) -> Result<Self, String> {
        let others = topology::PARTICIPANTS.iter().filter(|participant| participant.name != NAME);
        let mut addresses: BTreeMap<_, _> =
            others.map(|other| (other.name.to_owned(), format!("http://127.0.0.1:{}", other.port))).collect();
        for (name, address) in given {
            match addresses.get_mut(&name) {
                Some(known) => *known = address,
                None => return Err(format!("service.{name} is no setting of admin, and no service")),
            }
        }
        Ok(Self(addresses))
    }
}

impl From<Addresses> for BTreeMap<String, String> {
    fn from(Addresses(addresses): Addresses) -> Self {
        addresses
    }
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8080"
body_limit_bytes = 524288
# What it hears of each saga stands in the logs of those who say it.
[log]
filter = "info,saga::step=warn"
# Nobody waits for the view. The longer storing a batch takes, the longer the next one waits, up to this: by then a saga
# has come some steps further, and the row that it is kept in is written once.
[engine]
max_batch_delay = "250ms"
max_batch = 1000
[service]
require_operator = false
"#;

/// The running service, as its routes see it.
pub type AdminApp = App<AdminService, AdminSettings>;

/// Everything that makes this program the admin service.
#[must_use]
pub fn program() -> Program<AdminService, AdminSettings> {
    Program {
        defaults: DEFAULTS,
        producers: topology::producers().collect(),
        faults: &FaultKind::OF_A_SERVICE,
        service: |_| AdminService,
        handler: webhook::of,
        routes: http::routes,
        access: &contract::access::ACCESS,
        tasks: &[push::notice::NOTICE],
        metrics: &contract::metrics::OF_ADMIN,
        background: |app| {
            vec![
                Box::pin(driver::run(app.clone())),
                Box::pin(watch::run(app.clone())),
                Box::pin(auditing::run(app)),
            ]
        },
        overload: |_| None,
        in_flight_limit: None,
    }
}
