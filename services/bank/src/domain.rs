//! Pure: the states of a charge in the bank's ledger.

use contract::money::Money;
use contract::payment::PaymentFailure;
use saga_core::decider::{Decider, FieldValue};
use saga_core::unit_of_work::Policy;
use serde::{Deserialize, Serialize};

/// Charge requested by a merchant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeRequest {
    /// Amount to capture, at least 1 minor unit.
    pub amount: Money,
    pub token: String,
    /// Purpose, in the merchant's words.
    pub reference: String,
}

/// A charge in the ledger, under the key that the merchant chose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Charge {
    #[default]
    New,
    /// Failed on purpose (`tok_error_once`); the next attempt is decided normally.
    FailedOnce,
    Captured(ChargeRequest),
    /// Nothing was captured, now or later.
    Refused(ChargeRequest, PaymentFailure),
    Refunded(ChargeRequest),
    /// Reversed before it was captured; it never will be.
    Blocked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChargeCommand {
    /// Captures the money unless it exceeds the limit.
    Capture {
        request: ChargeRequest,
        limit_minor: i64,
    },
    /// Refuses the charge (injected fault), unless it was decided before.
    Decline(ChargeRequest),
    Refund,
    /// Refunds a captured charge and blocks any other.
    Reverse,
    /// Blocks a charge that was not decided yet, and leaves any other as it is.
    Close,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ChargeEvent {
    FailedOnce,
    Captured(ChargeRequest),
    Refused(ChargeRequest, PaymentFailure),
    Refunded,
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChargeRejection {
    #[error("there is no such charge")]
    Unknown,
    #[error("the key was used for a charge of another amount, card or reference")]
    KeyReused,
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
            (State::New, Command::Capture { request, .. }) if request.token == "tok_error_once" => {
                Ok(vec![Event::FailedOnce])
            }
            (State::New | State::FailedOnce, Command::Capture { request, limit_minor }) => {
                Ok(vec![match refusal(request, *limit_minor) {
                    Some(reason) => Event::Refused(request.clone(), reason),
                    None => Event::Captured(request.clone()),
                }])
            }
            (State::New | State::FailedOnce, Command::Decline(request)) => {
                Ok(vec![Event::Refused(request.clone(), PaymentFailure::Declined)])
            }
            (State::New | State::FailedOnce, Command::Reverse | Command::Close) => Ok(vec![Event::Blocked]),
            (State::New | State::FailedOnce, Command::Refund) => Err(ChargeRejection::Unknown),

            // A repetition, if it requests the same.
            (
                State::Captured(before) | State::Refused(before, _) | State::Refunded(before),
                Command::Capture { request, .. } | Command::Decline(request),
            ) => {
                if before == request {
                    Ok(vec![])
                } else {
                    Err(ChargeRejection::KeyReused)
                }
            }
            (
                State::Captured(_) | State::Refused(..) | State::Refunded(_) | State::Blocked,
                Command::Close,
            ) => Ok(vec![]),
            (State::Captured(_), Command::Refund | Command::Reverse) => Ok(vec![Event::Refunded]),
            (State::Refunded(_), Command::Refund | Command::Reverse) => Ok(vec![]),
            (State::Refused(..), Command::Reverse) => Ok(vec![]),
            (State::Blocked, Command::Capture { .. } | Command::Decline(_) | Command::Reverse) => Ok(vec![]),
            (State::Refused(..) | State::Blocked, Command::Refund) => Err(ChargeRejection::NothingCaptured),
        }
    }

    fn evolve(&mut self, event: &ChargeEvent) {
        *self = match (std::mem::take(self), event) {
            (_, ChargeEvent::FailedOnce) => Self::FailedOnce,
            (_, ChargeEvent::Captured(request)) => Self::Captured(request.clone()),
            (_, ChargeEvent::Refused(request, reason)) => Self::Refused(request.clone(), *reason),
            (Self::Captured(request), ChargeEvent::Refunded) => Self::Refunded(request),
            (before, ChargeEvent::Refunded) => before,
            (_, ChargeEvent::Blocked) => Self::Blocked,
        };
    }

    fn event_name(event: &ChargeEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let reference = self.request().map_or(FieldValue::Null, |request| request.reference.as_str().into());
        vec![reference, self.status().into()]
    }
}

/// The bank publishes nothing: merchants poll it.
impl<F> Policy<F> for Charge {}

impl Charge {
    #[must_use]
    pub fn status(&self) -> &'static str {
        self.into()
    }

    /// The request; `None` if it was never decided.
    #[must_use]
    pub const fn request(&self) -> Option<&ChargeRequest> {
        match self {
            Self::Captured(request) | Self::Refused(request, _) | Self::Refunded(request) => Some(request),
            Self::New | Self::FailedOnce | Self::Blocked => None,
        }
    }
}

/// Rules of the sandbox: token and amount select the answer.
fn refusal(request: &ChargeRequest, limit_minor: i64) -> Option<PaymentFailure> {
    match request.token.as_str() {
        "tok_declined" => Some(PaymentFailure::Declined),
        "tok_insufficient_funds" => Some(PaymentFailure::InsufficientFunds),
        _ if request.amount.amount_minor > limit_minor => Some(PaymentFailure::LimitExceeded),
        "tok_ok" | "tok_slow" | "tok_error_once" | "tok_lost_answer" => None,
        _ => Some(PaymentFailure::UnknownCard),
    }
}
