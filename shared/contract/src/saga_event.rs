//! Pure: what may be asked of the view of a saga, and what happens to it: facts are heard, humans settle.

use serde::{Deserialize, Serialize};

use crate::heard_fact::HeardFact;
use crate::settlement::{Settlement, Unsettlement};

/// What its services say of a saga, or an operator asks of it.
#[derive(Debug, Clone)]
pub enum SagaCommand {
    /// Keep what was said.
    Hear(HeardFact),
    /// Wait for nobody any more: the rest was settled outside.
    Settle(Settlement),
    /// It was not, after all.
    Unsettle(Unsettlement),
}

/// What happened to a saga, as its view keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SagaEvent {
    /// A human has settled the rest outside.
    Settled(Settlement),
    /// That was taken back.
    Unsettled(Unsettlement),
    /// A fact was heard. Stored bare, as builds did that knew no other event.
    #[serde(untagged)]
    Heard(HeardFact),
}

impl SagaEvent {
    /// What was heard, if it is that.
    #[must_use]
    pub fn heard(self) -> Option<HeardFact> {
        match self {
            Self::Heard(fact) => Some(fact),
            Self::Settled(_) | Self::Unsettled(_) => None,
        }
    }
}
