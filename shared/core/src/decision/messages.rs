//! Pure: messages in a batch: each is processed once, retried or dead-lettered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

use super::batch::{Batch, Decided, later, rejected};
use super::data::InboxState;
use super::dead_letters;
use super::input_error::InputError;
use crate::dead_letter::{
    DeadLetterForgotten, DeadLetterMessage, DeadLetterOrigin, OperatorCommand, OperatorCommandKind,
    ReplayEffect,
};
use crate::ids;
use crate::input::{Content, Input, MessageOutcome, StepMessage};
use crate::message::Message as _;
use crate::retry::{FailedAttempt, FailureKind, error_links};
use crate::row::{RowKey, RowKind};
use crate::service::Service;
use crate::waiting::Retry;

impl<S: Service> Batch<'_, S> {
    pub(super) fn process_message(
        &mut self,
        input: &Input<S>,
        delivered: &StepMessage<S::Fact>,
    ) -> MessageOutcome<S::Rejection> {
        let StepMessage { step, prior, .. } = delivered;
        let key = (step.name, delivered.inbox_id(input.id));
        // A retry is new while its retry row exists, and a delivery while the inbox does not know its message.
        let is_new = match (self.loaded.inbox.get(&key), prior) {
            (Some(InboxState::Retrying), Some(_)) | (None, None) => true,
            (Some(InboxState::Processed), _) => !self.config.use_inbox && prior.is_none(),
            (Some(InboxState::Retrying), None) | (Some(InboxState::DeadLettered), _) | (None, Some(_)) => {
                false
            }
        };
        if !is_new || self.is_edited_since(input, delivered) {
            return MessageOutcome::Duplicate;
        }
        self.record_replay(input);
        let before = self.changes();
        let reaction = match &delivered.injected_failure {
            Some(failure) => Err(InputError::Failed(failure.clone())),
            None => self.handle(input, delivered),
        };
        match reaction {
            Ok(()) => {
                self.mark_processed(input, delivered, key, self.effect_since(before));
                MessageOutcome::Done
            }
            Err(InputError::Rejected(rejection)) => {
                self.mark_processed(input, delivered, key, rejected(&rejection));
                MessageOutcome::Rejected(rejection)
            }
            Err(InputError::Failed(failed)) => self.retry_or_dead_letter(input, delivered, key, &failed),
        }
    }

    /// True if an operator edited the message while this attempt was on its way.
    fn is_edited_since(&self, input: &Input<S>, delivered: &StepMessage<S::Fact>) -> bool {
        let stored = input.replayed().and_then(|replayed| self.loaded.dead_letters.get(&replayed));
        stored.is_some_and(|stored| stored.dead_letter.payload_base64 != BASE64.encode(&delivered.payload))
    }

    /// Passes a message to the service, or to the engine if it is an operator command.
    fn handle(&mut self, input: &Input<S>, delivered: &StepMessage<S::Fact>) -> Decided<(), S> {
        let StepMessage { step, content, .. } = delivered;
        let content = content.as_ref().map_err(|error| {
            InputError::Failed(FailedAttempt {
                chain: error_links(error),
                kind: FailureKind::Permanent,
                retry_after: None,
            })
        })?;
        match content {
            Content::Fact(message) if self.is_purged(message.correlation_id, delivered) => {
                if message.fact.asks_to_stop() {
                    return Ok(());
                }
                let saga = message.correlation_id;
                Err(InputError::permanent(format!(
                    "the message is about saga {saga}, which was purged (retention.history)"
                )))
            }
            Content::Fact(message) => {
                self.react(input, |service, work| service.on_message(step, message, work))
            }
            Content::Operator(message) => match message.command() {
                Some(command) => self.operate(input, &command).map_err(InputError::permanent),
                None => {
                    let name = message.message_type().name;
                    Err(InputError::permanent(format!("{name} is no command")))
                }
            },
        }
    }

    /// True if the message is so late that its saga's row was purged. It must not create the row again.
    fn is_purged(&self, saga: Uuid, delivered: &StepMessage<S::Fact>) -> bool {
        let is_old = self.loaded.purged_before.is_some_and(|before| saga < before);
        let is_gone = |kind: &RowKind| {
            let key = RowKey { kind: kind.name, id: saga.to_string() };
            kind.retention.purges_sagas() && self.rows.get(&key).is_some_and(|slot| slot.version == 0)
        };
        is_old && !delivered.reports_dead_letter() && S::rows().iter().any(is_gone)
    }

    fn operate(&mut self, input: &Input<S>, command: &OperatorCommand<'_>) -> Result<(), String> {
        let OperatorCommand { dead_letter, service, revision, kind } = *command;
        if service != S::NAME {
            return Err(format!("this is for {service}, not for {}", S::NAME));
        }
        if let Some(stored) = self.loaded.dead_letters.get_mut(&dead_letter) {
            return dead_letters::operate::<S>(command, stored, &mut self.writes, input.trace);
        }
        match kind {
            OperatorCommandKind::Replay(_) | OperatorCommandKind::Restore => {
                let id = ids::derived(&["dead-letter-forgotten", &input.id.to_string()]);
                let forgotten = DeadLetterForgotten { dead_letter, service: service.to_owned(), revision };
                let trace = self.failed_trace(input);
                self.add_outbox_entry(
                    id,
                    input,
                    trace,
                    &DeadLetterMessage::DeadLetterForgotten(forgotten),
                    None,
                );
            }
            // There is nothing left to discard.
            OperatorCommandKind::Discard(_) => {}
        }
        Ok(())
    }

    fn retry_or_dead_letter(
        &mut self,
        input: &Input<S>,
        delivered: &StepMessage<S::Fact>,
        key: (&'static str, Uuid),
        failed: &FailedAttempt,
    ) -> MessageOutcome<S::Rejection> {
        let failed = &failed.redacted(&delivered.payload, S::SECRETS);
        let prior = delivered.prior.as_ref();
        let before = prior.map_or(0, |prior| prior.attempts);
        let first_failed_at = prior.map_or(self.now, |prior| prior.first_failed_at);
        let policy = self.config.retry_of(delivered.step.name);
        let (attempts, delay) = match delivered.reports_dead_letter() {
            // Delay as after an outage. Attempts are counted here, since the delay grows with them.
            true => (before.saturating_add(1), policy.after(FailureKind::Outage, before, input.jitter).1),
            false => policy.after(failed.kind, before, input.jitter),
        };
        if let Some(delay) = delay {
            self.loaded.inbox.insert(key, InboxState::Retrying);
            self.writes.retries.push(Retry {
                step: delivered.step.name.to_owned(),
                message_id: key.1,
                payload: delivered.payload.clone(),
                attempts,
                next_attempt: later(self.now, delay),
                first_failed_at,
                last_error: failed.reason(),
                delivery: self.failed_delivery(delivered.delivery.clone()),
                dead_letter: input.replayed(),
            });
            return MessageOutcome::Retried(failed.reason());
        }
        if prior.is_some() {
            self.writes.end_retry(key);
        }
        self.loaded.inbox.insert(key, InboxState::DeadLettered);
        self.dead_letter(input, failed, attempts, first_failed_at)
    }

    fn mark_processed(
        &mut self,
        input: &Input<S>,
        delivered: &StepMessage<S::Fact>,
        key: (&'static str, Uuid),
        effect: ReplayEffect,
    ) {
        self.loaded.inbox.insert(key, InboxState::Processed);
        // Foreign messages are in no reconciliation, so the dead letter alone remembers them.
        let is_foreign = input
            .replayed()
            .and_then(|replayed| self.loaded.dead_letters.get(&replayed))
            .is_some_and(|stored| stored.dead_letter.origin == DeadLetterOrigin::Foreign);
        if !is_foreign {
            self.writes.inbox.push(key);
        }
        if delivered.prior.is_some() {
            self.writes.end_retry(key);
        }
        self.resolve(input, effect);
    }
}
