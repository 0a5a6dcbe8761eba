//! Pure: manual resolution: the bank is not called any more, and called again if that is withdrawn.

use contract::payment::PaymentFailure;
use payment::bank_task::{BankCall, BankTask, REFUND};
use payment::domain::Payment;
use payment::ledger::ledger_entry;
use payment::service::PaymentService;
use saga_core::waiting::Task;
use saga_engine::testing::ServiceUnderTest;

use crate::given::{
    ORDER, bank_captured, bank_undone, cancelled, captured, charging, failed, processed, refunded,
    resolved_manually, resolved_once_cancelled, voided,
};

/// Payment service with an open refund.
fn refunding() -> (ServiceUnderTest<PaymentService>, Task) {
    let mut payment = captured();
    payment.receives(cancelled(ORDER)).calls(&[REFUND]);
    let task = payment.open_task();
    (payment, task)
}

fn status(payment: &ServiceUnderTest<PaymentService>) -> &'static str {
    payment.row::<Payment>(ORDER).status()
}

/// Outcome when the task runner asks whether the task is still needed.
fn need_of(payment: &mut ServiceUnderTest<PaymentService>, task: &Task) -> &'static str {
    payment.checks_task(task).outcome.name()
}

fn call(task: &Task) -> BankCall {
    serde_json::from_str::<BankTask>(&task.payload).expect("a call to the bank").call
}

#[test]
fn manually_resolved_refund_is_not_requested_any_more() {
    let (mut payment, task) = refunding();
    assert_eq!(need_of(&mut payment, &task), "task_needed");
    payment
        .receives(resolved_manually(ORDER, true, 1))
        .records(&["Received", "ResolvedManually"])
        .publishes([])
        .calls(&[]);
    assert_eq!(status(&payment), "RESOLVED_MANUALLY");
    assert_eq!(need_of(&mut payment, &task), "done");
    assert_eq!((payment.store.tasks.len(), payment.store.dead.len()), (0, 0));
    let row = payment.row::<Payment>(ORDER);
    let entry = ledger_entry(ORDER, &row, &[]);
    assert!(entry.resolved_manually, "{entry:?}");
    // A repeated cancellation requests nothing either.
    payment.receives(cancelled(ORDER)).changes_nothing();
}

#[test]
fn withdrawn_resolution_requests_refund_again() {
    let (mut payment, task) = refunding();
    payment.receives(resolved_manually(ORDER, true, 1));
    assert_eq!(need_of(&mut payment, &task), "done");
    payment
        .receives(resolved_manually(ORDER, false, 2))
        .records(&["Received", "ResolutionWithdrawn"])
        .calls(&[REFUND]);
    let again = payment.open_task();
    assert_eq!((call(&again), status(&payment)), (BankCall::Refund, "REFUNDING"));
    payment.gets_result(&again, bank_undone()).publishes([refunded(ORDER)]);
}

/// A call that is still open continues, so there are not two of them.
#[test]
fn open_call_is_not_repeated_after_withdrawal() {
    let (mut payment, task) = refunding();
    payment.receives(resolved_manually(ORDER, true, 1));
    payment
        .receives(resolved_manually(ORDER, false, 2))
        .records(&["Received", "ResolutionWithdrawn"])
        .calls(&[]);
    assert_eq!(need_of(&mut payment, &task), "task_needed");
    payment.gets_result(&task, bank_undone()).publishes([refunded(ORDER)]);
}

/// The request may be repeated, and a later one may overtake an earlier one.
#[test]
fn older_resolution_received_late_has_no_effect() {
    let (mut payment, _) = refunding();
    payment.receives(resolved_manually(ORDER, false, 2)).records(&["Received"]).calls(&[]);
    payment.receives(resolved_manually(ORDER, true, 1)).changes_nothing();
    assert_eq!(status(&payment), "REFUNDING");
    payment.receives(resolved_manually(ORDER, true, 3)).records(&["Received", "ResolvedManually"]);
    payment.receives(resolved_manually(ORDER, true, 3)).changes_nothing();
    payment.receives(resolved_manually(ORDER, false, 2)).changes_nothing();
    assert_eq!(status(&payment), "RESOLVED_MANUALLY");
}

/// The call was in flight when the operator resolved it: the money is back twice, and the fact says so once.
#[test]
fn refund_made_despite_resolution_is_published() {
    let (mut payment, task) = refunding();
    payment.receives(resolved_manually(ORDER, true, 1));
    payment.gets_result(&task, bank_undone()).records(&["Refunded"]).publishes([refunded(ORDER)]);
    assert_eq!(status(&payment), "REFUNDED");
    payment.receives(resolved_manually(ORDER, false, 2)).records(&["Received"]).calls(&[]);
}

#[test]
fn failed_call_of_resolved_payment_is_not_dead_lettered() {
    let (mut payment, task) = refunding();
    payment.receives(resolved_manually(ORDER, true, 1));
    payment.gives_up(&task, "the account is closed").records(&["CallAbandoned"]);
    assert_eq!((payment.store.tasks.len(), payment.store.dead.len()), (0, 0));
    payment.receives(resolved_manually(ORDER, false, 2)).calls(&[REFUND]);
}

/// A capture that nobody knew of at the resolution is refunded.
#[test]
fn late_capture_of_resolved_payment_is_refunded() {
    let mut payment = charging();
    let charge = payment.open_task();
    payment.receives(cancelled(ORDER)).records(&["Doomed"]);
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received", "ResolvedManually"]);
    let captured = payment.gets_result(&charge, bank_captured());
    captured.records(&["Captured", "RefundRequested"]).publishes([processed(ORDER)]).calls(&[REFUND]);
}

/// A charge in progress, and one that has ended, owe no money.
#[test]
fn open_charge_is_not_resolved_manually() {
    let mut payment = charging();
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received"]).calls(&[]);
    assert_eq!(status(&payment), "CHARGING");
    payment.receives(cancelled(ORDER)).records(&["Doomed"]);
}

/// Admin may receive a cancellation long before payment does: it must not cause a second refund.
#[test]
fn resolution_before_cancellation_covers_it() {
    let mut payment = captured();
    payment.receives(resolved_once_cancelled(ORDER, true, 1)).records(&["Received"]).calls(&[]);
    payment.receives(cancelled(ORDER)).records(&["RefundRequested", "ResolvedManually"]);
    let refund = payment.open_task();
    assert_eq!((status(&payment), need_of(&mut payment, &refund)), ("RESOLVED_MANUALLY", "done"));
    // After the withdrawal, the refund is owed like any other.
    payment
        .receives(resolved_once_cancelled(ORDER, false, 2))
        .records(&["Received", "ResolutionWithdrawn"])
        .calls(&[REFUND]);
}

#[test]
fn resolution_withdrawn_before_cancellation_does_not_cover_it() {
    let mut payment = captured();
    payment.receives(resolved_once_cancelled(ORDER, false, 2)).records(&["Received"]);
    payment.receives(resolved_once_cancelled(ORDER, true, 1)).changes_nothing();
    payment.receives(cancelled(ORDER)).records(&["RefundRequested"]).calls(&[REFUND]);
}

/// The order was not cancelled when the operator resolved it, so its later cancellation refunds as usual.
#[test]
fn cancellation_after_resolution_of_wanted_charge_is_refunded() {
    let mut payment = captured();
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received"]);
    payment.receives(cancelled(ORDER)).records(&["RefundRequested"]).calls(&[REFUND]);
}

#[test]
fn reversal_is_resolved_manually_and_requested_again_after_withdrawal() {
    let mut payment = charging();
    payment.gives_up(&payment.open_task(), "no answer").publishes([failed(ORDER, PaymentFailure::Exhausted)]);
    let reversal = payment.open_task();
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received", "ResolvedManually"]);
    assert_eq!(need_of(&mut payment, &reversal), "done");
    payment.receives(resolved_manually(ORDER, false, 2)).calls(&[REFUND]);
    let again = payment.open_task();
    assert_eq!(call(&again), BankCall::Reverse);
    payment.gets_result(&again, bank_undone()).publishes([voided(ORDER)]);
}
