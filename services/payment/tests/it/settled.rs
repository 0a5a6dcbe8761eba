//! Pure: what an operator settles outside: the bank is asked no more, and asked again when that is taken back.

use contract::payment::PaymentFailure;
use payment::domain::Payment;
use payment::ledger::ledger_entry;
use payment::policy::{BankCall, BankTask, GIVE_BACK, PaymentService};
use saga_core::waiting::Task;
use saga_engine::testing::ServiceUnderTest;

use crate::given::{
    ORDER, bank_captured, bank_undone, cancelled, captured, charging, failed, processed, refunded,
    settled_once_cancelled, settled_outside, voided,
};

/// A payment service that is to give an order's money back.
fn refunding() -> (ServiceUnderTest<PaymentService>, Task) {
    let mut payment = captured();
    payment.hears(cancelled(ORDER)).calls(&[GIVE_BACK]);
    let task = payment.open_task();
    (payment, task)
}

fn status(payment: &ServiceUnderTest<PaymentService>) -> &'static str {
    payment.row::<Payment>(ORDER).status()
}

/// The runner asks whether the call is still to be made.
fn asked(payment: &mut ServiceUnderTest<PaymentService>, task: &Task) -> &'static str {
    payment.is_about_to_call(task).outcome.name()
}

fn call(task: &Task) -> BankCall {
    serde_json::from_str::<BankTask>(&task.payload).expect("a call to the bank").call
}

#[test]
fn a_refund_that_was_settled_outside_is_not_asked_for_any_more_and_tells_nobody() {
    let (mut payment, task) = refunding();
    assert_eq!(asked(&mut payment, &task), "wanted");
    payment.hears(settled_outside(ORDER, true, 1)).records(&["Heard", "Settled"]).tells([]).calls(&[]);
    assert_eq!(status(&payment), "SETTLED");
    assert_eq!(asked(&mut payment, &task), "done");
    assert_eq!((payment.kept.tasks.len(), payment.kept.dead.len()), (0, 0));
    let row = payment.row::<Payment>(ORDER);
    let entry = ledger_entry(ORDER, &row, &[]);
    assert!(entry.settled, "{entry:?}");
    // A cancellation that comes again asks for nothing either.
    payment.hears(cancelled(ORDER)).changes_nothing();
}

#[test]
fn what_was_settled_is_asked_for_again_once_that_is_taken_back() {
    let (mut payment, task) = refunding();
    payment.hears(settled_outside(ORDER, true, 1));
    assert_eq!(asked(&mut payment, &task), "done");
    payment.hears(settled_outside(ORDER, false, 2)).records(&["Heard", "Unsettled"]).calls(&[GIVE_BACK]);
    let again = payment.open_task();
    assert_eq!((call(&again), status(&payment)), (BankCall::Refund, "REFUNDING"));
    payment.is_answered(&again, bank_undone()).tells([refunded(ORDER)]);
}

/// A call that has not ended meanwhile goes on: there are not two of them.
#[test]
fn a_call_that_is_still_open_is_not_made_twice() {
    let (mut payment, task) = refunding();
    payment.hears(settled_outside(ORDER, true, 1));
    payment.hears(settled_outside(ORDER, false, 2)).records(&["Heard", "Unsettled"]).calls(&[]);
    assert_eq!(asked(&mut payment, &task), "wanted");
    payment.is_answered(&task, bank_undone()).tells([refunded(ORDER)]);
}

/// The command may come twice, and the second may overtake the first.
#[test]
fn an_older_word_about_a_settlement_has_no_effect_however_late_it_comes() {
    let (mut payment, _) = refunding();
    payment.hears(settled_outside(ORDER, false, 2)).records(&["Heard"]).calls(&[]);
    payment.hears(settled_outside(ORDER, true, 1)).changes_nothing();
    assert_eq!(status(&payment), "REFUNDING");
    payment.hears(settled_outside(ORDER, true, 3)).records(&["Heard", "Settled"]);
    payment.hears(settled_outside(ORDER, true, 3)).changes_nothing();
    payment.hears(settled_outside(ORDER, false, 2)).changes_nothing();
    assert_eq!(status(&payment), "SETTLED");
}

/// The call was under way when it was settled: the money is back twice, and everybody is told of this once.
#[test]
fn money_that_goes_back_all_the_same_is_told() {
    let (mut payment, task) = refunding();
    payment.hears(settled_outside(ORDER, true, 1));
    payment.is_answered(&task, bank_undone()).records(&["Refunded"]).tells([refunded(ORDER)]);
    assert_eq!(status(&payment), "REFUNDED");
    payment.hears(settled_outside(ORDER, false, 2)).records(&["Heard"]).calls(&[]);
}

/// Nobody need look at a call that fails for good when it was settled meanwhile.
#[test]
fn a_settled_call_that_fails_for_good_is_no_dead_letter() {
    let (mut payment, task) = refunding();
    payment.hears(settled_outside(ORDER, true, 1));
    payment.gives_up(&task, "the account is closed").records(&["Stopped"]);
    assert_eq!((payment.kept.tasks.len(), payment.kept.dead.len()), (0, 0));
    payment.hears(settled_outside(ORDER, false, 2)).calls(&[GIVE_BACK]);
}

/// Money that nobody knew of when it was settled goes back.
#[test]
fn a_charge_that_is_captured_after_all_goes_back_although_it_was_settled() {
    let mut payment = charging();
    let charge = payment.open_task();
    payment.hears(cancelled(ORDER)).records(&["Doomed"]);
    payment.hears(settled_outside(ORDER, true, 1)).records(&["Heard", "Settled"]);
    let captured = payment.is_answered(&charge, bank_captured());
    captured.records(&["Captured", "RefundRequested"]).tells([processed(ORDER)]).calls(&[GIVE_BACK]);
}

/// A charge that is wanted, and one that has ended, owe nobody anything.
#[test]
fn what_is_not_owed_cannot_be_settled() {
    let mut payment = charging();
    payment.hears(settled_outside(ORDER, true, 1)).records(&["Heard"]).calls(&[]);
    assert_eq!(status(&payment), "CHARGING");
    payment.hears(cancelled(ORDER)).records(&["Doomed"]);
}

/// Admin may hear of a cancellation long before payment does: what was settled then is not given back once more.
#[test]
fn a_settlement_that_overtakes_the_cancellation_holds_when_that_comes() {
    let mut payment = captured();
    payment.hears(settled_once_cancelled(ORDER, true, 1)).records(&["Heard"]).calls(&[]);
    payment.hears(cancelled(ORDER)).records(&["RefundRequested", "Settled"]);
    let refund = payment.open_task();
    assert_eq!((status(&payment), asked(&mut payment, &refund)), ("SETTLED", "done"));
    // Taken back, it is owed like any other.
    payment
        .hears(settled_once_cancelled(ORDER, false, 2))
        .records(&["Heard", "Unsettled"])
        .calls(&[GIVE_BACK]);
}

#[test]
fn a_settlement_that_was_taken_back_before_the_cancellation_came_holds_nothing_up() {
    let mut payment = captured();
    payment.hears(settled_once_cancelled(ORDER, false, 2)).records(&["Heard"]);
    payment.hears(settled_once_cancelled(ORDER, true, 1)).changes_nothing();
    payment.hears(cancelled(ORDER)).records(&["RefundRequested"]).calls(&[GIVE_BACK]);
}

/// A charge that was wanted when somebody settled the saga is undone as ever, should the order be cancelled later.
#[test]
fn what_is_cancelled_only_after_it_was_settled_is_given_back() {
    let mut payment = captured();
    payment.hears(settled_outside(ORDER, true, 1)).records(&["Heard"]);
    payment.hears(cancelled(ORDER)).records(&["RefundRequested"]).calls(&[GIVE_BACK]);
}

/// A reversal is owed like a refund.
#[test]
fn a_reversal_is_settled_and_taken_up_again() {
    let mut payment = charging();
    payment.gives_up(&payment.open_task(), "no answer").tells([failed(ORDER, PaymentFailure::Exhausted)]);
    let reversal = payment.open_task();
    payment.hears(settled_outside(ORDER, true, 1)).records(&["Heard", "Settled"]);
    assert_eq!(asked(&mut payment, &reversal), "done");
    payment.hears(settled_outside(ORDER, false, 2)).calls(&[GIVE_BACK]);
    let again = payment.open_task();
    assert_eq!(call(&again), BankCall::Reverse);
    payment.is_answered(&again, bank_undone()).tells([voided(ORDER)]);
}
