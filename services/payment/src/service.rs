//! Pure: the handlers of the payment service: commands, messages and task results.

use contract::Fact;
use contract::FactType;
use contract::order::PaymentContext;
use contract::payment::{PaymentView, RefundAudited};
use contract::topology::OPERATOR;
use jiff::Timestamp;
use saga_core::UnitOfWork;
use saga_core::message::{Message as _, Received};
use saga_core::row::{RowKey, RowKind};
use saga_core::secrets::Secrets;
use saga_core::service::{HandlerError, HandlerResult, Service, Step, TaskResult};
use uuid::Uuid;

use crate::bank_ledger::{self, Answered, BANK, BankLedger};
use crate::bank_task::{BankCall, BankTask, CHARGE, REFUND, payment_command};
use crate::domain::{Payment, PaymentCommand, PaymentRejection};
use crate::extension::Extension;
use crate::manual_resolution::ManualResolution;
use crate::policy::outcome;
use crate::view::view_of;

#[derive(Debug)]
pub struct PaymentService;

/// Operator command: refund a captured payment. The order stands.
#[derive(Debug, Clone)]
pub struct Refund {
    pub order: Uuid,
    /// Operator who asked for it, for the audit log.
    pub operator: Option<String>,
}

type Work<'a> = UnitOfWork<'a, Fact>;

impl Service for PaymentService {
    const NAME: &'static str = crate::NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: Secrets = contract::order::SECRETS;
    type Fact = Fact;
    type Command = Refund;
    type Reply = PaymentView;
    type Rejection = PaymentRejection;

    fn rows() -> Vec<RowKind> {
        vec![
            RowKind::of::<Payment>(),
            RowKind::of::<Extension>(),
            RowKind::of::<ManualResolution>(),
            RowKind::of::<BankLedger>(),
        ]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn rows_of_command(&self, command: &Refund) -> Vec<RowKey> {
        vec![RowKey::of::<Payment>(command.order)]
    }

    fn on_command(
        &self,
        Refund { order, operator }: &Refund,
        work: &mut Work<'_>,
    ) -> Result<PaymentView, HandlerError<PaymentRejection>> {
        let is_requested = work.decide::<Payment>(order, &PaymentCommand::Refund)?;
        let amount = work.row::<Payment>(order).context().map(|context| context.total);
        if let (true, Some(operator), Some(amount)) = (is_requested, operator.clone(), amount) {
            work.publish(RefundAudited { order: *order, amount, operator });
        }
        view_of(*order, work.row::<Payment>(order)).ok_or_else(|| PaymentRejection::Unknown.into())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most facts concern the payment alone")]
    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        let Some(order) = message.fact.saga() else { return vec![] };
        match message.fact.fact_type() {
            FactType::StockReserved | FactType::DeadlineExtended => rows_of_charge(order),
            FactType::ManualResolutionRequested | FactType::OrderCancelled => {
                vec![RowKey::of::<Payment>(order), RowKey::of::<ManualResolution>(order)]
            }
            _ => vec![RowKey::of::<Payment>(order)],
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the engine delivers only what the step consumes")]
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        match &message.fact {
            Fact::StockReserved(fact) => {
                let deadline = work.row::<Extension>(fact.order).latest(fact.deadline);
                request_charge(fact.order, fact.payment.clone(), deadline, work)?;
            }
            Fact::OrderCancelled(fact) => {
                let command = match is_forgotten(fact.order, work) {
                    true => PaymentCommand::Reverse,
                    false => PaymentCommand::Cancel,
                };
                work.decide::<Payment>(fact.order, &command)?;
                if work.row::<ManualResolution>(fact.order).covers_cancellation {
                    work.decide::<Payment>(fact.order, &PaymentCommand::ResolveManually)?;
                }
            }
            Fact::DeadlineExtended(fact) => {
                let Ok(is_new) = work.decide::<Extension>(fact.order, &fact.deadline);
                if is_new {
                    republish_outcome(fact.order, work);
                }
                repeat_expired_charge(fact.order, fact.deadline, work)?;
            }
            Fact::ManualResolutionRequested(request) => {
                let received = ManualResolution {
                    revision: request.revision,
                    covers_cancellation: request.resolved && request.cancelled,
                };
                let Ok(is_newer) = work.decide::<ManualResolution>(request.order, &received);
                if is_newer {
                    let command = match request.resolved {
                        true => PaymentCommand::ResolveManually,
                        false => PaymentCommand::WithdrawResolution,
                    };
                    work.decide::<Payment>(request.order, &command)?;
                }
            }
            _ => return Err(HandlerError::unhandled(step, message)),
        }
        Ok(())
    }

    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        let Ok(task) = serde_json::from_str::<BankTask>(result.payload) else { return vec![] };
        let mut rows = vec![RowKey::of::<Payment>(task.order), RowKey::of::<Extension>(task.order)];
        // All payments share this row, which is locked until the commit. Few results need it.
        rows.extend(news_of_ledger(&task, result).map(|_| bank_ledger::row()));
        rows
    }

    /// A charge is needed until its order is over; other calls always, unless the payment was resolved manually.
    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> bool {
        match serde_json::from_str::<BankTask>(result.payload) {
            Ok(BankTask { order, call: BankCall::Charge { deadline, .. }, .. }) => {
                let is_charging = matches!(work.row::<Payment>(order), Payment::Charging(_));
                is_charging && !has_passed(work.row::<Extension>(order).latest(deadline), work)
            }
            Ok(BankTask { order, call: BankCall::Refund | BankCall::Reverse | BankCall::Close, .. }) => {
                !is_resolved_manually(order, work)
            }
            // An unreadable task runs, so that its result is dead-lettered with the reason.
            Err(_) => true,
        }
    }

    fn on_task_result(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> HandlerResult<Self> {
        let task = serde_json::from_str::<BankTask>(result.payload)
            .map_err(|error| HandlerError::Permanent(format!("unreadable task: {error}")))?;
        if let Some(answered) = news_of_ledger(&task, result) {
            let Ok(_) = work.decide::<BankLedger>(BANK, &answered);
        }
        if result.answer.is_ok_and(bank_ledger::is_introduction) {
            call_again(task, work);
            return Ok(());
        }
        let command = match payment_command(&task, result.answer) {
            Ok(command) => known_outcome(command, &task, work),
            // An operator has resolved it: no dead letter is needed.
            Err(_) if is_resolved_manually(task.order, work) => PaymentCommand::AbandonCall,
            Err(why) => return Err(HandlerError::Permanent(why)),
        };
        work.decide::<Payment>(task.order, &command)?;
        Ok(())
    }
}

/// Ledger that answered a call, if the call named none or another one.
fn news_of_ledger(task: &BankTask, result: &TaskResult<'_>) -> Option<Answered> {
    let by = bank_ledger::ledger_of(result.answer.ok()?)?;
    (task.ledger != Some(by)).then_some(Answered { named: task.ledger, by })
}

/// Makes the call of a task whose first call only asked for the ledger.
fn call_again(task: BankTask, work: &mut Work<'_>) {
    let kind = match task.call {
        BankCall::Charge { .. } => CHARGE,
        BankCall::Refund | BankCall::Reverse | BankCall::Close => REFUND,
    };
    let ledger = work.row::<BankLedger>(BANK).0;
    work.add_task(kind, &BankTask { ledger, ..task });
}

/// Rows that a charge depends on.
fn rows_of_charge(order: Uuid) -> Vec<RowKey> {
    vec![RowKey::of::<Payment>(order), RowKey::of::<Extension>(order), bank_ledger::row()]
}

/// True if the service may have forgotten a charge. Only the bank knows then.
fn is_forgotten(order: Uuid, work: &mut Work<'_>) -> bool {
    work.may_have_forgotten(order)
        && matches!(work.row::<Payment>(order), Payment::New | Payment::Expired { .. })
}

/// Returns the command for a charge that has ended. After a loss of data neither its request nor the end of its order is
/// certain: the bank is asked for the outcome, and a capture stands.
fn known_outcome(command: PaymentCommand, task: &BankTask, work: &Work<'_>) -> PaymentCommand {
    match (&command, &task.call) {
        (PaymentCommand::Withdraw { .. } | PaymentCommand::GiveUp, BankCall::Charge { context, .. })
            if work.may_have_forgotten(task.order) =>
        {
            PaymentCommand::Close(context.clone())
        }
        _ => command,
    }
}

/// Publishes the outcome of a payment again. An order whose deadline is extended waits for it, and may have lost it.
fn republish_outcome(order: Uuid, work: &mut Work<'_>) {
    let outcome = outcome(order, work.row::<Payment>(order));
    if let Some(outcome) = outcome {
        work.publish(outcome);
    }
}

/// Repeats a charge that ended at the earlier deadline, unless the new one has passed too.
fn repeat_expired_charge(
    order: Uuid,
    deadline: Timestamp,
    work: &mut Work<'_>,
) -> HandlerResult<PaymentService> {
    if let Payment::Expired { context, .. } = work.row::<Payment>(order).clone() {
        let deadline = work.row::<Extension>(order).latest(deadline);
        request_charge(order, context, deadline, work)?;
    }
    Ok(())
}

/// Charges an order before its deadline.
fn request_charge(
    order: Uuid,
    context: PaymentContext,
    deadline: Timestamp,
    work: &mut Work<'_>,
) -> HandlerResult<PaymentService> {
    let command = match has_passed(deadline, work) {
        false => PaymentCommand::Charge(context),
        // The charge may have been captured in time, and forgotten.
        true if is_forgotten(order, work) => PaymentCommand::Close(context),
        true => PaymentCommand::Expire(context),
    };
    work.decide::<Payment>(order, &command)?;
    Ok(())
}

fn has_passed(deadline: Timestamp, work: &Work<'_>) -> bool {
    deadline <= work.now()
}

fn is_resolved_manually(order: Uuid, work: &mut Work<'_>) -> bool {
    matches!(work.row::<Payment>(order), Payment::ResolvedManually(_))
}
