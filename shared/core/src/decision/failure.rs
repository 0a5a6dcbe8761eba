//! Pure: why a reaction has no effect.

use crate::retry::{FailedTry, FailureKind};
use crate::service::HandlerError;

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

impl<J> From<HandlerError<J>> for Failure<J> {
    fn from(refusal: HandlerError<J>) -> Self {
        match refusal {
            HandlerError::Rejected(rejection) => Self::Rejected(rejection),
            HandlerError::Transient(reason) => Self::Failed(FailedTry::new(FailureKind::Transient, reason)),
            HandlerError::Permanent(reason) => Self::permanent(reason),
        }
    }
}
