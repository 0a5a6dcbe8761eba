//! Pure: what every state of a charge answers to every command, printed.
//!
//! The lists are complete by construction: a new variant stops the build in the `match` that walks them.

use std::iter::successors;

use bank::domain::{Charge, ChargeCommand};
use contract::payment::PaymentFailure;

use crate::given::{LIMIT_MAJOR, asked};
use saga_engine::testing::decider::{Names, table};

/// What is asked for, where the amount does not matter.
const TOTAL_MINOR: i64 = 3300;

/// Every token of the sandbox, and one that nobody knows.
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
fn every_state_of_a_charge_answers_every_command() {
    let names = Names {
        state: |charge: &Charge| match charge {
            Charge::Refused(_, reason) => format!("{} ({})", charge.status(), reason.as_str()),
            Charge::New | Charge::Stumbled | Charge::Captured(_) | Charge::Refunded(_) | Charge::Blocked => {
                charge.status().to_owned()
            }
        },
        command: |kind| match kind {
            ChargeCommand::Capture { asked, .. } if asked.amount.amount_minor == TOTAL_MINOR => {
                format!("Capture({})", asked.token)
            }
            ChargeCommand::Capture { asked, .. } => format!("Capture({})", asked.amount),
            ChargeCommand::Decline(asked) => format!("Decline({})", asked.token),
            ChargeCommand::Refund => "Refund".to_owned(),
            ChargeCommand::Reverse => "Reverse".to_owned(),
        },
        rejection: |no| format!("{no:?}"),
    };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("charge", table(&states(), &commands(), &names));
    });
}

/// The charges that were asked for anything were asked for [`TOTAL_MINOR`] from `tok_ok`.
fn states() -> Vec<Charge> {
    let next = |state: &Charge| match state {
        Charge::New => Some(Charge::Stumbled),
        Charge::Stumbled => Some(Charge::Captured(asked("tok_ok", TOTAL_MINOR))),
        Charge::Captured(asked) => Some(Charge::Refused(asked.clone(), PaymentFailure::Declined)),
        Charge::Refused(asked, _) => Some(Charge::Refunded(asked.clone())),
        Charge::Refunded(_) => Some(Charge::Blocked),
        Charge::Blocked => None,
    };
    successors(Some(Charge::New), next).collect()
}

/// A capture of [`TOTAL_MINOR`] from each card, one at the limit and one over it from `tok_ok`, and the rest, of which
/// the refusal on purpose is of `tok_ok` too.
pub fn commands() -> Vec<ChargeCommand> {
    let limit_minor = LIMIT_MAJOR * 100;
    let capture = |token, amount| ChargeCommand::Capture { asked: asked(token, amount), limit_minor };
    let captures = TOKENS.map(|token| capture(token, TOTAL_MINOR)).into_iter();
    let captures = captures.chain([capture("tok_ok", limit_minor), capture("tok_ok", limit_minor + 1)]);
    let next = |kind: &ChargeCommand| match kind {
        ChargeCommand::Capture { .. } => Some(ChargeCommand::Decline(asked("tok_ok", TOTAL_MINOR))),
        ChargeCommand::Decline(_) => Some(ChargeCommand::Refund),
        ChargeCommand::Refund => Some(ChargeCommand::Reverse),
        ChargeCommand::Reverse => None,
    };
    let declined = ChargeCommand::Decline(asked("tok_ok", TOTAL_MINOR));
    captures.chain(successors(Some(declined), next)).collect()
}
