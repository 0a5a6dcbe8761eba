//! Pure: what an operator makes of a parked message: a message of a new id that its step can read.

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

use super::difference::{self, EditedMember};
use crate::request::InvalidField;

/// What the operator gives, as JSON.
#[derive(Debug, Clone)]
pub enum Edit {
    /// What the message says; its envelope stays.
    Data(Value),
    /// The whole envelope; its id is replaced.
    Payload(Value),
}

/// A message that was made of another.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its id, and the envelope as it is sent.
    pub message: EditedMessage,
    /// The type that its envelope names.
    pub message_type: MessageType,
    /// The service that its envelope names.
    pub producer: String,
    /// What it says that the dead letter's did not, and the other way round; its id is another one in any case.
    pub changes: Vec<EditedMember>,
}

/// Makes the message that will be the dead letter's at this revision. The same edit always makes the same message.
///
/// # Errors
/// The member of the request that is at fault.
pub fn make(dead_letter: &DeadLettered, revision: u64, edit: &Edit) -> Result<Made, InvalidField> {
    let (Edit::Data(given) | Edit::Payload(given)) = edit;
    // Revisions begin anew with a new database; what another edit said is not taken for this one.
    let id =
        ids::derived(&["edited", &dead_letter.id.to_string(), &revision.to_string(), &given.to_string()]);
    let parked = BASE64.decode(&dead_letter.payload_base64).unwrap_or_default();
    // What is no JSON is a text to people, who may not see the card in it either.
    let text = |parked: &[u8]| String::from_utf8_lossy(&secrets::blank_bytes(parked, &SECRETS)).into_owned();
    let parked: Value = serde_json::from_slice(&parked).unwrap_or_else(|_| text(&parked).into());
    let envelope = match edit {
        Edit::Data(data) => with_data(dead_letter, id, &kept_secret("data", data, &parked["data"])?)?,
        Edit::Payload(payload) => of_payload(id, &kept_secret("payload", payload, &parked)?)?,
    };
    if let Some(ImmutableMember { member, consequence }) = immutable_change(dead_letter, &envelope) {
        let data = if matches!(edit, Edit::Data(_)) { "data" } else { "payload.data" };
        let detail = format!("others act on it already, and an edit may not change it: {consequence}");
        return Err(invalid(format!("{data}.{member}"), detail));
    }
    let payload = serde_json::to_vec(&envelope).map_err(|error| invalid("payload", error.to_string()))?;
    let message_type = named(&envelope.message_type).ok_or_else(|| unknown(&envelope.message_type))?;
    let changes = changes(&parked, &payload);
    let message = EditedMessage { message_id: id, payload_base64: BASE64.encode(payload) };
    Ok(Made { message, message_type, producer: envelope.producer, changes })
}

/// What the message says that what was parked did not. An edit always has an id of its own: that is no news.
fn changes(parked: &Value, payload: &[u8]) -> Vec<EditedMember> {
    let is: Value = serde_json::from_slice(payload).unwrap_or_default();
    let mut changes = difference::between(parked, &is);
    changes.retain(|change| change.path != "id");
    changes
}

/// What an operator gives, with the secrets that were blanked when it was shown.
fn kept_secret(member: &str, given: &Value, parked: &Value) -> Result<Value, InvalidField> {
    let mut kept = given.clone();
    secrets::put_back(&mut kept, parked, &SECRETS).map_err(|path| {
        let detail = format!("{} stands for what was there before, and nothing was", secrets::BLANK);
        invalid(format!("{member}.{path}"), detail)
    })?;
    Ok(kept)
}

/// What was promised by the message that was parked, as far as it can be read, and is not kept by what it shall be.
fn immutable_change(dead_letter: &DeadLettered, edited: &Envelope) -> Option<ImmutableMember> {
    let edited = fact_in(edited)?;
    let payload = BASE64.decode(&dead_letter.payload_base64).ok();
    let parked = payload.and_then(|payload| fact_in(&Envelope::from_bytes(&payload).ok()?));
    match (parked, dead_letter.saga) {
        (Some(parked), _) => parked.immutable_change(&edited),
        (None, Some(saga)) => edited.saga().filter(|of| *of != saga).map(|_| ImmutableMember::ORDER),
        (None, None) => None,
    }
}

/// The fact in an envelope, in whatever version it says it.
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
    let no_envelope =
        || invalid("data", "what was parked is no message of a known type: give the whole `payload`");
    let payload = BASE64.decode(&dead_letter.payload_base64).map_err(|_| no_envelope())?;
    let before = Envelope::from_bytes(&payload).map_err(|_| no_envelope())?;
    let message_type = named(&before.message_type).ok_or_else(no_envelope)?;
    let data = raw(data);
    check(message_type, data.get()).map_err(|error| below("data", error))?;
    // The operator writes it as this build knows it, whatever version it had.
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
    // A value always has a JSON form; an empty object would not pass the check that follows.
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

/// Where in a text something is wrong, and what.
type Misfit = (String, String);

fn below(field: &str, (path, detail): Misfit) -> InvalidField {
    match path.as_str() {
        "." | "" => invalid(field, detail),
        path => invalid(format!("{field}.{path}"), detail),
    }
}

/// Reads a text, and says where in it something is wrong.
fn parse<T>(
    json: &str,
    read: impl FnOnce(
        serde_path_to_error::Deserializer<'_, '_, &mut serde_json::Deserializer<serde_json::de::StrRead<'_>>>,
    ) -> serde_json::Result<T>,
) -> Result<T, Misfit> {
    let (mut text, mut track) = (serde_json::Deserializer::from_str(json), Track::new());
    let read = read(serde_path_to_error::Deserializer::new(&mut text, &mut track));
    read.map_err(|error| {
        let (path, detail) = (track.path().to_string(), error.to_string());
        // The parser stands at the object when a member is missing.
        let missing = detail.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let path = match (path.as_str(), missing) {
            (_, None) => path,
            (".", Some(member)) => member.to_owned(),
            (path, Some(member)) => format!("{path}.{member}"),
        };
        (path, detail)
    })
}

/// Whatever a step may hear.
type Readable = OperatorMessage<Fact>;

fn named(name: &str) -> Option<MessageType> {
    Readable::named(name)
}

/// Whether `json` is a message of this type.
fn check(message_type: MessageType, json: &str) -> Result<(), Misfit> {
    parse(json, |json| Readable::decode(message_type, json)).map(drop)
}
