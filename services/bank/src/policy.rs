//! Pure: what the bank answers to its merchants.

use std::convert::Infallible;

use contract::money::Money;
use contract::payment::PaymentFailure;
use contract::reconciliation::{ChargeEntry, ChargeState};
use saga_core::UnitOfWork;
use saga_core::row::{PastEvent, RowKey, RowKind};
use saga_core::service::{HandlerError, Service};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{Asked, Charge, ChargeCommand, ChargeEvent, ChargeRejection};

/// The bank's answers. It hears nobody and tells nobody anything: HTTP is all it speaks.
#[derive(Debug)]
pub struct BankService {
    /// Charges over this many major units are declined.
    pub limit_major: i64,
}

/// What a merchant asks of a charge.
#[derive(Debug, Clone)]
pub struct Command {
    /// The charge: the merchant's idempotency key.
    pub charge: Uuid,
    /// What is to become of it.
    pub kind: CommandKind,
}

/// What can be asked.
#[derive(Debug, Clone)]
pub enum CommandKind {
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// Nothing was captured, and asking again does not help.
    Refused {
        /// Why; `declined` also for a charge that was given back or blocked.
        reason: PaymentFailure,
    },
    /// Nothing is captured any more.
    Undone,
    /// The bank stumbled; ask again.
    Stumbled,
}

impl Service for BankService {
    const NAME: &'static str = crate::NAME;
    type Fact = Infallible;
    type Command = Command;
    type Reply = Answer;
    type Rejection = ChargeRejection;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Charge>()]
    }

    fn rows_of_command(&self, command: &Command) -> Vec<RowKey> {
        vec![RowKey::of::<Charge>(command.charge)]
    }

    fn on_command(
        &self,
        command: &Command,
        work: &mut UnitOfWork<'_, Infallible>,
    ) -> Result<Answer, HandlerError<ChargeRejection>> {
        self.answer(command, work).map_err(HandlerError::Rejected)
    }
}

impl BankService {
    fn answer(
        &self,
        command: &Command,
        work: &mut UnitOfWork<'_, Infallible>,
    ) -> Result<Answer, ChargeRejection> {
        let charge = command.charge;
        let asked = match &command.kind {
            CommandKind::Capture(asked) => {
                let limit_minor =
                    self.limit_major.saturating_mul(Money::minor_per_major(asked.amount.currency));
                ChargeCommand::Capture { asked: asked.clone(), limit_minor }
            }
            CommandKind::Decline(asked) => ChargeCommand::Decline(asked.clone()),
            CommandKind::Refund => ChargeCommand::Refund,
            CommandKind::Reverse => ChargeCommand::Reverse,
        };
        let is_first = work.decide::<Charge>(charge, &asked)?;
        Ok(match (&command.kind, work.row::<Charge>(charge)) {
            (CommandKind::Refund | CommandKind::Reverse, _) => Answer::Undone,
            (CommandKind::Capture(_) | CommandKind::Decline(_), Charge::New | Charge::Stumbled) => {
                Answer::Stumbled
            }
            (CommandKind::Capture(_) | CommandKind::Decline(_), Charge::Captured(_)) => {
                Answer::Captured { reference: reference(charge), is_first }
            }
            (CommandKind::Capture(_) | CommandKind::Decline(_), Charge::Refused(_, reason)) => {
                Answer::Refused { reason: *reason }
            }
            // What was given back or blocked is not captured again.
            (CommandKind::Capture(_) | CommandKind::Decline(_), Charge::Refunded(_) | Charge::Blocked) => {
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
pub fn ledger_entry(id: Uuid, charge: &Charge, history: &[PastEvent<ChargeEvent>]) -> ChargeEntry {
    let state = match charge {
        Charge::Captured(_) => ChargeState::Captured,
        Charge::Refunded(_) => ChargeState::Refunded,
        Charge::New | Charge::Stumbled | Charge::Refused(..) | Charge::Blocked => ChargeState::None,
    };
    let asked = charge.asked();
    let amount = asked.map(|asked| asked.amount);
    let (mut captured, mut refunded) = (Vec::new(), Vec::new());
    for PastEvent { event, .. } in history {
        match event {
            ChargeEvent::Captured(asked) => captured.push(asked.amount),
            ChargeEvent::Refunded => refunded.extend(amount),
            ChargeEvent::Stumbled | ChargeEvent::Refused(..) | ChargeEvent::Blocked => {}
        }
    }
    ChargeEntry {
        charge: id,
        id: reference(id),
        reference: asked.map(|asked| asked.reference.clone()).unwrap_or_default(),
        state,
        amount,
        captured,
        refunded,
    }
}
