//! Pure: decides one batch of inputs in memory, in order, each on the rows as earlier inputs left them.

use jiff::Timestamp;

use super::batch::{Batch, DecisionConfig};
use super::data::{KeyedAnswer, Loaded, Writes};
use super::input_error::InputError;
use super::reads::{additional_rows, reads};
use crate::input::{CommandOutcome, DueOutcome, Input, InputKind, Outcome, RequestKey};
use crate::retry::FailedAttempt;
use crate::service::Service;

/// Decides a batch.
///
/// A failure of one input, even a panic, touches no other. The same arguments give the same result: ids are
/// derived, time and randomness are arguments.
pub fn decide<S: Service>(
    service: &S,
    inputs: &[Input<S>],
    loaded: Loaded,
    config: &DecisionConfig,
    now: Timestamp,
) -> (Writes, Vec<Outcome<S>>) {
    let mut batch = Batch::new(service, loaded, config, now, reads(service, inputs));
    let to_read = additional_rows(service, inputs, &mut batch.rows, now, config.lost_before);
    if !to_read.is_empty() {
        return (Writes { to_read, ..Writes::default() }, vec![]);
    }
    let outcomes = inputs.iter().map(|input| batch.process(input)).collect();
    (batch.finish(), outcomes)
}

impl<S: Service> Batch<'_, S> {
    fn process(&mut self, input: &Input<S>) -> Outcome<S> {
        match &input.kind {
            InputKind::Command { command, key } => {
                Outcome::Command(self.process_command(input, command, key.as_ref()))
            }
            InputKind::Message(delivered) => Outcome::Message(self.process_message(input, delivered)),
            InputKind::TaskResult { task, answer } => {
                Outcome::Message(self.process_task_result(input, task, answer))
            }
            InputKind::Due { key } => {
                Outcome::Due(match self.react(input, |service, work| service.on_deadline(key, work)) {
                    Ok(()) => DueOutcome::Done,
                    Err(InputError::Rejected(rejection)) => DueOutcome::Rejected(rejection),
                    Err(InputError::Failed(failed)) => DueOutcome::Faulted(shown::<S>(&failed)),
                })
            }
        }
    }

    fn process_command(
        &mut self,
        input: &Input<S>,
        command: &S::Command,
        key: Option<&RequestKey>,
    ) -> CommandOutcome<S> {
        if let Some((key, answer)) = key.and_then(|key| Some((key, self.loaded.keys.get(&key.key)?))) {
            if answer.fingerprint != key.fingerprint {
                return CommandOutcome::KeyReused;
            }
            return match serde_json::from_str(&answer.reply) {
                Ok(reply) => CommandOutcome::Replayed(reply),
                Err(error) => CommandOutcome::Faulted(format!("the stored answer cannot be read: {error}")),
            };
        }
        let reply = match self.react(input, |service, work| service.on_command(command, work)) {
            Ok(reply) => reply,
            Err(InputError::Rejected(rejection)) => return CommandOutcome::Rejected(rejection),
            Err(InputError::Failed(failed)) => return CommandOutcome::Faulted(shown::<S>(&failed)),
        };
        if let (Some(key), Ok(json)) = (key, serde_json::to_string(&reply)) {
            let answer = KeyedAnswer { fingerprint: key.fingerprint.clone(), reply: json };
            self.loaded.keys.insert(key.key.clone(), answer.clone());
            self.writes.keys.push((key.key.clone(), answer));
        }
        CommandOutcome::Done(reply)
    }
}

/// Failure as it is logged. It may quote a stored row.
fn shown<S: Service>(failed: &FailedAttempt) -> String {
    failed.redacted(&[], S::SECRETS).reason()
}
