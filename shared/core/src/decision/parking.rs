//! Pure: how a dead letter is made, and what an operator's command does to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use uuid::Uuid;

use super::data::Writes;
use crate::dead_letter::{
    DeadLetterOrigin, DeadLetterStatus, DeadLettered, Delivery, EditedMessage, OperatorCommand,
    OperatorCommandKind, StoredDeadLetter,
};
use crate::ids;
use crate::input::{Delivered, Input, InputKind};
use crate::retry::FailedTry;
use crate::service::{Service, steps_of};
use crate::trace::TraceContext;
use crate::waiting::{Retry, Task};

/// Payloads over this many bytes are not carried by the announcement of a dead letter: as base64 they might
/// not fit a broker message (1 MiB by default). The service's own table keeps them whole.
const ANNOUNCED_PAYLOAD_BYTES: usize = 256 * 1024;

/// The same for texts that may quote what could not be read.
const ANNOUNCED_TEXT_CHARS: usize = 4 * 1024;

/// How an input came to be parked.
pub(crate) struct Parking<'a> {
    /// The last try.
    pub(crate) failed: &'a FailedTry,
    /// Tries since it first came, or since it was last replayed.
    pub(crate) attempts: u32,
    /// When the first of them failed.
    pub(crate) first_failed_at: Timestamp,
    /// When it is parked, which is when the last try failed.
    pub(crate) now: Timestamp,
}

/// The dead letter of an input; the same one again, when the input was a replay of `before`.
pub(crate) fn parked<S: Service>(
    input: &Input<S>,
    parking: &Parking<'_>,
    before: Option<&DeadLettered>,
) -> DeadLettered {
    let step = input.source();
    let Parked { origin, payload, message_type, saga, delivery } = Parked::of(input);
    let reason = parking.failed.reason();
    DeadLettered {
        id: before
            .map_or_else(|| ids::derived(&["dead-letter", step, &input.id.to_string()]), |before| before.id),
        service: S::NAME.to_owned(),
        step: step.to_owned(),
        origin: before.map_or(origin, |before| before.origin),
        message_id: input.id,
        fingerprint: fingerprint(S::NAME, step, message_type.as_deref(), &reason),
        message_type,
        // Of the saga that misses it, whatever it was edited into: that one must hear how it ends.
        saga: before.and_then(|before| before.saga).or(saga),
        reason,
        error_chain: parking.failed.chain.clone(),
        attempts: before.map_or(0, |before| before.attempts) + parking.attempts,
        first_failed_at: before.map_or(parking.first_failed_at, |before| before.first_failed_at),
        last_failed_at: parking.now,
        replays: before.map_or(0, |before| before.replays + 1),
        delivery: delivery.or_else(|| before.and_then(|before| before.delivery.clone())),
        payload_base64: BASE64.encode(payload),
        trace: input.trace.map(|trace| trace.to_string()),
        original: before.and_then(|before| before.original.clone()),
    }
}

/// What a dead letter takes over from its input.
struct Parked<'a> {
    origin: DeadLetterOrigin,
    payload: &'a [u8],
    message_type: Option<String>,
    saga: Option<Uuid>,
    delivery: Option<Delivery>,
}

impl<'a> Parked<'a> {
    fn of<S: Service>(input: &'a Input<S>) -> Self {
        match &input.kind {
            InputKind::Message(Delivered { step, payload, message_type, delivery, .. }) => Self {
                origin: match input.is_foreign() {
                    true => DeadLetterOrigin::Foreign,
                    false => DeadLetterOrigin::Message,
                },
                payload,
                message_type: message_type.clone(),
                // What an operator says is correlated by what it is about, which need not be a saga.
                saga: message_type
                    .as_ref()
                    .filter(|_| !step.is_for_operators())
                    .map(|_| input.correlation_id),
                delivery: delivery.clone(),
            },
            InputKind::Called { task, .. } => Self {
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

/// A dead letter as it is announced: what is too large for the broker stays at home.
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
    announced
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(ANNOUNCED_TEXT_CHARS) {
        text.truncate(end);
        text.push('…');
    }
}

/// Groups failures of one cause: numbers and ids in the reason do not tell causes apart.
fn fingerprint(service: &str, step: &str, message_type: Option<&str>, reason: &str) -> String {
    let mut shape = String::with_capacity(reason.len());
    for word in reason.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        let is_variable = word.chars().any(|c| c.is_ascii_digit());
        shape.push_str(if is_variable { "#" } else { word });
    }
    let id = ids::derived(&["fingerprint", service, step, message_type.unwrap_or("-"), &shape]);
    id.simple().to_string()[..12].to_owned()
}

/// Does what an operator asks of a dead letter.
///
/// Only a command with a higher revision than those before has an effect, so repetitions have none. What was handled
/// stays so, and what is being handled right now is not given up: handed back once more, it is put back in line if it
/// got lost, and left alone if it did not; edited, it is the edit that is handled.
pub(crate) fn operate<S: Service>(
    command: &OperatorCommand<'_>,
    stored: &mut StoredDeadLetter,
    writes: &mut Writes,
) -> Result<(), String> {
    let OperatorCommand { revision, kind, .. } = *command;
    if revision <= stored.revision {
        return Ok(());
    }
    // On a copy: a command that cannot be done leaves no trace.
    let mut changed = StoredDeadLetter { revision, ..stored.clone() };
    match (stored.status, kind) {
        (DeadLetterStatus::Resolved, _)
        | (DeadLetterStatus::Replaying, OperatorCommandKind::Discard(_) | OperatorCommandKind::Restore) => {}
        (_, OperatorCommandKind::Replay(edited)) => replay::<S>(edited, &mut changed, writes)?,
        // It failed again since the operator looked, who sees it waiting too once that is heard of.
        (_, OperatorCommandKind::Discard(Some(replays))) if replays != stored.dead_letter.replays => {}
        (_, OperatorCommandKind::Discard(_)) => changed.status = DeadLetterStatus::Discarded,
        (_, OperatorCommandKind::Restore) => changed.status = DeadLetterStatus::Pending,
    }
    stored.clone_from(&changed);
    writes.dead_letters.push(changed);
    Ok(())
}

/// Puts a dead letter back in line, with all its attempts before it.
fn replay<S: Service>(
    edited: Option<&EditedMessage>,
    stored: &mut StoredDeadLetter,
    writes: &mut Writes,
) -> Result<(), String> {
    let is_under_way = stored.status == DeadLetterStatus::Replaying;
    if is_under_way && edited.is_some() && stored.dead_letter.origin == DeadLetterOrigin::Task {
        return Err("a call that is being replayed may be under way: it cannot be edited".to_owned());
    }
    if let Some(edited) = edited {
        stored.dead_letter.take_edit(edited);
    }
    stored.status = DeadLetterStatus::Replaying;
    let dead = &stored.dead_letter;
    let payload = BASE64.decode(&dead.payload_base64).map_err(|error| format!("payload: {error}"))?;
    match dead.origin {
        DeadLetterOrigin::Task => writes.tasks_again.push(Task {
            id: stored.known_as,
            kind: dead.step.clone(),
            correlation_id: dead.saga.unwrap_or(stored.known_as),
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
                message_id: stored.known_as,
                payload: payload.into(),
                attempts: 0,
                next_attempt: writes.decided_at,
                first_failed_at: dead.first_failed_at,
                last_error: dead.reason.clone(),
                delivery: dead.delivery.clone().map(|delivery| match &dead.original {
                    None => delivery,
                    // What an operator made of it was said on no subject: the step alone decides.
                    Some(_) => Delivery { subject: String::new(), ..delivery },
                }),
                dead_letter: Some(dead.id),
            };
            if is_under_way && edited.is_none() {
                writes.retries_again.push(retry);
            } else {
                writes.retries.push(retry);
            }
        }
    }
    Ok(())
}
