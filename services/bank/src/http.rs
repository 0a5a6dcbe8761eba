//! Shell: the bank's routes.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use garde::Validate;
use serde::{Deserialize, Serialize};
use shared::books::{ChargeEntry, Page};
use shared::decider::Decider;
use shared::engine::Outcome;
use shared::faults::{FaultKind, Faults};
use shared::http::{Body, Params, Problem, Segment};
use shared::money::Money;
use shared::operator::Range;
use shared::row::RowKey;
use shared::store::FoundRow;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::BankApp;
use crate::domain::{Asked, Charge, ChargeRejection};
use crate::policy::{self, Answer, Command, Wish, reference};

#[derive(OpenApi)]
#[openapi(info(title = "Bank", description = "A simulated card processor with a ledger of its own."))]
struct Api;

/// All routes.
pub fn routes(app: BankApp) -> OpenApiRouter {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(charge, ledger))
        .routes(routes!(show))
        .routes(routes!(refund))
        .routes(routes!(reverse))
        .with_state(app)
}

/// A charge.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewCharge {
    /// How much; positive.
    #[garde(custom(is_positive))]
    amount: Money,
    /// The card: `tok_ok`, `tok_declined`, `tok_insufficient_funds`, `tok_slow` (answers late),
    /// `tok_error_once` (503 at first), `tok_lost_answer` (charges, but answers 500 at first).
    #[garde(length(chars, min = 1, max = 100))]
    token: String,
    /// What for.
    #[garde(length(chars, min = 1, max = 100))]
    reference: String,
}

fn is_positive(amount: &Money, (): &()) -> garde::Result {
    match amount.amount_minor {
        1.. => Ok(()),
        _ => Err(garde::Error::new("amount_minor must be positive")),
    }
}

/// Charge a card. The `Idempotency-Key`, a UUID, is the charge: asking again gives the first answer again.
#[utoipa::path(post, path = "/v1/charges", request_body = NewCharge, responses(
    (status = 200, body = Answer), (status = 422, body = Problem), (status = 503, body = Problem),
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
    stumble(&app.faults).await?;
    let loses_answer = body.token == "tok_lost_answer";
    let asked = Asked { amount: body.amount, token: body.token, reference: body.reference };
    let wish = match app.faults.strikes(FaultKind::BankDecline, "") {
        Some(_) => Wish::Decline(asked),
        None => Wish::Capture(asked),
    };
    match ask(&app, charge, wish).await? {
        Answer::Captured { is_first: true, .. } if loses_answer => {
            Err(Problem::internal(&"tok_lost_answer: charged, answer lost on purpose"))
        }
        Answer::Stumbled => Err(Problem::unavailable("the bank stumbled; ask again", 1)),
        answer @ (Answer::Captured { .. } | Answer::Refused { .. } | Answer::Undone) => {
            lose(&app.faults, Json(answer))
        }
    }
}

/// Faults made on purpose that strike before anything is done.
async fn stumble(faults: &Faults) -> Result<(), Problem> {
    if let Some(latency) = faults.strikes(FaultKind::BankLatency, "") {
        tokio::time::sleep(latency).await;
    }
    if faults.strikes(FaultKind::BankHang, "").is_some() {
        return std::future::pending().await;
    }
    match faults.strikes(FaultKind::BankError, "") {
        Some(_) => Err(Problem::unavailable("injected: the bank is out of order", 1)),
        None => Ok(()),
    }
}

/// The fault that strikes when everything is done.
fn lose<T>(faults: &Faults, answer: T) -> Result<T, Problem> {
    match faults.strikes(FaultKind::BankLoseAnswer, "") {
        Some(_) => Err(Problem::internal(&"injected: done, and the answer lost")),
        None => Ok(answer),
    }
}

async fn give_back(app: &BankApp, id: Uuid, wish: Wish) -> Result<Json<Answer>, Problem> {
    stumble(&app.faults).await?;
    if app.faults.strikes(FaultKind::BankRefuseRefund, "").is_some() {
        return Err(Problem::conflict("injected: the account of the customer is closed"));
    }
    let answer = ask(app, id, wish).await.map(Json)?;
    lose(&app.faults, answer)
}

async fn ask(app: &BankApp, charge: Uuid, wish: Wish) -> Result<Answer, Problem> {
    match app.engine.ask(charge, Command { charge, wish }, None).await? {
        Outcome::Done(answer) | Outcome::Replayed(answer) => Ok(answer),
        Outcome::Rejected(rejection) => Err(match rejection {
            ChargeRejection::Unknown => Problem::new(StatusCode::NOT_FOUND, rejection.to_string()),
            ChargeRejection::KeyReused => Problem::field("Idempotency-Key", rejection.to_string()),
            ChargeRejection::NothingCaptured => Problem::conflict(rejection.to_string()),
        }),
        Outcome::Faulted(reason) | Outcome::Retried(reason) | Outcome::Dead(reason) => {
            Err(Problem::internal(&reason))
        }
        Outcome::KeyReused | Outcome::Duplicate => Err(Problem::internal(&"the bank keeps keys as charges")),
    }
}

/// Give a captured charge back. Asking again changes nothing.
#[utoipa::path(post, path = "/v1/charges/{id}/refund", params(("id" = Uuid, Path)), responses(
    (status = 200, body = Answer), (status = 404, body = Problem), (status = 409, body = Problem),
))]
async fn refund(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    give_back(&app, id, Wish::Refund).await
}

/// Undo a charge whose outcome is not known: what was captured goes back, what was not never will be.
#[utoipa::path(post, path = "/v1/charges/{id}/reverse", params(("id" = Uuid, Path)), responses(
    (status = 200, body = Answer),
))]
async fn reverse(State(app): State<BankApp>, Segment(id): Segment<Uuid>) -> Result<Json<Answer>, Problem> {
    give_back(&app, id, Wish::Reverse).await
}

/// A charge in the ledger.
#[derive(Debug, Serialize, ToSchema)]
struct ChargeView {
    /// The bank's id.
    id: String,
    /// `CAPTURED`, `REFUSED`, `REFUNDED`, `STUMBLED` or `BLOCKED`.
    status: &'static str,
    /// How much.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<Money>,
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
}

/// Show a charge, by its key.
#[utoipa::path(get, path = "/v1/charges/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = ChargeView), (status = 404, body = Problem),
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

/// The ledger, a page at a time (`after` is the `next` of the page before).
#[utoipa::path(get, path = "/v1/charges", params(("after" = Option<String>, Query)), responses(
    (status = 200, description = "entries and the next page's `after`"),
))]
async fn ledger(
    State(app): State<BankApp>,
    Params(range): Params<Range>,
) -> Result<Json<Page<ChargeEntry>>, Problem> {
    let entry = |row: &FoundRow| {
        let charge: Charge = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
        let id = row.id.parse().map_err(|error| Problem::internal(&error))?;
        Ok(policy::book_entry(id, &charge))
    };
    shared::operator::page(app.store.as_ref(), Charge::KIND, range, entry).await.map(Json)
}
