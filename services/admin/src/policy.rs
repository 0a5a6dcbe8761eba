//! Pure: what messages and commands change: rows, messages to services and audit entries, in one transaction.

use admin_api::actor::Actor;
use admin_api::audit_log::{Action, Entry};
use admin_api::bulk::{BulkOutcome, Rejected};
use admin_api::redrives::RedriveStatus;
use contract::Fact;
use contract::manual_resolution::{Accepted, ManualResolution, ResolutionWithdrawal};
use contract::order::DeadlineExtensionRequested;
use contract::saga::SagaStatus;
use contract::saga_fact::SagaFact;
use contract::saga_view::{SagaCommand, SagaView};
use contract::topology::OPERATOR;
use jiff::Timestamp;
use saga_core::dead_letter::{
    DeadLetterDiscarded, DeadLetterMessage, DeadLetterRestored, OperatorMessage, ReplayRequested,
};
use saga_core::message::{Message as _, Received};
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step, TaskResult};
use saga_core::{Policy, UnitOfWork};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit_log::{ASKED, AuditCommand, AuditEntry, DONE};
use crate::commands::{Command, CommandKind, Rejection, Reply};
use crate::dead_letters::events::{DeadLetterCommand, DeadLetterEvent, Forgotten, Tag};
use crate::dead_letters::filter::key_of;
use crate::dead_letters::item::item_of;
use crate::dead_letters::view::DeadLetterView;
use crate::ledgers::checkpoint::{CHECKPOINT, Checkpoint};
use crate::ledgers::state::{RECONCILIATION_STATE, ReconciliationCommand, ReconciliationState};
use crate::notifications::content::{NOTIFICATION_TASK, Notification};
use crate::notifications::state::{
    NOTIFICATION_STATE, NotificationCommand, NotificationEvent, NotificationState,
};
use crate::redrive::active::{ACTIVE_REDRIVES, ActiveChange, ActiveRedrives};
use crate::redrive::decider::{Counted, Redrive};
use crate::redrive::events::{Plan, RedriveCommand, RedriveRejection};
use crate::resolution::{Direction, Resolution, Target};
use crate::topology::{NAME, STEPS};

#[derive(Debug)]
pub struct AdminService;

/// Facts of the shop, and the engine's own messages.
pub type AdminMessage = OperatorMessage<Fact>;

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
            | NotificationEvent::GivenUp(..) => {}
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
    const SECRETS: &'static [&'static str] = &contract::order::SECRETS;
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
        saga.into_iter().chain(dead_letter).collect()
    }

    fn on_message(
        &self,
        _: &'static Step,
        message: &Received<AdminMessage>,
        work: &mut Work<'_>,
    ) -> HandlerResult<Self> {
        if let Some(saga) = message.fact.saga() {
            let heard = SagaCommand::RecordFact(SagaFact::of(message));
            work.decide::<SagaView>(saga, &heard).map_err(Rejection::from)?;
        }
        if let Some((dead_letter, command)) = report_of(message) {
            work.decide::<DeadLetterView>(dead_letter, &(command, work.now())).map_err(Rejection::from)?;
        }
        Ok(())
    }

    fn rows_of_result(&self, _: &TaskResult<'_>) -> Vec<RowKey> {
        vec![RowKey::of::<NotificationState>(NOTIFICATION_STATE)]
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

impl Command {
    fn handle(&self, work: &mut Work<'_>) -> Result<Reply, Rejection> {
        let by = || self.by.clone();
        match &self.kind {
            CommandKind::Replay(id, replay) => {
                let edit = replay.edited.as_ref();
                let edit =
                    edit.map(|edited| json!({ "message_id": edited.message_id, "changes": replay.changes }));
                self.change_one(*id, DeadLetterCommand::Replay(by(), replay.clone()), edit, work)
            }
            CommandKind::Discard(id) => self.change_one(*id, DeadLetterCommand::Discard(by()), None, work),
            CommandKind::Restore(id) => self.change_one(*id, DeadLetterCommand::Restore(by()), None, work),
            CommandKind::Note(id, text) => {
                self.change_one(*id, DeadLetterCommand::Note(by(), text.clone()), None, work)
            }
            CommandKind::Many { dead_letters, change } => {
                Ok(Reply::Many(change_each(dead_letters, change.command(&self.by), work)))
            }
            CommandKind::Resolve(direction, resolution) => self.resolve(*direction, resolution, work),
            CommandKind::ResolveMany { direction, resolutions, entry } => {
                Ok(Reply::Many(self.resolve_many(*direction, resolutions, *entry, work)))
            }
            CommandKind::Extend { orders, until } => Ok(Reply::Many(extend_each(orders, *until, work))),
            CommandKind::Redrive(id, command) => {
                change_redrive(*id, command.clone(), work)?;
                self.log(id, plan_of(command), DONE, work);
                Ok(Reply::Done)
            }
            CommandKind::Send { tag, dead_letters } => {
                Ok(Reply::Many(self.send(*tag, dead_letters, work)?))
            }
            CommandKind::OpenEntry { target, detail, .. } => {
                self.log(target, detail.clone(), ASKED, work);
                Ok(Reply::Done)
            }
            CommandKind::CloseEntry(entry, outcome) => {
                let Ok(_) = work.decide::<AuditEntry>(entry, &AuditCommand::End(outcome.clone()));
                // A new baseline changes the result of the next reconciliation.
                if work.row::<AuditEntry>(entry).records_done(Action::AcceptBaseline) {
                    invalidate_reconciliation(work);
                }
                Ok(Reply::Done)
            }
            CommandKind::Notify(command) => self.notify(command, work),
            CommandKind::Reconciled { result, invalidated, checkpoint } => {
                let record =
                    ReconciliationCommand::Record { result: result.clone(), invalidated: *invalidated };
                let Ok(_) = work.decide::<ReconciliationState>(RECONCILIATION_STATE, &record);
                if let Some(checkpoint) = checkpoint {
                    let Ok(_) = work.decide::<Checkpoint>(CHECKPOINT, checkpoint);
                }
                Ok(Reply::Done)
            }
        }
    }

    fn resolve(
        &self,
        direction: Direction,
        resolution: &Resolution,
        work: &mut Work<'_>,
    ) -> Result<Reply, Rejection> {
        let along = resolve(direction, resolution, &self.by, work)?;
        invalidate_reconciliation(work);
        let accepted = accepted_in(std::iter::once(&resolution.target).chain(along.iter().copied()));
        let along: Vec<_> = along.into_iter().map(Target::id).collect();
        let detail = Some(json!({ "with": along, "accepted": accepted }));
        self.log(resolution.target.id(), detail, DONE, work);
        Ok(Reply::Done)
    }

    fn resolve_many(
        &self,
        direction: Direction,
        resolutions: &[Resolution],
        entry: Uuid,
        work: &mut Work<'_>,
    ) -> BulkOutcome {
        let (mut outcome, mut accepted) = (BulkOutcome::default(), vec![]);
        for resolution in resolutions {
            let along = resolve(direction, resolution, &self.by, work);
            outcome.add(resolution.target.id(), along.map(|along| accepted.extend(accepted_in(along))));
        }
        if outcome.done > 0 {
            invalidate_reconciliation(work);
        }
        let Ok(_) = work.decide::<AuditEntry>(entry, &AuditCommand::Accept(accepted));
        outcome
    }

    /// Replays dead letters of a redrive, as many as it and its rate allow.
    fn send(&self, tag: Tag, dead_letters: &[Uuid], work: &mut Work<'_>) -> Result<BulkOutcome, Rejection> {
        let at = work.now();
        let drive = work.row::<Redrive>(tag.redrive).drive().ok_or(RedriveRejection::Unknown)?;
        drive.sends_in(tag.round)?;
        // Another driver may have replayed some meanwhile.
        let max = drive.room(&Counted::default()).min(drive.granted(at));
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let replay = DeadLetterCommand::Replay(self.by.clone(), drive.replay(tag.redrive));
        let sent = change_each(&dead_letters[..dead_letters.len().min(max)], replay, work);
        work.decide::<Redrive>(tag.redrive, &(RedriveCommand::Count(tag.round, sent.done), at))?;
        Ok(sent)
    }

    /// Returns the notification that was sent, if any.
    fn notify(&self, command: &NotificationCommand, work: &mut Work<'_>) -> Result<Reply, Rejection> {
        work.decide::<NotificationState>(NOTIFICATION_STATE, &(command.clone(), self.id, work.now()))?;
        let state = work.row::<NotificationState>(NOTIFICATION_STATE);
        let sent = match command {
            NotificationCommand::Test => Some(Notification::test(self.id, work.now())),
            NotificationCommand::Observe(..)
            | NotificationCommand::Deliver(_)
            | NotificationCommand::GiveUp(..) => state.in_flight().filter(|sent| sent.id == self.id).cloned(),
        };
        self.log(NOTIFICATION_TASK, None, DONE, work);
        Ok(Reply::Notification(sent.map(Box::new)))
    }

    /// Changes one dead letter, and returns it.
    fn change_one(
        &self,
        id: Uuid,
        command: DeadLetterCommand,
        detail: Option<Value>,
        work: &mut Work<'_>,
    ) -> Result<Reply, Rejection> {
        work.decide::<DeadLetterView>(id, &(command, work.now()))?;
        self.log(id, detail, DONE, work);
        let dead_letter = item_of(id, work.row::<DeadLetterView>(id));
        Ok(Reply::Changed(dead_letter.map(Box::new)))
    }

    /// Writes the audit entry of this command, if it has one.
    fn log(&self, target: impl ToString, detail: Option<Value>, outcome: &str, work: &mut Work<'_>) {
        if let Some(action) = self.action() {
            let (by, target, outcome) = (self.by.clone(), target.to_string(), outcome.to_owned());
            let entry = Entry { at: work.now(), by, action, target, detail, outcome };
            let Ok(_) = work.decide::<AuditEntry>(self.id, &AuditCommand::Write(entry));
        }
    }
}

/// Changes each dead letter independently.
fn change_each(dead_letters: &[Uuid], command: DeadLetterCommand, work: &mut Work<'_>) -> BulkOutcome {
    let command = (command, work.now());
    let mut outcome = BulkOutcome::default();
    for &id in dead_letters {
        outcome.add(id, work.decide::<DeadLetterView>(id, &command).map(drop));
    }
    outcome
}

/// Resolves a target or withdraws its resolution, and returns what it took along. When the target is rejected, nothing
/// changes; what cannot be taken along stays as it is, as it may have ended meanwhile.
fn resolve<'a>(
    direction: Direction,
    resolution: &'a Resolution,
    by: &Actor,
    work: &mut Work<'_>,
) -> Result<Vec<&'a Target>, Rejection> {
    resolve_one(direction, &resolution.target, by, work)?;
    let goes = |other: &&Target| {
        let is_early = direction == Direction::Resolve && is_blocked(resolution, other, work);
        !is_early && resolve_one(direction, other, by, work).is_ok()
    };
    Ok(resolution.along.iter().filter(goes).collect())
}

/// True if another dead letter blocks the saga of a dead letter: one that waits, or one that is new since the request.
fn is_blocked(resolution: &Resolution, other: &Target, work: &mut Work<'_>) -> bool {
    let (Target::DeadLetter(_), Target::Saga(saga, _)) = (&resolution.target, other) else { return false };
    let blocking: Vec<Uuid> = work.row::<SagaView>(saga).open_dead_letters().map(|(id, _)| id).collect();
    blocking.iter().any(|id| !resolution.blocking.contains(id) || work.row::<DeadLetterView>(id).waits())
}

/// Lists accepted discrepancies for the audit log, each with its saga.
fn accepted_in<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Vec<Value> {
    let of = |target: &'a Target| match target {
        Target::Saga(saga, accepted) => accepted.iter().map(|accepted| (saga, accepted)).collect(),
        Target::DeadLetter(_) => vec![],
    };
    let all = targets.into_iter().flat_map(of);
    all.map(|(saga, Accepted { rule, detail, difference })| {
        json!({ "saga": saga, "rule": rule, "detail": detail, "difference": difference })
    })
    .collect()
}

fn resolve_one(
    direction: Direction,
    target: &Target,
    by: &Actor,
    work: &mut Work<'_>,
) -> Result<(), Rejection> {
    let (operator, at) = (by.operator.clone(), work.now());
    let reason = by.reason.clone().unwrap_or_default();
    match (direction, target) {
        (Direction::Resolve, Target::DeadLetter(id)) => {
            work.decide::<DeadLetterView>(id, &(DeadLetterCommand::ResolveManually(by.clone()), at))?;
        }
        (Direction::Withdraw, Target::DeadLetter(id)) => {
            work.decide::<DeadLetterView>(id, &(DeadLetterCommand::WithdrawResolution(by.clone()), at))?;
        }
        (Direction::Resolve, Target::Saga(id, accepted)) => {
            let (view, accepted) = (work.row::<SagaView>(id), accepted.clone());
            let (was, revision) = (view.status_without_resolution(), view.next_revision(at));
            let resolution = ManualResolution { operator, reason, at, was, accepted, revision };
            work.decide::<SagaView>(id, &SagaCommand::ResolveManually(resolution))?;
        }
        (Direction::Withdraw, Target::Saga(id, _)) => {
            let revision = work.row::<SagaView>(id).next_revision(at);
            let withdrawal = ResolutionWithdrawal { operator, reason, at, revision };
            work.decide::<SagaView>(id, &SagaCommand::WithdrawResolution(withdrawal))?;
        }
    }
    Ok(())
}

fn extend_each(orders: &[Uuid], until: Timestamp, work: &mut Work<'_>) -> BulkOutcome {
    let mut outcome = BulkOutcome::default();
    for &order in orders {
        match extend(order, until, work) {
            Err(detail) => {
                let has_ended = work.row::<SagaView>(order).status().is_terminal();
                outcome.reject(Rejected { id: order, detail, has_ended });
            }
            done @ Ok(()) => outcome.add(order, done),
        }
    }
    outcome
}

fn invalidate_reconciliation(work: &mut Work<'_>) {
    let Ok(_) = work.decide::<ReconciliationState>(RECONCILIATION_STATE, &ReconciliationCommand::Invalidate);
}

/// Asks the order service to extend a deadline. The saga shows it once the order service has.
fn extend(order: Uuid, until: Timestamp, work: &mut Work<'_>) -> Result<(), String> {
    let now = work.now();
    let view = work.row::<SagaView>(order);
    let Some(deadline) = view.deadline else { return Err("there is no such saga".to_owned()) };
    match view.status() {
        SagaStatus::Started | SagaStatus::InProgress | SagaStatus::DeadLettered if deadline <= now => {
            Err(format!("its deadline passed at {deadline}"))
        }
        SagaStatus::Started | SagaStatus::InProgress | SagaStatus::DeadLettered if deadline >= until => {
            Err(format!("it waits until {deadline} already"))
        }
        SagaStatus::Started | SagaStatus::InProgress | SagaStatus::DeadLettered => {
            work.publish(AdminMessage::Fact(DeadlineExtensionRequested { order, deadline: until }.into()));
            Ok(())
        }
        over @ (SagaStatus::Unknown
        | SagaStatus::Completed
        | SagaStatus::TimedOut
        | SagaStatus::Compensating
        | SagaStatus::Compensated
        | SagaStatus::CompensationStuck
        | SagaStatus::ResolvedManually) => Err(format!("the saga is {}", over.as_str())),
    }
}

/// Changes a redrive, and its entry in the row of active redrives.
fn change_redrive(id: Uuid, command: RedriveCommand, work: &mut Work<'_>) -> Result<(), Rejection> {
    let at = work.now();
    work.decide::<Redrive>(id, &(command, at))?;
    let Some(drive) = work.row::<Redrive>(id).drive() else {
        return Ok(());
    };
    let change = match drive.status {
        RedriveStatus::Canary | RedriveStatus::Running => {
            ActiveChange::Started { filter: key_of(&drive.plan.filter), redrive: id }
        }
        RedriveStatus::Paused => ActiveChange::Paused { redrive: id },
        RedriveStatus::Stopped | RedriveStatus::Cancelled | RedriveStatus::Done => {
            ActiveChange::Ended { redrive: id }
        }
    };
    work.decide::<ActiveRedrives>(ACTIVE_REDRIVES, &change)?;
    Ok(())
}

/// Describes a new redrive for the audit log.
fn plan_of(command: &RedriveCommand) -> Option<Value> {
    let RedriveCommand::Start(plan) = command else { return None };
    let Plan { filter, canary, rate, force, matching, .. } = &**plan;
    Some(json!({ "filter": filter, "canary": canary, "rate": rate, "force": force, "matching": matching }))
}
