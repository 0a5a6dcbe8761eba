//! Pure: what this shop counts of its trade, by name. Admin counts sagas, dead letters and what the last audit found;
//! each of the others what it alone knows.

use std::num::NonZeroU64;

use saga_core::metric::{Measurement, Metric};
use saga_core::unit_of_work::UnitOfWork;

use crate::money::Money;

/// Bounds for how long sagas last: from ten milliseconds, when all is well, to an hour.
const LONG: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0, 3600.0];

/// Why orders are cancelled ([`crate::order::CancelReason`]).
const REASONS: &[&[&str]] =
    &[&["out_of_stock"], &["payment_failed"], &["timed_out"], &["customer_request"], &["operator"]];

// Sagas, as admin sees them. Whatever admin hears late counts late.

/// Orders placed.
pub const STARTED: Metric = Metric::counter("saga_started_total", &[], "Sagas begun: orders placed");
/// Orders confirmed.
pub const COMPLETED: Metric =
    Metric::counter("saga_completed_total", &[], "Sagas that came to their good end: orders confirmed");
/// Orders cancelled.
pub const CANCELLED: Metric = Metric::counter(
    "saga_cancelled_total",
    &["reason"],
    "Sagas whose order was cancelled, by reason: out_of_stock, payment_failed, timed_out, customer_request, operator",
)
.knowing(REASONS);
/// Orders undone.
pub const COMPENSATED: Metric = Metric::counter(
    "saga_compensated_total",
    &["reason"],
    "Sagas all of whose parts are undone, by the reason of their cancellation",
)
.knowing(REASONS);
/// Deadlines passed.
pub const TIMED_OUT: Metric = Metric::counter(
    "saga_timed_out_total",
    &[],
    "Sagas whose order was cancelled as its deadline had passed",
);
/// Compensation parked.
pub const FAILED: Metric = Metric::counter(
    "saga_failed_total",
    &[],
    "Sagas that came to need a human: a step of their compensation is a dead letter",
);
/// How long sagas last.
pub const DURATION: Metric = Metric::histogram(
    "saga_duration_seconds",
    &["outcome"],
    LONG,
    "Time from the order until its saga ended, by outcome: completed or compensated",
)
.knowing(&[&["completed"], &["compensated"]]);
/// How long undoing takes.
pub const COMPENSATION_DURATION: Metric = Metric::histogram(
    "saga_compensation_duration_seconds",
    &[],
    LONG,
    "Time from the cancellation of an order until all of its parts were undone",
);
/// Sagas by status.
pub const OPEN: Metric = Metric::gauge(
    "saga_open",
    &["status"],
    "Sagas that have not ended, by status: STARTED, IN_PROGRESS, …; NaN while not known",
);
/// Sagas that are late.
pub const OVERDUE: Metric = Metric::gauge(
    "saga_overdue",
    &[],
    "Sagas that should have ended a while ago and have not, but for those that failed; NaN while not known",
);
/// What open sagas are worth.
pub const OPEN_AMOUNT: Metric = Metric::gauge(
    "saga_open_amount_minor",
    &["currency"],
    "Money of the sagas that have not ended, in minor units (cents) of its currency; beyond 1,000 of them that of the 1,000 \
     oldest; NaN while not known",
)
.knowing(&[&[SHOWN]]);
/// The currency that dashboards show: also while no saga is worth any of it.
pub const SHOWN: &str = "EUR";
/// What orders are worth.
pub const AMOUNT: Metric = Metric::counter(
    "order_amount_minor_total",
    &["currency", "event"],
    "Money of orders in minor units (cents) of its currency, by what happened to them: placed, confirmed, cancelled, or \
     taken_back, which had been confirmed before it was cancelled",
);

/// Orders placed.
pub const PLACED: Metric = Metric::counter("order_placed_total", &[], "Orders placed, as order has them");
/// How long orders wait.
pub const ORDER_DURATION: Metric = Metric::histogram(
    "order_duration_seconds",
    &["outcome"],
    LONG,
    "Time from placing an order until it was confirmed, or cancelled for the reason: confirmed, out_of_stock, \
     payment_failed, timed_out, customer_request, operator",
)
.knowing(&[&["confirmed"], &["out_of_stock"], &["payment_failed"]]);
/// Outcomes of orders that have been with every service.
pub const BY_THE_WHOLE_WAY: &[&str] = &["confirmed", "payment_failed"];

// Dead letters, as admin knows them.

/// Those that are not over.
pub const DEAD_LETTERS: Metric = Metric::gauge(
    "dead_letter_count",
    &["status"],
    "Dead letters that are not over, by status: PENDING waits for a human, REPLAYING was handed back; NaN while not known",
)
.knowing(&[&["PENDING"], &["REPLAYING"]]);
/// Where they are.
pub const DEAD_LETTERS_BY_STEP: Metric = Metric::gauge(
    "dead_letter_pending",
    &["service", "step"],
    "Dead letters that wait for a human, by service and the step that failed; of the 200 largest groups",
);
/// The largest groups.
pub const DEAD_LETTER_GROUPS: Metric = Metric::gauge(
    "dead_letter_group_size",
    &["rank", "service", "step"],
    "Size of the five largest groups of pending dead letters of one cause, by rank: 1 is the largest",
);
/// New causes.
pub const FINGERPRINTS: Metric = Metric::counter(
    "dead_letter_fingerprint_total",
    &[],
    "Causes of pending dead letters that were not among those seen before, since admin started",
);

// Reconciliation, as of the last audit.

/// What it came to.
pub const BOOKS: Metric = Metric::gauge(
    "books_verdict",
    &[],
    "What the last audit came to: 0 balanced, 1 in flight, 2 unbalanced; NaN while nobody has looked",
);
/// What it found.
pub const DISCREPANCIES: Metric = Metric::gauge(
    "books_discrepancies",
    &[],
    "Discrepancies that the last audit found; NaN while there is none",
);
/// When it was.
pub const AUDIT_AGE: Metric =
    Metric::gauge("books_audit_age_seconds", &[], "Age of the last audit; NaN while there is none");

// Inventory.

/// Units of stock.
pub const UNITS: Metric = Metric::counter(
    "stock_unit_total",
    &["event"],
    "Units of stock, by what happened to them: restocked, reserved, released, sold, put_back",
)
.knowing(&[&["restocked"], &["reserved"], &["released"], &["sold"], &["put_back"]]);

/// Units of stock reserved for orders in flight.
pub const RESERVED_UNITS: Metric = Metric::gauge(
    "stock_reserved_units",
    &[],
    "Units of stock reserved for orders, neither sold nor released. Counts the 1,000 oldest reservations at most; NaN if \
     unknown",
);

// Payment.

/// Money.
pub const MONEY: Metric = Metric::counter(
    "payment_amount_minor_total",
    &["currency", "event"],
    "Money in minor units (cents) of its currency, by what happened to it: captured, refunded",
);

/// What admin counts.
pub const OF_ADMIN: [&Metric; 18] = [
    &STARTED,
    &COMPLETED,
    &CANCELLED,
    &COMPENSATED,
    &TIMED_OUT,
    &FAILED,
    &DURATION,
    &COMPENSATION_DURATION,
    &OPEN,
    &OVERDUE,
    &OPEN_AMOUNT,
    &DEAD_LETTERS,
    &DEAD_LETTERS_BY_STEP,
    &DEAD_LETTER_GROUPS,
    &FINGERPRINTS,
    &BOOKS,
    &DISCREPANCIES,
    &AUDIT_AGE,
];

/// What order counts.
pub const OF_ORDER: [&Metric; 3] = [&PLACED, &ORDER_DURATION, &AMOUNT];

/// What inventory counts.
pub const OF_INVENTORY: [&Metric; 2] = [&UNITS, &RESERVED_UNITS];

/// What payment counts.
pub const OF_PAYMENT: [&Metric; 1] = [&MONEY];

/// Counts money that something happened to.
pub fn count_money<F>(metric: &'static Metric, money: Money, event: &str, work: &mut UnitOfWork<'_, F>) {
    let amount = u64::try_from(money.amount_minor).ok().and_then(NonZeroU64::new);
    // What is worth nothing is of no currency that anybody wants to see.
    if let Some(amount) = amount {
        work.measure(Measurement::more(metric, &[money.currency.code(), event], amount.get()));
    }
}
