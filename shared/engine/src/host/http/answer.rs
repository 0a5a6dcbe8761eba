//! Shell: what became of a command, as HTTP tells it.

use saga_core::input::CommandOutcome;
use saga_core::service::Service;

use super::problem::Problem;

/// The reply to a command, or the problem that it met; `rejected` says which problem a rejection is.
///
/// # Errors
/// The problem.
pub fn answered<S: Service>(
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
