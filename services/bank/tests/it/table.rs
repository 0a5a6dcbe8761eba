//! Pure: each state × command of charges, printed.
//!
//! The lists are complete: a new variant fails to compile in the `match` that walks them.

use std::iter::successors;

use bank::domain::{Charge, ChargeCommand};
use contract::payment::PaymentFailure;

use crate::given::{LIMIT_MAJOR, request};
use saga_engine::testing::decider::{Names, table};

/// Amount of each charge, where it does not matter.
const TOTAL_MINOR: i64 = 3300;

/// Every token of the sandbox, and an unknown one.
pub const TOKENS: [&str; 7] = [
    "tok_ok",
    "tok_slow",
    "tok_lost_answer",
    "tok_error_once",
    "tok_declined",
    "tok_insufficient_funds",
    "tok_unknown",
];

#[test]
fn charge_state_table() {
    let names = Names {
        state: |charge: &Charge| match charge {
            Charge::Refused(_, reason) => format!("{} ({})", charge.status(), reason.as_str()),
            Charge::New
            | Charge::FailedOnce
            | Charge::Captured(_)
            | Charge::Refunded(_)
            | Charge::Blocked => charge.status().to_owned(),
        },
        command: |kind| match kind {
            ChargeCommand::Capture { request, .. } if request.amount.amount_minor == TOTAL_MINOR => {
                format!("Capture({})", request.token)
            }
            ChargeCommand::Capture { request, .. } => format!("Capture({})", request.amount),
            ChargeCommand::Decline(request) => format!("Decline({})", request.token),
            ChargeCommand::Refund => "Refund".to_owned(),
            ChargeCommand::Reverse => "Reverse".to_owned(),
            ChargeCommand::Close => "Close".to_owned(),
        },
        rejection: |no| format!("{no:?}"),
    };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("charge", table(&states(), &commands(), &names));
    });
}

/// Each decided charge is of [`TOTAL_MINOR`] with `tok_ok`.
fn states() -> Vec<Charge> {
    let next = |state: &Charge| match state {
        Charge::New => Some(Charge::FailedOnce),
        Charge::FailedOnce => Some(Charge::Captured(request("tok_ok", TOTAL_MINOR))),
        Charge::Captured(request) => Some(Charge::Refused(request.clone(), PaymentFailure::Declined)),
        Charge::Refused(request, _) => Some(Charge::Refunded(request.clone())),
        Charge::Refunded(_) => Some(Charge::Blocked),
        Charge::Blocked => None,
    };
    successors(Some(Charge::New), next).collect()
}

/// A capture of [`TOTAL_MINOR`] with each card, one at the limit, one over it, and the other commands with
/// `tok_ok`.
pub fn commands() -> Vec<ChargeCommand> {
    let limit_minor = LIMIT_MAJOR * 100;
    let capture = |token, amount| ChargeCommand::Capture { request: request(token, amount), limit_minor };
    let captures = TOKENS.map(|token| capture(token, TOTAL_MINOR)).into_iter();
    let captures = captures.chain([capture("tok_ok", limit_minor), capture("tok_ok", limit_minor + 1)]);
    let next = |kind: &ChargeCommand| match kind {
        ChargeCommand::Capture { .. } => Some(ChargeCommand::Decline(request("tok_ok", TOTAL_MINOR))),
        ChargeCommand::Decline(_) => Some(ChargeCommand::Refund),
        ChargeCommand::Refund => Some(ChargeCommand::Reverse),
        ChargeCommand::Reverse => Some(ChargeCommand::Close),
        ChargeCommand::Close => None,
    };
    let declined = ChargeCommand::Decline(request("tok_ok", TOTAL_MINOR));
    captures.chain(successors(Some(declined), next)).collect()
}
