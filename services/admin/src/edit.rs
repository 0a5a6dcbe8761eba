//! Pure: what an operator makes of a parked message: a message of a new id that its step can read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::contract::{
    DeadLetterDiscarded, DeadLetterResolved, DeadLetterRestored, DeadLettered, EditedMessage, FactType,
    OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, PaymentProcessed, PaymentRefunded,
    PriceChanged, ProductListed, ReplayRequested, StockReleased, StockReplenished, StockReservationFailed,
    StockReserved,
};
use shared::envelope::Envelope;
use shared::http::FieldError;
use shared::ids;
use uuid::Uuid;

/// What the operator gives.
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
    /// The message.
    pub message: EditedMessage,
    /// Its type.
    pub fact_type: FactType,
    /// Who is said to say it.
    pub producer: String,
}

/// Makes the message that will be the letter's at this revision.
///
/// # Errors
/// The member of the request that is at fault.
pub fn make(letter: &DeadLettered, revision: u64, edit: &Edit) -> Result<Made, FieldError> {
    let id = ids::derived(&["edited", &letter.id.to_string(), &revision.to_string()]);
    let envelope = match edit {
        Edit::Data(data) => with_data(letter, id, data)?,
        Edit::Payload(payload) => of_payload(id, payload)?,
    };
    let payload = serde_json::to_vec(&envelope).map_err(|error| fault("payload", error.to_string()))?;
    let fact_type = FactType::named(&envelope.message_type).ok_or_else(|| unknown(&envelope.message_type))?;
    let message = EditedMessage { message_id: id, payload_base64: BASE64.encode(payload) };
    Ok(Made { message, fact_type, producer: envelope.producer })
}

fn fault(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), detail: detail.into() }
}

fn unknown(message_type: &str) -> FieldError {
    fault("payload.type", format!("there is no type {message_type:?}"))
}

fn with_data(letter: &DeadLettered, id: Uuid, data: &Value) -> Result<Envelope, FieldError> {
    let no_envelope =
        || fault("data", "what was parked is no message of a known type: give the whole `payload`");
    let payload = BASE64.decode(&letter.payload_base64).map_err(|_| no_envelope())?;
    let before = Envelope::from_bytes(&payload).map_err(|_| no_envelope())?;
    let fact_type = FactType::named(&before.message_type).ok_or_else(no_envelope)?;
    let data = raw(data);
    check(fact_type, data.get()).map_err(|error| below("data", error))?;
    // The operator writes it as this build knows it, whatever version it had.
    Ok(Envelope { id, version: fact_type.version(), data, ..before })
}

fn of_payload(id: Uuid, payload: &Value) -> Result<Envelope, FieldError> {
    let mut payload = payload.clone();
    if let Some(members) = payload.as_object_mut() {
        members.insert("id".to_owned(), id.to_string().into());
    }
    let json = payload.to_string();
    let envelope: Envelope = parse(&json).map_err(|error| below("payload", error))?;
    let fact_type = FactType::named(&envelope.message_type).ok_or_else(|| unknown(&envelope.message_type))?;
    if envelope.version != fact_type.version() {
        return Err(fault("payload.version", format!("this build reads {}", fact_type.version())));
    }
    check(fact_type, envelope.data.get()).map_err(|error| below("payload.data", error))?;
    Ok(envelope)
}

fn raw(value: &Value) -> Box<serde_json::value::RawValue> {
    // A value always has a JSON form; an empty object would not pass the check that follows.
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

/// Where in a text something is wrong, and what.
type Wrong = (String, String);

fn below(field: &str, (path, detail): Wrong) -> FieldError {
    match path.as_str() {
        "." | "" => fault(field, detail),
        path => fault(format!("{field}.{path}"), detail),
    }
}

fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Wrong> {
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json)).map_err(|error| {
        let (path, detail) = (error.path().to_string(), error.inner().to_string());
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

/// Whether `json` is a fact of this type.
fn check(fact_type: FactType, json: &str) -> Result<(), Wrong> {
    fn is<T: DeserializeOwned>(json: &str) -> Result<(), Wrong> {
        parse::<T>(json).map(drop)
    }
    match fact_type {
        FactType::OrderCreated => is::<OrderCreated>(json),
        FactType::OrderConfirmed => is::<OrderConfirmed>(json),
        FactType::OrderCancelled => is::<OrderCancelled>(json),
        FactType::StockReserved => is::<StockReserved>(json),
        FactType::StockReservationFailed => is::<StockReservationFailed>(json),
        FactType::StockReleased => is::<StockReleased>(json),
        FactType::StockReplenished => is::<StockReplenished>(json),
        FactType::ProductListed => is::<ProductListed>(json),
        FactType::PriceChanged => is::<PriceChanged>(json),
        FactType::PaymentProcessed => is::<PaymentProcessed>(json),
        FactType::PaymentFailed => is::<PaymentFailed>(json),
        FactType::PaymentRefunded => is::<PaymentRefunded>(json),
        FactType::DeadLettered => is::<DeadLettered>(json),
        FactType::DeadLetterResolved => is::<DeadLetterResolved>(json),
        FactType::ReplayRequested => is::<ReplayRequested>(json),
        FactType::DeadLetterDiscarded => is::<DeadLetterDiscarded>(json),
        FactType::DeadLetterRestored => is::<DeadLetterRestored>(json),
    }
}
