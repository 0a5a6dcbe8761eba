//! The service that the tests run: it keeps shelves, hears what the courier says, and calls a supplier.
//!
//! Its misbehaviour is scripted by what it is given, so that it stays pure as every service is.

use bytes::Bytes;
use jiff::Timestamp;
use saga_core::input::Input;
use saga_core::message::Received;
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step, Subscription, TaskResult, steps_of};
use saga_core::unit_of_work::UnitOfWork;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::facts::{Fact, PARCELS_ARRIVED, ParcelsStored};
use super::shelf::{Nothing, Shelf, ShelfCommand};

/// Putting this many pieces anywhere panics.
pub const UNLUCKY: u32 = 13;
/// Reading the rows of a message with this label panics.
pub const UNREADABLE: &str = "unreadable";

/// Pieces of a full shelf, which needs no more from the supplier.
pub const FULL: u32 = 1_000;

/// The deadline of this shelf panics.
pub const CURSED: &str = "cursed";

/// Fills shelves. Its tasks call the supplier.
pub const FILLING: &Step = &STEPS[0];
/// Consumes the same facts as [`FILLING`], and publishes that it did.
pub const LISTENING: &Step = &STEPS[1];

/// Dependency of the depot.
pub const SUPPLIER: &str = "supplier";

static STEPS: [Step; 2] =
    [Step::new("shelf-filling", &[ARRIVALS]).needing(&[SUPPLIER]), Step::new("shelf-listening", &[ARRIVALS])];
const ARRIVALS: Subscription = Subscription::to("courier", &[PARCELS_ARRIVED]);

#[derive(Debug)]
pub struct Depot;

/// Commands of the depot.
#[derive(Debug, Clone)]
pub enum DepotCommand {
    List(&'static str),
    Put(&'static str, u32),
    CheckAt(&'static str, Timestamp),
    /// Calls the supplier. A failure ends the task.
    Supply(&'static str),
    /// Calls the supplier. A failure is dead-lettered.
    Insist(&'static str),
}

/// Reply to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub pieces: i64,
}

/// What the supplier is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct SupplyRequest {
    label: String,
}

impl DepotCommand {
    const fn label(&self) -> &'static str {
        match self {
            Self::List(label)
            | Self::Put(label, _)
            | Self::CheckAt(label, _)
            | Self::Supply(label)
            | Self::Insist(label) => label,
        }
    }
}

impl Service for Depot {
    const NAME: &'static str = "depot";
    const OPERATOR: Option<&'static str> = Some("admin");
    type Fact = Fact;
    type Command = DepotCommand;
    type Reply = Reply;
    type Rejection = Nothing;

    fn rows() -> Vec<RowKind> {
        vec![RowKind::of::<Shelf>()]
    }

    fn steps() -> &'static [Step] {
        &STEPS
    }

    fn rows_of_command(&self, command: &DepotCommand) -> Vec<RowKey> {
        vec![RowKey::of::<Shelf>(command.label())]
    }

    fn on_command(
        &self,
        command: &DepotCommand,
        work: &mut UnitOfWork<'_, Fact>,
    ) -> Result<Reply, HandlerError<Nothing>> {
        let label = command.label();
        let request = SupplyRequest { label: label.to_owned() };
        match command {
            DepotCommand::List(_) => work.decide::<Shelf>(label, &ShelfCommand::List).map(drop)?,
            DepotCommand::Put(_, pieces) => put(work, label, *pieces)?,
            DepotCommand::CheckAt(_, at) => {
                work.decide::<Shelf>(label, &ShelfCommand::PlanCheck(*at)).map(drop)?;
            }
            DepotCommand::Supply(_) => drop(work.add_task("supply", &request)),
            DepotCommand::Insist(_) => drop(work.add_task("insist", &request)),
        }
        Ok(Reply { pieces: work.row::<Shelf>(label).pieces })
    }

    fn rows_of_message(&self, message: &Received<Fact>) -> Vec<RowKey> {
        let Fact::ParcelsArrived(fact) = &message.fact else { return vec![] };
        assert_ne!(fact.label, UNREADABLE, "the rows of this one panic");
        vec![RowKey::of::<Shelf>(&fact.label)]
    }

    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Fact>,
        work: &mut UnitOfWork<'_, Fact>,
    ) -> HandlerResult<Self> {
        if step.name == LISTENING.name {
            let saga = work.correlation_id();
            work.publish(ParcelsStored { saga, stored: vec![] });
            return Ok(());
        }
        let Fact::ParcelsArrived(fact) = &message.fact else {
            return Err(HandlerError::unhandled(step, message));
        };
        if !work.row::<Shelf>(&fact.label).listed {
            return Err(HandlerError::Transient(format!("shelf {:?} is not listed yet", fact.label)));
        }
        Ok(put(work, &fact.label, fact.quantity)?)
    }

    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        label_of(result).map(RowKey::of::<Shelf>).into_iter().collect()
    }

    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut UnitOfWork<'_, Fact>) -> bool {
        label_of(result).is_none_or(|label| work.row::<Shelf>(label).pieces < i64::from(FULL))
    }

    fn on_task_result(
        &self,
        result: &TaskResult<'_>,
        work: &mut UnitOfWork<'_, Fact>,
    ) -> HandlerResult<Self> {
        let label =
            label_of(result).ok_or_else(|| HandlerError::Permanent("not for this depot".to_owned()))?;
        match result.answer {
            Ok(answer) => {
                let pieces = answer.as_u64().and_then(|pieces| u32::try_from(pieces).ok());
                Ok(put(work, &label, pieces.unwrap_or(0))?)
            }
            Err(failed) if result.kind == "insist" => {
                Err(HandlerError::Permanent(format!("no supply: {}", failed.reason())))
            }
            Err(_) => Ok(work.decide::<Shelf>(&label, &ShelfCommand::GiveUp).map(drop)?),
        }
    }

    fn on_deadline(&self, row: &RowKey, work: &mut UnitOfWork<'_, Fact>) -> HandlerResult<Self> {
        assert!(!row.id.starts_with(CURSED), "nobody looks at a cursed shelf and lives");
        Ok(work.decide::<Shelf>(&row.id, &ShelfCommand::Check).map(drop)?)
    }
}

/// Puts pieces on a shelf.
fn put(work: &mut UnitOfWork<'_, Fact>, label: &str, pieces: u32) -> Result<(), Nothing> {
    work.decide::<Shelf>(label, &ShelfCommand::Put(pieces))?;
    // Late on purpose: what the input did so far must vanish with it.
    assert_ne!(pieces, UNLUCKY, "an unlucky number of pieces");
    Ok(())
}

fn label_of(result: &TaskResult<'_>) -> Option<String> {
    serde_json::from_str::<SupplyRequest>(result.payload).ok().map(|request| request.label)
}

/// Step in which the engine receives operator commands.
pub fn operating() -> &'static Step {
    steps_of::<Depot>().into_iter().find(|step| step.is_for_operators()).expect("it has an operator")
}

/// `payload` as [`FILLING`] hears it the first time.
pub fn received(payload: Bytes) -> Input<Depot> {
    Input::message(FILLING, payload, Uuid::from_u128(404), 0)
}
