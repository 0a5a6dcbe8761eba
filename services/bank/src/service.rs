//! Pure: the handlers of the bank: charges, refunds and reversals of its merchants.

use std::convert::Infallible;

use contract::money::Money;
use contract::payment::PaymentFailure;
use saga_core::UnitOfWork;
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, Service};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::{Charge, ChargeCommand, ChargeRejection, ChargeRequest};
use crate::ledger::bank_reference;

#[derive(Debug)]
pub struct BankService {
    /// Amount in major units above which a charge is refused.
    pub limit_major: i64,
}

#[derive(Debug, Clone)]
pub struct Command {
    /// Key of the charge, chosen by the merchant.
    pub charge: Uuid,
    pub kind: CommandKind,
}

#[derive(Debug, Clone)]
pub enum CommandKind {
    Capture(ChargeRequest),
    /// Refuse the charge (injected fault).
    Decline(ChargeRequest),
    Refund,
    /// Refund a captured charge and block any other.
    Reverse,
    /// Report the outcome of a charge, and block it if it has none.
    Close,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Answer {
    /// Captured, by this request or an earlier one.
    Captured {
        /// The bank's id of the charge.
        reference: String,
        /// True if this request captured it.
        #[serde(skip)]
        is_new: bool,
    },
    /// Nothing was captured; repeating the request does not help.
    Refused {
        /// Reason; `declined` also for a refunded or blocked charge.
        reason: PaymentFailure,
    },
    /// Nothing is captured any more.
    Undone,
    /// Failed on purpose; try again.
    FailedOnce,
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
        let charge_command = match &command.kind {
            CommandKind::Capture(request) => {
                let limit_minor =
                    self.limit_major.saturating_mul(Money::minor_per_major(request.amount.currency));
                ChargeCommand::Capture { request: request.clone(), limit_minor }
            }
            CommandKind::Decline(request) => ChargeCommand::Decline(request.clone()),
            CommandKind::Refund => ChargeCommand::Refund,
            CommandKind::Reverse => ChargeCommand::Reverse,
            CommandKind::Close => ChargeCommand::Close,
        };
        let is_new = work.decide::<Charge>(charge, &charge_command)?;
        Ok(match (&command.kind, work.row::<Charge>(charge)) {
            (CommandKind::Refund | CommandKind::Reverse, _) => Answer::Undone,
            (CommandKind::Close, Charge::Refunded(_) | Charge::Blocked) => Answer::Undone,
            (
                CommandKind::Capture(_) | CommandKind::Decline(_) | CommandKind::Close,
                Charge::New | Charge::FailedOnce,
            ) => Answer::FailedOnce,
            (CommandKind::Capture(_) | CommandKind::Decline(_) | CommandKind::Close, Charge::Captured(_)) => {
                Answer::Captured { reference: bank_reference(charge), is_new }
            }
            (
                CommandKind::Capture(_) | CommandKind::Decline(_) | CommandKind::Close,
                Charge::Refused(_, reason),
            ) => Answer::Refused { reason: *reason },
            // A refunded or blocked charge is never captured again.
            (CommandKind::Capture(_) | CommandKind::Decline(_), Charge::Refunded(_) | Charge::Blocked) => {
                Answer::Refused { reason: PaymentFailure::Declined }
            }
        })
    }
}
