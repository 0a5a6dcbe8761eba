//! Shell: the routes of the bank.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::Response;
use contract::bank::{self as faults, ChargeView, UNKNOWN_CHARGE};
use contract::money::{Currency, Money};
use contract::reconciliation::ChargeEntry;
use garde::Validate;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Order, Query};
use saga_core::row::{RowKey, WithHistory};
use saga_engine::host::http::{Body, Params, Problem, Segment, command_reply, idempotency_key, one_line};
use saga_engine::host::queries::{Encoding, LedgerQuery, MAX_ENTRIES, entries_as_of, entries_of};
use saga_engine::runtime::injected_faults::InjectedFaults;
use serde::Deserialize;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::BankApp;
use crate::domain::{Charge, ChargeRejection, ChargeRequest};
use crate::ledger::{bank_reference, ledger_entry};
use crate::ledger_id::{self, OwnLedger};
use crate::service::{Answer, Command, CommandKind};

#[derive(OpenApi)]
#[openapi(info(title = "Bank", description = "A simulated card processor with a ledger of its own."))]
struct Api;

pub fn routes(app: BankApp) -> OpenApiRouter {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(charge, ledger))
        .routes(routes!(show))
        .routes(routes!(refund))
        .routes(routes!(reverse))
        .routes(routes!(close))
        .routes(routes!(ledger_id::identity))
        .layer(middleware::from_fn_with_state(OwnLedger::of(app.clone()), ledger_id::guard))
        .with_state(app)
}

/// Charge requested by a merchant.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewCharge {
    /// Amount to capture, at least 1 minor unit.
    #[garde(custom(is_positive))]
    #[schema(value_type = Amount)]
    amount: Money,
    /// Card token: `tok_ok`, `tok_declined`, `tok_insufficient_funds`, `tok_slow` (answers late),
    /// `tok_error_once` (answers 503 at first), `tok_lost_answer` (captures, but answers 500 at first).
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    token: String,
    /// Purpose, in the merchant's words.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line")]
    reference: String,
}

/// [`Money`], described as a positive amount.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what is read as [`Money`]")]
struct Amount {
    /// Amount in minor units: 1299 is 12.99 EUR.
    #[schema(minimum = 1, example = 1299)]
    amount_minor: i64,
    /// ISO 4217 code of the currency.
    #[schema(schema_with = contract::money::currency_schema)]
    currency: Currency,
}

fn is_positive(amount: &Money, (): &()) -> garde::Result {
    match amount.amount_minor {
        1.. => Ok(()),
        _ => Err(garde::Error::new("amount_minor must be positive")),
    }
}

/// Charge a card. The `Idempotency-Key`, a UUID, identifies the charge: a repeated request gets the first
/// answer again.
#[utoipa::path(post, path = "/v1/charges", params(("Idempotency-Key" = Uuid, Header)), request_body = NewCharge, responses(
    (status = 200, body = Answer),
))]
async fn charge(
    State(app): State<BankApp>,
    headers: HeaderMap,
    Body(body, _): Body<NewCharge>,
) -> Result<Json<Answer>, Problem> {
    let key = idempotency_key(&headers)?;
    let Some(charge) = key.and_then(|key| key.parse().ok()) else {
        return Err(Problem::field("Idempotency-Key", "must be a UUID"));
    };
    if body.token == "tok_slow" {
        tokio::time::sleep(app.settings.service.slow).await;
    }
    inject_before(&app.controls.faults).await?;
    let loses_answer = body.token == "tok_lost_answer";
    let request = ChargeRequest { amount: body.amount, token: body.token, reference: body.reference };
    let kind = match app.controls.faults.trigger(faults::DECLINE, "") {
        Some(_) => CommandKind::Decline(request),
        None => CommandKind::Capture(request),
    };
    let answer = ask(&app, charge, kind).await?;
    if matches!(answer, Answer::Refused { .. }) {
        // The merchant undoes its order, so the trace is worth keeping.
        app.engine.tracer().keep_request();
    }
    match answer {
        Answer::Captured { is_new: true, .. } if loses_answer => {
            Err(Problem::internal(&"tok_lost_answer: charged, answer lost on purpose"))
        }
        Answer::FailedOnce => Err(failed_on_purpose("tok_error_once: failed on purpose; try again")),
        answer @ (Answer::Captured { .. } | Answer::Refused { .. } | Answer::Undone) => {
            inject_after(&app.controls.faults, Json(answer))
        }
    }
}

/// A 503 of one request, without `Retry-After`: other requests need not wait.
fn failed_on_purpose(detail: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}

/// Injects the faults that strike before any effect.
async fn inject_before(faults: &InjectedFaults) -> Result<(), Problem> {
    if let Some(latency) = faults.trigger(faults::LATENCY, "") {
        tokio::time::sleep(latency).await;
    }
    if faults.trigger(faults::HANG, "").is_some() {
        return std::future::pending().await;
    }
    match faults.trigger(faults::ERROR, "") {
        Some(_) => Err(failed_on_purpose("injected: the bank fails")),
        None => Ok(()),
    }
}

/// Injects the fault that strikes after the effect.
fn inject_after<T>(faults: &InjectedFaults, answer: T) -> Result<T, Problem> {
    match faults.trigger(faults::LOSE_ANSWER, "") {
        Some(_) => Err(Problem::internal(&"injected: done, and the answer lost")),
        None => Ok(answer),
    }
}

async fn give_back(app: &BankApp, id: Uuid, kind: CommandKind) -> Result<Json<Answer>, Problem> {
    inject_before(&app.controls.faults).await?;
    if app.controls.faults.trigger(faults::REFUSE_REFUND, "").is_some() {
        return Err(Problem::conflict("injected: the account of the customer is closed"));
    }
    let answer = ask(app, id, kind).await.map(Json)?;
    inject_after(&app.controls.faults, answer)
}

async fn ask(app: &BankApp, charge: Uuid, kind: CommandKind) -> Result<Answer, Problem> {
    command_reply(app.engine.execute(charge, Command { charge, kind }, None).await?, problem)
}

fn problem(rejection: &ChargeRejection) -> Problem {
    match rejection {
        ChargeRejection::Unknown => Problem {
            kind: UNKNOWN_CHARGE.to_owned(),
            ..Problem::new(StatusCode::NOT_FOUND, rejection.to_string())
        },
        ChargeRejection::KeyReused => Problem::field("Idempotency-Key", rejection.to_string()),
        ChargeRejection::NothingCaptured => Problem::conflict(rejection.to_string()),
    }
}

/// Refund a captured charge. Repeating it changes nothing.
#[utoipa::path(post, path = "/v1/charges/{key}/refund", params(("key" = Uuid, Path)), responses(
    (status = 200, body = Answer), (status = 404), (status = 409),
))]
async fn refund(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    give_back(&app, id, CommandKind::Refund).await
}

/// Undo a charge with unknown outcome: refunds a captured charge and blocks any other.
#[utoipa::path(post, path = "/v1/charges/{key}/reverse", params(("key" = Uuid, Path)), responses(
    (status = 200, body = Answer), (status = 409),
))]
async fn reverse(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    give_back(&app, id, CommandKind::Reverse).await
}

/// Learn the outcome of a charge whose request may be forgotten: captured, refused or undone. A charge that was never
/// decided is blocked, so that the answer holds for ever.
#[utoipa::path(post, path = "/v1/charges/{key}/close", params(("key" = Uuid, Path)), responses(
    (status = 200, body = Answer),
))]
async fn close(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    inject_before(&app.controls.faults).await?;
    let answer = ask(&app, id, CommandKind::Close).await?;
    inject_after(&app.controls.faults, Json(answer))
}

/// Show a charge, by its key.
#[utoipa::path(get, path = "/v1/charges/{key}", params(("key" = Uuid, Path)), responses(
    (status = 200, body = ChargeView), (status = 404),
))]
async fn show(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<ChargeView>, Problem> {
    let row = app.store.row(RowKey::of::<Charge>(id)).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("charge {id}")))?;
    let charge: Charge = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
    let request = charge.request();
    Ok(Json(ChargeView {
        id: bank_reference(id),
        status: charge.status().to_owned(),
        amount: request.map(|request| request.amount),
        reference: request.map(|request| request.reference.clone()),
    }))
}

/// List the ledger by reference, page by page (`after` is the `next` of the page before), for the
/// reconciliation of a merchant. Charges that were never decided have no reference and are not listed.
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
    // The smallest text after the last reference, which is one line. Not every store accepts U+0000. All
    // charges of one reference are on one page.
    let from = range.after.map(|after| after + "\u{1}").unwrap_or_default();
    query.from = vec![("reference", FieldValue::Text(from))];
    rows.extend(store.find(Charge::KIND, query).await?);
    let next = if rows.len() == MAX_ENTRIES { drop_last_reference(&mut rows) } else { None };
    entries_of(store, rows, next, entry).await?.encode(encoding)
}

fn entry(id: &str, row: WithHistory<Charge>) -> Option<ChargeEntry> {
    Some(ledger_entry(id.parse().ok()?, &row.state, &row.events))
}

/// Drops the rows of the last reference, since the next page may have more of it, and returns the reference
/// that is last now. Keeps them if there is no other reference: a full page of charges for one reference
/// shows the problem well enough.
fn drop_last_reference(rows: &mut Vec<FoundRow>) -> Option<String> {
    let last = rows.last()?.ordered_by.clone();
    let kept = rows.iter().take_while(|row| row.ordered_by != last).count();
    if kept > 0 {
        rows.truncate(kept);
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
    fn full_page_ends_at_whole_reference() {
        for (references, kept, next) in [
            (&["a", "b", "c"][..], 2, Some("b")),
            (&["a", "b", "b"], 1, Some("a")),
            // More charges of one reference than a page has: the rest is skipped.
            (&["a", "a"], 2, Some("a")),
            (&[], 0, None),
        ] {
            let mut rows: Vec<_> = references.iter().map(|reference| row(reference)).collect();
            let after = drop_last_reference(&mut rows);
            assert_eq!((rows.len(), after.as_deref()), (kept, next), "{references:?}");
        }
    }
}
