//! Shell: the outcome of a command as an HTTP answer.

use saga_core::input::CommandOutcome;
use saga_core::service::Service;

use super::problem::Problem;

/// Returns the reply to a command; `rejected` maps a rejection to its problem.
///
/// # Errors
/// The problem of a rejection, of a reused idempotency key, or of a fault.
pub fn command_reply<S: Service>(
    outcome: CommandOutcome<S>,
    rejected: impl FnOnce(&S::Rejection) -> Problem,
) -> Result<S::Reply, Problem> {
    match outcome {
        CommandOutcome::Done(reply) | CommandOutcome::Replayed(reply) => Ok(reply),
        CommandOutcome::Rejected(rejection) => Err(rejected(&rejection)),
        CommandOutcome::KeyReused => {
            Err(Problem::field("Idempotency-Key", "belongs to another request; use a new key for a new one"))
        }
        CommandOutcome::Faulted(reason) => Err(Problem::internal(&reason)),
    }
}
