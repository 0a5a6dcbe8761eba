//! Pure: which redrives are under way, in the one row that knows them all: no two have the same filter, and
//! whoever drives them waits for this row to change.

use std::collections::BTreeMap;

use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of the one row.
pub const THE_ROSTER: &str = "all";

/// Redrives under way at once; each costs the driver a few queries a tick.
pub const MOST_REDRIVES: usize = 20;

/// The redrives that are under way, by what their filters mean.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    entries: BTreeMap<Uuid, Listed>,
}

/// A redrive under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    redrive: Uuid,
    sends: bool,
}

/// What becomes of a redrive: both command and event, since the roster follows the redrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum RosterChange {
    /// A redrive with this filter is under way, and sends.
    Entered {
        /// The one name of all filters that mean the same as its own.
        filter: Uuid,
        /// Id of the redrive.
        redrive: Uuid,
    },
    /// A redrive under way sends nothing for now.
    Rested {
        /// Id of the redrive.
        redrive: Uuid,
    },
    /// A redrive is over.
    Left {
        /// Id of the redrive.
        redrive: Uuid,
    },
}

/// Why a redrive cannot be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RosterRejection {
    /// Another one with the same filter is.
    #[error("redrive {0} with the same filter is under way")]
    SameFilter(Uuid),
    /// As many are as may be at once.
    #[error("{MOST_REDRIVES} redrives are under way")]
    Full,
}

impl Roster {
    /// The redrives that send.
    pub fn sending(&self) -> impl Iterator<Item = Uuid> {
        self.entries.values().filter(|listed| listed.sends).map(|listed| listed.redrive)
    }
}

impl Decider for Roster {
    const KIND: &'static str = "redrive_roster";
    const FIELDS: &'static [&'static str] = &[];
    type Command = RosterChange;
    type Event = RosterChange;
    type Rejection = RosterRejection;

    fn decide(&self, change: &RosterChange) -> Result<Vec<RosterChange>, RosterRejection> {
        let mut after = self.clone();
        after.evolve(change);
        if let RosterChange::Entered { filter, redrive } = change {
            if let Some(other) = self.entries.get(filter).filter(|listed| listed.redrive != *redrive) {
                return Err(RosterRejection::SameFilter(other.redrive));
            }
            if after.entries.len() > MOST_REDRIVES {
                return Err(RosterRejection::Full);
            }
        }
        Ok(if after == *self { vec![] } else { vec![*change] })
    }

    fn evolve(&mut self, change: &RosterChange) {
        match *change {
            RosterChange::Entered { filter, redrive } => {
                self.entries.insert(filter, Listed { redrive, sends: true });
            }
            RosterChange::Rested { redrive } => {
                let listed = self.entries.values_mut().filter(|listed| listed.redrive == redrive);
                listed.for_each(|listed| listed.sends = false);
            }
            RosterChange::Left { redrive } => self.entries.retain(|_, listed| listed.redrive != redrive),
        }
    }

    fn event_name(change: &RosterChange) -> &'static str {
        change.into()
    }
}
