//! Pure: what a batch does with a call of a task that ended, or is about to be made.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;
use serde_json::Value;

use super::batch::{Batch, later, rejected};
use super::data::TaskRetry;
use super::failure::Failure;
use crate::input::{Input, MessageOutcome};
use crate::retry::{FailedTry, FailureKind};
use crate::service::Service;
use crate::trace::TraceContext;
use crate::unit_of_work::{Rows, UnitOfWork};
use crate::waiting::Task;

impl<S: Service> Batch<'_, S> {
    /// Hands the final result of a call to the service and ends the task.
    pub(super) fn on_task_result(
        &mut self,
        input: &Input<S>,
        task: &Task,
        answer: &Result<Value, FailedTry>,
    ) -> MessageOutcome<S::Rejection> {
        let claim = self.loaded.tasks.get(&task.id).copied();
        let mut answer =
            answer.clone().map_err(|failed| failed.discreet(task.payload.as_bytes(), S::SECRETS));
        let attempts = match &mut answer {
            // An answer counts whoever's claim it came under: the key of the call makes it the only one there is.
            Ok(_) if claim.is_some() => task.attempts + 1,
            // Nobody has tried it when its first claim is that of the one who has not yet. A dead letter's task
            // is claimed from the beginning, and may have been tried before.
            Err(FailedTry { kind: kind @ FailureKind::Untried, .. }) if let Some(claim) = claim => {
                if is_wanted(self.service, input, task, &mut self.rows, self.now) {
                    return MessageOutcome::Wanted;
                }
                if claim > 1 || task.dead_letter.is_some() {
                    *kind = FailureKind::Unwanted;
                }
                task.attempts
            }
            // A failure counts only under the current claim.
            Err(failed) if claim == Some(task.claim) => {
                let (attempts, delay) = self.rules.task_retry.after(failed.kind, task.attempts, input.jitter);
                if let Some(delay) = delay {
                    self.writes.task_retries.push(TaskRetry {
                        id: task.id,
                        attempts,
                        next_attempt: later(self.now, delay),
                        last_error: failed.reason(),
                        trace: task.trace.filter(|_| self.rules.keep_failed).map(TraceContext::recorded),
                    });
                    return MessageOutcome::Retried(failed.reason());
                }
                attempts
            }
            Ok(_) | Err(_) => return MessageOutcome::Duplicate,
        };
        self.loaded.tasks.remove(&task.id);
        self.writes.end_task(task.id);
        let (result, before) = (task.result(&answer), self.changes());
        match self.react(input, |service, work| service.on_task_result(&result, work)) {
            Ok(()) => {
                self.resolve(input, self.effect_since(before));
                MessageOutcome::Done
            }
            Err(Failure::Rejected(rejection)) => {
                self.resolve(input, rejected(&rejection));
                MessageOutcome::Rejected(rejection)
            }
            Err(Failure::Failed(failed)) => self.park(input, &failed, attempts, task.created_at),
        }
    }
}

/// Whether the service still wants the call of a task, on the rows as they are.
fn is_wanted<S: Service>(
    service: &S,
    input: &Input<S>,
    task: &Task,
    rows: &mut Rows,
    now: Timestamp,
) -> bool {
    let unknown = Err(FailedTry::new(FailureKind::Untried, ""));
    let mut work = UnitOfWork::new(rows, input.cause(now));
    let wants = AssertUnwindSafe(|| service.is_task_needed(&task.result(&unknown), &mut work));
    // Who panics here gets the result of the call, and the panic then parks it.
    catch_unwind(wants).unwrap_or(true)
}
