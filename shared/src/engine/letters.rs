//! Pure: dead letters: how they are made, and what an operator's wish does to them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use uuid::Uuid;

use super::input::{Input, Matter};
use crate::contract::{DeadLettered, EditedMessage, Fact, LetterOrigin, Wish, WishKind};
use crate::ids;
use crate::retry::FailedTry;
use crate::service::{Service, Step};
use crate::store::{LetterStatus, Loaded, Retry, StoredLetter, Task, Writes};

/// Payloads over this many bytes are not carried by the announcement of a dead letter: as base64 they might
/// not fit a broker message (1 MiB by default). The service's own table keeps them whole.
const ANNOUNCED_PAYLOAD_BYTES: usize = 256 * 1024;

/// The same for texts that may quote what could not be read.
const ANNOUNCED_TEXT_CHARS: usize = 4 * 1024;

/// How an input came to be parked.
pub(super) struct Parking<'a> {
    /// The last try.
    pub(super) failed: &'a FailedTry,
    /// Tries since it first came, or since it was last replayed.
    pub(super) attempts: u32,
    /// When the first of them failed.
    pub(super) first_failed_at: Timestamp,
    /// Now.
    pub(super) now: Timestamp,
}

/// The dead letter of an input; the same one again, when the input was a replay of `before`.
pub(super) fn parked<S: Service>(
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
        saga: saga.or_else(|| before.and_then(|before| before.saga)),
        reason,
        error_chain: parking.failed.chain.clone(),
        attempts: before.map_or(0, |before| before.attempts) + parking.attempts,
        first_failed_at: before.map_or(parking.first_failed_at, |before| before.first_failed_at),
        last_failed_at: parking.now,
        replays: before.map_or(0, |before| before.replays + 1),
        delivery: delivery.or_else(|| before.and_then(|before| before.delivery.clone())),
        payload_base64: BASE64.encode(payload),
        original: before.and_then(|before| before.original.clone()),
    }
}

/// What a dead letter takes over from its input.
struct Parked<'a> {
    origin: LetterOrigin,
    payload: &'a [u8],
    message_type: Option<String>,
    saga: Option<Uuid>,
    delivery: Option<crate::contract::Delivery>,
}

impl<'a> Parked<'a> {
    fn of<S: Service>(input: &'a Input<S>) -> Self {
        match &input.matter {
            Matter::Message { payload, message_type, delivery, .. } => Self {
                origin: match message_type {
                    Some(_) => LetterOrigin::Message,
                    None => LetterOrigin::Foreign,
                },
                payload,
                message_type: message_type.clone(),
                saga: message_type.as_ref().map(|_| input.correlation_id),
                delivery: delivery.clone(),
            },
            Matter::Called { task, .. } => Self {
                origin: LetterOrigin::Task,
                payload: task.payload.as_bytes(),
                message_type: None,
                saga: Some(task.correlation_id),
                delivery: None,
            },
            Matter::Command { .. } | Matter::Due { .. } => Self {
                origin: LetterOrigin::Task,
                payload: &[],
                message_type: None,
                saga: Some(input.correlation_id),
                delivery: None,
            },
        }
    }
}

/// A dead letter as it is announced: what is too large for the broker stays at home.
pub(super) fn announced(dead: &DeadLettered) -> DeadLettered {
    let mut announced = dead.clone();
    let drop_large = |text: &mut String| {
        if text.len() > ANNOUNCED_PAYLOAD_BYTES / 3 * 4 {
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

/// Does what an operator wishes of a dead letter; `None` when the fact is no such wish.
///
/// Only a wish with a higher revision than those before has an effect, so repetitions have none. What is being
/// handled right now, or was handled, is neither given up nor handed back.
pub(super) fn operate<S: Service>(
    fact: &Fact,
    loaded: &mut Loaded,
    writes: &mut Writes,
) -> Option<Result<(), String>> {
    let Wish { letter, service, revision, kind } = fact.wish()?;
    if service != S::NAME {
        return Some(Err(format!("this is for {service}, not for {}", S::NAME)));
    }
    let Some(stored) = loaded.letters.get_mut(&letter) else {
        return Some(Err(format!("there is no dead letter {letter} here")));
    };
    if revision <= stored.revision {
        return Some(Ok(()));
    }
    // On a copy: a wish that cannot be done leaves no trace.
    let mut changed = StoredLetter { revision, ..stored.clone() };
    let is_waiting = matches!(stored.status, LetterStatus::Pending | LetterStatus::Discarded);
    if is_waiting {
        match kind {
            WishKind::Replay(edited) => {
                if let Err(reason) = replay::<S>(edited, &mut changed, writes) {
                    return Some(Err(reason));
                }
            }
            WishKind::Discard => changed.status = LetterStatus::Discarded,
            WishKind::Restore => changed.status = LetterStatus::Pending,
        }
    }
    stored.clone_from(&changed);
    writes.letters.push(changed);
    Some(Ok(()))
}

/// Puts a dead letter back in line, with all its attempts before it.
fn replay<S: Service>(
    edited: Option<&EditedMessage>,
    stored: &mut StoredLetter,
    writes: &mut Writes,
) -> Result<(), String> {
    if let Some(edited) = edited {
        stored.letter.take_edit(edited);
    }
    stored.status = LetterStatus::Replaying;
    let letter = &stored.letter;
    let payload = BASE64.decode(&letter.payload_base64).map_err(|error| format!("payload: {error}"))?;
    match letter.origin {
        LetterOrigin::Task => writes.tasks_again.push(Task {
            id: stored.known_as,
            kind: letter.step.clone(),
            correlation_id: letter.saga.unwrap_or(stored.known_as),
            payload: String::from_utf8(payload).map_err(|error| format!("payload: {error}"))?,
            attempts: 0,
            claim: 0,
            created_at: writes.decided_at,
            letter: Some(letter.id),
        }),
        LetterOrigin::Message | LetterOrigin::Foreign => {
            let is_here = |step: &&Step| step.name == letter.step;
            if !S::steps().iter().any(|step| is_here(&step)) {
                return Err(format!("there is no step {} here", letter.step));
            }
            writes.retries.push(Retry {
                step: letter.step.clone(),
                message_id: stored.known_as,
                payload: payload.into(),
                attempts: 0,
                next_attempt: writes.decided_at,
                first_failed_at: letter.first_failed_at,
                last_error: letter.reason.clone(),
                delivery: letter.delivery.clone(),
                letter: Some(letter.id),
            });
        }
    }
    Ok(())
}
