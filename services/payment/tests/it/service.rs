//! Pure: the handlers of the payment service: charges.

use std::collections::BTreeSet;

use contract::payment::PaymentFailure;
use contract::payment_id;
use jiff::SignedDuration;
use payment::bank_task::{BankCall, BankTask, CHARGE, REFUND};
use payment::domain::Payment;
use payment::service::{PaymentService, Refund};
use saga_core::row::RowKey;
use saga_core::waiting::Task;
use saga_engine::testing::{ServiceUnderTest, Stimulus, consumed_facts};
use serde_json::json;
use uuid::Uuid;

use crate::given::{
    DEADLINE, ORDER, bank_captured, bank_refused, bank_undone, call, cancelled, captured, charging,
    claimed_again, context, extended, failed, processed, refunded, reserved, resolved_manually, voided,
};

#[test]
fn order_with_several_lines_is_charged_once() {
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.receives(reserved(ORDER)).records(&["Requested"]).publishes([]).calls(&[CHARGE]);
    let first = BankCall::Charge { context: context(), deadline: DEADLINE, may_be_sent: false };
    assert_eq!(call(&payment.open_task()), first);
    payment.receives(reserved(ORDER)).has_outcome("done").changes_nothing();
}

#[test]
fn captured_payment_is_published_once() {
    let mut payment = charging();
    let task = payment.open_task();
    payment
        .gets_result(&task, bank_captured())
        .records(&["Captured"])
        .publishes([processed(ORDER)])
        .calls(&[]);
    payment.gets_result(&task, bank_captured()).has_outcome("duplicate").changes_nothing();
    payment.receives(reserved(ORDER)).changes_nothing();
}

#[test]
fn declined_payment_is_event_and_not_fault() {
    for reason in [
        PaymentFailure::Declined,
        PaymentFailure::UnknownCard,
        PaymentFailure::InsufficientFunds,
        PaymentFailure::LimitExceeded,
    ] {
        let mut payment = charging();
        let task = payment.open_task();
        payment
            .gets_result(&task, bank_refused(reason))
            .has_outcome("done")
            .publishes([failed(ORDER, reason)])
            .calls(&[]);
        assert_eq!((payment.store.dead.len(), payment.store.tasks.len()), (0, 0));
    }
}

#[test]
fn captured_payment_of_cancelled_order_is_refunded() {
    let mut payment = captured();
    payment.receives(cancelled(ORDER)).publishes([]).calls(&[REFUND]);
    payment.receives(cancelled(ORDER)).changes_nothing();
    let task = payment.open_task();
    assert_eq!(call(&task), BankCall::Refund);
    payment.gets_result(&task, bank_undone()).records(&["Refunded"]).publishes([refunded(ORDER)]);
    payment.gets_result(&task, bank_undone()).has_outcome("duplicate").changes_nothing();
}

#[test]
fn cancellation_during_call_dooms_payment_and_capture_is_refunded() {
    let mut payment = charging();
    let charge = payment.open_task();
    payment.receives(cancelled(ORDER)).records(&["Doomed"]).publishes([]).calls(&[]);
    payment.receives(cancelled(ORDER)).changes_nothing();

    let late_capture = payment.gets_result(&charge, bank_captured());
    late_capture.records(&["Captured", "RefundRequested"]).publishes([processed(ORDER)]).calls(&[REFUND]);
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([refunded(ORDER)]);
}

#[test]
fn doomed_payment_refused_by_bank_is_not_refunded() {
    let mut payment = charging();
    payment.receives(cancelled(ORDER));
    let refusal = payment.gets_result(&payment.open_task(), bank_refused(PaymentFailure::Declined));
    refusal.publishes([failed(ORDER, PaymentFailure::Declined)]).calls(&[]);
}

#[test]
fn charge_and_refund_of_order_use_its_payment_id() {
    let payment_of = |task: &Task| serde_json::from_str::<BankTask>(&task.payload).expect("JSON").payment;
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.receives(reserved(ORDER));
    assert_eq!(payment_of(&payment.open_task()), payment_id(ORDER));
    payment.gets_result(&payment.open_task(), bank_captured()).publishes([processed(ORDER)]);
    payment.receives(cancelled(ORDER));
    assert_eq!(payment_of(&payment.open_task()), payment_id(ORDER));
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([refunded(ORDER)]);
}

#[test]
fn cancellation_before_request_leaves_tombstone() {
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.receives(cancelled(ORDER)).records(&["Voided"]).publishes([voided(ORDER)]).calls(&[]);
    payment.receives(reserved(ORDER)).has_outcome("done").changes_nothing();
    payment.receives(cancelled(ORDER)).changes_nothing();
    assert_eq!(payment.row::<Payment>(ORDER), Payment::Void);
}

#[test]
fn exhausted_charge_is_reversed_and_failure_published() {
    let mut payment = charging();
    let exhausted = payment.gives_up(&payment.open_task(), "timed out");
    exhausted.has_outcome("done").publishes([failed(ORDER, PaymentFailure::Exhausted)]).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Reverse);

    payment.receives(cancelled(ORDER)).changes_nothing();
    // The failure was published when the reversal began; only now is nothing left to undo.
    let reversed = payment.gets_result(&payment.open_task(), bank_undone());
    reversed.records(&["Reversed"]).publishes([voided(ORDER)]).calls(&[]);
}

#[test]
fn exhausted_charge_of_cancelled_order_is_reversed() {
    let mut payment = charging();
    payment.receives(cancelled(ORDER));
    payment.gives_up(&payment.open_task(), "timed out").publishes([]).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Reverse);
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([voided(ORDER)]).calls(&[]);
    assert_eq!(payment.row::<Payment>(ORDER), Payment::Voided(context()));
}

/// The bank need not undo a charge that it never received.
#[test]
fn unsent_charge_of_cancelled_order_is_voided() {
    let mut payment = charging();
    let charge = payment.open_task();
    payment.checks_task(&charge).has_outcome("task_needed").changes_nothing();
    payment.receives(cancelled(ORDER)).records(&["Doomed"]);
    let asked = payment.checks_task(&charge).has_outcome("done");
    asked.records(&["Voided"]).publishes([voided(ORDER)]).calls(&[]);
    assert_eq!((payment.store.tasks.len(), payment.row::<Payment>(ORDER)), (0, Payment::Voided(context())));
    payment.checks_task(&charge).has_outcome("duplicate").changes_nothing();
}

/// The bank may have received the charge, so it must be told, if only to block a late capture.
#[test]
fn possibly_sent_charge_of_cancelled_order_is_reversed() {
    type Earlier = fn(&mut ServiceUnderTest<PaymentService>, &Task);
    let failed: Earlier = |payment, charge| {
        payment.call_fails(charge, "timed out");
        claimed_again(payment, charge);
    };
    let was_replayed: Earlier = |payment, charge| {
        let dead_letter = Some(Uuid::from_u128(7));
        payment.store.tasks.entry(charge.id).and_modify(|task| task.dead_letter = dead_letter);
    };
    for may_have_been_sent in [failed, claimed_again, was_replayed] {
        let mut payment = charging();
        let charge = payment.open_task();
        may_have_been_sent(&mut payment, &charge);
        payment.checks_task(&charge).has_outcome("task_needed").changes_nothing();
        payment.receives(cancelled(ORDER));
        let asked = payment.checks_task(&charge);
        asked.records(&["ReversalRequested"]).publishes([]).calls(&[REFUND]);
        assert_eq!(call(&payment.open_task()), BankCall::Reverse);
        assert_eq!(payment.row::<Payment>(ORDER).status(), "VOIDING");
        payment.receives(cancelled(ORDER)).changes_nothing();
        payment.gets_result(&charge, bank_captured()).has_outcome("duplicate").changes_nothing();
        payment.gets_result(&payment.open_task(), bank_undone()).publishes([voided(ORDER)]).calls(&[]);
    }
}

/// The bank was unreachable for longer than the order's timeout.
#[test]
fn charge_is_not_sent_after_deadline() {
    for was_tried in [false, true] {
        let mut payment = charging();
        let charge = payment.open_task();
        if was_tried {
            claimed_again(&mut payment, &charge);
        }
        payment.now = DEADLINE - SignedDuration::from_millis(1);
        payment.checks_task(&charge).has_outcome("task_needed").changes_nothing();
        payment.now = DEADLINE;
        let asked = payment.checks_task(&charge).has_outcome("done");
        asked.records(&["Expired"]).publishes([]).calls(&[]);
        let cancelled_after = payment.receives(cancelled(ORDER));
        match was_tried {
            false => drop(cancelled_after.records(&["Voided"]).publishes([voided(ORDER)]).calls(&[])),
            true => drop(cancelled_after.records(&["ReversalRequested"]).publishes([]).calls(&[REFUND])),
        }
        payment.receives(cancelled(ORDER)).changes_nothing();
    }
}

/// Payment was down when the order was extended, and receives the facts in either order.
#[test]
fn extension_repeats_charge_that_expired() {
    let later = DEADLINE + SignedDuration::from_mins(5);
    for was_requested in [false, true] {
        let mut payment = ServiceUnderTest::of(PaymentService);
        if was_requested {
            payment.receives(reserved(ORDER)).calls(&[CHARGE]);
            let charge = payment.open_task();
            claimed_again(&mut payment, &charge);
            payment.now = DEADLINE;
            payment.checks_task(&charge).records(&["Expired"]);
        } else {
            payment.now = DEADLINE;
            payment.receives(reserved(ORDER)).records(&["Expired"]).publishes([]).calls(&[]);
        }
        payment.receives(extended(ORDER, later)).records(&["Extended", "Requested"]).calls(&[CHARGE]);
        payment.receives(extended(ORDER, later)).changes_nothing();
        let charge = payment.open_task();
        payment.now = later - SignedDuration::from_millis(1);
        payment.checks_task(&charge).has_outcome("task_needed");
        payment.gets_result(&charge, bank_captured()).records(&["Captured"]).publishes([processed(ORDER)]);
    }
}

/// The first charge may have been captured, although the second was never sent.
#[test]
fn repeated_charge_that_is_not_sent_is_reversed() {
    let mut payment = charging();
    let charge = payment.open_task();
    claimed_again(&mut payment, &charge);
    payment.now = DEADLINE;
    payment.checks_task(&charge).records(&["Expired"]);
    payment.receives(extended(ORDER, DEADLINE + SignedDuration::from_mins(5))).calls(&[CHARGE]);
    payment.receives(cancelled(ORDER)).records(&["Doomed"]);
    payment.checks_task(&payment.open_task()).records(&["ReversalRequested"]).publishes([]).calls(&[REFUND]);
}

/// The order may be lost, so that nobody cancels it.
#[test]
fn expired_charge_that_may_be_captured_can_be_refunded_and_resolved() {
    let expired = || {
        let mut payment = charging();
        let charge = payment.open_task();
        claimed_again(&mut payment, &charge);
        payment.now = DEADLINE;
        payment.checks_task(&charge).records(&["Expired"]);
        payment
    };
    let mut payment = expired();
    payment
        .executes(Refund { order: ORDER, operator: None })
        .records(&["ReversalRequested"])
        .calls(&[REFUND]);
    payment.receives(cancelled(ORDER)).changes_nothing();
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([voided(ORDER)]);

    let mut payment = expired();
    payment.receives(resolved_manually(ORDER, true, 1)).records(&["Received", "ResolvedManually"]);
    payment
        .receives(extended(ORDER, DEADLINE + SignedDuration::from_mins(5)))
        .records(&["Extended"])
        .calls(&[]);
    payment.receives(cancelled(ORDER)).records(&["CallAbandoned"]).publishes([]).calls(&[]);
    payment.receives(cancelled(ORDER)).changes_nothing();
    payment.receives(resolved_manually(ORDER, false, 2)).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Reverse);
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([voided(ORDER)]);
}

#[test]
fn extension_that_has_passed_repeats_no_charge() {
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.now = DEADLINE + SignedDuration::from_mins(5);
    payment.receives(reserved(ORDER)).records(&["Expired"]);
    payment.receives(extended(ORDER, payment.now)).records(&["Extended"]).calls(&[]);
    payment.receives(cancelled(ORDER)).records(&["Voided"]).publishes([voided(ORDER)]);
}

#[test]
fn request_after_deadline_is_answered_when_the_order_is_cancelled() {
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.now = DEADLINE;
    payment.receives(reserved(ORDER)).records(&["Expired"]).publishes([]).calls(&[]);
    payment.receives(reserved(ORDER)).changes_nothing();
    payment.receives(cancelled(ORDER)).records(&["Voided"]).publishes([voided(ORDER)]).calls(&[]);
    payment.receives(cancelled(ORDER)).changes_nothing();

    // A repeated request undoes nothing.
    let mut payment = captured();
    payment.now = DEADLINE;
    payment.receives(reserved(ORDER)).has_outcome("done").changes_nothing();
}

/// The extension may arrive before the request to charge, or while the task waits.
#[test]
fn extended_order_is_charged_until_new_deadline() {
    let later = DEADLINE + SignedDuration::from_mins(5);
    let mut payment = ServiceUnderTest::of(PaymentService);
    payment.receives(extended(ORDER, later)).records(&["Extended"]).publishes([]);
    payment.now = DEADLINE;
    payment.receives(reserved(ORDER)).records(&["Requested"]).calls(&[CHARGE]);
    payment.now = later;
    let charge = payment.open_task();
    payment.checks_task(&charge).has_outcome("done").records(&["Expired"]);

    let mut payment = charging();
    payment.receives(extended(ORDER, later));
    payment.receives(extended(ORDER, later)).changes_nothing();
    payment.receives(extended(ORDER, DEADLINE)).changes_nothing();
    let charge = payment.open_task();
    payment.now = later - SignedDuration::from_millis(1);
    payment.checks_task(&charge).has_outcome("task_needed").changes_nothing();
    payment.now = later;
    payment.checks_task(&charge).has_outcome("done").records(&["Expired"]);
}

#[test]
fn answer_after_charge_was_given_up_has_no_effect() {
    let mut payment = charging();
    let charge = payment.open_task();
    payment.gives_up(&charge, "timed out");
    payment.gets_result(&charge, bank_captured()).has_outcome("duplicate").changes_nothing();
}

/// After a 4xx another attempt is pointless; an unseen capture is reversed.
#[test]
fn charge_with_final_error_is_given_up_at_once_and_reversed() {
    let mut payment = charging();
    let refused = payment.call_fails_finally(&payment.open_task(), "the bank answered 404");
    refused.has_outcome("done").publishes([failed(ORDER, PaymentFailure::Exhausted)]).calls(&[REFUND]);
    assert_eq!(call(&payment.open_task()), BankCall::Reverse);
    assert_eq!(payment.store.dead, [], "the order is cancelled: nobody has to mend anything");
}

/// The charge may have been captured.
#[test]
fn charge_with_contradictory_answer_is_reversed_and_failure_published() {
    for nonsense in
        [json!({ "outcome": "maybe" }), json!({ "outcome": "captured", "reference": "" }), bank_undone()]
    {
        let mut payment = charging();
        let taken = payment.gets_result(&payment.open_task(), nonsense);
        taken.publishes([failed(ORDER, PaymentFailure::Exhausted)]).calls(&[REFUND]);
        assert_eq!(call(&payment.open_task()), BankCall::Reverse);
    }
}

/// Treated as new, the payment would be charged a second time.
#[test]
fn unreadable_row_is_never_treated_as_new() {
    let mut payment = captured();
    let (_, row) = payment.store.rows.get_mut(&RowKey::of::<Payment>(ORDER)).expect("the payment is there");
    row.state = r#""FromTheFuture""#.to_owned();
    let (before, called) = (payment.store.rows.clone(), payment.store.called.len());

    let outcomes = payment.takes_batch(&[Stimulus::Fact(cancelled(ORDER)), Stimulus::Fact(reserved(ORDER))]);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.name()).collect::<Vec<_>>(),
        ["dead_lettered", "dead_lettered"]
    );
    assert_eq!((&payment.store.rows, payment.store.called.len()), (&before, called));
}

#[test]
fn every_consumed_fact_is_handled() {
    let resolution = resolved_manually(ORDER, true, 1);
    let facts = [reserved(ORDER), cancelled(ORDER), extended(ORDER, DEADLINE), resolution];
    assert_eq!(
        facts.iter().map(|fact| fact.fact_type().name()).collect::<BTreeSet<_>>(),
        consumed_facts::<PaymentService>()
    );
    for fact in facts {
        let then = ServiceUnderTest::of(PaymentService).receives(fact).has_outcome("done");
        assert_eq!(then.events.len(), 1);
    }
}
