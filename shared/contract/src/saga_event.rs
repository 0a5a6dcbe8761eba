//! Pure: commands to the view of a saga, and its events: recorded facts and manual resolutions.

use serde::{Deserialize, Serialize};

use crate::manual_resolution::{ManualResolution, ResolutionWithdrawal};
use crate::saga_fact::SagaFact;

/// Command to the view of a saga.
#[derive(Debug, Clone)]
pub enum SagaCommand {
    /// Record a fact that a service published.
    RecordFact(SagaFact),
    /// Resolve the saga manually: it waits for nobody any more.
    ResolveManually(ManualResolution),
    /// Withdraw the manual resolution: the saga waits again.
    WithdrawResolution(ResolutionWithdrawal),
}

/// Event of the view of a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SagaEvent {
    /// A fact was recorded.
    FactRecorded(SagaFact),
    /// An operator resolved the saga manually.
    ResolvedManually(ManualResolution),
    /// The manual resolution was withdrawn.
    ResolutionWithdrawn(ResolutionWithdrawal),
}

impl SagaEvent {
    /// Recorded fact, if the event is one.
    #[must_use]
    pub fn into_fact(self) -> Option<SagaFact> {
        match self {
            Self::FactRecorded(fact) => Some(fact),
            Self::ResolvedManually(_) | Self::ResolutionWithdrawn(_) => None,
        }
    }
}
