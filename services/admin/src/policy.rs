//! Pure: whatever the services say, admin keeps a view of it; whatever an operator asks for changes a row, tells
//! the service concerned, and is written down, all at once or not at all.

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

use crate::audit_log::{ASKED, Action, AuditCommand, AuditEntry, DONE, Entry};
use crate::books::{Books, BooksCommand, THE_BOOKS};
use crate::commands::{Command, CommandKind, Many, Refused, Rejection, Reply};
use crate::dead_letter::events::{DeadLetterCommand, DeadLetterEvent, Forgotten};
use crate::dead_letter::item::DeadLetterItem;
use crate::dead_letter::view::DeadLetterView;
use crate::push::notice::{NOTICE, Notice};
use crate::push::told::{THE_TOLD, Told, ToldCommand, ToldEvent};
use crate::reconciliation::closing::{Closing, THE_CLOSING};
use crate::redrive::decider::{Counted, Redrive};
use crate::redrive::events::{Plan, RedriveCommand, RedriveRejection, RedriveStatus};
use crate::redrive::roster::{Roster, RosterChange, THE_ROSTER};
use crate::request::By;
use crate::settling::{Case, Named, Settling};

/// The admin service's reactions.
#[derive(Debug)]
pub struct AdminService;

/// What admin hears and says: the facts of the shop, and the engine's own messages.
pub type AdminMessage = OperatorMessage<Fact>;

type Work<'a> = UnitOfWork<'a, AdminMessage>;

/// Whenever an operator has a dead letter handed back, given up or taken up again, its service is told.
impl Policy<AdminMessage> for DeadLetterView {
    fn whenever(event: &DeadLetterEvent, id: &str, _: &Self, work: &mut Work<'_>) {
        let Some(revision) = event.revision() else { return };
        let service = work.row::<Self>(id).said().map(|said| said.service.clone()).unwrap_or_default();
        let Ok(dead_letter) = id.parse() else { panic!("{id:?} is no dead letter's id") };
        work.publish(match event {
            DeadLetterEvent::Replayed { edited, .. } => {
                let edited = edited.clone();
                DeadLetterMessage::ReplayRequested(ReplayRequested { dead_letter, service, revision, edited })
            }
            // There what was settled is given up, too: why, only operators need to know.
            DeadLetterEvent::Discarded { at, .. } | DeadLetterEvent::Settled { at, .. } => {
                let replays = Some(*at);
                let discarded = DeadLetterDiscarded { dead_letter, service, revision, replays };
                DeadLetterMessage::DeadLetterDiscarded(discarded)
            }
            DeadLetterEvent::Restored { .. } | DeadLetterEvent::Unsettled { .. } => {
                DeadLetterMessage::DeadLetterRestored(DeadLetterRestored { dead_letter, service, revision })
            }
            DeadLetterEvent::Announced(_)
            | DeadLetterEvent::Resolved(_)
            | DeadLetterEvent::Forgotten(_)
            | DeadLetterEvent::Noted { .. } => return,
        });
    }
}

/// Whenever somebody is to be told something, the receiver of notices is called.
impl Policy<AdminMessage> for Told {
    fn whenever(event: &ToldEvent, _: &str, _: &Self, work: &mut Work<'_>) {
        match event {
            ToldEvent::Noticed(notice) | ToldEvent::Tested(notice) => {
                work.add_task(NOTICE, notice);
            }
            ToldEvent::Changed { .. } | ToldEvent::Delivered(..) | ToldEvent::GivenUp(..) => {}
        }
    }
}

// Nobody is told of these.
impl Policy<AdminMessage> for Books {}
impl Policy<AdminMessage> for Closing {}
impl Policy<AdminMessage> for Redrive {}
impl Policy<AdminMessage> for Roster {}
impl Policy<AdminMessage> for AuditEntry {}

impl Service for AdminService {
    const NAME: &'static str = crate::NAME;
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
            RowKind::of::<Roster>(),
            RowKind::of::<AuditEntry>(),
            RowKind::of::<Told>(),
            RowKind::of::<Books>(),
            RowKind::of::<Closing>(),
        ]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn rows_of_command(&self, command: &Command) -> Vec<RowKey> {
        command.reads()
    }

    fn on_command(&self, command: &Command, work: &mut Work<'_>) -> Result<Reply, HandlerError<Rejection>> {
        Ok(command.handle(work)?)
    }

    fn rows_of_message(&self, message: &Received<AdminMessage>) -> Vec<RowKey> {
        let saga = message.fact.saga().map(RowKey::of::<SagaView>);
        let dead_letter = said_of(message).map(|(id, _)| RowKey::of::<DeadLetterView>(id));
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
        if let Some((dead_letter, command)) = said_of(message) {
            work.decide::<DeadLetterView>(dead_letter, &(command, work.now())).map_err(Rejection::from)?;
        }
        Ok(())
    }

    fn rows_of_result(&self, _: &TaskResult<'_>) -> Vec<RowKey> {
        vec![RowKey::of::<Told>(THE_TOLD)]
    }

    fn on_task_result(&self, result: &TaskResult<'_>, work: &mut Work<'_>) -> HandlerResult<Self> {
        // What asked for the notice has its id: it is known even if nobody can read the notice any more.
        let notice = result.correlation_id;
        let outcome = match result.answer {
            Ok(_) => ToldCommand::Deliver(notice),
            Err(failed) => ToldCommand::GiveUp(notice, failed.reason()),
        };
        work.decide::<Told>(THE_TOLD, &(outcome, notice, work.now())).map_err(Rejection::from)?;
        Ok(())
    }
}

/// What a service says of a dead letter.
fn said_of(message: &Received<AdminMessage>) -> Option<(Uuid, DeadLetterCommand)> {
    match &message.fact {
        OperatorMessage::DeadLetter(DeadLetterMessage::DeadLettered(announced)) => {
            Some((announced.id, DeadLetterCommand::Announce(announced.clone())))
        }
        OperatorMessage::DeadLetter(DeadLetterMessage::DeadLetterResolved(resolved)) => {
            Some((resolved.dead_letter, DeadLetterCommand::Resolve(Box::new(resolved.clone()))))
        }
        OperatorMessage::DeadLetter(DeadLetterMessage::DeadLetterForgotten(forgotten)) => {
            let said = Forgotten { revision: forgotten.revision, at: message.occurred_at };
            Some((forgotten.dead_letter, DeadLetterCommand::Forget(said)))
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
                self.ask_one(*id, DeadLetterCommand::Replay(by(), replay.clone()), edit, work)
            }
            CommandKind::Discard(id) => self.ask_one(*id, DeadLetterCommand::Discard(by()), None, work),
            CommandKind::Restore(id) => self.ask_one(*id, DeadLetterCommand::Restore(by()), None, work),
            CommandKind::Note(id, text) => {
                self.ask_one(*id, DeadLetterCommand::Note(by(), text.clone()), None, work)
            }
            CommandKind::Many { dead_letters, wish } => {
                Ok(Reply::Many(ask_each(dead_letters, wish.command(&self.by), work)))
            }
            CommandKind::Settle(settling, case) => {
                let with = settle(*settling, case, &self.by, work)?;
                let Ok(_) = work.decide::<Books>(THE_BOOKS, &BooksCommand::Forget);
                let accepted = accepted_in(std::iter::once(&case.named).chain(with.iter().copied()));
                let with: Vec<_> = with.into_iter().map(Named::id).collect();
                let detail = Some(json!({ "with": with, "accepted": accepted }));
                self.log(case.named.id(), detail, DONE, work);
                Ok(Reply::Done)
            }
            CommandKind::SettleMany { settling, cases, entry } => {
                let (mut many, mut accepted) = (Many::default(), vec![]);
                for case in cases {
                    let with = settle(*settling, case, &self.by, work);
                    many.add(case.named.id(), with.map(|with| accepted.extend(accepted_in(with))));
                }
                // Of what says no the last look at the books is as good as it was.
                if many.done > 0 {
                    let Ok(_) = work.decide::<Books>(THE_BOOKS, &BooksCommand::Forget);
                }
                let Ok(_) = work.decide::<AuditEntry>(entry, &AuditCommand::Accept(accepted));
                Ok(Reply::Many(many))
            }
            CommandKind::Extend { orders, until } => {
                let mut many = Many::default();
                for &order in orders {
                    match extend(order, *until, work) {
                        Err(detail) => {
                            let has_ended = work.row::<SagaView>(order).status().is_terminal();
                            many.refuse(Refused { id: order, detail, has_ended });
                        }
                        done @ Ok(()) => many.add(order, done),
                    }
                }
                Ok(Reply::Many(many))
            }
            CommandKind::Redrive(id, command) => {
                change_redrive(*id, command.clone(), work)?;
                self.log(id, plan_of(command), DONE, work);
                Ok(Reply::Done)
            }
            CommandKind::Send { tag, dead_letters } => {
                let at = work.now();
                let drive = work.row::<Redrive>(tag.redrive).drive().ok_or(RedriveRejection::Unknown)?;
                drive.sends_in(tag.round)?;
                // Another driver may have sent some meanwhile.
                let most = drive.room(&Counted::default()).min(drive.granted(at));
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let replay = drive.replay(tag.redrive);
                let dead_letters = &dead_letters[..dead_letters.len().min(most)];
                let replay = DeadLetterCommand::Replay(by(), replay);
                let sent = ask_each(dead_letters, replay, work);
                let count = RedriveCommand::Count(tag.round, sent.done);
                work.decide::<Redrive>(tag.redrive, &(count, at))?;
                Ok(Reply::Many(sent))
            }
            CommandKind::OpenEntry { target, detail, .. } => {
                self.log(target, detail.clone(), ASKED, work);
                Ok(Reply::Done)
            }
            CommandKind::CloseEntry(entry, outcome) => {
                let Ok(_) = work.decide::<AuditEntry>(entry, &AuditCommand::End(outcome.clone()));
                // What did not add up then may do so now.
                if work.row::<AuditEntry>(entry).says_done(Action::AuditBaseline) {
                    let Ok(_) = work.decide::<Books>(THE_BOOKS, &BooksCommand::Forget);
                }
                Ok(Reply::Done)
            }
            CommandKind::Push(command) => self.push(command, work),
            CommandKind::Audited { look, forgotten, closing } => {
                let look = BooksCommand::Look { look: look.clone(), forgotten: *forgotten };
                let Ok(_) = work.decide::<Books>(THE_BOOKS, &look);
                if let Some(closing) = closing {
                    let Ok(_) = work.decide::<Closing>(THE_CLOSING, closing);
                }
                Ok(Reply::Done)
            }
        }
    }

    /// Tells people something, and answers what.
    fn push(&self, command: &ToldCommand, work: &mut Work<'_>) -> Result<Reply, Rejection> {
        work.decide::<Told>(THE_TOLD, &(command.clone(), self.id, work.now()))?;
        let told = work.row::<Told>(THE_TOLD);
        let notice = match command {
            ToldCommand::Test => Some(Notice::test(self.id, work.now())),
            ToldCommand::Look(..) | ToldCommand::Deliver(_) | ToldCommand::GiveUp(..) => {
                told.under_way().filter(|notice| notice.id == self.id).cloned()
            }
        };
        self.log(NOTICE, None, DONE, work);
        Ok(Reply::Notice(notice.map(Box::new)))
    }

    /// Asks one dead letter, and answers with what it is then.
    fn ask_one(
        &self,
        id: Uuid,
        command: DeadLetterCommand,
        detail: Option<Value>,
        work: &mut Work<'_>,
    ) -> Result<Reply, Rejection> {
        work.decide::<DeadLetterView>(id, &(command, work.now()))?;
        self.log(id, detail, DONE, work);
        let dead_letter = DeadLetterItem::of(id, work.row::<DeadLetterView>(id));
        Ok(Reply::Changed(dead_letter.map(Box::new)))
    }

    /// Writes down what this command is called, if it is.
    fn log(&self, target: impl ToString, detail: Option<Value>, outcome: &str, work: &mut Work<'_>) {
        if let Some(action) = self.action() {
            let (by, target, outcome) = (self.by.clone(), target.to_string(), outcome.to_owned());
            let entry = Entry { at: work.now(), by, action, target, detail, outcome };
            let Ok(_) = work.decide::<AuditEntry>(self.id, &AuditCommand::Write(entry));
        }
    }
}

/// Asks all of these dead letters. What one says touches no other.
fn ask_each(dead_letters: &[Uuid], command: DeadLetterCommand, work: &mut Work<'_>) -> Many {
    let asked = (command, work.now());
    let mut many = Many::default();
    for &id in dead_letters {
        many.add(id, work.decide::<DeadLetterView>(id, &asked).map(drop));
    }
    many
}

/// Settles outside what was named, or takes that back; when it says no, nothing is done. What goes with it and says no
/// stays as it is: it may have ended meanwhile. Answers what went with it.
fn settle<'a>(
    settling: Settling,
    case: &'a Case,
    by: &By,
    work: &mut Work<'_>,
) -> Result<Vec<&'a Named>, Rejection> {
    settle_one(settling, &case.named, by, work)?;
    let goes = |other: &&Named| {
        let is_early = settling == Settling::Settle && is_before_its_last(case, other, work);
        !is_early && settle_one(settling, other, by, work).is_ok()
    };
    Ok(case.with.iter().filter(goes).collect())
}

/// Whether a saga that goes with a dead letter has another in its way, which waits, or came since anybody looked.
fn is_before_its_last(case: &Case, other: &Named, work: &mut Work<'_>) -> bool {
    let (Named::DeadLetter(_), Named::Saga(saga, _)) = (&case.named, other) else { return false };
    let in_its_way: Vec<Uuid> = work.row::<SagaView>(saga).open_dead_letters().map(|(id, _)| id).collect();
    in_its_way.iter().any(|id| !case.in_the_way.contains(id) || work.row::<DeadLetterView>(id).waits())
}

/// What was accepted with these, as the audit log has it: each with its saga.
fn accepted_in<'a>(settled: impl IntoIterator<Item = &'a Named>) -> Vec<Value> {
    let of = |named: &'a Named| match named {
        Named::Saga(saga, accepted) => accepted.iter().map(|accepted| (saga, accepted)).collect(),
        Named::DeadLetter(_) => vec![],
    };
    let all = settled.into_iter().flat_map(of);
    all.map(|(saga, Accepted { rule, detail, difference })| {
        json!({ "saga": saga, "rule": rule, "detail": detail, "difference": difference })
    })
    .collect()
}

fn settle_one(settling: Settling, named: &Named, by: &By, work: &mut Work<'_>) -> Result<(), Rejection> {
    let (operator, at) = (by.operator.clone(), work.now());
    let reason = by.reason.clone().unwrap_or_default();
    match (settling, named) {
        (Settling::Settle, Named::DeadLetter(id)) => {
            work.decide::<DeadLetterView>(id, &(DeadLetterCommand::Settle(by.clone()), at))?;
        }
        (Settling::Unsettle, Named::DeadLetter(id)) => {
            work.decide::<DeadLetterView>(id, &(DeadLetterCommand::Unsettle(by.clone()), at))?;
        }
        (Settling::Settle, Named::Saga(id, accepted)) => {
            let (view, accepted) = (work.row::<SagaView>(id), accepted.clone());
            let (was, revision) = (view.status_without_resolution(), view.next_revision(at));
            let settlement = ManualResolution { operator, reason, at, was, accepted, revision };
            work.decide::<SagaView>(id, &SagaCommand::ResolveManually(settlement))?;
        }
        (Settling::Unsettle, Named::Saga(id, _)) => {
            let revision = work.row::<SagaView>(id).next_revision(at);
            let unsettlement = ResolutionWithdrawal { operator, reason, at, revision };
            work.decide::<SagaView>(id, &SagaCommand::WithdrawResolution(unsettlement))?;
        }
    }
    Ok(())
}

/// Whenever an order is to wait longer, the order service is told; its word counts, and is heard.
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
        | SagaStatus::Failed
        | SagaStatus::ResolvedManually) => Err(format!("the saga is {}", over.as_str())),
    }
}

/// Whenever the course of a redrive changes, the roster knows.
fn change_redrive(id: Uuid, command: RedriveCommand, work: &mut Work<'_>) -> Result<(), Rejection> {
    let at = work.now();
    work.decide::<Redrive>(id, &(command, at))?;
    let Some(drive) = work.row::<Redrive>(id).drive() else {
        return Ok(());
    };
    let change = match drive.status {
        RedriveStatus::Canary | RedriveStatus::Running => {
            RosterChange::Entered { filter: drive.plan.filter.key(), redrive: id }
        }
        RedriveStatus::Paused => RosterChange::Rested { redrive: id },
        RedriveStatus::Stopped | RedriveStatus::Cancelled | RedriveStatus::Done => {
            RosterChange::Left { redrive: id }
        }
    };
    work.decide::<Roster>(THE_ROSTER, &change)?;
    Ok(())
}

/// What the audit log says of a redrive that starts.
fn plan_of(command: &RedriveCommand) -> Option<Value> {
    let RedriveCommand::Start(plan) = command else { return None };
    let Plan { filter, canary, rate, force, matching, .. } = &**plan;
    Some(json!({ "filter": filter, "canary": canary, "rate": rate, "force": force, "matching": matching }))
}
