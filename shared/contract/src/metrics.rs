//! Pure: business metrics. Admin counts sagas, dead letters and the results of reconciliation; each other service
//! counts its own data.

use std::num::NonZeroU64;

use saga_core::metric::{Measurement, Metric};
use saga_core::unit_of_work::UnitOfWork;

use crate::money::Money;

/// Histogram bounds for the duration of sagas: ten milliseconds to an hour.
const LONG: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0, 3600.0];

/// Label values of cancellation reasons ([`crate::order::CancelReason`]).
const REASONS: &[&[&str]] =
    &[&["out_of_stock"], &["payment_failed"], &["timed_out"], &["customer_request"], &["operator"]];

// Sagas, as admin sees them. A fact that admin receives late counts late.

/// Number of orders placed, as admin sees them.
pub const STARTED: Metric = Metric::counter("saga_started_total", &[], "Sagas begun: orders placed");
/// Number of orders confirmed, as admin sees them.
pub const COMPLETED: Metric =
    Metric::counter("saga_completed_total", &[], "Sagas that came to their good end: orders confirmed");
/// Number of orders cancelled, by reason.
pub const CANCELLED: Metric = Metric::counter(
    "saga_cancelled_total",
    &["reason"],
    "Sagas whose order was cancelled, by reason: out_of_stock, payment_failed, timed_out, customer_request, operator",
)
.knowing(REASONS);
/// Number of sagas that were fully compensated, by reason.
pub const COMPENSATED: Metric = Metric::counter(
    "saga_compensated_total",
    &["reason"],
    "Sagas all of whose parts are undone, by the reason of their cancellation",
)
.knowing(REASONS);
/// Number of orders cancelled at their deadline.
pub const TIMED_OUT: Metric = Metric::counter(
    "saga_timed_out_total",
    &[],
    "Sagas whose order was cancelled as its deadline had passed",
);
/// Number of sagas with a dead-lettered compensation.
pub const COMPENSATION_STUCK: Metric = Metric::counter(
    "saga_compensation_stuck_total",
    &[],
    "Sagas whose compensation got stuck: a step of it is a dead letter, and an operator must act",
);
/// Duration of sagas, by outcome.
pub const DURATION: Metric = Metric::histogram(
    "saga_duration_seconds",
    &["outcome"],
    LONG,
    "Time from the order until its saga ended, by outcome: completed or compensated",
)
.knowing(&[&["completed"], &["compensated"]]);
/// Duration from cancellation to full compensation.
pub const COMPENSATION_DURATION: Metric = Metric::histogram(
    "saga_compensation_duration_seconds",
    &[],
    LONG,
    "Time from the cancellation of an order until all of its parts were undone",
);
/// Number of open sagas, by status.
pub const OPEN: Metric = Metric::gauge(
    "saga_open",
    &["status"],
    "Sagas that have not ended, by status: STARTED, IN_PROGRESS, …; NaN while not known",
);
/// Number of sagas past their deadline and grace period.
pub const OVERDUE: Metric = Metric::gauge(
    "saga_overdue",
    &[],
    "Sagas that should have ended a while ago and have not, but for those with a stuck compensation; NaN while not known",
);
/// Number of open sagas, by the step that they wait for.
pub const WAITING: Metric = Metric::gauge(
    "saga_waiting",
    &["owner", "step"],
    "Sagas that have not ended, by the step that they wait for and its service, also while that service is down; NaN while \
     not known",
);
/// Age of the oldest open saga.
pub const OLDEST_AGE: Metric = Metric::gauge(
    "saga_oldest_open_age_seconds",
    &[],
    "Age of the oldest saga that has not ended; 0 without one; NaN while not known",
);
/// Time of the next deadline.
pub const NEXT_DEADLINE: Metric = Metric::gauge(
    "saga_next_deadline_seconds",
    &[],
    "Time until the next deadline of an order that has not ended; NaN without one",
);
/// Total amount of open sagas, by currency.
pub const OPEN_AMOUNT: Metric = Metric::gauge(
    "saga_open_amount_minor",
    &["currency"],
    "Money of the sagas that have not ended, in minor units (cents) of its currency; beyond 1,000 of them that of the 1,000 \
     oldest; NaN while not known",
)
.knowing(&[&[SHOWN]]);
/// Currency that dashboards show, even while no saga has an amount in it.
pub const SHOWN: &str = "EUR";
/// Total amount of orders, by currency and event.
pub const AMOUNT: Metric = Metric::counter(
    "order_amount_minor_total",
    &["currency", "event"],
    "Money of orders in minor units (cents) of its currency, by what happened to them: placed, confirmed, cancelled, or \
     taken_back, which had been confirmed before it was cancelled",
);

/// Number of orders placed, as the order service has them.
pub const PLACED: Metric = Metric::counter("order_placed_total", &[], "Orders placed, as order has them");
/// Duration from placing an order to its confirmation or cancellation.
pub const ORDER_DURATION: Metric = Metric::histogram(
    "order_duration_seconds",
    &["outcome"],
    LONG,
    "Time from placing an order until it was confirmed, or cancelled for the reason: confirmed, out_of_stock, \
     payment_failed, timed_out, customer_request, operator",
)
.knowing(&[&["confirmed"], &["out_of_stock"], &["payment_failed"], &["timed_out"]]);
/// Outcomes of orders that every service has processed.
pub const FULL_PATH_OUTCOMES: &[&str] = &["confirmed", "payment_failed"];

// Dead letters, as admin knows them.

/// Number of open dead letters, by status.
pub const DEAD_LETTERS: Metric = Metric::gauge(
    "dead_letter_open",
    &["status"],
    "Dead letters that are not over, by status: PENDING waits for a human, REPLAYING was handed back; NaN while not known",
)
.knowing(&[&["PENDING"], &["REPLAYING"]]);
/// Number of pending dead letters, by step.
pub const DEAD_LETTERS_BY_STEP: Metric = Metric::gauge(
    "dead_letter_pending",
    &["owner", "step"],
    "Dead letters that wait for a human, by service and the step that failed; of the 200 largest groups",
);
/// Number of pending dead letters that orders wait for.
pub const DEAD_LETTERS_AWAITED: Metric = Metric::gauge(
    "dead_letter_awaited",
    &[],
    "Pending dead letters that their sagas wait for; the others are left to clean up; of the 200 largest groups; NaN while \
     not known",
);
/// Time of the first failure of the newest cause.
pub const NEWEST_CAUSE: Metric = Metric::gauge(
    "dead_letter_newest_cause_timestamp_seconds",
    &[],
    "Time at which the newest cause of pending dead letters failed first; 0 without any; NaN while not known",
);
/// Number of findings, by code.
pub const FINDINGS: Metric = Metric::gauge(
    "finding_open",
    &["code"],
    "Problems that need a human, by code, as sagactl status lists them",
);
/// Start of each finding.
pub const FINDING_START: Metric = Metric::gauge(
    "finding_start_timestamp_seconds",
    &["key", "code", "owner", "state", "text"],
    "Time since which a finding has been open, with its text as first seen; its state is open, or clean_up if nobody waits \
     any more",
);
/// Number of orders that wait while a finding is open.
pub const FINDING_ORDERS: Metric =
    Metric::gauge("finding_orders", &["key"], "Orders that wait while a finding is open");
/// Money in orders that a finding affects.
pub const FINDING_AMOUNT: Metric = Metric::gauge(
    "finding_amount_minor",
    &["key", "currency"],
    "Money in the orders that a finding affects, in minor units (cents) of its currency",
);

/// Base addresses of the links on dashboards.
pub const LINKS: Metric = Metric::gauge(
    "dashboard_link_info",
    &["admin", "runbooks"],
    "Always 1; the labels are the base addresses of the links on dashboards (service.links)",
);

// Results of the last reconciliation.

/// Verdict of the last reconciliation.
pub const RECONCILIATION_VERDICT: Metric = Metric::gauge(
    "reconciliation_verdict",
    &[],
    "Verdict of the last reconciliation: 0 balanced, 1 in flight, 2 unbalanced; NaN before the first",
);
/// Number of discrepancies in the last reconciliation.
pub const RECONCILIATION_DISCREPANCIES: Metric = Metric::gauge(
    "reconciliation_discrepancies",
    &[],
    "Discrepancies that the last reconciliation found; NaN while there is none",
);
/// Age of the last reconciliation.
pub const RECONCILIATION_AGE: Metric = Metric::gauge(
    "reconciliation_age_seconds",
    &[],
    "Age of the last reconciliation; NaN while there is none",
);

// Inventory.

/// Units of stock moved, by event.
pub const UNITS: Metric = Metric::counter(
    "stock_unit_total",
    &["event"],
    "Units of stock, by what happened to them: restocked, reserved, released, sold, put_back",
)
.knowing(&[&["restocked"], &["reserved"], &["released"], &["sold"], &["put_back"]]);

/// Units reserved for orders that have not ended.
pub const RESERVED_UNITS: Metric = Metric::gauge(
    "stock_reserved_units",
    &[],
    "Units of stock reserved for orders, neither sold nor released. Counts the 1,000 oldest reservations at most; NaN if \
     unknown",
);

// Payment.

/// Total amount captured and refunded, by currency.
pub const MONEY: Metric = Metric::counter(
    "payment_amount_minor_total",
    &["currency", "event"],
    "Money in minor units (cents) of its currency, by what happened to it: captured, refunded",
);

/// Metrics that the admin service exports.
pub const OF_ADMIN: [&Metric; 26] = [
    &STARTED,
    &COMPLETED,
    &CANCELLED,
    &COMPENSATED,
    &TIMED_OUT,
    &COMPENSATION_STUCK,
    &DURATION,
    &COMPENSATION_DURATION,
    &OPEN,
    &OVERDUE,
    &WAITING,
    &OLDEST_AGE,
    &NEXT_DEADLINE,
    &OPEN_AMOUNT,
    &DEAD_LETTERS,
    &DEAD_LETTERS_AWAITED,
    &NEWEST_CAUSE,
    &DEAD_LETTERS_BY_STEP,
    &FINDINGS,
    &FINDING_START,
    &FINDING_ORDERS,
    &FINDING_AMOUNT,
    &LINKS,
    &RECONCILIATION_VERDICT,
    &RECONCILIATION_DISCREPANCIES,
    &RECONCILIATION_AGE,
];

/// Metrics that the order service exports.
pub const OF_ORDER: [&Metric; 3] = [&PLACED, &ORDER_DURATION, &AMOUNT];

/// Metrics that the inventory service exports.
pub const OF_INVENTORY: [&Metric; 2] = [&UNITS, &RESERVED_UNITS];

/// Metrics that the payment service exports.
pub const OF_PAYMENT: [&Metric; 1] = [&MONEY];

/// Adds an amount to a counter by currency and event.
pub fn count_money<F>(metric: &'static Metric, money: Money, event: &str, work: &mut UnitOfWork<'_, F>) {
    let amount = u64::try_from(money.amount_minor).ok().and_then(NonZeroU64::new);
    // A zero amount would only add a currency that nobody uses.
    if let Some(amount) = amount {
        work.measure(Measurement::more(metric, &[money.currency.code(), event], amount.get()));
    }
}
