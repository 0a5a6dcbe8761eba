//! Pure: refunds and reversals: money that is owed is never dropped.

use contract::payment::{PaymentFailure, RefundAudited};
use jiff::SignedDuration;
use payment::bank_task::{BankCall, REFUND};
use payment::domain::{Payment, PaymentRejection};
use payment::service::{PaymentService, Refund};
use saga_core::dead_letter::{DeadLetterMessage, ReplayRequested};
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_engine::testing::{ATTEMPTS, ServiceUnderTest, Stimulus};

use crate::given::{
    DEADLINE, ORDER, bank_captured, bank_refused, bank_undone, call, cancelled, captured, charging, context,
    processed, refunded,
};

#[test]
fn refund_and_reversal_have_no_deadline() {
    for mut payment in [refunding(), reversing()] {
        payment.now = DEADLINE + SignedDuration::from_hours(1000);
        payment.checks_task(&payment.open_task()).has_outcome("task_needed").changes_nothing();
    }
}

#[test]
fn failed_refund_is_dead_lettered() {
    let mut payment = captured();
    payment.receives(cancelled(ORDER));
    payment
        .gives_up(&payment.open_task(), "timed out")
        .is_dead_lettered(REFUND, "cannot be given back: timed out");
    let dead_letter = payment.store.dead.first().expect("a dead letter");
    assert_eq!((dead_letter.saga, dead_letter.attempts), (Some(ORDER), ATTEMPTS));
    assert_eq!(payment.row::<Payment>(ORDER).status(), "REFUNDING", "the money is still owed");
}

/// Money owed is never dropped: the dead letter tells the operator why the bank refused.
#[test]
fn refund_with_final_error_is_dead_lettered_at_once_with_reason() {
    let mut payment = captured();
    payment.receives(cancelled(ORDER));
    let task = payment.open_task();
    let why = "the bank answered 409 Conflict: the account of the customer is closed";
    payment.call_fails_finally(&task, why).is_dead_lettered(REFUND, why);
    let dead_letter = payment.store.dead.first().expect("a dead letter");
    assert_eq!((dead_letter.attempts, dead_letter.message_id, dead_letter.saga), (1, task.id, Some(ORDER)));
    assert_eq!(dead_letter.reason, format!("the money of order {ORDER} cannot be given back: {why}"));
    assert_eq!(payment.row::<Payment>(ORDER).status(), "REFUNDING", "the money is still owed");
    payment.receives(cancelled(ORDER)).changes_nothing();
}

/// Laws 4 and 8: once the customer has another account, the same refund is made.
#[test]
fn replayed_refund_keeps_its_key_and_is_published_once() {
    let mut payment = captured();
    payment.receives(cancelled(ORDER));
    let task = payment.open_task();
    payment.call_fails_finally(&task, "closed").is_dead_lettered(REFUND, "closed");
    let dead_letter = payment.store.dead[0].id;
    let (service, edited) = ("payment".to_owned(), None);
    let replay = |revision| {
        let service = service.clone();
        let edited = edited.clone();
        DeadLetterMessage::ReplayRequested(ReplayRequested { dead_letter, service, revision, edited })
    };
    payment.receives_operator_command(replay(1)).has_outcome("done").changes_nothing();
    let again = payment.open_task();
    assert_eq!((again.id, call(&again)), (task.id, BankCall::Refund));
    payment.receives_operator_command(replay(2)).has_outcome("done").changes_nothing();
    payment.gets_result(&again, bank_undone()).publishes([refunded(ORDER)]).calls(&[]);
    assert_eq!((payment.store.tasks.len(), payment.store.dead.len()), (0, 1));
    payment.gets_result(&again, bank_undone()).has_outcome("duplicate").changes_nothing();
}

/// Guarantee 7: an outage of the bank, however long, neither fails a payment nor dead-letters a refund.
#[test]
fn outage_of_bank_consumes_no_attempts() {
    for mut payment in [charging(), refunding()] {
        let before = payment.row::<Payment>(ORDER);
        for _ in 0..20 * ATTEMPTS {
            let away = FailedAttempt::new(FailureKind::Outage, "the bank does not answer");
            payment.takes(Stimulus::Called(payment.open_task(), Err(away))).has_outcome("retried");
        }
        assert_eq!((payment.row::<Payment>(ORDER), payment.open_task().attempts), (before, 0));
        assert_eq!(payment.store.dead, []);
    }
}

#[test]
fn failed_reversal_is_dead_lettered() {
    let mut payment = charging();
    payment.gives_up(&payment.open_task(), "timed out");
    payment
        .gives_up(&payment.open_task(), "timed out")
        .is_dead_lettered(REFUND, "cannot be given back: timed out");
}

#[test]
fn cancellation_after_operator_refund_does_not_refund_again() {
    let mut payment = captured();
    payment.executes(Refund { order: ORDER, operator: None }).publishes([]).calls(&[REFUND]);
    payment.executes(Refund { order: ORDER, operator: None }).has_outcome("done").changes_nothing();
    payment.receives(cancelled(ORDER)).changes_nothing();
    payment.gets_result(&payment.open_task(), bank_undone()).publishes([refunded(ORDER)]);
    payment.receives(cancelled(ORDER)).changes_nothing();
}

/// Entries of the audit log come from the facts of the change itself: a crash loses both or none.
#[test]
fn refund_by_operator_is_audited_once() {
    let mut payment = captured();
    let refund = Refund { order: ORDER, operator: Some("oscar".to_owned()) };
    let audited = RefundAudited { order: ORDER, amount: context().total, operator: "oscar".to_owned() };
    payment.executes(refund.clone()).publishes([audited.into()]).calls(&[REFUND]);
    payment.executes(refund).changes_nothing();
}

#[test]
fn payment_without_capture_is_not_refunded() {
    let refund = Refund { order: ORDER, operator: None };
    assert_eq!(
        ServiceUnderTest::of(PaymentService).executes(refund.clone()).rejection(),
        PaymentRejection::Unknown
    );
    assert_eq!(charging().executes(refund.clone()).rejection(), PaymentRejection::NothingCaptured);

    let mut declined = charging();
    declined.gets_result(&declined.open_task(), bank_refused(PaymentFailure::Declined));
    assert_eq!(declined.executes(refund.clone()).rejection(), PaymentRejection::NothingCaptured);
}

#[test]
fn refund_with_contradictory_answer_is_dead_lettered() {
    let mut payment = captured();
    payment.receives(cancelled(ORDER));
    payment.gets_result(&payment.open_task(), bank_captured()).is_dead_lettered(REFUND, "the bank answered");
}

#[test]
fn failure_under_expired_lease_counts_no_attempt() {
    let mut payment = charging();
    let lapsed = payment.open_task();
    payment.store.tasks.entry(lapsed.id).and_modify(|task| task.claim += 1);
    let failure =
        Stimulus::Called(lapsed.clone(), Err(FailedAttempt::new(FailureKind::Transient, "timed out")));
    payment.takes(failure).has_outcome("duplicate").changes_nothing();
    assert_eq!(payment.open_task().attempts, 0);
    // The answer counts all the same: there is only one, whoever made the call.
    payment.gets_result(&lapsed, bank_captured()).publishes([processed(ORDER)]);
}

/// Captured payment of a cancelled order.
fn refunding() -> ServiceUnderTest<PaymentService> {
    let mut payment = captured();
    payment.receives(cancelled(ORDER));
    payment
}

/// Payment whose charge was given up.
fn reversing() -> ServiceUnderTest<PaymentService> {
    let mut payment = charging();
    payment.gives_up(&payment.open_task(), "timed out");
    payment
}
