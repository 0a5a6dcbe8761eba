//! Shell: the order service: orders, their deadlines, a local copy of the catalogue.
//!
//! Lists every input: the steps consume facts, the routes serve customers, deadlines come due.
//! - [`domain`], [`catalogue`]: the states of an order, and the prices it is placed at
//! - [`service`]: handlers of commands, messages and deadlines
//! - [`policy`]: what follows from each event
//! - [`view`], [`ledger`]: orders as the API and the reconciliation show them

pub mod catalogue;
pub mod domain;
pub mod http;
pub mod ledger;
pub mod policy;
pub mod service;
pub mod view;

use std::num::NonZeroU64;
use std::time::Duration;

use contract::FactType::{
    DeadlineExtensionRequested, PaymentFailed, PaymentProcessed, PriceChanged, ProductListed,
    StockReservationFailed,
};
use contract::topology;
use saga_core::decider::Decider as _;
use saga_core::service::{Step, Subscription};
use saga_core::shedding::InFlightLimits;
use saga_engine::host::app::{App, Program};
use saga_engine::host::in_flight::InFlightLimit;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use self::domain::Order;
use self::service::OrderService;

pub const NAME: &str = "order";

/// Steps and the facts they consume.
pub static STEPS: [Step; 4] = [
    Step::new("order-confirmation", &[Subscription::to("payment", &[PaymentProcessed.message_type()])]),
    Step::new(
        "order-cancellation",
        &[
            Subscription::to("inventory", &[StockReservationFailed.message_type()]),
            Subscription::to("payment", &[PaymentFailed.message_type()]),
        ],
    ),
    Step::new(
        "order-extension",
        &[Subscription::to(topology::OPERATOR, &[DeadlineExtensionRequested.message_type()])],
    ),
    Step::new(
        "order-catalogue",
        &[Subscription::to("inventory", &[ProductListed.message_type(), PriceChanged.message_type()])],
    ),
];

/// Settings of the order service (section `service`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderSettings {
    /// Time after which an order that is not confirmed cancels itself.
    #[serde(deserialize_with = "non_zero", serialize_with = "humantime_serde::serialize")]
    pub deadline: Duration,
    /// Age of the oldest unpublished outbox entry above which new orders are rejected.
    #[serde(with = "humantime_serde")]
    pub max_outbox_age: Duration,
    /// Number of unpublished outbox entries above which new orders are rejected.
    pub max_outbox_entries: u64,
    /// Duration of a publish stall above which new orders are rejected: the broker is connected and accepts nothing.
    #[serde(with = "humantime_serde")]
    pub max_publish_stall: Duration,
    /// Expected time in the queue of pending orders above which new ones are rejected, at the current rate of orders
    /// that end.
    #[serde(with = "humantime_serde")]
    pub max_queue_time: Duration,
    /// Number of orders in flight up to which `max_queue_time` rejects none.
    pub min_in_flight_limit: u64,
    /// Number of orders in flight above which new ones are rejected, also in a long outage.
    pub max_in_flight: NonZeroU64,
}

fn non_zero<'de, D: Deserializer<'de>>(of: D) -> Result<Duration, D::Error> {
    let time: Duration = humantime_serde::deserialize(of)?;
    if time.is_zero() { Err(D::Error::custom("it must be longer than 0s")) } else { Ok(time) }
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8081"
[service]
deadline = "60s"
max_outbox_age = "2m"
max_outbox_entries = 200000
max_publish_stall = "10s"
max_queue_time = "200ms"
# Orders that arrive at 1,000/s until an outage is recognised (OUTAGE in saga_core::shedding).
min_in_flight_limit = 750
max_in_flight = 50000
"#;

/// State that the routes share.
pub type OrderApp = App<OrderService, OrderSettings>;

#[must_use]
pub fn program() -> Program<OrderService, OrderSettings> {
    Program {
        producers: topology::producers().collect(),
        metrics: &contract::metrics::OF_ORDER,
        overload: http::overload,
        in_flight_limit: Some(InFlightLimit {
            bounds: |settings| InFlightLimits {
                min_limit: settings.min_in_flight_limit,
                max_wait: settings.max_queue_time,
                max_limit: settings.max_in_flight.get(),
            },
            rows: (Order::KIND, "status", "PENDING"),
            began: &contract::metrics::PLACED,
            ended: &contract::metrics::ORDER_DURATION,
            full_path_outcomes: contract::metrics::FULL_PATH_OUTCOMES,
            full_path_rows: &[("CONFIRMED", None), ("CANCELLED", Some(r#""payment_failed""#))],
        }),
        ..Program::new(DEFAULTS, |_| OrderService, http::routes, &contract::access::ACCESS)
    }
}
