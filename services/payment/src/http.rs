//! Shell: the routes of the payment service.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use contract::bank::LedgerCheck;
use contract::order::SECRETS;
use contract::payment::PaymentView;
use saga_core::decider::Decider;
use saga_core::query::{FoundRow, Query};
use saga_core::row::{RowKey, WithHistory};
use saga_engine::host::http::{Operator, Params, Problem, Segment, command_reply};
use saga_engine::host::queries::{
    Encoding, EventPage, HistoryParams, LedgerQuery, entries_with_history, history, list_page, readable_rows,
};
use serde::Deserialize;
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::PaymentApp;
use crate::bank_client::BankClient;
use crate::bank_ledger::{self, BankLedger};
use crate::domain::{Payment, PaymentRejection};
use crate::ledger::ledger_entry;
use crate::service::Refund;
use crate::view::view_of;

#[derive(OpenApi)]
#[openapi(info(title = "Payment service", description = "Payments and refunds."))]
struct Api;

/// Routes for people, and those that admin asks: the ledger, and the bank's answer to its own.
pub fn routes(app: PaymentApp) -> OpenApiRouter {
    // The settings were checked at the start.
    let bank = BankClient::new(&app.settings).ok().map(Arc::new);
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(payments))
        .routes(routes!(payment))
        .routes(routes!(events))
        .routes(routes!(refund))
        .route("/internal/ledger", axum::routing::get(ledger))
        .route("/internal/bank-ledger", axum::routing::get(move |app| check_bank_ledger(app, bank.clone())))
        .with_state(app)
}

/// Asks the bank whether it has the ledger that payment has worked with. Another one rejects every call.
async fn check_bank_ledger(
    State(app): State<PaymentApp>,
    bank: Option<Arc<BankClient>>,
) -> Result<Json<LedgerCheck>, Problem> {
    let unknown = |why: &str| Problem::unavailable(format!("the ledger of the bank is unknown: {why}"), 1);
    let row = app.store.row(bank_ledger::row()).await?;
    let state = row.map(|row| serde_json::from_str::<BankLedger>(&row.state)).transpose();
    let Some(named) = state.map_err(|error| Problem::internal(&error))?.and_then(|ledger| ledger.0) else {
        return Ok(Json(LedgerCheck::default()));
    };
    let bank = bank.ok_or_else(|| unknown("no client"))?;
    bank.check_ledger(named).await.map(Json).map_err(|failed| unknown(&failed.context))
}

/// Filter of the list of payments.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Only the payment of this order.
    order: Option<Uuid>,
    /// Page size, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// `order` of the last payment on the page before.
    cursor: Option<Uuid>,
}

/// List payments, newest order first.
#[utoipa::path(get, path = "/api/payments", params(ListParams), responses(
    (status = 200, body = Vec<PaymentView>),
))]
async fn payments(
    State(app): State<PaymentApp>,
    Params(params): Params<ListParams>,
) -> Result<Json<Vec<PaymentView>>, Problem> {
    let equals = params.order.map(|order| ("id", order.to_string().as_str().into())).into_iter().collect();
    let after = params.cursor.map(|cursor| cursor.to_string());
    let query = Query { equals, after, descending: true, ..Query::default() };
    let (rows, _) = list_page(app.store.as_ref(), Payment::KIND, params.limit, query).await?;
    match readable_rows(&rows, |row| parse(row).map(|(_, view)| view)) {
        // All are damaged: an empty list would claim that there are none.
        (payments, unreadable) if payments.is_empty() && !unreadable.is_empty() => {
            Err(Problem::internal(&format_args!("damaged: {}", unreadable.join(", "))))
        }
        (payments, _) => Ok(Json(payments)),
    }
}

fn parse(row: &FoundRow) -> Result<(Payment, PaymentView), Problem> {
    let payment: Payment = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
    let order = row.id.parse().map_err(|error| Problem::internal(&error))?;
    let view = view_of(order, &payment).ok_or_else(|| Problem::internal(&"a stored payment that is none"))?;
    Ok((payment, view))
}

/// Show a payment, by its id or by the id of its order.
#[utoipa::path(get, path = "/api/payments/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = PaymentView), (status = 404),
))]
async fn payment(
    State(app): State<PaymentApp>,
    Segment(id): Segment<Uuid>,
) -> Result<Json<PaymentView>, Problem> {
    let row = find(&app, id).await?;
    parse(&row).map(|(_, view)| Json(view))
}

async fn find(app: &PaymentApp, id: Uuid) -> Result<FoundRow, Problem> {
    if let Some(row) = app.store.row(RowKey::of::<Payment>(id)).await? {
        return Ok(row);
    }
    let equals = vec![("payment_id", id.to_string().as_str().into())];
    let rows = app.store.find(Payment::KIND, Query { equals, limit: 1, ..Query::default() }).await?;
    rows.into_iter().next().ok_or_else(|| Problem::not_found(format_args!("payment {id}")))
}

/// Show the history of a payment, oldest event first, page by page.
#[utoipa::path(get, path = "/api/payments/{id}/events", params(("id" = Uuid, Path), HistoryParams), responses(
    (status = 200, body = EventPage), (status = 404),
))]
async fn events(
    State(app): State<PaymentApp>,
    Segment(id): Segment<Uuid>,
    Params(params): Params<HistoryParams>,
) -> Result<Json<EventPage>, Problem> {
    let row = find(&app, id).await?;
    history(app.store.as_ref(), RowKey::of::<Payment>(row.id), params, SECRETS).await.map(Json)
}

/// Refund a payment. The order stands.
#[utoipa::path(post, path = "/api/payments/{id}/refund", params(("id" = Uuid, Path), Operator), responses(
    (status = 200, body = PaymentView), (status = 404), (status = 409),
))]
async fn refund(
    State(app): State<PaymentApp>,
    Operator(operator): Operator,
    Segment(id): Segment<Uuid>,
) -> Result<Json<PaymentView>, Problem> {
    let row = find(&app, id).await?;
    let order = row.id.parse().map_err(|error| Problem::internal(&error))?;
    let outcome = app.engine.execute(order, Refund { order, operator: Some(operator) }, None).await?;
    command_reply(outcome, problem).map(Json)
}

fn problem(rejection: &PaymentRejection) -> Problem {
    match rejection {
        PaymentRejection::Unknown => Problem::new(StatusCode::NOT_FOUND, rejection.to_string()),
        PaymentRejection::NothingCaptured => Problem::conflict(rejection.to_string()),
    }
}

async fn ledger(
    State(app): State<PaymentApp>,
    Params(range): Params<LedgerQuery>,
    encoding: Encoding,
) -> Result<Response, Problem> {
    let entry = |order: &str, row: WithHistory<Payment>| {
        Some(ledger_entry(order.parse().ok()?, &row.state, &row.events))
    };
    entries_with_history(app.store.as_ref(), range, entry).await?.encode(encoding)
}
