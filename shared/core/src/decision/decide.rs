//! Pure: one batch of inputs, decided in memory, in order, each on the rows as the earlier ones left them.

use jiff::Timestamp;

use super::batch::{Batch, Rules};
use super::data::{KeyedAnswer, Loaded, Writes};
use super::failure::Failure;
use super::reads::{on_record, reads};
use crate::input::{CommandOutcome, DueOutcome, Input, InputKind, Outcome, RequestKey};
use crate::service::Service;

/// Decides a batch.
///
/// One input's failure, even a panic, touches no other. Calling it again with the same arguments gives the
/// same answer: ids are derived, time and chance are arguments.
pub fn decide<S: Service>(
    service: &S,
    inputs: &[Input<S>],
    loaded: Loaded,
    rules: &Rules,
    now: Timestamp,
) -> (Writes, Vec<Outcome<S>>) {
    let mut batch = Batch::new(service, loaded, rules, now, reads(service, inputs));
    let to_read = on_record(service, inputs, &mut batch.rows, now);
    if !to_read.is_empty() {
        return (Writes { to_read, ..Writes::default() }, vec![]);
    }
    let outcomes = inputs.iter().map(|input| batch.take(input)).collect();
    (batch.finish(), outcomes)
}

impl<S: Service> Batch<'_, S> {
    fn take(&mut self, input: &Input<S>) -> Outcome<S> {
        match &input.kind {
            InputKind::Command { command, key } => {
                Outcome::Command(self.take_command(input, command, key.as_ref()))
            }
            InputKind::Message(delivered) => Outcome::Message(self.take_message(input, delivered)),
            InputKind::Called { task, answer } => Outcome::Message(self.on_task_result(input, task, answer)),
            InputKind::Due { key } => {
                Outcome::Due(match self.react(input, |service, work| service.on_deadline(key, work)) {
                    Ok(()) => DueOutcome::Done,
                    Err(Failure::Rejected(rejection)) => DueOutcome::Rejected(rejection),
                    Err(Failure::Failed(failed)) => DueOutcome::Faulted(failed.reason()),
                })
            }
        }
    }

    fn take_command(
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
            Err(Failure::Rejected(rejection)) => return CommandOutcome::Rejected(rejection),
            Err(Failure::Failed(failed)) => return CommandOutcome::Faulted(failed.reason()),
        };
        if let (Some(key), Ok(json)) = (key, serde_json::to_string(&reply)) {
            let answer = KeyedAnswer { fingerprint: key.fingerprint.clone(), reply: json };
            self.loaded.keys.insert(key.key.clone(), answer.clone());
            self.writes.keys.push((key.key.clone(), answer));
        }
        CommandOutcome::Done(reply)
    }
}
