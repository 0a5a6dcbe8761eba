//! Pure: task results in a batch, and the check before an attempt.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::batch::{Batch, later, rejected};
use super::data::TaskRetry;
use super::input_error::InputError;
use crate::input::{Input, MessageOutcome};
use crate::retry::{FailedAttempt, FailureKind};
use crate::service::Service;
use crate::trace::TraceContext;
use crate::unit_of_work::UnitOfWork;
use crate::waiting::Task;

impl<S: Service> Batch<'_, S> {
    /// Passes the final result of a task to the service and ends the task; schedules a retry of a failure that may
    /// pass.
    pub(super) fn process_task_result(
        &mut self,
        input: &Input<S>,
        task: &Task,
        answer: &Result<Value, FailedAttempt>,
    ) -> MessageOutcome<S::Rejection> {
        let claim = self.loaded.tasks.get(&task.id).copied();
        let mut answer =
            answer.clone().map_err(|failed| failed.redacted(task.payload.as_bytes(), S::SECRETS));
        let attempts = match &mut answer {
            // An answer counts under any claim: the idempotency key makes it the only one.
            Ok(_) if claim.is_some() => task.attempts + 1,
            // Never attempted only if the first claim is the current one. The task of a dead letter may have been
            // attempted before it was claimed.
            Err(FailedAttempt { kind: kind @ FailureKind::NeverAttempted, .. })
                if let Some(claim) = claim =>
            {
                if self.is_still_needed(input, task) {
                    return MessageOutcome::TaskNeeded;
                }
                if claim > 1 || task.dead_letter.is_some() {
                    *kind = FailureKind::NoLongerNeeded;
                }
                task.attempts
            }
            // A failure counts only under the current claim.
            Err(failed) if claim == Some(task.claim) => {
                let (attempts, delay) =
                    self.config.task_retry.after(failed.kind, task.attempts, input.jitter);
                if let Some(delay) = delay {
                    self.writes.task_retries.push(TaskRetry {
                        id: task.id,
                        attempts,
                        next_attempt: later(self.now, failed.delay_after(delay)),
                        last_error: failed.reason(),
                        trace: task.trace.filter(|_| self.config.keep_failed).map(TraceContext::recorded),
                    });
                    return MessageOutcome::Retried(failed.reason());
                }
                attempts
            }
            Ok(_) | Err(_) => return MessageOutcome::Duplicate,
        };
        self.loaded.tasks.remove(&task.id);
        self.writes.end_task(task.id);
        self.record_replay(input);
        let (result, before) = (task.result(&answer), self.changes());
        match self.react(input, |service, work| service.on_task_result(&result, work)) {
            Ok(()) => {
                self.resolve(input, self.effect_since(before));
                MessageOutcome::Done
            }
            Err(InputError::Rejected(rejection)) => {
                self.resolve(input, rejected(&rejection));
                MessageOutcome::Rejected(rejection)
            }
            Err(InputError::Failed(failed)) => self.dead_letter(input, &failed, attempts, task.created_at),
        }
    }
    /// True if the service still needs the call of a task.
    fn is_still_needed(&mut self, input: &Input<S>, task: &Task) -> bool {
        let unknown = Err(FailedAttempt::new(FailureKind::NeverAttempted, ""));
        let mut work = UnitOfWork::new(&mut self.rows, input.cause(self.now, self.config.lost_before));
        let service = self.service;
        let is_needed = AssertUnwindSafe(|| service.is_task_needed(&task.result(&unknown), &mut work));
        // After a panic the call is made. Handling its result then panics too, and dead-letters the task.
        catch_unwind(is_needed).unwrap_or(true)
    }
}
