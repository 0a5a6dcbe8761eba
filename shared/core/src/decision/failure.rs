//! Pure: why a reaction has no effect.

use crate::retry::{FailedTry, FailureKind};
use crate::service::Refusal;

/// Why a reaction has no effect.
pub(super) enum Failure<J> {
    /// The business says no.
    Rejected(J),
    /// Something is wrong.
    Failed(FailedTry),
}

impl<J> Failure<J> {
    pub(super) fn permanent(reason: impl Into<String>) -> Self {
        Self::Failed(FailedTry::new(FailureKind::Permanent, reason))
    }
}

impl<J> From<Refusal<J>> for Failure<J> {
    fn from(refusal: Refusal<J>) -> Self {
        match refusal {
            Refusal::Rejected(rejection) => Self::Rejected(rejection),
            Refusal::NotYet(reason) => Self::Failed(FailedTry::new(FailureKind::Transient, reason)),
            Refusal::Broken(reason) => Self::permanent(reason),
        }
    }
}
