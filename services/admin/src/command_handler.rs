//! Pure: the execution of commands: what operators and admin's own loops change, and its audit entries.

use admin_api::actor::Actor;
use admin_api::audit_log::{Action, Entry};
use admin_api::bulk::{BulkOutcome, Rejected};
use admin_api::redrives::RedriveStatus;
use contract::manual_resolution::{ManualResolution, ResolutionWithdrawal};
use contract::order::DeadlineExtensionRequested;
use contract::saga::SagaStatus;
use contract::saga_view::{SagaCommand, SagaView};
use jiff::Timestamp;
use saga_core::UnitOfWork;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::audit_log::{ASKED, AuditCommand, AuditEntry, DONE};
use crate::commands::{Command, CommandKind, Rejection, Reply};
use crate::dead_letters::events::{DeadLetterCommand, Tag};
use crate::dead_letters::filter::key_of;
use crate::dead_letters::item::item_of;
use crate::dead_letters::view::DeadLetterView;
use crate::ledgers::checkpoint::{CHECKPOINT, Checkpoint};
use crate::ledgers::state::{RECONCILIATION_STATE, ReconciliationCommand, ReconciliationState};
use crate::notifications::content::{NOTIFICATION_TASK, Notification};
use crate::notifications::state::{NOTIFICATION_STATE, NotificationCommand, NotificationState};
use crate::redrive::active::{ACTIVE_REDRIVES, ActiveChange, ActiveRedrives};
use crate::redrive::decider::{Counted, Redrive};
use crate::redrive::events::{Plan, RedriveCommand, RedriveRejection};
use crate::resolution::{Direction, Resolution, Target};
use crate::topology::AdminMessage;

type Work<'a> = UnitOfWork<'a, AdminMessage>;

impl Command {
    pub(crate) fn handle(&self, work: &mut Work<'_>) -> Result<Reply, Rejection> {
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
            CommandKind::RecordEntry(entry) => {
                let Ok(_) = work.decide::<AuditEntry>(self.id, &AuditCommand::Record(entry.clone()));
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
            CommandKind::Reconciled { result, invalidated, unanswered, checkpoint } => {
                let record = ReconciliationCommand::Record {
                    result: result.clone(),
                    invalidated: *invalidated,
                    unanswered: unanswered.clone(),
                };
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
        let mut detail = Map::new();
        if let Target::DeadLetter(id) = resolution.target
            && let Some(saga) = work.row::<DeadLetterView>(id).report().and_then(|report| report.saga)
        {
            detail.insert("saga".to_owned(), json!(saga));
        }
        if !along.is_empty() {
            detail.insert("with".to_owned(), json!(along));
        }
        if !accepted.is_empty() {
            detail.insert("accepted".to_owned(), json!(accepted));
        }
        let detail = (!detail.is_empty()).then_some(Value::Object(detail));
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
            NotificationCommand::Test(system) => {
                Some(Notification::test(self.id, system.clone(), work.now()))
            }
            NotificationCommand::Acknowledge { key, time, .. } => {
                self.log(key, Some(json!({ "seconds": time.as_secs() })), DONE, work);
                return Ok(Reply::Done);
            }
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
        let mut detail = detail;
        if let Some(saga) = work.row::<DeadLetterView>(id).report().and_then(|report| report.saga) {
            detail.get_or_insert_with(|| json!({}))["saga"] = json!(saga);
        }
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
    all.map(|(saga, accepted)| {
        let mut listed = json!(accepted);
        listed["saga"] = json!(saga);
        listed
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
    let mut detail = json!({ "filter": filter, "canary": canary, "force": force, "matching": matching });
    if let Some(rate) = rate {
        detail["rate"] = json!(rate);
    }
    Some(detail)
}
