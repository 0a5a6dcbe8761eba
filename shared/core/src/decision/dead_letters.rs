//! Pure: creation of dead letters, and operator commands about them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use uuid::Uuid;

use super::data::Writes;
use crate::dead_letter::{
    DeadLetterOrigin, DeadLetterStatus, DeadLettered, DeliveryInfo, EditedMessage, OperatorCommand,
    OperatorCommandKind, StoredDeadLetter,
};
use crate::ids;
use crate::input::{Input, InputKind, StepMessage};
use crate::retry::FailedAttempt;
use crate::service::{Service, steps_of};
use crate::trace::TraceContext;
use crate::waiting::{Retry, Task};

/// Largest payload in the announcement of a dead letter. Larger ones might exceed the broker's message limit (1 MiB
/// by default) in base64. The service's own table keeps them whole.
const ANNOUNCED_PAYLOAD_BYTES: usize = 256 * 1024;

/// Largest text in the announcement, in characters. Error texts may quote an unreadable payload.
const ANNOUNCED_TEXT_CHARS: usize = 4 * 1024;

/// Largest announced headers together, in bytes.
const ANNOUNCED_HEADER_BYTES: usize = 32 * 1024;

/// Largest announcement as JSON, in bytes. Leaves room for the envelope below the broker's message limit.
const ANNOUNCED_BYTES: usize = 900 * 1024;

/// Last failure of an input that becomes a dead letter.
pub(crate) struct LastFailure<'a> {
    /// Last attempt, with its error chain.
    pub(crate) failed: &'a FailedAttempt,
    /// Number of attempts since the message first arrived or was last replayed.
    pub(crate) attempts: u32,
    /// Time of the first of these attempts.
    pub(crate) first_failed_at: Timestamp,
    /// Time of the last attempt.
    pub(crate) now: Timestamp,
}

/// Creates the dead letter of an input; updates `before` if the input replayed it.
pub(crate) fn dead_letter_of<S: Service>(
    input: &Input<S>,
    failure: &LastFailure<'_>,
    before: Option<&DeadLettered>,
) -> DeadLettered {
    let step = input.source();
    let Source { origin, payload, message_type, saga, delivery } = Source::of(input);
    let reason = failure.failed.reason();
    DeadLettered {
        id: before
            .map_or_else(|| ids::derived(&["dead-letter", step, &input.id.to_string()]), |before| before.id),
        service: S::NAME.to_owned(),
        step: step.to_owned(),
        origin: before.map_or(origin, |before| before.origin),
        message_id: input.id,
        fingerprint: fingerprint(S::NAME, step, message_type.as_deref(), &reason),
        message_type,
        // The saga that waits for the message, whatever an edit made of it: it must learn how the message ends.
        saga: before.and_then(|before| before.saga).or(saga),
        reason,
        error_chain: failure.failed.chain.clone(),
        attempts: before.map_or(0, |before| before.attempts) + failure.attempts,
        first_failed_at: before.map_or(failure.first_failed_at, |before| before.first_failed_at),
        last_failed_at: failure.now,
        replays: before.map_or(0, |before| before.replays + 1),
        delivery: delivery.or_else(|| before.and_then(|before| before.delivery.clone())),
        payload_base64: BASE64.encode(payload),
        trace: input.trace.map(|trace| trace.to_string()),
        original: before.and_then(|before| before.original.clone()),
    }
}

/// Members of a dead letter that come from its input.
struct Source<'a> {
    origin: DeadLetterOrigin,
    payload: &'a [u8],
    message_type: Option<String>,
    saga: Option<Uuid>,
    delivery: Option<DeliveryInfo>,
}

impl<'a> Source<'a> {
    fn of<S: Service>(input: &'a Input<S>) -> Self {
        match &input.kind {
            InputKind::Message(StepMessage { step, payload, message_type, delivery, .. }) => Self {
                origin: match input.is_foreign() {
                    true => DeadLetterOrigin::Foreign,
                    false => DeadLetterOrigin::Message,
                },
                payload,
                message_type: message_type.clone(),
                // Operator commands are correlated by the dead letter, which need not belong to a saga.
                saga: message_type
                    .as_ref()
                    .filter(|_| !step.is_for_operators())
                    .map(|_| input.correlation_id),
                delivery: delivery.clone(),
            },
            InputKind::TaskResult { task, .. } => Self {
                origin: DeadLetterOrigin::Task,
                payload: task.payload.as_bytes(),
                message_type: None,
                saga: Some(task.correlation_id),
                delivery: None,
            },
            InputKind::Command { .. } | InputKind::Due { .. } => Self {
                origin: DeadLetterOrigin::Task,
                payload: &[],
                message_type: None,
                saga: Some(input.correlation_id),
                delivery: None,
            },
        }
    }
}

/// Dead letter for the announcement, without what is too large for the broker.
pub(crate) fn announced(dead: &DeadLettered) -> DeadLettered {
    let mut announced = dead.clone();
    let drop_large = |text: &mut String| {
        if text.len() > ANNOUNCED_PAYLOAD_BYTES.div_ceil(3) * 4 {
            text.clear();
        }
    };
    drop_large(&mut announced.payload_base64);
    announced.original.iter_mut().for_each(|original| drop_large(&mut original.payload_base64));
    shorten(&mut announced.reason);
    announced.error_chain.truncate(16);
    announced.error_chain.iter_mut().for_each(shorten);
    announced.message_type.iter_mut().for_each(shorten);
    if let Some(delivery) = &mut announced.delivery {
        shorten(&mut delivery.subject);
        bound_headers(&mut delivery.headers);
    }
    // Texts may grow in JSON.
    let is_too_large = |announced: &DeadLettered| {
        serde_json::to_vec(announced).is_ok_and(|json| json.len() > ANNOUNCED_BYTES)
    };
    if is_too_large(&announced) {
        announced.original.iter_mut().for_each(|original| original.payload_base64.clear());
    }
    if is_too_large(&announced) {
        announced.payload_base64.clear();
    }
    announced
}

/// Shortens headers, and drops those that exceed the limit together. The sender of a message chooses them.
fn bound_headers(headers: &mut Vec<(String, String)>) {
    let mut room = ANNOUNCED_HEADER_BYTES;
    headers.retain_mut(|(name, value)| {
        shorten(name);
        shorten(value);
        let size = name.len() + value.len();
        let fits = size <= room;
        room -= if fits { size } else { 0 };
        fits
    });
}

/// Shortens a text that others choose.
pub(super) fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(ANNOUNCED_TEXT_CHARS) {
        text.truncate(end);
        text.push('…');
    }
}

/// Groups failures of one cause. Numbers and ids in the reason are ignored.
fn fingerprint(service: &str, step: &str, message_type: Option<&str>, reason: &str) -> String {
    let mut shape = String::with_capacity(reason.len());
    for word in reason.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        let is_variable = word.chars().any(|c| c.is_ascii_digit());
        shape.push_str(if is_variable { "#" } else { word });
    }
    let id = ids::derived(&["fingerprint", service, step, message_type.unwrap_or("-"), &shape]);
    id.simple().to_string()[..12].to_owned()
}

/// Applies an operator command to a dead letter.
///
/// Only a command with a higher revision than all before has an effect, so repeated commands have none. Resolved
/// dead letters do not change. One that is being replayed cannot be discarded. Another replay of it restores a lost
/// retry and leaves an existing one alone; an edited replay replaces the retry. `trace` is that of the command.
pub(crate) fn operate<S: Service>(
    command: &OperatorCommand<'_>,
    stored: &mut StoredDeadLetter,
    writes: &mut Writes,
    trace: Option<TraceContext>,
) -> Result<(), String> {
    let OperatorCommand { revision, kind, .. } = *command;
    if revision <= stored.revision {
        return Ok(());
    }
    // On a copy: a command that fails leaves no change.
    let mut changed = StoredDeadLetter { revision, ..stored.clone() };
    match (stored.status, kind) {
        (DeadLetterStatus::Resolved, _)
        | (DeadLetterStatus::Replaying, OperatorCommandKind::Discard(_) | OperatorCommandKind::Restore) => {}
        (_, OperatorCommandKind::Replay(edited)) => replay::<S>(edited, &mut changed, writes, trace)?,
        // A replay failed since the operator looked: the dead letter stays pending.
        (_, OperatorCommandKind::Discard(Some(replays))) if replays != stored.dead_letter.replays => {}
        (_, OperatorCommandKind::Discard(_)) => changed.status = DeadLetterStatus::Discarded,
        (_, OperatorCommandKind::Restore) => changed.status = DeadLetterStatus::Pending,
    }
    stored.clone_from(&changed);
    writes.changed_dead_letters.push(changed);
    Ok(())
}

/// Schedules a dead letter for processing, with a fresh count of attempts.
fn replay<S: Service>(
    edited: Option<&EditedMessage>,
    stored: &mut StoredDeadLetter,
    writes: &mut Writes,
    trace: Option<TraceContext>,
) -> Result<(), String> {
    let is_replaying = stored.status == DeadLetterStatus::Replaying;
    if is_replaying && edited.is_some() && stored.dead_letter.origin == DeadLetterOrigin::Task {
        return Err("the task is being replayed and may be in flight: it cannot be edited".to_owned());
    }
    if let Some(edited) = edited {
        stored.dead_letter.take_edit(edited);
    }
    stored.status = DeadLetterStatus::Replaying;
    let dead = &stored.dead_letter;
    let payload = BASE64.decode(&dead.payload_base64).map_err(|error| format!("payload: {error}"))?;
    match dead.origin {
        DeadLetterOrigin::Task => writes.tasks_again.push(Task {
            id: stored.inbox_id,
            kind: dead.step.clone(),
            correlation_id: dead.saga.unwrap_or(stored.inbox_id),
            payload: String::from_utf8(payload).map_err(|error| format!("payload: {error}"))?,
            attempts: 0,
            claim: 0,
            created_at: writes.decided_at,
            dead_letter: Some(dead.id),
            trace: dead.trace.as_deref().and_then(TraceContext::parse),
        }),
        DeadLetterOrigin::Message | DeadLetterOrigin::Foreign => {
            if !steps_of::<S>().iter().any(|step| step.name == dead.step) {
                return Err(format!("there is no step {} here", dead.step));
            }
            let retry = Retry {
                step: dead.step.clone(),
                message_id: stored.inbox_id,
                payload: payload.into(),
                attempts: 0,
                next_attempt: writes.decided_at,
                first_failed_at: dead.first_failed_at,
                last_error: dead.reason.clone(),
                delivery: dead.delivery.clone().map(|delivery| {
                    let delivery = delivery.requested_by(trace);
                    match &dead.original {
                        None => delivery,
                        // An edited message was published on no subject: only the step decides whether it fits.
                        Some(_) => DeliveryInfo { subject: String::new(), ..delivery },
                    }
                }),
                dead_letter: Some(dead.id),
            };
            if is_replaying && edited.is_none() {
                writes.retries_again.push(retry);
            } else {
                writes.retries.push(retry);
            }
        }
    }
    Ok(())
}
