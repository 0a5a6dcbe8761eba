//! Pure: what the bank answers to its merchants.

use bank::domain::{Asked, Charge, ChargeRejection};
use bank::policy::Answer;
use contract::money::{Currency, Money};
use contract::payment::PaymentFailure;

use crate::given::{CHARGE, LIMIT_MAJOR, asked, bank, capture, captured, decline, refund, reverse};

#[test]
fn a_repeated_charge_gets_the_first_answer_and_captures_nothing_more() {
    let mut bank = bank();
    assert_eq!(bank.is_asked(capture(asked("tok_ok", 3300))).records(&["Captured"]).reply(), captured(true));
    let again = bank.is_asked(capture(asked("tok_ok", 3300))).changes_nothing();
    assert_eq!(again.reply(), captured(false));
}

#[test]
fn a_key_that_is_used_for_another_charge_is_refused() {
    let mut bank = bank();
    bank.is_asked(capture(asked("tok_ok", 3300)));
    let for_another_order = Asked { reference: "order 2".to_owned(), ..asked("tok_ok", 3300) };
    for other in [asked("tok_ok", 3301), asked("tok_slow", 3300), for_another_order] {
        assert_eq!(bank.is_asked(capture(other)).rejection(), ChargeRejection::KeyReused);
    }
}

#[test]
fn the_token_and_the_amount_choose_the_answer() {
    let limit_minor = LIMIT_MAJOR * 100;
    let refused = |reason| Answer::Refused { reason };
    let cases = [
        ("tok_ok", limit_minor, captured(true)),
        ("tok_ok", limit_minor + 1, refused(PaymentFailure::LimitExceeded)),
        ("tok_slow", 3300, captured(true)),
        ("tok_lost_answer", 3300, captured(true)),
        ("tok_declined", 3300, refused(PaymentFailure::Declined)),
        // The card is asked first, the limit after it.
        ("tok_declined", limit_minor + 1, refused(PaymentFailure::Declined)),
        ("tok_insufficient_funds", limit_minor + 1, refused(PaymentFailure::InsufficientFunds)),
        ("tok_insufficient_funds", 3300, refused(PaymentFailure::InsufficientFunds)),
        ("tok_nobody_knows", 3300, refused(PaymentFailure::Declined)),
        ("tok_error_once", 3300, Answer::Stumbled),
    ];
    for (token, amount, answer) in cases {
        assert_eq!(bank().is_asked(capture(asked(token, amount))).reply(), answer, "{token}");
    }
}

#[test]
fn the_limit_is_in_major_units_of_the_charges_currency() {
    let yen = |amount| Asked { amount: Money::new(amount, Currency::JPY), ..asked("tok_ok", 0) };
    assert_eq!(bank().is_asked(capture(yen(LIMIT_MAJOR))).reply(), captured(true));
    let over = bank().is_asked(capture(yen(LIMIT_MAJOR + 1))).reply();
    assert_eq!(over, Answer::Refused { reason: PaymentFailure::LimitExceeded });
}

#[test]
fn a_charge_that_stumbled_goes_through_at_the_next_try() {
    let mut bank = bank();
    assert_eq!(bank.is_asked(capture(asked("tok_error_once", 3300))).reply(), Answer::Stumbled);
    assert_eq!(bank.is_asked(capture(asked("tok_error_once", 3300))).reply(), captured(true));
}

/// A fault made on purpose must not lie about what was decided before: the first answer is the answer.
#[test]
fn a_charge_that_is_declined_on_purpose_stays_declined_and_one_that_was_captured_stays_captured() {
    let mut bank = bank();
    let declined = Answer::Refused { reason: PaymentFailure::Declined };
    assert_eq!(bank.is_asked(decline(asked("tok_ok", 3300))).records(&["Refused"]).reply(), declined);
    assert_eq!(bank.is_asked(capture(asked("tok_ok", 3300))).changes_nothing().reply(), declined);

    let mut bank = crate::given::bank();
    bank.is_asked(capture(asked("tok_ok", 3300)));
    assert_eq!(bank.is_asked(decline(asked("tok_ok", 3300))).changes_nothing().reply(), captured(false));
    let other = bank.is_asked(decline(asked("tok_ok", 1))).rejection();
    assert_eq!(other, ChargeRejection::KeyReused);
}

#[test]
fn a_charge_is_given_back_once() {
    for back in [refund, reverse] {
        let mut bank = bank();
        bank.is_asked(capture(asked("tok_ok", 3300)));
        assert_eq!(bank.is_asked(back()).records(&["Refunded"]).reply(), Answer::Undone);
        assert_eq!(bank.is_asked(back()).changes_nothing().reply(), Answer::Undone);
    }
}

#[test]
fn a_charge_that_was_given_back_is_not_captured_again() {
    let mut bank = bank();
    bank.is_asked(capture(asked("tok_ok", 3300)));
    bank.is_asked(refund());
    let again = bank.is_asked(capture(asked("tok_ok", 3300))).changes_nothing().reply();
    assert_eq!(again, Answer::Refused { reason: PaymentFailure::Declined });
}

#[test]
fn a_reversal_that_overtakes_its_charge_blocks_it() {
    let mut bank = bank();
    assert_eq!(bank.is_asked(reverse()).records(&["Blocked"]).reply(), Answer::Undone);
    let late = bank.is_asked(capture(asked("tok_ok", 3300))).changes_nothing().reply();
    assert_eq!(late, Answer::Refused { reason: PaymentFailure::Declined });
}

#[test]
fn a_reversal_after_a_stumble_blocks_the_charge() {
    let mut bank = bank();
    bank.is_asked(capture(asked("tok_error_once", 3300)));
    assert_eq!(bank.is_asked(reverse()).records(&["Blocked"]).reply(), Answer::Undone);
    assert_eq!(bank.row::<Charge>(CHARGE), Charge::Blocked);
}

#[test]
fn a_reversal_of_a_refused_charge_has_nothing_to_do() {
    let mut bank = bank();
    bank.is_asked(capture(asked("tok_declined", 3300)));
    assert_eq!(bank.is_asked(reverse()).changes_nothing().reply(), Answer::Undone);
}

#[test]
fn what_was_never_captured_is_not_refunded() {
    assert_eq!(bank().is_asked(refund()).rejection(), ChargeRejection::Unknown);
    let mut refused = bank();
    refused.is_asked(capture(asked("tok_declined", 3300)));
    assert_eq!(refused.is_asked(refund()).rejection(), ChargeRejection::NothingCaptured);
}
