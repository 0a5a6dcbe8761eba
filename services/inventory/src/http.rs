//! Shell: the routes of the inventory service.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::money::{Currency, Money};
use contract::order::{SECRETS, StockLine};
use garde::Validate;
use saga_core::decider::Decider;
use saga_core::input::RequestKey;
use saga_core::query::{FoundRow, Query};
use saga_core::row::{RowKey, WithHistory};
use saga_engine::host::http::{
    Body, IdempotencyKey, Operator, Params, Problem, Replayed, Segment, keyed_reply, one_line, request_key,
    trimmed,
};
use saga_engine::host::queries::{
    Encoding, EventPage, HistoryParams, LedgerQuery, entries_page, entries_with_history, history, list_page,
    readable_rows,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::InventoryApp;
use crate::domain::{Listing, Product, ProductCommand, ProductRejection, Reservation};
use crate::ledger::{reservation_entry, stock_entry};
use crate::service::{Command, Rejection};
use crate::view::ProductView;

#[derive(OpenApi)]
#[openapi(info(
    title = "Inventory service",
    description = "Products, their stock, and what orders hold of it."
))]
struct Api;

/// Routes for people, and the ledgers for the reconciliation.
pub fn routes(app: InventoryApp) -> OpenApiRouter {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(list_product, products))
        .routes(routes!(product))
        .routes(routes!(restock))
        .routes(routes!(change_price))
        .routes(routes!(events))
        .routes(routes!(reservation))
        .routes(routes!(reservation_events))
        .route("/internal/ledger/stock", axum::routing::get(stock_ledger))
        .route("/internal/ledger/reservations", axum::routing::get(reservation_ledger))
        .with_state(app)
}

/// Request to list a product.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewProduct {
    /// Stock keeping unit, unique among all products.
    #[garde(length(chars, min = 1, max = 64), custom(is_sku))]
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^(\\.{0,2}[A-Za-z0-9_-]|\\.{3})[A-Za-z0-9._-]*$",
        example = "coffee-beans-1kg"
    )]
    sku: String,
    /// Name for people, on one line.
    #[garde(length(chars, min = 1, max = 200), custom(one_line))]
    #[schema(min_length = 1, max_length = 200, format = "trimmed-line", example = "Coffee beans, 1 kg")]
    #[serde(deserialize_with = "trimmed")]
    name: String,
    /// Price of one piece, positive.
    #[garde(custom(is_price))]
    #[schema(value_type = Price)]
    unit_price: Money,
    /// Pieces on hand at the start.
    #[garde(range(max = MAX_PIECES))]
    #[schema(maximum = 1_000_000, example = 100)]
    quantity: u32,
    /// True to replenish the product automatically when it runs low.
    #[garde(skip)]
    #[serde(default = "yes")]
    replenish: bool,
}

/// [`Money`], described as a price.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what is read as [`Money`]")]
struct Price {
    /// Amount in minor units: 1299 is 12.99 EUR.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_i64, example = 1299)]
    amount_minor: i64,
    /// ISO 4217 code of the currency.
    #[schema(schema_with = contract::money::currency_schema)]
    currency: Currency,
}

/// Maximum number of pieces per request. Keeps each sum far from overflow.
const MAX_PIECES: u32 = 1_000_000;

const fn yes() -> bool {
    true
}

/// Accepts what is safe in a URL. Segments of dots are relative paths (RFC 3986 §5.2.4), so such a product
/// would be unreachable.
fn is_sku(sku: &str, (): &()) -> garde::Result {
    if [".", ".."].contains(&sku) {
        return Err(garde::Error::new("a path goes elsewhere by '.' and '..'"));
    }
    match sku.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        true => Ok(()),
        false => Err(garde::Error::new("only letters, digits, '.', '_' and '-'")),
    }
}

fn is_price(price: &Money, (): &()) -> garde::Result {
    match price.amount_minor {
        1..=1_000_000_000_000 => Ok(()),
        _ => Err(garde::Error::new("amount_minor must be 1 to 1000000000000")),
    }
}

/// List a product, so that it can be ordered.
#[utoipa::path(post, path = "/api/products", params(IdempotencyKey, Operator), request_body = NewProduct, responses(
    (status = 201, body = ProductView, headers(
        ("Location", description = "where the product is"),
        ("Idempotency-Replayed", description = "`true` for the stored answer of a repeated key"),
    )),
    (status = 409, description = "the sku is another product's"),
))]
async fn list_product(
    State(app): State<InventoryApp>,
    operator: Operator,
    headers: HeaderMap,
    Body(body, bytes): Body<NewProduct>,
) -> Result<Response, Problem> {
    let key = request_key(&headers, "POST /api/products", &bytes)?;
    let NewProduct { sku, name, unit_price, quantity, replenish } = body;
    let change = ProductCommand::List(Listing { name, unit_price, replenish }, quantity);
    let location = (header::LOCATION, format!("/api/products/{sku}"));
    let (replayed, product) = apply(&app, (sku, change), operator, key).await?;
    Ok((StatusCode::CREATED, replayed, [location], product).into_response())
}

async fn apply(
    app: &InventoryApp,
    (sku, change): (String, ProductCommand),
    Operator(operator): Operator,
    key: Option<RequestKey>,
) -> Result<(Replayed, Json<ProductView>), Problem> {
    let command = Command { sku, change, operator: Some(operator) };
    let outcome = app.engine.execute(Uuid::now_v7(), command, key).await?;
    keyed_reply(outcome, problem).map(|(reply, replayed)| (replayed, Json(reply.product)))
}

fn problem(rejection: &Rejection) -> Problem {
    let detail = rejection.to_string();
    match rejection {
        Rejection::Product(ProductRejection::Unknown) => Problem::new(StatusCode::NOT_FOUND, detail),
        Rejection::Product(ProductRejection::TooMany) => Problem::field("quantity", detail),
        Rejection::Product(
            ProductRejection::AlreadyListed
            | ProductRejection::OutOfStock { .. }
            | ProductRejection::NotReserved,
        )
        | Rejection::Reservation(_) => Problem::conflict(detail),
    }
}

/// Pieces that were supplied.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Restock {
    /// Number of pieces, 1 to 1,000,000.
    #[garde(range(min = 1, max = MAX_PIECES))]
    #[schema(minimum = 1, maximum = 1_000_000, example = 50)]
    quantity: u32,
}

/// Add pieces to the stock of a product.
#[utoipa::path(post, path = "/api/products/{sku}/restock", params(("sku" = String, Path), IdempotencyKey, Operator), request_body = Restock,
    responses((status = 200, body = ProductView, headers(
        ("Idempotency-Replayed", description = "`true` for the stored answer of a repeated key"),
    )), (status = 404)))]
async fn restock(
    State(app): State<InventoryApp>,
    operator: Operator,
    headers: HeaderMap,
    Segment(sku): Segment<String>,
    Body(body, bytes): Body<Restock>,
) -> Result<(Replayed, Json<ProductView>), Problem> {
    let key = request_key(&headers, &format!("POST /api/products/{sku}/restock"), &bytes)?;
    apply(&app, (sku, ProductCommand::Restock(body.quantity)), operator, key).await
}

/// New price of a product.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPrice {
    /// New price of one piece, positive.
    #[garde(custom(is_price))]
    #[schema(value_type = Price)]
    unit_price: Money,
}

/// Change the price of a product. Orders pay it once the order service has received the change.
#[utoipa::path(put, path = "/api/products/{sku}/price", params(("sku" = String, Path), Operator), request_body = NewPrice,
    responses((status = 200, body = ProductView), (status = 404)))]
async fn change_price(
    State(app): State<InventoryApp>,
    operator: Operator,
    Segment(sku): Segment<String>,
    Body(body, _): Body<NewPrice>,
) -> Result<Json<ProductView>, Problem> {
    let change = ProductCommand::ChangePrice(body.unit_price);
    apply(&app, (sku, change), operator, None).await.map(|(_, product)| product)
}

/// Filter of the list of products.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Page size, 1 to 100; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// A page of products, by sku.
#[derive(Debug, Serialize, ToSchema)]
struct ProductPage {
    /// Products, by sku, at most `limit`.
    products: Vec<ProductView>,
    /// Ids of damaged products on this page; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List products in the order of their sku.
#[utoipa::path(get, path = "/api/products", params(ListParams), responses(
    (status = 200, body = ProductPage),
))]
async fn products(
    State(app): State<InventoryApp>,
    Params(params): Params<ListParams>,
) -> Result<Json<ProductPage>, Problem> {
    let query = Query { after: params.cursor, ..Query::default() };
    let (rows, next) = list_page(app.store.as_ref(), Product::KIND, params.limit, query).await?;
    let (products, unreadable) = readable_rows(&rows, parse_product);
    Ok(Json(ProductPage { products, unreadable, next }))
}

fn parse_product(row: &FoundRow) -> Result<ProductView, Problem> {
    let product: Product = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
    ProductView::of(&row.id, &product)
        .ok_or_else(|| Problem::internal(&"a stored product that was never listed"))
}

/// Show a product with its stock.
#[utoipa::path(get, path = "/api/products/{sku}", params(("sku" = String, Path)), responses(
    (status = 200, body = ProductView), (status = 404),
))]
async fn product(
    State(app): State<InventoryApp>,
    Segment(sku): Segment<String>,
) -> Result<Json<ProductView>, Problem> {
    match app.store.row(RowKey::of::<Product>(&sku)).await? {
        Some(row) => parse_product(&row).map(Json),
        None => Err(Problem::not_found(format_args!("product {sku:?}"))),
    }
}

/// Show the history of a product, oldest event first, page by page.
#[utoipa::path(get, path = "/api/products/{sku}/events", params(("sku" = String, Path), HistoryParams), responses(
    (status = 200, body = EventPage), (status = 404),
))]
async fn events(
    State(app): State<InventoryApp>,
    Segment(sku): Segment<String>,
    Params(params): Params<HistoryParams>,
) -> Result<Json<EventPage>, Problem> {
    history(app.store.as_ref(), RowKey::of::<Product>(sku), params, SECRETS).await.map(Json)
}

/// The reservation of an order.
#[derive(Debug, Serialize, ToSchema)]
struct ReservationView {
    /// Id of the order that reserved.
    order: String,
    /// `RESERVED`, `REFUSED`, `SOLD`, `RELEASED`, or `VOID` for an order that was cancelled before its
    /// request arrived.
    status: &'static str,
    /// Lines that are reserved or sold.
    lines: Vec<StockLine>,
}

/// Show the reservation of an order.
#[utoipa::path(get, path = "/api/reservations/{order}", params(("order" = Uuid, Path)), responses(
    (status = 200, body = ReservationView), (status = 404),
))]
async fn reservation(
    State(app): State<InventoryApp>,
    Segment(order): Segment<Uuid>,
) -> Result<Json<ReservationView>, Problem> {
    let row = app.store.row(RowKey::of::<Reservation>(order)).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("reservation of order {order}")))?;
    let reservation = parse_reservation(&row)?;
    let (status, lines) = (reservation.status(), reservation.lines().to_vec());
    Ok(Json(ReservationView { order: row.id, status, lines }))
}

/// Show the history of a reservation, oldest event first, page by page.
#[utoipa::path(get, operation_id = "reservation_events", path = "/api/reservations/{order}/events",
    params(("order" = Uuid, Path), HistoryParams), responses((status = 200, body = EventPage), (status = 404)))]
async fn reservation_events(
    State(app): State<InventoryApp>,
    Segment(order): Segment<Uuid>,
    Params(params): Params<HistoryParams>,
) -> Result<Json<EventPage>, Problem> {
    history(app.store.as_ref(), RowKey::of::<Reservation>(order), params, SECRETS).await.map(Json)
}

fn parse_reservation(row: &FoundRow) -> Result<Reservation, Problem> {
    serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))
}

async fn stock_ledger(
    State(app): State<InventoryApp>,
    Params(range): Params<LedgerQuery>,
    encoding: Encoding,
) -> Result<Response, Problem> {
    let entry =
        |row: &FoundRow| Some(stock_entry(&row.id, row.version, &serde_json::from_str(&row.state).ok()?));
    let mut page = entries_page(app.store.as_ref(), Product::KIND, range, entry).await?;
    let left = app.store.purged_rows(Reservation::KIND).await?.sums;
    for entry in &mut page.entries {
        entry.purged = left.get(&entry.sku).and_then(|pieces| u64::try_from(*pieces).ok()).unwrap_or(0);
    }
    page.encode(encoding)
}

async fn reservation_ledger(
    State(app): State<InventoryApp>,
    Params(range): Params<LedgerQuery>,
    encoding: Encoding,
) -> Result<Response, Problem> {
    let entry = |order: &str, row: WithHistory<Reservation>| {
        Some(reservation_entry(order.parse().ok()?, &row.state, &row.events))
    };
    entries_with_history(app.store.as_ref(), range, entry).await?.encode(encoding)
}
