//! Pure: what may happen to a charge in the bank's ledger.

use contract::money::Money;
use contract::payment::PaymentFailure;
use saga_core::decider::{Decider, FieldValue};
use saga_core::unit_of_work::Policy;
use serde::{Deserialize, Serialize};

/// What a merchant asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The money to take, 1 minor unit or more.
    pub amount: Money,
    /// From which card.
    pub token: String,
    /// What for, in the merchant's words.
    pub reference: String,
}

/// A charge in the ledger, under the key that its merchant chose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Charge {
    /// Never asked for.
    #[default]
    New,
    /// Asked for, and stumbled over: the next try goes through (`tok_error_once`).
    Stumbled,
    /// The money was taken, and the bank has it.
    Captured(Asked),
    /// Nothing was taken, and never will be.
    Refused(Asked, PaymentFailure),
    /// Captured and given back.
    Refunded(Asked),
    /// Reversed before it was captured: it never will be.
    Blocked,
}

/// What may be asked of a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChargeCommand {
    /// Capture the money, if it is not over this limit in minor units.
    Capture {
        /// What is asked.
        asked: Asked,
        /// The limit in minor units.
        limit_minor: i64,
    },
    /// Decline it, unless it was decided before.
    Decline(Asked),
    /// Give it back.
    Refund,
    /// Give it back if it was captured, and never capture it otherwise.
    Reverse,
}

/// What happened to a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ChargeEvent {
    /// The bank stumbled.
    Stumbled,
    /// The money was captured.
    Captured(Asked),
    /// The bank refused.
    Refused(Asked, PaymentFailure),
    /// The money went back.
    Refunded,
    /// It will never be captured.
    Blocked,
}

/// Why a charge says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChargeRejection {
    /// There is no such charge.
    #[error("there is no such charge")]
    Unknown,
    /// The key was used for another charge.
    #[error("the key was used for a charge of another amount, card or reference")]
    KeyReused,
    /// Nothing was captured that could go back.
    #[error("nothing was captured that could go back")]
    NothingCaptured,
}

impl Decider for Charge {
    const KIND: &'static str = "charge";
    const FIELDS: &'static [&'static str] = &["reference", "status"];
    type Command = ChargeCommand;
    type Event = ChargeEvent;
    type Rejection = ChargeRejection;

    fn decide(&self, command: &ChargeCommand) -> Result<Vec<ChargeEvent>, ChargeRejection> {
        use {Charge as State, ChargeCommand as Command, ChargeEvent as Event};
        match (self, command) {
            (State::New, Command::Capture { asked, .. }) if asked.token == "tok_error_once" => {
                Ok(vec![Event::Stumbled])
            }
            (State::New | State::Stumbled, Command::Capture { asked, limit_minor }) => {
                Ok(vec![match refusal(asked, *limit_minor) {
                    Some(reason) => Event::Refused(asked.clone(), reason),
                    None => Event::Captured(asked.clone()),
                }])
            }
            (State::New | State::Stumbled, Command::Decline(asked)) => {
                Ok(vec![Event::Refused(asked.clone(), PaymentFailure::Declined)])
            }
            (State::New | State::Stumbled, Command::Reverse) => Ok(vec![Event::Blocked]),
            (State::New | State::Stumbled, Command::Refund) => Err(ChargeRejection::Unknown),

            // A repetition, as long as it asks for the same.
            (
                State::Captured(before) | State::Refused(before, _) | State::Refunded(before),
                Command::Capture { asked, .. } | Command::Decline(asked),
            ) => {
                if before == asked {
                    Ok(vec![])
                } else {
                    Err(ChargeRejection::KeyReused)
                }
            }
            (State::Captured(_), Command::Refund | Command::Reverse) => Ok(vec![Event::Refunded]),
            (State::Refunded(_), Command::Refund | Command::Reverse) => Ok(vec![]),
            (State::Refused(..), Command::Reverse) => Ok(vec![]),
            (State::Blocked, Command::Capture { .. } | Command::Decline(_) | Command::Reverse) => Ok(vec![]),
            (State::Refused(..) | State::Blocked, Command::Refund) => Err(ChargeRejection::NothingCaptured),
        }
    }

    fn evolve(&mut self, event: &ChargeEvent) {
        *self = match (std::mem::take(self), event) {
            (_, ChargeEvent::Stumbled) => Self::Stumbled,
            (_, ChargeEvent::Captured(asked)) => Self::Captured(asked.clone()),
            (_, ChargeEvent::Refused(asked, reason)) => Self::Refused(asked.clone(), *reason),
            (Self::Captured(asked), ChargeEvent::Refunded) => Self::Refunded(asked),
            (before, ChargeEvent::Refunded) => before,
            (_, ChargeEvent::Blocked) => Self::Blocked,
        };
    }

    fn event_name(event: &ChargeEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let reference = self.asked().map_or(FieldValue::Null, |asked| asked.reference.as_str().into());
        vec![reference, self.status().into()]
    }
}

/// The bank tells nobody anything: merchants ask.
impl<F> Policy<F> for Charge {}

impl Charge {
    /// The status in the API.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Stumbled => "STUMBLED",
            Self::Captured(_) => "CAPTURED",
            Self::Refused(..) => "REFUSED",
            Self::Refunded(_) => "REFUNDED",
            Self::Blocked => "BLOCKED",
        }
    }

    /// What was asked for.
    #[must_use]
    pub const fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Captured(asked) | Self::Refused(asked, _) | Self::Refunded(asked) => Some(asked),
            Self::New | Self::Stumbled | Self::Blocked => None,
        }
    }
}

/// The sandbox's rules: the token and the amount decide.
fn refusal(asked: &Asked, limit_minor: i64) -> Option<PaymentFailure> {
    match asked.token.as_str() {
        "tok_declined" => Some(PaymentFailure::Declined),
        "tok_insufficient_funds" => Some(PaymentFailure::InsufficientFunds),
        _ if asked.amount.amount_minor > limit_minor => Some(PaymentFailure::LimitExceeded),
        "tok_ok" | "tok_slow" | "tok_error_once" | "tok_lost_answer" => None,
        // A card that nobody knows.
        _ => Some(PaymentFailure::Declined),
    }
}
