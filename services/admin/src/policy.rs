//! Pure: whatever the services say, admin keeps a view of it; whatever an operator asks for changes a row, tells
//! the service concerned, and is written down, all at once or not at all.

use serde_json::{Value, json};
use shared::contract::{DeadLetterDiscarded, DeadLetterRestored, Fact, ReplayRequested};
use shared::envelope::Message;
use shared::row::{RowKey, RowKind};
use shared::saga::{HeardFact, SagaView};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;
use uuid::Uuid;

use crate::commands::{Command, Refused, Rejection, Reply, Steer, Wish};
use crate::letter_view::LetterItem;
use crate::letters::{Letter, LetterCommand, Replay, Tag};
use crate::operations::{ASKED, DONE, Entry, Operation, OperationCommand};
use crate::redrive::{Plan, Redrive, RedriveCommand, RedriveRejection, RedriveStatus};
use crate::roster::{Roster, RosterChange, THE_ROSTER};

/// The admin service's reactions.
#[derive(Debug)]
pub struct AdminService;

type Reaction = Result<Reply, Refusal<Rejection>>;

impl Service for AdminService {
    const NAME: &'static str = crate::NAME;
    type Command = Command;
    type Reply = Reply;
    type Rejection = Rejection;

    fn rows() -> Vec<RowKind> {
        vec![
            RowKind::of::<SagaView>(),
            RowKind::of::<Letter>(),
            RowKind::of::<Redrive>(),
            RowKind::of::<Roster>(),
            RowKind::of::<Operation>(),
        ]
    }

    fn steps() -> &'static [Step] {
        &crate::STEPS
    }

    fn reads(&self, heard: &Heard<'_, Command>) -> Vec<RowKey> {
        match heard {
            Heard::Message(_, message) => {
                let saga = message.fact.saga().map(RowKey::of::<SagaView>);
                saga.into_iter().chain(letter_of(&message.fact).map(RowKey::of::<Letter>)).collect()
            }
            Heard::Command(command) => command.reads(),
            Heard::Called { .. } | Heard::Due(_) => vec![],
        }
    }

    fn react(&self, heard: &Heard<'_, Command>, unit: &mut Unit<'_>) -> Reaction {
        match heard {
            Heard::Message(_, message) => hear(message, unit),
            Heard::Command(command) => command.obey(unit),
            Heard::Called { .. } | Heard::Due(_) => {
                Err(Refusal::Broken("admin calls nobody and waits for nothing".to_owned()))
            }
        }
    }
}

fn letter_of(fact: &Fact) -> Option<Uuid> {
    match fact {
        Fact::DeadLettered(announced) => Some(announced.id),
        Fact::DeadLetterResolved(resolved) => Some(resolved.letter),
        Fact::OrderCreated(_)
        | Fact::OrderConfirmed(_)
        | Fact::OrderCancelled(_)
        | Fact::StockReserved(_)
        | Fact::StockReservationFailed(_)
        | Fact::StockReleased(_)
        | Fact::StockReplenished(_)
        | Fact::ProductListed(_)
        | Fact::PriceChanged(_)
        | Fact::PaymentProcessed(_)
        | Fact::PaymentFailed(_)
        | Fact::PaymentRefunded(_)
        | Fact::ReplayRequested(_)
        | Fact::DeadLetterDiscarded(_)
        | Fact::DeadLetterRestored(_) => None,
    }
}

fn hear(message: &Message, unit: &mut Unit<'_>) -> Reaction {
    if let Some(saga) = message.fact.saga() {
        let Ok(_) = unit.decide::<SagaView>(saga, &HeardFact::of(message));
    }
    let said = if let Fact::DeadLettered(announced) = &message.fact {
        Some((announced.id, LetterCommand::Announce(announced.clone())))
    } else if let Fact::DeadLetterResolved(resolved) = &message.fact {
        Some((resolved.letter, LetterCommand::Resolve(Box::new(resolved.clone()))))
    } else {
        None
    };
    if let Some((letter, command)) = said {
        unit.decide::<Letter>(letter, &command).map_err(Rejection::Letter)?;
    }
    Ok(Reply::default())
}

impl Command {
    fn obey(&self, unit: &mut Unit<'_>) -> Reaction {
        match &self.wish {
            Wish::Replay { letter, force, version, edited } => {
                let edit = edited.as_ref().map(|edited| json!({ "message_id": edited.message_id }));
                let (force, version, edited) = (*force, *version, edited.clone());
                replay(*letter, Replay { by: self.by.clone(), force, version, tag: None, edited }, unit)?;
                self.log(letter, edit, unit);
                Ok(seen(*letter, unit))
            }
            Wish::Discard(letter) => {
                let service = self.decide(*letter, LetterCommand::Discard(self.by.clone()), unit)?;
                let (letter, revision) = (*letter, unit.row::<Letter>(letter).version());
                unit.publish(Fact::DeadLetterDiscarded(DeadLetterDiscarded { letter, service, revision }));
                self.log(letter, None, unit);
                Ok(seen(letter, unit))
            }
            Wish::Restore(letter) => {
                let service = self.decide(*letter, LetterCommand::Restore(self.by.clone()), unit)?;
                let (letter, revision) = (*letter, unit.row::<Letter>(letter).version());
                unit.publish(Fact::DeadLetterRestored(DeadLetterRestored { letter, service, revision }));
                self.log(letter, None, unit);
                Ok(seen(letter, unit))
            }
            Wish::Note(letter, text) => {
                self.decide(*letter, LetterCommand::Note(self.by.clone(), text.clone()), unit)?;
                self.log(letter, None, unit);
                Ok(seen(*letter, unit))
            }
            Wish::ReplayMany { letters, force, target } => {
                let reply = self.replay_all(letters, *force, None, unit);
                let detail = json!({ "replayed": reply.replayed, "refused": reply.refused.len() });
                self.log(target, Some(detail), unit);
                Ok(reply)
            }
            Wish::Start(plan) => {
                self.change(self.id, RedriveCommand::Start(plan.clone()), unit)?;
                let Plan { filter, canary, rate, force, matching, .. } = &**plan;
                let detail = json!({
                    "filter": filter, "canary": canary, "rate": rate, "force": force, "matching": matching,
                });
                self.log(self.id, Some(detail), unit);
                Ok(Reply::default())
            }
            Wish::Steer(redrive, steer) => {
                let command = match steer {
                    Steer::Pause => RedriveCommand::Pause,
                    Steer::Resume => RedriveCommand::Resume,
                    Steer::Cancel => RedriveCommand::Cancel,
                };
                self.change(*redrive, command, unit)?;
                self.log(redrive, None, unit);
                Ok(Reply::default())
            }
            Wish::Drive(redrive, command) => {
                self.change(*redrive, command.clone(), unit)?;
                self.log(redrive, None, unit);
                Ok(Reply::default())
            }
            Wish::Send { tag, letters } => {
                let force = sends(*tag, unit)?;
                Ok(self.replay_all(letters, force, Some(*tag), unit))
            }
            Wish::Log { target, detail, .. } => {
                self.write(target, detail.clone(), ASKED, unit);
                Ok(Reply::default())
            }
            Wish::EndLog { entry, outcome, detail } => {
                let end = OperationCommand::End(outcome.clone(), detail.clone());
                let Ok(_) = unit.decide::<Operation>(entry, &end);
                Ok(Reply::default())
            }
        }
    }

    /// Asks a letter, and answers the service that holds it.
    fn decide(
        &self,
        letter: Uuid,
        command: LetterCommand,
        unit: &mut Unit<'_>,
    ) -> Result<String, Refusal<Rejection>> {
        unit.decide::<Letter>(letter, &command).map_err(Rejection::Letter)?;
        Ok(service_of(letter, unit))
    }

    /// Hands back all that can be. What one letter says touches no other.
    fn replay_all(&self, letters: &[Uuid], force: bool, tag: Option<Tag>, unit: &mut Unit<'_>) -> Reply {
        let mut reply = Reply::default();
        for &id in letters {
            let asked = Replay { by: self.by.clone(), force, version: None, tag, edited: None };
            match replay(id, asked, unit) {
                Ok(()) => reply.replayed += 1,
                Err(rejection) => reply.refused.push(Refused { id, detail: rejection.to_string() }),
            }
        }
        reply
    }

    /// Changes a redrive, and the roster with it.
    fn change(
        &self,
        id: Uuid,
        command: RedriveCommand,
        unit: &mut Unit<'_>,
    ) -> Result<(), Refusal<Rejection>> {
        let at = unit.now();
        unit.decide::<Redrive>(id, &(command, at)).map_err(Rejection::Redrive)?;
        let Some(drive) = unit.row::<Redrive>(id).drive() else {
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
        unit.decide::<Roster>(THE_ROSTER, &change).map_err(Rejection::Roster)?;
        Ok(())
    }

    fn log(&self, target: impl ToString, detail: Option<Value>, unit: &mut Unit<'_>) {
        self.write(target, detail, DONE, unit);
    }

    fn write(&self, target: impl ToString, detail: Option<Value>, outcome: &str, unit: &mut Unit<'_>) {
        if let Some(action) = self.action() {
            let outcome = outcome.to_owned();
            let entry = Entry { detail, outcome, ..Entry::done(unit.now(), &self.by, action, target) };
            let Ok(_) = unit.decide::<Operation>(self.id, &OperationCommand::Write(entry));
        }
    }
}

/// Whether the redrive sends in this round, and with which force.
fn sends(tag: Tag, unit: &mut Unit<'_>) -> Result<bool, Rejection> {
    let drive = unit.row::<Redrive>(tag.redrive).drive();
    let drive = drive.ok_or(Rejection::Redrive(RedriveRejection::Unknown))?;
    if drive.round != tag.round {
        return Err(Rejection::Redrive(RedriveRejection::OtherRound));
    }
    if !drive.status.is_sending() {
        return Err(Rejection::Redrive(RedriveRejection::Status(drive.status)));
    }
    Ok(drive.plan.force)
}

fn replay(letter: Uuid, asked: Replay, unit: &mut Unit<'_>) -> Result<(), Rejection> {
    let edited = asked.edited.clone();
    unit.decide::<Letter>(letter, &LetterCommand::Replay(asked)).map_err(Rejection::Letter)?;
    let (service, revision) = (service_of(letter, unit), unit.row::<Letter>(letter).version());
    unit.publish(Fact::ReplayRequested(ReplayRequested { letter, service, revision, edited }));
    Ok(())
}

fn service_of(letter: Uuid, unit: &mut Unit<'_>) -> String {
    unit.row::<Letter>(letter).said().map(|said| said.service.clone()).unwrap_or_default()
}

fn seen(letter: Uuid, unit: &mut Unit<'_>) -> Reply {
    Reply { letter: LetterItem::of(letter, unit.row::<Letter>(letter)), ..Reply::default() }
}
