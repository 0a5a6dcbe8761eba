//! Shell: the routes of the order service.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::order::{CancelReason, SECRETS};
use garde::Validate;
use jiff::SignedDuration;
use saga_core::decider::{Decider, FieldValue};
use saga_core::query::{FoundRow, Query};
use saga_core::row::{RowKey, WithHistory};
use saga_engine::host::http::{
    Body, IdempotencyKey, Params, Prefer, Problem, Segment, command_reply, has_request_key, keyed_reply,
    one_line, request_key, trimmed, wait_preference,
};
use saga_engine::host::in_flight::{InFlight, InFlightPermit};
use saga_engine::host::queries::{
    Encoding, EventPage, HistoryParams, LedgerQuery, entries_with_history, history, list_page, readable_rows,
};
use saga_engine::runtime::clock::Clock as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::OrderApp;
use crate::catalogue::CatalogueItem;
use crate::domain::{Order, OrderRejection};
use crate::ledger::{copy_entry, ledger_entry};
use crate::service::{Command, NewOrder, Rejection, Reply};
use crate::view::OrderView;

#[derive(OpenApi)]
#[openapi(info(title = "Order service", description = "Places, shows and cancels orders."))]
struct Api;

/// Routes for customers, and the ledgers for the reconciliation.
pub fn routes(app: OrderApp) -> OpenApiRouter {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(place, list))
        .routes(routes!(show))
        .routes(routes!(events))
        .routes(routes!(cancel))
        .route("/internal/ledger", axum::routing::get(ledger))
        .route("/internal/ledger/catalogue", axum::routing::get(catalogue_ledger))
        .with_state(app)
}

/// Request to place an order.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlaceOrder {
    /// Customer who orders and pays: any name of one line. Leading and trailing space is removed.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "trimmed-line", example = "ada")]
    #[serde(deserialize_with = "trimmed")]
    customer: String,
    /// Ordered products, at most 100 lines.
    #[garde(length(min = 1, max = 100), dive)]
    #[schema(min_items = 1, max_items = 100)]
    lines: Vec<PlaceLine>,
    /// Payment method and card of the customer.
    #[garde(dive)]
    payment: PlacePayment,
}

/// One line of a new order. Its price comes from the catalogue.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlaceLine {
    /// Stock keeping unit of the product.
    #[garde(length(chars, min = 1, max = 64), custom(one_line))]
    #[schema(min_length = 1, max_length = 64, format = "one-line", example = "coffee-beans-1kg")]
    sku: String,
    /// Number of pieces, 1 to 10,000.
    #[garde(range(min = 1, max = 10_000))]
    #[schema(minimum = 1, maximum = 10_000, example = 2)]
    quantity: u32,
}

/// Payment of a new order.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlacePayment {
    /// Payment method; only cards are supported.
    #[garde(skip)]
    #[serde(default)]
    #[expect(dead_code, reason = "parsed so that another method is refused")]
    method: Method,
    /// Card token, e.g. `tok_ok` or `tok_declined`. The bank refuses an unknown one: `unknown_card`.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100, format = "one-line", example = "tok_ok")]
    token: String,
}

/// Means by which an order can be paid.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Method {
    /// Paid by card, identified by a token.
    #[default]
    Card,
}

/// Place an order. Answers 202 once the order is durable. With `Prefer: wait=10` the answer waits until the
/// order is confirmed or cancelled, then it is 201. A repeated `Idempotency-Key` gets the same answer.
#[utoipa::path(post, path = "/api/orders", params(IdempotencyKey, Prefer), request_body = PlaceOrder, responses(
    (status = 201, description = "placed, and confirmed or cancelled while waiting", body = OrderView, headers(
        ("Location", description = "path of the order"),
        ("Preference-Applied", description = "the granted wait"),
        ("Idempotency-Replayed", description = "`true` for the stored answer of a repeated key"),
    )),
    (status = 202, description = "placed", body = OrderView, headers(
        ("Location", description = "path of the order, which has its current state"),
        ("Idempotency-Replayed", description = "`true` for the stored answer of a repeated key"),
    )),
    (status = 422, description = "invalid, or the key belongs to another request"),
    (status = 503, description = "too many orders are in flight, the outbox is too long, or the database fails or is nearly full; `Retry-After` says when to try again"),
))]
async fn place(
    State(app): State<OrderApp>,
    // Before the body is read: a rejected request must cost little.
    Admitted(admitted): Admitted,
    headers: HeaderMap,
    Body(body, bytes): Body<PlaceOrder>,
) -> Result<Response, Problem> {
    let key = request_key(&headers, "POST /api/orders", &bytes)?;
    let order = Uuid::now_v7();
    let (command, permit, overload) = match admitted {
        Ok(permit) => (Command::Place(new_order(&app, order, body)), permit, None),
        Err(overload) => (Command::Repeat, None, Some(overload)),
    };
    let outcome = app.engine.execute(order, command, key).await?;
    let rejected = |rejection: &Rejection| match overload {
        Some(overload) => *overload,
        None => problem(rejection),
    };
    let (Reply { order: placed }, replayed) = keyed_reply(outcome, rejected)?;
    // The order is durable and counted as pending now.
    drop(permit);
    let location = (header::LOCATION, format!("/api/orders/{}", placed.id));
    if let Some(wait) = wait_preference(&headers) {
        let current = wait_until_ended(&app, placed.id, wait).await?;
        if current.status != "PENDING" {
            let applied =
                (header::HeaderName::from_static("preference-applied"), format!("wait={}", wait.as_secs()));
            return Ok((StatusCode::CREATED, replayed, [location, applied], Json(current)).into_response());
        }
    }
    Ok((StatusCode::ACCEPTED, replayed, [location], Json(placed)).into_response())
}

fn new_order(app: &OrderApp, order: Uuid, body: PlaceOrder) -> NewOrder {
    NewOrder {
        order,
        customer: body.customer,
        lines: body.lines.into_iter().map(|line| (line.sku, line.quantity)).collect(),
        token: body.payment.token,
        timeout: SignedDuration::try_from(app.settings.service.deadline).unwrap_or(SignedDuration::MAX),
    }
}

/// Permit for one more order in flight, or the problem of an overload. A request with a key goes on all the same: it may
/// repeat one whose answer is stored.
struct Admitted(Result<Option<InFlightPermit>, Box<Problem>>);

impl FromRequestParts<OrderApp> for Admitted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &OrderApp) -> Result<Self, Problem> {
        match admit(app) {
            Err(overload) if !has_request_key(&parts.headers) => Err(overload),
            admitted => Ok(Self(admitted.map_err(Box::new))),
        }
    }
}

fn admit(app: &OrderApp) -> Result<Option<InFlightPermit>, Problem> {
    if let Some(problem) = app.store.write_problem() {
        return Err(Problem::unavailable(format!("the database fails: {problem}"), 5));
    }
    if let Some(overload) = overload(app) {
        return Err(Problem::unavailable(overload, 5));
    }
    let permit = app.in_flight.as_ref().map(InFlight::admit).transpose();
    permit.map_err(|overload| Problem::unavailable(format!("orders: {overload}"), 1))
}

/// Reason to reject new orders: the disk is nearly full, or their facts could not be published soon enough.
pub(crate) fn overload(app: &OrderApp) -> Option<String> {
    if let Some(shortage) = app.disk_shortage() {
        return Some(shortage);
    }
    let (stats, limits) = (app.metrics.stats(), &app.settings.service);
    if let Some(stall) = app.messaging.describe_publish_stall(limits.max_publish_stall) {
        return Some(stall);
    }
    let age =
        stats.outbox_oldest.map_or(SignedDuration::ZERO, |oldest| app.clock.now().duration_since(oldest));
    let is_too_old = Duration::try_from(age).is_ok_and(|age| age > limits.max_outbox_age);
    let is_too_long = stats.outbox_pending > limits.max_outbox_entries;
    (is_too_old || is_too_long).then(|| {
        format!("{} outbox entries are unpublished, the oldest for {}s", stats.outbox_pending, age.as_secs())
    })
}

fn problem(rejection: &Rejection) -> Problem {
    let detail = rejection.to_string();
    match rejection {
        Rejection::UnknownSku { line, .. } | Rejection::MixedCurrencies { line } => {
            Problem::field(format!("lines[{line}].sku"), detail)
        }
        Rejection::Overloaded => Problem::unavailable(detail, 1),
        Rejection::TotalTooLarge { line } => Problem::field(format!("lines[{line}].quantity"), detail),
        Rejection::Order(OrderRejection::Unknown) => Problem::new(StatusCode::NOT_FOUND, detail),
        Rejection::Order(
            OrderRejection::AlreadyCancelled(_) | OrderRejection::AlreadyConfirmed | OrderRejection::TooLate,
        ) => Problem::conflict(detail),
    }
}

async fn wait_until_ended(app: &OrderApp, id: Uuid, wait: Duration) -> Result<OrderView, Problem> {
    /// Time between two reads: a change by another replica wakes nobody here.
    const POLL: Duration = Duration::from_millis(500);
    let until = tokio::time::Instant::now() + wait;
    loop {
        // Armed before the read, or a change between the two would be missed.
        let changed = app.engine.changed(RowKey::of::<Order>(id));
        let (order, view) = load(app, id).await?;
        let now = tokio::time::Instant::now();
        if order.has_ended() || now >= until || app.stop.is_cancelled() {
            return Ok(view);
        }
        let poll_at = (now + POLL).min(until);
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(poll_at) => {}
            () = app.stop.cancelled() => {}
        }
    }
}

async fn load(app: &OrderApp, id: Uuid) -> Result<(Order, OrderView), Problem> {
    let row = app.store.row(RowKey::of::<Order>(id)).await?;
    let Some(row) = row else { return Err(missing(app, id).await?) };
    parse(&row)
}

/// Builds the answer for an unknown order, which may have been purged.
async fn missing(app: &OrderApp, id: Uuid) -> Result<Problem, Problem> {
    let left = app.store.purged_rows(Order::KIND).await?;
    Ok(match left.before {
        Some(before) if id < before => {
            let detail = format!("order {id} is not here: orders of its age were purged (retention.history)");
            Problem::new(StatusCode::NOT_FOUND, detail)
        }
        Some(_) | None => Problem::not_found(format_args!("order {id}")),
    })
}

fn parse(row: &FoundRow) -> Result<(Order, OrderView), Problem> {
    let order: Order = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
    let id = row.id.parse().map_err(|error| Problem::internal(&error))?;
    let view = OrderView::of(id, &order)
        .ok_or_else(|| Problem::internal(&"a stored order that was never placed"))?;
    Ok((order, view))
}

/// Show an order. With `Prefer: wait=10` the answer waits until the order is confirmed or cancelled.
#[utoipa::path(get, path = "/api/orders/{id}", params(("id" = Uuid, Path), Prefer), responses(
    (status = 200, body = OrderView), (status = 404),
))]
async fn show(
    State(app): State<OrderApp>,
    headers: HeaderMap,
    Segment(id): Segment<Uuid>,
) -> Result<Json<OrderView>, Problem> {
    let wait = wait_preference(&headers).unwrap_or(Duration::ZERO);
    Ok(Json(wait_until_ended(&app, id, wait).await?))
}

/// Filter of the list of orders.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Only orders of this customer.
    customer: Option<String>,
    /// Only orders with this status.
    #[param(inline)]
    status: Option<Status>,
    /// Page size, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<Uuid>,
}

/// Status of an order in filters.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema, strum::IntoStaticStr)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
enum Status {
    /// Waits for stock and payment.
    Pending,
    /// Paid, and its stock is sold.
    Confirmed,
    /// Undone, or being undone by every participant.
    Cancelled,
}

/// A page of orders, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct OrderPage {
    /// Orders, newest first, at most `limit`.
    orders: Vec<OrderView>,
    /// Ids of damaged orders on this page; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List orders by age, newest first.
#[utoipa::path(get, path = "/api/orders", params(ListParams), responses(
    (status = 200, body = OrderPage),
))]
async fn list(
    State(app): State<OrderApp>,
    Params(params): Params<ListParams>,
) -> Result<Json<OrderPage>, Problem> {
    let mut equals = Vec::new();
    if let Some(customer) = params.customer {
        equals.push(("customer", FieldValue::Text(customer)));
    }
    if let Some(status) = params.status {
        equals.push(("status", FieldValue::from(<&str>::from(status))));
    }
    let after = params.cursor.map(|cursor| cursor.to_string());
    let query = Query { equals, after, descending: true, ..Query::default() };
    let (rows, next) = list_page(app.store.as_ref(), Order::KIND, params.limit, query).await?;
    let (orders, unreadable) = readable_rows(&rows, |row| parse(row).map(|(_, view)| view));
    Ok(Json(OrderPage { orders, unreadable, next }))
}

/// Show the history of an order, oldest event first, page by page.
#[utoipa::path(get, path = "/api/orders/{id}/events", params(("id" = Uuid, Path), HistoryParams), responses(
    (status = 200, body = EventPage), (status = 404),
))]
async fn events(
    State(app): State<OrderApp>,
    Segment(id): Segment<Uuid>,
    Params(params): Params<HistoryParams>,
) -> Result<Json<EventPage>, Problem> {
    history(app.store.as_ref(), RowKey::of::<Order>(id), params, SECRETS).await.map(Json)
}

/// Cancel a pending or confirmed order. Stock and money are given back.
#[utoipa::path(post, path = "/api/orders/{id}/cancel", params(("id" = Uuid, Path)), responses(
    (status = 200, body = OrderView), (status = 404), (status = 409, description = "it was cancelled before"),
))]
async fn cancel(State(app): State<OrderApp>, Segment(id): Segment<Uuid>) -> Result<Json<OrderView>, Problem> {
    let command = Command::Cancel { order: id, reason: CancelReason::CustomerRequest };
    command_reply(app.engine.execute(id, command, None).await?, problem).map(|reply| Json(reply.order))
}

async fn ledger(
    State(app): State<OrderApp>,
    Params(range): Params<LedgerQuery>,
    encoding: Encoding,
) -> Result<Response, Problem> {
    let entry = |id: &str, row: WithHistory<Order>| ledger_entry(id.parse().ok()?, &row.state, &row.events);
    entries_with_history(app.store.as_ref(), range, entry).await?.encode(encoding)
}

async fn catalogue_ledger(
    State(app): State<OrderApp>,
    Params(range): Params<LedgerQuery>,
    encoding: Encoding,
) -> Result<Response, Problem> {
    let entry = |sku: &str, row: WithHistory<CatalogueItem>| Some(copy_entry(sku, &row.state, &row.events));
    entries_with_history(app.store.as_ref(), range, entry).await?.encode(encoding)
}
