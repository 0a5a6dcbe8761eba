//! Pure: the active redrives, in one row. No two have the same filter, and drivers wait for changes of this row.

use std::collections::BTreeMap;

use saga_core::decider::Decider;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Id of the only row.
pub const ACTIVE_REDRIVES: &str = "all";

/// Maximum number of active redrives. Each costs the driver a few queries per tick.
pub const MAX_REDRIVES: usize = 20;

/// Active redrives by the key of their filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveRedrives {
    entries: BTreeMap<Uuid, Active>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Active {
    redrive: Uuid,
    sends: bool,
}

/// A change of status of a redrive. It is both command and event, as this row follows the redrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ActiveChange {
    /// It replays dead letters.
    Started {
        /// Key of its filter.
        filter: Uuid,
        redrive: Uuid,
    },
    /// It replays nothing for now.
    Paused { redrive: Uuid },
    /// It is over.
    Ended { redrive: Uuid },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ActiveRejection {
    #[error("redrive {0} with the same filter is active")]
    SameFilter(Uuid),
    #[error("{MAX_REDRIVES} redrives are active")]
    Full,
}

impl ActiveRedrives {
    /// Redrives that are not paused.
    pub fn sending(&self) -> impl Iterator<Item = Uuid> {
        self.entries.values().filter(|active| active.sends).map(|active| active.redrive)
    }
}

impl Decider for ActiveRedrives {
    const KIND: &'static str = "active_redrives";
    const FIELDS: &'static [&'static str] = &[];
    type Command = ActiveChange;
    type Event = ActiveChange;
    type Rejection = ActiveRejection;

    fn decide(&self, change: &ActiveChange) -> Result<Vec<ActiveChange>, ActiveRejection> {
        let mut after = self.clone();
        after.evolve(change);
        if let ActiveChange::Started { filter, redrive } = change {
            if let Some(other) = self.entries.get(filter).filter(|active| active.redrive != *redrive) {
                return Err(ActiveRejection::SameFilter(other.redrive));
            }
            if after.entries.len() > MAX_REDRIVES {
                return Err(ActiveRejection::Full);
            }
        }
        Ok(if after == *self { vec![] } else { vec![*change] })
    }

    fn evolve(&mut self, change: &ActiveChange) {
        match *change {
            ActiveChange::Started { filter, redrive } => {
                self.entries.insert(filter, Active { redrive, sends: true });
            }
            ActiveChange::Paused { redrive } => {
                let active = self.entries.values_mut().filter(|active| active.redrive == redrive);
                active.for_each(|active| active.sends = false);
            }
            ActiveChange::Ended { redrive } => self.entries.retain(|_, active| active.redrive != redrive),
        }
    }

    fn event_name(change: &ActiveChange) -> &'static str {
        change.into()
    }
}
