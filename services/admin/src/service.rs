//! Pure: the service as the engine runs it: consumed messages, commands, results of tasks, and what follows from events.

use admin_api::actor::Actor;
use admin_api::audit_log::{Action, Entry};
use contract::Fact;
use contract::inventory::{ProductChange, ProductChangeAudited};
use contract::payment::RefundAudited;
use contract::saga_fact::SagaFact;
use contract::saga_view::{SagaCommand, SagaView};
use contract::topology::OPERATOR;
use saga_core::dead_letter::{
    DeadLetterDiscarded, DeadLetterMessage, DeadLetterRestored, OperatorMessage, ReplayRequested,
};
use saga_core::message::{Message as _, Received};
use saga_core::row::{RowKey, RowKind};
use saga_core::secrets::Secrets;
use saga_core::service::{HandlerError, HandlerResult, Service, Step, TaskResult};
use saga_core::{Policy, UnitOfWork};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit_log::{AuditCommand, AuditEntry, DONE};
use crate::commands::{Command, Rejection, Reply};
use crate::dead_letters::events::{DeadLetterCommand, DeadLetterEvent, Forgotten};
use crate::dead_letters::view::DeadLetterView;
use crate::ledgers::checkpoint::Checkpoint;
use crate::ledgers::state::ReconciliationState;
use crate::notifications::content::NOTIFICATION_TASK;
use crate::notifications::state::{
    NOTIFICATION_STATE, NotificationCommand, NotificationEvent, NotificationState,
};
use crate::redrive::active::ActiveRedrives;
use crate::redrive::decider::Redrive;
pub use crate::topology::AdminMessage;
use crate::topology::{NAME, STEPS};

#[derive(Debug)]
pub struct AdminService;

type Work<'a> = UnitOfWork<'a, AdminMessage>;

/// Publishes the request of an operator to the service that has the dead letter.
impl Policy<AdminMessage> for DeadLetterView {
    fn whenever(event: &DeadLetterEvent, id: &str, _: &Self, work: &mut Work<'_>) {
        let Some(revision) = event.revision() else { return };
        let service = work.row::<Self>(id).report().map(|report| report.service.clone()).unwrap_or_default();
        let Ok(dead_letter) = id.parse() else { panic!("{id:?} is not the id of a dead letter") };
        work.publish(match event {
            DeadLetterEvent::Replayed { edited, .. } => {
                let edited = edited.clone();
                DeadLetterMessage::ReplayRequested(ReplayRequested { dead_letter, service, revision, edited })
            }
            // The service discards a resolved dead letter too. Only operators need the difference.
            DeadLetterEvent::Discarded { at, .. } | DeadLetterEvent::ResolvedManually { at, .. } => {
                let replays = Some(*at);
                let discarded = DeadLetterDiscarded { dead_letter, service, revision, replays };
                DeadLetterMessage::DeadLetterDiscarded(discarded)
            }
            DeadLetterEvent::Restored { .. } | DeadLetterEvent::ResolutionWithdrawn { .. } => {
                DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision })
            }
            DeadLetterEvent::Announced(_)
            | DeadLetterEvent::Resolved(_)
            | DeadLetterEvent::Forgotten(_)
            | DeadLetterEvent::Noted { .. } => return,
        });
    }
}

/// Adds a task that delivers each notification.
impl Policy<AdminMessage> for NotificationState {
    fn whenever(event: &NotificationEvent, _: &str, _: &Self, work: &mut Work<'_>) {
        match event {
            NotificationEvent::Sent(notification) | NotificationEvent::Tested(notification) => {
                work.add_task(NOTIFICATION_TASK, notification);
            }
            NotificationEvent::Changed { .. }
            | NotificationEvent::Delivered(..)
            | NotificationEvent::GivenUp(..)
            | NotificationEvent::Acknowledged(..) => {}
        }
    }
}

// These publish nothing.
impl Policy<AdminMessage> for ReconciliationState {}
impl Policy<AdminMessage> for Checkpoint {}
impl Policy<AdminMessage> for Redrive {}
impl Policy<AdminMessage> for ActiveRedrives {}
impl Policy<AdminMessage> for AuditEntry {}

impl Service for AdminService {
    const NAME: &'static str = NAME;
    const OPERATOR: Option<&'static str> = Some(OPERATOR);
    const SECRETS: Secrets = contract::order::SECRETS;
    type Fact = AdminMessage;
    type Command = Command;
    type Reply = Reply;
    type Rejection = Rejection;

    fn rows() -> Vec<RowKind> {
        vec![
            RowKind::of::<SagaView>(),
            RowKind::of::<DeadLetterView>(),
            RowKind::of::<Redrive>(),
            RowKind::of::<ActiveRedrives>(),
            RowKind::of::<AuditEntry>(),
            RowKind::of::<NotificationState>(),
            RowKind::of::<ReconciliationState>(),
            RowKind::of::<Checkpoint>(),
        ]
    }

    fn steps() -> &'static [Step] {
        &*STEPS
    }

    fn rows_of_command(&self, command: &Command) -> Vec<RowKey> {
        command.rows()
    }

    fn on_command(&self, command: &Command, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
        Ok(command.handle(work)?)
    }

    fn rows_of_message(&self, message: &Received<AdminMessage>) -> Vec<RowKey> {
        let saga = message.fact.saga().map(RowKey::of::<SagaView>);
        let dead_letter = report_of(message).map(|(id, _)| RowKey::of::<DeadLetterView>(id));
        let entry = audited_change(message).map(|_| RowKey::of::<AuditEntry>(message.id));
        saga.into_iter().chain(dead_letter).chain(entry).collect()
    }

    fn on_message(
        &self,
        _: &'static Step,
        message: &Received<AdminMessage>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        if let Some(saga) = message.fact.saga() {
            let record = SagaCommand::RecordFact(SagaFact::of(message));
            work.decide::<SagaView>(saga, &record).map_err(Rejection::from)?;
        }
        if let Some((dead_letter, command)) = report_of(message) {
            work.decide::<DeadLetterView>(dead_letter, &(command, work.now())).map_err(Rejection::from)?;
        }
        if let Some(entry) = audited_change(message) {
            let Ok(_) = work.decide::<AuditEntry>(message.id, &AuditCommand::Write(entry));
        }
        Ok(())
    }

    fn rows_of_result(&self, _: &TaskResult<'_>) -> Vec<RowKey> {
        vec![RowKey::of::<NotificationState>(NOTIFICATION_STATE)]
    }

    /// A notification that a later one replaces is not sent.
    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> bool {
        !work.row::<NotificationState>(NOTIFICATION_STATE).is_replaced(result.correlation_id)
    }

    fn on_task_result(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> HandlerResult<Self> {
        // The notification has the id of its command, which is known even if its content is damaged.
        let id = result.correlation_id;
        let outcome = match result.answer {
            Ok(_) => NotificationCommand::Deliver(id),
            Err(failed) => NotificationCommand::GiveUp(id, failed.reason()),
        };
        work.decide::<NotificationState>(NOTIFICATION_STATE, &(outcome, id, work.now()))
            .map_err(Rejection::from)?;
        Ok(())
    }
}

/// Returns the audit entry of a change that an operator made at another service.
fn audited_change(message: &Received<AdminMessage>) -> Option<Entry> {
    let OperatorMessage::Fact(fact) = &message.fact else { return None };
    let (operator, action, target, detail) = audited_fact(fact)?;
    let by = Actor { operator: operator.to_owned(), reason: None };
    let outcome = DONE.to_owned();
    Some(Entry { at: message.occurred_at, by, action, target, detail: Some(detail), outcome })
}

/// Returns operator, action, target and detail of an audited change.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other facts are about sagas and the catalogue")]
fn audited_fact(fact: &Fact) -> Option<(&str, Action, String, Value)> {
    match fact {
        Fact::ProductChangeAudited(ProductChangeAudited { sku, change, unit_price, quantity, operator }) => {
            let action = match change {
                ProductChange::Listed => Action::ProductList,
                ProductChange::PriceChanged => Action::ProductPrice,
                ProductChange::Restocked => Action::ProductRestock,
            };
            let detail = json!({ "unit_price": unit_price, "quantity": quantity });
            Some((operator, action, sku.clone(), detail))
        }
        Fact::RefundAudited(RefundAudited { order, amount, operator }) => {
            Some((operator, Action::PaymentRefund, order.to_string(), json!({ "amount": amount })))
        }
        _ => None,
    }
}

/// Returns the report of a service about a dead letter.
fn report_of(message: &Received<AdminMessage>) -> Option<(Uuid, DeadLetterCommand)> {
    match &message.fact {
        OperatorMessage::DeadLetter(DeadLetterMessage::DeadLettered(announced)) => {
            Some((announced.id, DeadLetterCommand::Announce(announced.clone())))
        }
        OperatorMessage::DeadLetter(DeadLetterMessage::DeadLetterResolved(resolved)) => {
            Some((resolved.dead_letter, DeadLetterCommand::Resolve(Box::new(resolved.clone()))))
        }
        OperatorMessage::DeadLetter(DeadLetterMessage::DeadLetterForgotten(forgotten)) => {
            let gone = Forgotten { revision: forgotten.revision, at: message.occurred_at };
            Some((forgotten.dead_letter, DeadLetterCommand::Forget(gone)))
        }
        OperatorMessage::DeadLetter(
            DeadLetterMessage::ReplayRequested(_)
            | DeadLetterMessage::DeadLetterDiscarded(_)
            | DeadLetterMessage::DeadLetterRestored(_),
        )
        | OperatorMessage::Fact(_) => None,
    }
}
