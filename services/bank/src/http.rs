//! Shell: the bank's routes.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use contract::bank as faults;
use contract::money::{Currency, Money};
use contract::reconciliation::ChargeEntry;
use garde::Validate;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Order, Query};
use saga_core::row::{RowKey, WithHistory};
use saga_engine::host::http::{Body, Params, Problem, Segment, command_reply, one_line};
use saga_engine::host::queries::{Encoding, LedgerQuery, MAX_ENTRIES, entries_as_of, entries_of};
use saga_engine::runtime::faults::Faults;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::BankApp;
use crate::domain::{Asked, Charge, ChargeRejection};
use crate::policy::{self, Answer, Command, CommandKind, reference};

#[derive(OpenApi)]
#[openapi(info(title = "Bank", description = "A simulated card processor with a ledger of its own."))]
struct Api;

/// What merchants may ask, with its description.
pub fn routes(app: BankApp) -> OpenApiRouter {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(charge, ledger))
        .routes(routes!(show))
        .routes(routes!(refund))
        .routes(routes!(reverse))
        .with_state(app)
}

/// A charge that a merchant asks for.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewCharge {
    /// How much; positive.
    #[garde(custom(is_positive))]
    #[schema(value_type = Amount)]
    amount: Money,
    /// The card: `tok_ok`, `tok_declined`, `tok_insufficient_funds`, `tok_slow` (answers late),
    /// `tok_error_once` (503 at first), `tok_lost_answer` (charges, but answers 500 at first).
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    token: String,
    /// What it is for, in the merchant's words.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    reference: String,
}

/// [`Money`], as it is described where there must be some.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what is read as [`Money`]")]
struct Amount {
    /// Amount in minor units: 1299 is 12.99 EUR.
    #[schema(minimum = 1, example = 1299)]
    amount_minor: i64,
    /// ISO 4217 code.
    #[schema(schema_with = contract::money::currency_schema)]
    currency: Currency,
}

fn is_positive(amount: &Money, (): &()) -> garde::Result {
    match amount.amount_minor {
        1.. => Ok(()),
        _ => Err(garde::Error::new("amount_minor must be positive")),
    }
}

/// Charge a card. The `Idempotency-Key`, a UUID, is the charge: asking again gives the first answer again.
#[utoipa::path(post, path = "/v1/charges", params(("Idempotency-Key" = Uuid, Header)), request_body = NewCharge, responses(
    (status = 200, body = Answer),
))]
async fn charge(
    State(app): State<BankApp>,
    headers: HeaderMap,
    Body(body, _): Body<NewCharge>,
) -> Result<Json<Answer>, Problem> {
    let key =
        headers.get("idempotency-key").and_then(|value| value.to_str().ok()).and_then(|key| key.parse().ok());
    let Some(charge) = key else {
        return Err(Problem::field("Idempotency-Key", "must be a UUID"));
    };
    if body.token == "tok_slow" {
        tokio::time::sleep(app.settings.service.slow).await;
    }
    stumble(&app.controls.faults).await?;
    let loses_answer = body.token == "tok_lost_answer";
    let asked = Asked { amount: body.amount, token: body.token, reference: body.reference };
    let kind = match app.controls.faults.strikes(faults::DECLINE, "") {
        Some(_) => CommandKind::Decline(asked),
        None => CommandKind::Capture(asked),
    };
    let answer = ask(&app, charge, kind).await?;
    if matches!(answer, Answer::Refused { .. }) {
        // Its merchant undoes what it is for, and wants to see why.
        app.engine.tracer().keep_the_answer();
    }
    match answer {
        Answer::Captured { is_first: true, .. } if loses_answer => {
            Err(Problem::internal(&"tok_lost_answer: charged, answer lost on purpose"))
        }
        Answer::Stumbled => Err(Problem::unavailable("the bank stumbled; ask again", 1)),
        answer @ (Answer::Captured { .. } | Answer::Refused { .. } | Answer::Undone) => {
            lose(&app.controls.faults, Json(answer))
        }
    }
}

/// Injected faults that strike before anything is done.
async fn stumble(faults: &Faults) -> Result<(), Problem> {
    if let Some(latency) = faults.strikes(faults::LATENCY, "") {
        tokio::time::sleep(latency).await;
    }
    if faults.strikes(faults::HANG, "").is_some() {
        return std::future::pending().await;
    }
    match faults.strikes(faults::ERROR, "") {
        Some(_) => Err(Problem::unavailable("injected: the bank is out of order", 1)),
        None => Ok(()),
    }
}

/// The fault that strikes when everything is done.
fn lose<T>(faults: &Faults, answer: T) -> Result<T, Problem> {
    match faults.strikes(faults::LOSE_ANSWER, "") {
        Some(_) => Err(Problem::internal(&"injected: done, and the answer lost")),
        None => Ok(answer),
    }
}

async fn give_back(app: &BankApp, id: Uuid, kind: CommandKind) -> Result<Json<Answer>, Problem> {
    stumble(&app.controls.faults).await?;
    if app.controls.faults.strikes(faults::REFUSE_REFUND, "").is_some() {
        return Err(Problem::conflict("injected: the account of the customer is closed"));
    }
    let answer = ask(app, id, kind).await.map(Json)?;
    lose(&app.controls.faults, answer)
}

async fn ask(app: &BankApp, charge: Uuid, kind: CommandKind) -> Result<Answer, Problem> {
    command_reply(app.engine.ask(charge, Command { charge, kind }, None).await?, problem)
}

fn problem(rejection: &ChargeRejection) -> Problem {
    match rejection {
        ChargeRejection::Unknown => Problem::new(StatusCode::NOT_FOUND, rejection.to_string()),
        ChargeRejection::KeyReused => Problem::field("Idempotency-Key", rejection.to_string()),
        ChargeRejection::NothingCaptured => Problem::conflict(rejection.to_string()),
    }
}

/// Give a captured charge back. Asking again changes nothing.
#[utoipa::path(post, path = "/v1/charges/{key}/refund", params(("key" = Uuid, Path)), responses(
    (status = 200, body = Answer), (status = 404), (status = 409),
))]
async fn refund(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    give_back(&app, id, CommandKind::Refund).await
}

/// Undo a charge whose outcome is not known: what was captured goes back, what was not never will be.
#[utoipa::path(post, path = "/v1/charges/{key}/reverse", params(("key" = Uuid, Path)), responses(
    (status = 200, body = Answer), (status = 409),
))]
async fn reverse(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    give_back(&app, id, CommandKind::Reverse).await
}

/// A charge in the ledger.
#[derive(Debug, Serialize, ToSchema)]
struct ChargeView {
    /// The bank's id.
    id: String,
    /// `CAPTURED`, `REFUSED`, `REFUNDED`, `STUMBLED` or `BLOCKED`.
    status: &'static str,
    /// What was asked for; absent when `STUMBLED` or `BLOCKED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<Money>,
    /// What it is for, in the merchant's words; absent when `STUMBLED` or `BLOCKED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
}

/// Show a charge, by its key.
#[utoipa::path(get, path = "/v1/charges/{key}", params(("key" = Uuid, Path)), responses(
    (status = 200, body = ChargeView), (status = 404),
))]
async fn show(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<ChargeView>, Problem> {
    let row = app.store.row(RowKey::of::<Charge>(id)).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("charge {id}")))?;
    let charge: Charge = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
    let asked = charge.asked();
    Ok(Json(ChargeView {
        id: reference(id),
        status: charge.status(),
        amount: asked.map(|asked| asked.amount),
        reference: asked.map(|asked| asked.reference.clone()),
    }))
}

/// The ledger by reference, a page at a time (`after` is the `next` of the page before). What a merchant can lay
/// beside its own books: charges that were never decided have no reference, and are not in it.
#[utoipa::path(get, path = "/v1/charges", params(("after" = Option<String>, Query)), responses(
    (status = 200, description = "entries and the next page's `after`"),
))]
async fn ledger(
    State(app): State<BankApp>,
    Params(range): Params<LedgerQuery>,
    encoding: Encoding,
) -> Result<Response, Problem> {
    let store = app.store.as_ref();
    let mut query = Query {
        order: Some(Order { field: "reference", after: None }),
        limit: MAX_ENTRIES,
        ..Query::default()
    };
    let mut rows = Vec::new();
    if let Some(references) = range.ids()? {
        for reference in references {
            let equals = vec![("reference", FieldValue::Text(reference.to_owned()))];
            rows.extend(store.find(Charge::KIND, Query { equals, ..query.clone() }).await?);
        }
        if let Some(seq) = range.as_of {
            let ids = rows.iter().map(|row| row.id.as_str()).collect();
            return entries_as_of(store, ids, seq, entry).await?.encode(encoding);
        }
        return entries_of(store, rows, None, entry).await?.encode(encoding);
    }
    // The least text behind the last one, as a reference is a line, and not every store knows U+0000: all charges of one
    // reference are on one page.
    let from = range.after.map(|after| after + "\u{1}").unwrap_or_default();
    query.from = vec![("reference", FieldValue::Text(from))];
    rows.extend(store.find(Charge::KIND, query).await?);
    let next = if rows.len() == MAX_ENTRIES { leave_out_the_last(&mut rows) } else { None };
    entries_of(store, rows, next, entry).await?.encode(encoding)
}

fn entry(id: &str, row: WithHistory<Charge>) -> Option<ChargeEntry> {
    Some(policy::ledger_entry(id.parse().ok()?, &row.state, &row.events))
}

/// Leaves the last reference to the next page, since more of it may follow; unless there is no other: that many
/// charges of one reference are enough to see that something is wrong. Answers the reference that is now the last.
fn leave_out_the_last(rows: &mut Vec<FoundRow>) -> Option<String> {
    let last = rows.last()?.ordered_by.clone();
    let whole = rows.iter().take_while(|row| row.ordered_by != last).count();
    if whole > 0 {
        rows.truncate(whole);
    }
    match &rows.last()?.ordered_by {
        FieldValue::Text(reference) => Some(reference.clone()),
        FieldValue::Integer(_) | FieldValue::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn row(reference: &str) -> FoundRow {
        FoundRow {
            id: String::new(),
            version: 1,
            state: "damaged: where a page ends does not hang on it".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            ordered_by: FieldValue::Text(reference.to_owned()),
        }
    }

    #[test]
    fn a_full_page_holds_whole_references_and_the_next_begins_behind_them() {
        for (references, kept, next) in [
            (&["a", "b", "c"][..], 2, Some("b")),
            (&["a", "b", "b"], 1, Some("a")),
            // More charges of one reference than a page holds: the rest of them is passed over.
            (&["a", "a"], 2, Some("a")),
            (&[], 0, None),
        ] {
            let mut rows: Vec<_> = references.iter().map(|reference| row(reference)).collect();
            let after = leave_out_the_last(&mut rows);
            assert_eq!((rows.len(), after.as_deref()), (kept, next), "{references:?}");
        }
    }
}
