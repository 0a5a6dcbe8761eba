//! Pure: payments after an accepted loss of data. The service may have forgotten a charge, so the bank is asked.

use contract::Fact;
use contract::payment::PaymentFailure;
use contract::payment_id;
use jiff::{SignedDuration, Timestamp};
use payment::bank_task::{BankCall, CHARGE, REFUND};
use payment::domain::Payment;
use payment::service::PaymentService;
use saga_core::ids::first_at;
use saga_core::waiting::Task;
use saga_engine::testing::{NOON, ServiceUnderTest};

use crate::given::{
    DEADLINE, ORDER, bank_captured, bank_refused, bank_undone, call, cancelled, captured, charging,
    claimed_again, context, extended, failed, processed, refunded, reserved, resolved_manually, voided,
};

/// Payment service that has accepted a loss, after the deadline of the order.
fn restored() -> ServiceUnderTest<PaymentService> {
    after_loss(ServiceUnderTest::of(PaymentService))
}

fn after_loss(mut payment: ServiceUnderTest<PaymentService>) -> ServiceUnderTest<PaymentService> {
    (payment.lost_before, payment.now) = (Some(NOON), DEADLINE);
    payment
}

fn closing() -> ServiceUnderTest<PaymentService> {
    let mut payment = restored();
    payment.receives(reserved(ORDER)).records(&["ClosureRequested"]).publishes([]).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Close);
    payment
}

/// The order may be confirmed: voided, its money would never be refunded.
#[test]
fn forgotten_charge_after_deadline_gets_its_outcome_from_the_bank() {
    let mut payment = closing();
    payment.receives(reserved(ORDER)).changes_nothing();
    let outcome = payment.gets_result(&payment.open_task(), bank_captured());
    outcome.records(&["Captured"]).publishes([processed(ORDER)]).calls(&[]);
    payment.receives(cancelled(ORDER)).records(&["RefundRequested"]).calls(&[REFUND]);
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([refunded(ORDER)]);

    let mut payment = closing();
    let outcome = payment.gets_result(&payment.open_task(), bank_refused(PaymentFailure::Declined));
    outcome.records(&["Refused"]).publishes([failed(ORDER, PaymentFailure::Declined)]).calls(&[]);

    let mut payment = closing();
    let outcome = payment.gets_result(&payment.open_task(), bank_undone());
    outcome.records(&["Voided"]).publishes([voided(ORDER)]).calls(&[]);
}

#[test]
fn capture_of_order_cancelled_while_the_bank_is_asked_is_refunded() {
    let mut payment = closing();
    payment.receives(cancelled(ORDER)).records(&["Doomed"]);
    let outcome = payment.gets_result(&payment.open_task(), bank_captured());
    outcome.records(&["Captured", "RefundRequested"]).publishes([processed(ORDER)]).calls(&[REFUND]);
}

/// Nothing is known of the charge, neither amount nor card.
#[test]
fn cancellation_of_forgotten_payment_reverses_its_charge() {
    let mut payment = restored();
    payment.receives(cancelled(ORDER)).records(&["ReversalRequested"]).publishes([]).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Reverse);
    assert_eq!(payment.row::<Payment>(ORDER).status(), "VOIDING");
    payment.receives(reserved(ORDER)).changes_nothing();
    let reversed = payment.gets_result(&payment.open_task(), bank_undone());
    reversed.records(&["Voided"]).publishes([voided(ORDER)]).calls(&[]);
    assert_eq!(payment.row::<Payment>(ORDER), Payment::Void);
    payment.receives(reserved(ORDER)).changes_nothing();
}

/// The copy is from before the capture: whether the call was made, and whether the order is confirmed, is forgotten.
#[test]
fn charge_that_is_over_is_closed_and_never_reversed_by_itself() {
    type End = fn(&mut ServiceUnderTest<PaymentService>, &Task);
    let unsent: End = |payment, charge| {
        payment.checks_task(charge).records(&["ClosureRequested"]).calls(&[REFUND]);
    };
    let sent: End = |payment, charge| {
        claimed_again(payment, charge);
        payment.checks_task(charge).records(&["ClosureRequested"]).calls(&[REFUND]);
    };
    let given_up: End = |payment, charge| {
        payment.gives_up(charge, "timed out").records(&["ClosureRequested"]).publishes([]).calls(&[REFUND]);
    };
    for end in [unsent, sent, given_up] {
        let mut payment = after_loss(charging());
        let charge = payment.open_task();
        end(&mut payment, &charge);
        assert_eq!(call(&payment.open_task()), BankCall::Close);
        payment.gets_result(&payment.open_task(), bank_captured()).publishes([processed(ORDER)]).calls(&[]);
        assert_eq!(payment.row::<Payment>(ORDER).status(), "CAPTURED");
    }
}

#[test]
fn unsent_charge_of_cancelled_order_is_reversed_after_loss() {
    let mut payment = charging();
    payment.receives(cancelled(ORDER)).records(&["Doomed"]);
    let mut payment = after_loss(payment);
    let charge = payment.open_task();
    payment.checks_task(&charge).records(&["ReversalRequested"]).publishes([]).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Reverse);
}

/// The bank answers a repeated charge with its first outcome.
#[test]
fn forgotten_charge_before_deadline_is_charged_under_the_same_key() {
    let mut payment = restored();
    payment.now = DEADLINE - SignedDuration::from_secs(1);
    payment.receives(reserved(ORDER)).records(&["Requested"]).calls(&[CHARGE]);
    payment.gets_result(&payment.open_task(), bank_captured()).publishes([processed(ORDER)]);
}

#[test]
fn order_that_began_after_the_loss_is_voided_without_the_bank() {
    let order = first_at(NOON + SignedDuration::from_mins(1)).expect("after 1970");
    let mut payment = restored();
    payment.receives(cancelled(order)).records(&["Voided"]).publishes([voided(order)]).calls(&[]);
}

/// A person decides what nobody can learn.
#[test]
fn closure_without_answer_is_dead_lettered_and_resolved_manually() {
    let mut payment = closing();
    let closure = payment.open_task();
    payment.gives_up(&closure, "timed out").is_dead_lettered(REFUND, "the outcome of the payment");
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received", "ResolvedManually"]);
    assert_eq!(payment.row::<Payment>(ORDER).status(), "RESOLVED_MANUALLY");

    let mut payment = closing();
    let closure = payment.open_task();
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received", "ResolvedManually"]);
    payment.checks_task(&closure).records(&["CallAbandoned"]);
    payment.receives(resolved_manually(ORDER, false, 2)).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Close);
}

/// An order that lost the outcome extends its deadline, and waits for it.
#[test]
fn extended_deadline_is_answered_with_the_known_outcome() {
    let later: Timestamp = DEADLINE + SignedDuration::from_mins(10);
    let mut payment = captured();
    payment.receives(extended(ORDER, later)).records(&["Extended"]).publishes([processed(ORDER)]);
    let mut payment = charging();
    let declined = PaymentFailure::Declined;
    payment.gets_result(&payment.open_task(), bank_refused(declined)).publishes([failed(ORDER, declined)]);
    payment.receives(extended(ORDER, later)).publishes([failed(ORDER, declined)]);
    let mut payment = charging();
    payment.receives(extended(ORDER, later)).publishes([] as [Fact; 0]);
    assert_eq!(context().id, payment_id(ORDER));
}
