//! Pure: a new message that an operator makes of a dead-lettered one, with an id of its own.

use admin_api::dead_letters::EditedMember;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::fact::{Fact, ImmutableMember};
use contract::order::SECRETS;
use saga_core::dead_letter::{DeadLettered, EditedMessage, OperatorMessage};
use saga_core::ids;
use saga_core::message::{Envelope, Message, MessageType};
use saga_core::secrets;
use serde::Deserialize as _;
use serde_json::Value;
use serde_path_to_error::Track;
use uuid::Uuid;

use super::difference;
use super::filter::InvalidField;

/// Edit of an operator.
#[derive(Debug, Clone)]
pub enum Edit {
    /// New data in the same envelope.
    Data(Value),
    /// New envelope. Its id is replaced.
    Payload(Value),
}

/// Result of an edit.
#[derive(Debug, Clone)]
pub struct Made {
    pub message: EditedMessage,
    /// Type in the new envelope.
    pub message_type: MessageType,
    /// Service in the new envelope.
    pub producer: String,
    /// Changed members, without the id, which always changes.
    pub changes: Vec<EditedMember>,
}

/// Applies an edit. The same edit of the same revision always makes the same message.
///
/// # Errors
/// Returns the invalid member of the request.
pub fn make(dead_letter: &DeadLettered, revision: u64, edit: &Edit) -> Result<Made, InvalidField> {
    let (Edit::Data(given) | Edit::Payload(given)) = edit;
    // Revisions restart with a new database, so that the id includes the content.
    let id =
        ids::derived(&["edited", &dead_letter.id.to_string(), &revision.to_string(), &given.to_string()]);
    let parked = BASE64.decode(&dead_letter.payload_base64).unwrap_or_default();
    // A payload that is no JSON is shown as text, without card tokens.
    let text = |parked: &[u8]| String::from_utf8_lossy(&SECRETS.blank_bytes(parked)).into_owned();
    let parked: Value = serde_json::from_slice(&parked).unwrap_or_else(|_| text(&parked).into());
    let envelope = match edit {
        Edit::Data(data) => with_data(dead_letter, id, &kept_secret("data", data, &parked["data"])?)?,
        Edit::Payload(payload) => of_payload(id, &kept_secret("payload", payload, &parked)?)?,
    };
    if let Some(ImmutableMember { member, consequence }) = changed_commitment(dead_letter, &envelope) {
        let data = if matches!(edit, Edit::Data(_)) { "data" } else { "payload.data" };
        let detail =
            format!("other services act on it already, and an edit may not change it: {consequence}");
        return Err(invalid(format!("{data}.{member}"), detail));
    }
    let payload = serde_json::to_vec(&envelope).map_err(|error| invalid("payload", error.to_string()))?;
    let message_type = named(&envelope.message_type).ok_or_else(|| unknown(&envelope.message_type))?;
    let changes = changes(&parked, &payload);
    let message = EditedMessage { message_id: id, payload_base64: BASE64.encode(payload) };
    Ok(Made { message, message_type, producer: envelope.producer, changes })
}

fn changes(parked: &Value, payload: &[u8]) -> Vec<EditedMember> {
    let is: Value = serde_json::from_slice(payload).unwrap_or_default();
    let mut changes = difference::between(parked, &is);
    changes.retain(|change| change.path != "id");
    changes
}

/// Puts back the secrets that were blanked when the message was shown.
fn kept_secret(member: &str, given: &Value, parked: &Value) -> Result<Value, InvalidField> {
    let mut kept = given.clone();
    SECRETS.restore(&mut kept, parked).map_err(|path| {
        let detail = format!("{} stands for the old value, and there was none", secrets::BLANK);
        invalid(format!("{member}.{path}"), detail)
    })?;
    Ok(kept)
}

/// Returns a member that other services rely on, and that the edit changes.
fn changed_commitment(dead_letter: &DeadLettered, edited: &Envelope) -> Option<ImmutableMember> {
    let edited = fact_in(edited)?;
    let payload = BASE64.decode(&dead_letter.payload_base64).ok();
    let parked = payload.and_then(|payload| fact_in(&Envelope::from_bytes(&payload).ok()?));
    match (parked, dead_letter.saga) {
        (Some(parked), _) => parked.immutable_change(&edited),
        (None, Some(saga)) => edited.saga().filter(|of| *of != saga).map(|_| ImmutableMember::ORDER),
        (None, None) => None,
    }
}

/// Decodes the fact in an envelope, in any version.
fn fact_in(envelope: &Envelope) -> Option<Fact> {
    match Readable::decode(named(&envelope.message_type)?, envelope.data.as_ref()).ok()? {
        OperatorMessage::Fact(fact) => Some(fact),
        OperatorMessage::DeadLetter(_) => None,
    }
}

fn invalid(field: impl Into<String>, detail: impl Into<String>) -> InvalidField {
    InvalidField { field: field.into(), detail: detail.into() }
}

fn unknown(message_type: &str) -> InvalidField {
    invalid("payload.type", format!("there is no type {message_type:?}"))
}

fn with_data(dead_letter: &DeadLettered, id: Uuid, data: &Value) -> Result<Envelope, InvalidField> {
    let no_envelope = || invalid("data", "the message has no known type: give the whole `payload`");
    let payload = BASE64.decode(&dead_letter.payload_base64).map_err(|_| no_envelope())?;
    let before = Envelope::from_bytes(&payload).map_err(|_| no_envelope())?;
    let message_type = named(&before.message_type).ok_or_else(no_envelope)?;
    let data = raw(data);
    check(message_type, data.get()).map_err(|error| below("data", error))?;
    // Operators write the current version, whatever version the message had.
    Ok(Envelope { id, version: message_type.version, data, ..before })
}

fn of_payload(id: Uuid, payload: &Value) -> Result<Envelope, InvalidField> {
    let mut payload = payload.clone();
    if let Some(members) = payload.as_object_mut() {
        members.insert("id".to_owned(), id.to_string().into());
    }
    let json = payload.to_string();
    let envelope =
        parse(&json, |json| Envelope::deserialize(json)).map_err(|error| below("payload", error))?;
    let message_type = named(&envelope.message_type).ok_or_else(|| unknown(&envelope.message_type))?;
    if envelope.version != message_type.version {
        return Err(invalid("payload.version", format!("this build reads {}", message_type.version)));
    }
    check(message_type, envelope.data.get()).map_err(|error| below("payload.data", error))?;
    Ok(envelope)
}

fn raw(value: &Value) -> Box<serde_json::value::RawValue> {
    // A value always has a JSON form. An empty object would fail the check that follows.
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

/// Path and detail of a problem in JSON.
type JsonProblem = (String, String);

fn below(field: &str, (path, detail): JsonProblem) -> InvalidField {
    match path.as_str() {
        "." | "" => invalid(field, detail),
        path => invalid(format!("{field}.{path}"), detail),
    }
}

/// Parses JSON, and locates a problem in it.
fn parse<T>(
    json: &str,
    read: impl FnOnce(
        serde_path_to_error::Deserializer<'_, '_, &mut serde_json::Deserializer<serde_json::de::StrRead<'_>>>,
    ) -> serde_json::Result<T>,
) -> Result<T, JsonProblem> {
    let (mut text, mut track) = (serde_json::Deserializer::from_str(json), Track::new());
    let read = read(serde_path_to_error::Deserializer::new(&mut text, &mut track));
    read.map_err(|error| {
        let (path, detail) = (track.path().to_string(), error.to_string());
        // A missing member is reported at its object.
        let missing = detail.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let path = match (path.as_str(), missing) {
            (_, None) => path,
            (".", Some(member)) => member.to_owned(),
            (path, Some(member)) => format!("{path}.{member}"),
        };
        (path, detail)
    })
}

/// Messages that a step may consume.
type Readable = OperatorMessage<Fact>;

fn named(name: &str) -> Option<MessageType> {
    Readable::named(name)
}

/// Checks that `json` is a message of this type.
fn check(message_type: MessageType, json: &str) -> Result<(), JsonProblem> {
    parse(json, |json| Readable::decode(message_type, json)).map(drop)
}
