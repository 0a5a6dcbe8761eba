//! Pure: what a batch does with a message: it is handled once, tried again, or parked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

use super::batch::{Batch, Reacted, later, rejected};
use super::data::InboxState;
use super::failure::Failure;
use super::parking;
use crate::dead_letter::{
    DeadLetterForgotten, DeadLetterMessage, DeadLetterOrigin, OperatorCommand, OperatorCommandKind,
    ReplayEffect,
};
use crate::ids;
use crate::input::{Content, Delivered, Input, MessageOutcome};
use crate::message::Message as _;
use crate::retry::{FailedTry, FailureKind, error_links};
use crate::row::{RowKey, RowKind};
use crate::service::Service;
use crate::waiting::Retry;

impl<S: Service> Batch<'_, S> {
    pub(super) fn take_message(
        &mut self,
        input: &Input<S>,
        delivered: &Delivered<S::Fact>,
    ) -> MessageOutcome<S::Rejection> {
        let Delivered { step, earlier, .. } = delivered;
        let place = (step.name, delivered.known_as(input.id));
        // A retry goes on only while its entry still waits; a delivery only while nothing is known of it.
        let is_new = match (self.loaded.inbox.get(&place), earlier) {
            (Some(InboxState::Waiting), Some(_)) | (None, None) => true,
            (Some(InboxState::Handled), _) => !self.rules.use_inbox && earlier.is_none(),
            (Some(InboxState::Waiting), None) | (Some(InboxState::Parked), _) | (None, Some(_)) => false,
        };
        if !is_new || self.is_edited_since(input, delivered) {
            return MessageOutcome::Duplicate;
        }
        let before = self.changes();
        let reaction = match &delivered.failure {
            Some(failure) => Err(Failure::Failed(failure.clone())),
            None => self.handle(input, delivered),
        };
        match reaction {
            Ok(()) => {
                self.mark_handled(input, delivered, place, self.effect_since(before));
                MessageOutcome::Done
            }
            Err(Failure::Rejected(rejection)) => {
                self.mark_handled(input, delivered, place, rejected(&rejection));
                MessageOutcome::Rejected(rejection)
            }
            Err(Failure::Failed(failed)) => self.try_again_or_park(input, delivered, place, &failed),
        }
    }

    /// Whether an operator has put another message in its place while this try was on its way.
    fn is_edited_since(&self, input: &Input<S>, delivered: &Delivered<S::Fact>) -> bool {
        let stored = input.replayed().and_then(|replayed| self.loaded.dead_letters.get(&replayed));
        stored.is_some_and(|stored| stored.dead_letter.payload_base64 != BASE64.encode(&delivered.payload))
    }

    /// Lets whoever a message is for react: the engine itself, when an operator says it.
    fn handle(&mut self, input: &Input<S>, delivered: &Delivered<S::Fact>) -> Reacted<(), S> {
        let Delivered { step, content, .. } = delivered;
        let content = content.as_ref().map_err(|error| {
            Failure::Failed(FailedTry { chain: error_links(error), kind: FailureKind::Permanent })
        })?;
        match content {
            Content::Fact(message) if self.has_left(message.correlation_id, delivered) => {
                if message.fact.gives_up() {
                    return Ok(());
                }
                let saga = message.correlation_id;
                Err(Failure::permanent(format!(
                    "what is said is about {saga}, which has left (retention.history)"
                )))
            }
            Content::Fact(message) => {
                self.react(input, |service, work| service.on_message(step, message, work))
            }
            Content::Operator(message) => match message.command() {
                Some(command) => self.operate(input, &command).map_err(Failure::permanent),
                None => {
                    let name = message.message_type().name;
                    Err(Failure::permanent(format!("{name} is no command")))
                }
            },
        }
    }

    /// Whether a message is so late that the row that it is about has left: nobody may begin anew with it.
    fn has_left(&self, saga: Uuid, delivered: &Delivered<S::Fact>) -> bool {
        let is_old = self.loaded.left_before.is_some_and(|before| saga < before);
        let is_gone = |kind: &RowKind| {
            let key = RowKey { kind: kind.name, id: saga.to_string() };
            kind.retention.purges_rows() && self.rows.get(&key).is_some_and(|slot| slot.version == 0)
        };
        is_old && !delivered.tells_of_a_dead_letter() && S::rows().iter().any(is_gone)
    }

    fn operate(&mut self, input: &Input<S>, command: &OperatorCommand<'_>) -> Result<(), String> {
        let OperatorCommand { dead_letter, service, revision, kind } = *command;
        if service != S::NAME {
            return Err(format!("this is for {service}, not for {}", S::NAME));
        }
        if let Some(stored) = self.loaded.dead_letters.get_mut(&dead_letter) {
            return parking::operate::<S>(command, stored, &mut self.writes);
        }
        match kind {
            OperatorCommandKind::Replay(_) | OperatorCommandKind::Restore => {
                let id = ids::derived(&["dead-letter-forgotten", &input.id.to_string()]);
                let forgotten = DeadLetterForgotten { dead_letter, service: service.to_owned(), revision };
                let trace = self.gone_wrong(input);
                self.promise(id, input, trace, &DeadLetterMessage::DeadLetterForgotten(forgotten), None);
            }
            // It is as good as that.
            OperatorCommandKind::Discard(_) => {}
        }
        Ok(())
    }

    fn try_again_or_park(
        &mut self,
        input: &Input<S>,
        delivered: &Delivered<S::Fact>,
        place: (&'static str, Uuid),
        failed: &FailedTry,
    ) -> MessageOutcome<S::Rejection> {
        let failed = &failed.discreet(&delivered.payload, S::SECRETS);
        let earlier = delivered.earlier.as_ref();
        let before = earlier.map_or(0, |earlier| earlier.attempts);
        let first_failed_at = earlier.map_or(self.now, |earlier| earlier.first_failed_at);
        let policy = self.rules.retry_of(delivered.step.name);
        let (attempts, delay) = match delivered.tells_of_a_dead_letter() {
            // As after an outage, but for the attempts, which the delay grows with.
            true => (before.saturating_add(1), policy.after(FailureKind::Outage, before, input.jitter).1),
            false => policy.after(failed.kind, before, input.jitter),
        };
        if let Some(delay) = delay {
            self.loaded.inbox.insert(place, InboxState::Waiting);
            self.writes.retries.push(Retry {
                step: delivered.step.name.to_owned(),
                message_id: place.1,
                payload: delivered.payload.clone(),
                attempts,
                next_attempt: later(self.now, delay),
                first_failed_at,
                last_error: failed.reason(),
                delivery: self.gone_wrong_at(delivered.delivery.clone()),
                dead_letter: input.replayed(),
            });
            return MessageOutcome::Retried(failed.reason());
        }
        if earlier.is_some() {
            self.writes.end_retry(place);
        }
        self.loaded.inbox.insert(place, InboxState::Parked);
        self.park(input, failed, attempts, first_failed_at)
    }

    fn mark_handled(
        &mut self,
        input: &Input<S>,
        delivered: &Delivered<S::Fact>,
        place: (&'static str, Uuid),
        effect: ReplayEffect,
    ) {
        self.loaded.inbox.insert(place, InboxState::Handled);
        // What nobody of this system sent is in no reconciliation: its dead letter is what remembers it.
        let is_foreign = input
            .replayed()
            .and_then(|replayed| self.loaded.dead_letters.get(&replayed))
            .is_some_and(|stored| stored.dead_letter.origin == DeadLetterOrigin::Foreign);
        if !is_foreign {
            self.writes.inbox.push(place);
        }
        if delivered.earlier.is_some() {
            self.writes.end_retry(place);
        }
        self.resolve(input, effect);
    }
}
