//! Row kind of the tests: a shelf with pieces of one label.

use jiff::Timestamp;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy};
use saga_core::unit_of_work::Policy;
use saga_core::unit_of_work::UnitOfWork;
use serde::{Deserialize, Serialize};

use super::facts::{Fact, ParcelsStored};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shelf {
    pub listed: bool,
    pub pieces: i64,
    pub failed_supplies: u32,
    pub check_at: Option<Timestamp>,
}

/// Commands of a shelf.
pub enum ShelfCommand {
    List,
    Put(u32),
    GiveUp,
    PlanCheck(Timestamp),
    Check,
}

/// Events of a shelf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShelfEvent {
    Listed,
    Put { pieces: u32 },
    SupplyFailed,
    CheckPlanned { at: Timestamp },
    Checked,
}

/// Nothing can be put on a shelf as nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is no quantity")]
pub struct Nothing;

impl Decider for Shelf {
    const KIND: &'static str = "shelf";
    const FIELDS: &'static [&'static str] = &["status", "pieces"];
    const NUMBERS: &'static [&'static str] = &["pieces"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = ShelfCommand;
    type Event = ShelfEvent;
    type Rejection = Nothing;

    fn decide(&self, command: &ShelfCommand) -> Result<Vec<ShelfEvent>, Nothing> {
        match command {
            ShelfCommand::List if self.listed => Ok(vec![]),
            ShelfCommand::List => Ok(vec![ShelfEvent::Listed]),
            ShelfCommand::Put(0) => Err(Nothing),
            ShelfCommand::Put(pieces) => Ok(vec![ShelfEvent::Put { pieces: *pieces }]),
            ShelfCommand::GiveUp => Ok(vec![ShelfEvent::SupplyFailed]),
            ShelfCommand::PlanCheck(at) => Ok(vec![ShelfEvent::CheckPlanned { at: *at }]),
            ShelfCommand::Check if self.check_at.is_none() => Ok(vec![]),
            ShelfCommand::Check => Ok(vec![ShelfEvent::Checked]),
        }
    }

    fn evolve(&mut self, event: &ShelfEvent) {
        match event {
            ShelfEvent::Listed => self.listed = true,
            ShelfEvent::Put { pieces } => self.pieces += i64::from(*pieces),
            ShelfEvent::SupplyFailed => self.failed_supplies += 1,
            ShelfEvent::CheckPlanned { at } => self.check_at = Some(*at),
            ShelfEvent::Checked => self.check_at = None,
        }
    }

    fn event_name(event: &ShelfEvent) -> &'static str {
        match event {
            ShelfEvent::Listed => "Listed",
            ShelfEvent::Put { .. } => "Put",
            ShelfEvent::SupplyFailed => "SupplyFailed",
            ShelfEvent::CheckPlanned { .. } => "CheckPlanned",
            ShelfEvent::Checked => "Checked",
        }
    }

    fn fields(&self, _id: &str) -> Vec<FieldValue> {
        let status = if self.listed { "LISTED" } else { "NEW" };
        vec![status.into(), self.pieces.into()]
    }

    fn due(&self) -> Option<Timestamp> {
        self.check_at
    }
}

impl Policy<Fact> for Shelf {
    /// Whenever something was put on a shelf, others are told what.
    fn whenever(event: &ShelfEvent, id: &str, _: &Self, work: &mut UnitOfWork<'_, Fact>) {
        if let ShelfEvent::Put { pieces } = event {
            let saga = work.correlation_id();
            work.publish(ParcelsStored { saga, stored: vec![(id.to_owned(), *pieces)] });
        }
    }
}
