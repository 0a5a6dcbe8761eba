//! Shell: the order service: orders, their deadlines, a local copy of the catalogue.
//!
//! Everything that comes in is on this screen: the steps hear facts, the routes hear people, the rows' due
//! times hear the clock. What each causes is in [`policy`]; what may happen to an order is in [`domain`].

pub mod domain;
pub mod http;
pub mod policy;

use std::num::NonZeroU64;
use std::time::Duration;

use contract::FactType::{
    DeadlineExtensionRequested, PaymentFailed, PaymentProcessed, PriceChanged, ProductListed,
    StockReservationFailed,
};
use contract::topology;
use saga_core::decider::Decider as _;
use saga_core::fault::FaultKind;
use saga_core::service::{Step, Subscription};
use saga_core::shedding::Bounds;
use saga_engine::host::app::{App, Program, no_calls};
use saga_engine::host::in_flight::InFlightLimit;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use self::domain::Order;
use self::policy::OrderService;

/// The order service's name.
pub const NAME: &str = "order";

/// Facts that the order service hears.
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

/// What can be set of the order service alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderSettings {
    /// An order that is not confirmed after this long cancels itself.
    #[serde(deserialize_with = "some_time", serialize_with = "humantime_serde::serialize")]
    pub deadline: Duration,
    /// New orders are refused while the oldest unpublished entry is older than this …
    #[serde(with = "humantime_serde")]
    pub shed_lag: Duration,
    /// … or while more entries than this wait …
    pub shed_pending: u64,
    /// … or while the broker, although connected, has taken no messages for longer than this.
    #[serde(with = "humantime_serde")]
    pub shed_held_up: Duration,
    /// And they are refused while so many orders are pending that a new one would wait for longer than this …
    #[serde(with = "humantime_serde")]
    pub shed_wait: Duration,
    /// … which fewer than this never are; …
    pub shed_under_way_from: u64,
    /// … or while more than this are pending, as in a long outage of what they wait for.
    pub shed_under_way: NonZeroU64,
}

/// An order that never had the time to be confirmed would be none.
fn some_time<'de, D: Deserializer<'de>>(of: D) -> Result<Duration, D::Error> {
    let time: Duration = humantime_serde::deserialize(of)?;
    if time.is_zero() { Err(D::Error::custom("it must be longer than 0s")) } else { Ok(time) }
}

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8081"
[service]
deadline = "60s"
shed_lag = "2m"
shed_pending = 200000
shed_held_up = "10s"
shed_wait = "200ms"
# At a thousand orders a second so many come before an outage is known as one (OUTAGE in saga_core::shedding).
shed_under_way_from = 750
shed_under_way = 50000
"#;

/// The running service, as its routes see it.
pub type OrderApp = App<OrderService, OrderSettings>;

/// Everything that makes this program the order service.
#[must_use]
pub fn program() -> Program<OrderService, OrderSettings> {
    Program {
        defaults: DEFAULTS,
        producers: topology::producers().collect(),
        faults: &FaultKind::OF_A_SERVICE,
        service: |_| OrderService,
        handler: no_calls,
        routes: http::routes,
        access: &contract::access::ACCESS,
        tasks: &[],
        metrics: &contract::metrics::OF_ORDER,
        background: |_| Vec::new(),
        overload: http::overload,
        in_flight_limit: Some(InFlightLimit {
            bounds: |settings| Bounds {
                few: settings.shed_under_way_from,
                wait: settings.shed_wait,
                most: settings.shed_under_way.get(),
            },
            rows: (Order::KIND, "status", "PENDING"),
            began: &contract::metrics::PLACED,
            ended: &contract::metrics::ORDER_DURATION,
            by_the_whole_way: contract::metrics::BY_THE_WHOLE_WAY,
        }),
    }
}
