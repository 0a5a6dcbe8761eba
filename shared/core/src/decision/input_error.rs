//! Pure: the reason why an input has no effect: a rejection, or a failed attempt.

use crate::retry::{FailedAttempt, FailureKind};
use crate::service::HandlerError;

/// Reason why an input has no effect.
pub(super) enum InputError<J> {
    /// Business rejection: an answer, and no fault.
    Rejected(J),
    /// Failed attempt, of any [`FailureKind`].
    Failed(FailedAttempt),
}

impl<J> InputError<J> {
    pub(super) fn permanent(reason: impl Into<String>) -> Self {
        Self::Failed(FailedAttempt::new(FailureKind::Permanent, reason))
    }
}

impl<J> From<HandlerError<J>> for InputError<J> {
    fn from(error: HandlerError<J>) -> Self {
        match error {
            HandlerError::Rejected(rejection) => Self::Rejected(rejection),
            HandlerError::Transient(reason) => {
                Self::Failed(FailedAttempt::new(FailureKind::Transient, reason))
            }
            HandlerError::Permanent(reason) => Self::permanent(reason),
        }
    }
}
