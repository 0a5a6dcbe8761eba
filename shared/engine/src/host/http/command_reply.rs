//! Shell: the outcome of a command as an HTTP answer.

use std::convert::Infallible;

use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponseParts, ResponseParts};
use saga_core::input::CommandOutcome;
use saga_core::service::Service;

use super::problem::Problem;

/// Header of an answer that was stored with its idempotency key, and is repeated.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Part of an answer: `Idempotency-Replayed: true` if the answer is a stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed(bool);

impl IntoResponseParts for Replayed {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if self.0 {
            parts.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
        }
        Ok(parts)
    }
}

/// Returns the reply to a command; `rejected` maps a rejection to its problem.
///
/// # Errors
/// The problem of a rejection, of a reused idempotency key, or of a fault.
pub fn command_reply<S: Service>(
    outcome: CommandOutcome<S>,
    rejected: impl FnOnce(&S::Rejection) -> Problem,
) -> Result<S::Reply, Problem> {
    keyed_reply(outcome, rejected).map(|(reply, _)| reply)
}

/// Returns the reply to a command with an idempotency key, and the mark of a stored one. The reply tells the state at
/// the first request; what `Location` names has the current one.
///
/// # Errors
/// As [`command_reply`].
pub fn keyed_reply<S: Service>(
    outcome: CommandOutcome<S>,
    rejected: impl FnOnce(&S::Rejection) -> Problem,
) -> Result<(S::Reply, Replayed), Problem> {
    match outcome {
        CommandOutcome::Done(reply) => Ok((reply, Replayed(false))),
        CommandOutcome::Replayed(reply) => Ok((reply, Replayed(true))),
        CommandOutcome::Rejected(rejection) => Err(rejected(&rejection)),
        CommandOutcome::KeyReused => {
            Err(Problem::field("Idempotency-Key", "belongs to another request; use a new key for a new one"))
        }
        CommandOutcome::Faulted(reason) => Err(Problem::internal(&reason)),
    }
}
