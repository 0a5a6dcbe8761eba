//! Pure: the handlers of the bank.

use bank::domain::{Charge, ChargeRejection, ChargeRequest};
use bank::service::Answer;
use contract::money::{Currency, Money};
use contract::payment::PaymentFailure;

use crate::given::{CHARGE, LIMIT_MAJOR, bank, capture, captured, close, decline, refund, request, reverse};

#[test]
fn repeated_charge_gets_first_answer_and_captures_nothing() {
    let mut bank = bank();
    assert_eq!(
        bank.executes(capture(request("tok_ok", 3300))).records(&["Captured"]).reply(),
        captured(true)
    );
    let again = bank.executes(capture(request("tok_ok", 3300))).changes_nothing();
    assert_eq!(again.reply(), captured(false));
}

#[test]
fn idempotency_key_of_other_charge_is_rejected() {
    let mut bank = bank();
    bank.executes(capture(request("tok_ok", 3300)));
    let for_another_order = ChargeRequest { reference: "order 2".to_owned(), ..request("tok_ok", 3300) };
    for other in [request("tok_ok", 3301), request("tok_slow", 3300), for_another_order] {
        assert_eq!(bank.executes(capture(other)).rejection(), ChargeRejection::KeyReused);
    }
}

#[test]
fn token_and_amount_select_answer() {
    let limit_minor = LIMIT_MAJOR * 100;
    let refused = |reason| Answer::Refused { reason };
    let cases = [
        ("tok_ok", limit_minor, captured(true)),
        ("tok_ok", limit_minor + 1, refused(PaymentFailure::LimitExceeded)),
        ("tok_slow", 3300, captured(true)),
        ("tok_lost_answer", 3300, captured(true)),
        ("tok_declined", 3300, refused(PaymentFailure::Declined)),
        // The token is checked before the limit.
        ("tok_declined", limit_minor + 1, refused(PaymentFailure::Declined)),
        ("tok_insufficient_funds", limit_minor + 1, refused(PaymentFailure::InsufficientFunds)),
        ("tok_insufficient_funds", 3300, refused(PaymentFailure::InsufficientFunds)),
        ("tok_nobody_knows", 3300, refused(PaymentFailure::UnknownCard)),
        ("tok_error_once", 3300, Answer::FailedOnce),
    ];
    for (token, amount, answer) in cases {
        assert_eq!(bank().executes(capture(request(token, amount))).reply(), answer, "{token}");
    }
}

#[test]
fn limit_is_in_major_units_of_charge_currency() {
    let yen = |amount| ChargeRequest { amount: Money::new(amount, Currency::JPY), ..request("tok_ok", 0) };
    assert_eq!(bank().executes(capture(yen(LIMIT_MAJOR))).reply(), captured(true));
    let over = bank().executes(capture(yen(LIMIT_MAJOR + 1))).reply();
    assert_eq!(over, Answer::Refused { reason: PaymentFailure::LimitExceeded });
}

#[test]
fn charge_that_failed_once_is_captured_by_next_attempt() {
    let mut bank = bank();
    assert_eq!(bank.executes(capture(request("tok_error_once", 3300))).reply(), Answer::FailedOnce);
    assert_eq!(bank.executes(capture(request("tok_error_once", 3300))).reply(), captured(true));
}

/// An injected fault must not contradict an earlier decision.
#[test]
fn decline_fault_does_not_change_decided_charge() {
    let mut bank = bank();
    let declined = Answer::Refused { reason: PaymentFailure::Declined };
    assert_eq!(bank.executes(decline(request("tok_ok", 3300))).records(&["Refused"]).reply(), declined);
    assert_eq!(bank.executes(capture(request("tok_ok", 3300))).changes_nothing().reply(), declined);

    let mut bank = crate::given::bank();
    bank.executes(capture(request("tok_ok", 3300)));
    assert_eq!(bank.executes(decline(request("tok_ok", 3300))).changes_nothing().reply(), captured(false));
    let other = bank.executes(decline(request("tok_ok", 1))).rejection();
    assert_eq!(other, ChargeRejection::KeyReused);
}

#[test]
fn charge_is_refunded_once() {
    for back in [refund, reverse] {
        let mut bank = bank();
        bank.executes(capture(request("tok_ok", 3300)));
        assert_eq!(bank.executes(back()).records(&["Refunded"]).reply(), Answer::Undone);
        assert_eq!(bank.executes(back()).changes_nothing().reply(), Answer::Undone);
    }
}

#[test]
fn refunded_charge_is_not_captured_again() {
    let mut bank = bank();
    bank.executes(capture(request("tok_ok", 3300)));
    bank.executes(refund());
    let again = bank.executes(capture(request("tok_ok", 3300))).changes_nothing().reply();
    assert_eq!(again, Answer::Refused { reason: PaymentFailure::Declined });
}

#[test]
fn reversal_before_charge_blocks_it() {
    let mut bank = bank();
    assert_eq!(bank.executes(reverse()).records(&["Blocked"]).reply(), Answer::Undone);
    let late = bank.executes(capture(request("tok_ok", 3300))).changes_nothing().reply();
    assert_eq!(late, Answer::Refused { reason: PaymentFailure::Declined });
}

#[test]
fn reversal_blocks_charge_that_failed_once() {
    let mut bank = bank();
    bank.executes(capture(request("tok_error_once", 3300)));
    assert_eq!(bank.executes(reverse()).records(&["Blocked"]).reply(), Answer::Undone);
    assert_eq!(bank.row::<Charge>(CHARGE), Charge::Blocked);
}

#[test]
fn reversal_of_refused_charge_changes_nothing() {
    let mut bank = bank();
    bank.executes(capture(request("tok_declined", 3300)));
    assert_eq!(bank.executes(reverse()).changes_nothing().reply(), Answer::Undone);
}

#[test]
fn charge_never_captured_is_not_refunded() {
    assert_eq!(bank().executes(refund()).rejection(), ChargeRejection::Unknown);
    let mut refused = bank();
    refused.executes(capture(request("tok_declined", 3300)));
    assert_eq!(refused.executes(refund()).rejection(), ChargeRejection::NothingCaptured);
}

#[test]
fn closed_charge_answers_with_its_outcome_and_stays_as_it_is() {
    let mut bank = bank();
    bank.executes(capture(request("tok_ok", 3300)));
    assert_eq!(bank.executes(close()).changes_nothing().reply(), captured(false));
    bank.executes(refund());
    assert_eq!(bank.executes(close()).changes_nothing().reply(), Answer::Undone);

    let mut refused = crate::given::bank();
    refused.executes(capture(request("tok_declined", 3300)));
    let declined = Answer::Refused { reason: PaymentFailure::Declined };
    assert_eq!(refused.executes(close()).changes_nothing().reply(), declined);
}

/// The answer holds for ever: a request that is still under way captures nothing.
#[test]
fn charge_closed_before_it_was_decided_is_blocked() {
    for before in [None, Some(capture(request("tok_error_once", 3300)))] {
        let mut bank = bank();
        before.into_iter().for_each(|command| drop(bank.executes(command)));
        assert_eq!(bank.executes(close()).records(&["Blocked"]).reply(), Answer::Undone);
        let late = bank.executes(capture(request("tok_ok", 3300))).changes_nothing().reply();
        assert_eq!(late, Answer::Refused { reason: PaymentFailure::Declined });
    }
}
