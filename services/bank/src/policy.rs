//! Pure: what the bank answers to its merchants.

use serde::{Deserialize, Serialize};
use shared::books::{ChargeEntry, ChargeState};
use shared::contract::PaymentFailure;
use shared::money::Money;
use shared::row::{RowKey, RowKind};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{Asked, Charge, ChargeCommand, ChargeRejection};

/// The bank.
pub struct BankService {
    /// Charges over this many major units are declined.
    pub limit_major: i64,
}

/// What a merchant asks of a charge.
#[derive(Debug, Clone)]
pub struct Command {
    /// The charge: the merchant's idempotency key.
    pub charge: Uuid,
    /// What.
    pub wish: Wish,
}

/// What can be asked.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Capture the money.
    Capture(Asked),
    /// Decline to, on purpose.
    Decline(Asked),
    /// Give it back.
    Refund,
    /// Give it back if it was captured, and never capture it otherwise.
    Reverse,
}

/// What the bank answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Answer {
    /// Captured, now or when this was first asked.
    Captured {
        /// The bank's id of the charge.
        reference: String,
        /// Whether this very request captured it.
        #[serde(skip)]
        is_first: bool,
    },
    /// Refused.
    Refused {
        /// Why.
        reason: PaymentFailure,
    },
    /// Nothing is captured any more.
    Undone,
    /// The bank stumbled; ask again.
    #[default]
    Stumbled,
}

impl Service for BankService {
    const NAME: &'static str = crate::NAME;
    type Command = Command;
    type Reply = Answer;
    type Rejection = ChargeRejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Charge>()]
    }

    fn steps() -> &'static [Step] {
        &[]
    }

    fn reads(&self, heard: &Heard<'_, Command>) -> Vec<RowKey> {
        match heard {
            Heard::Command(command) => vec![RowKey::of::<Charge>(command.charge)],
            Heard::Message(..) | Heard::Called { .. } | Heard::Due(_) => vec![],
        }
    }

    fn react(
        &self,
        heard: &Heard<'_, Command>,
        unit: &mut Unit<'_>,
    ) -> Result<Answer, Refusal<ChargeRejection>> {
        match heard {
            Heard::Command(command) => self.answer(command, unit).map_err(Refusal::Rejected),
            Heard::Message(..) | Heard::Called { .. } | Heard::Due(_) => {
                Err(Refusal::Broken("the bank hears merchants only".to_owned()))
            }
        }
    }
}

impl BankService {
    fn answer(&self, command: &Command, unit: &mut Unit<'_>) -> Result<Answer, ChargeRejection> {
        let charge = command.charge;
        let wish = match &command.wish {
            Wish::Capture(asked) => {
                let limit_minor =
                    self.limit_major.saturating_mul(Money::minor_per_major(asked.amount.currency));
                ChargeCommand::Capture { asked: asked.clone(), limit_minor }
            }
            Wish::Decline(asked) => ChargeCommand::Decline(asked.clone()),
            Wish::Refund => ChargeCommand::Refund,
            Wish::Reverse => ChargeCommand::Reverse,
        };
        let is_first = unit.decide::<Charge>(charge, &wish)?;
        Ok(match (&command.wish, unit.row::<Charge>(charge)) {
            (Wish::Refund | Wish::Reverse, _) => Answer::Undone,
            (Wish::Capture(_) | Wish::Decline(_), Charge::New | Charge::Stumbled) => Answer::Stumbled,
            (Wish::Capture(_) | Wish::Decline(_), Charge::Captured(_)) => {
                Answer::Captured { reference: reference(charge), is_first }
            }
            (Wish::Capture(_) | Wish::Decline(_), Charge::Refused(_, reason)) => {
                Answer::Refused { reason: *reason }
            }
            // What was given back or blocked is not captured again.
            (Wish::Capture(_) | Wish::Decline(_), Charge::Refunded(_) | Charge::Blocked) => {
                Answer::Refused { reason: PaymentFailure::Declined }
            }
        })
    }
}

/// The bank's id of a charge.
#[must_use]
pub fn reference(charge: Uuid) -> String {
    format!("ch_{}", charge.simple())
}

/// What an auditor gets to see of a charge.
#[must_use]
pub fn book_entry(id: Uuid, charge: &Charge) -> ChargeEntry {
    let state = match charge {
        Charge::Captured(_) => ChargeState::Captured,
        Charge::Refunded(_) => ChargeState::Refunded,
        Charge::New | Charge::Stumbled | Charge::Refused(..) | Charge::Blocked => ChargeState::None,
    };
    let asked = charge.asked();
    ChargeEntry {
        charge: id,
        reference: asked.map(|asked| asked.reference.clone()).unwrap_or_default(),
        state,
        amount: asked.map(|asked| asked.amount),
    }
}
