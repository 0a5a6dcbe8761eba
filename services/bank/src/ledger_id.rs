//! Shell: the id of the ledger. It is that of the database, so an empty database is another ledger.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use contract::bank::LEDGER_ID;
use saga_engine::host::http::Problem;
use saga_engine::store::DatabasePosition;
use serde::Serialize;
use tokio::sync::OnceCell;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{BankApp, NAME};

/// Ledger of the bank.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ledger {
    /// Id of the ledger, for the header `Ledger-Id`.
    pub id: Uuid,
}

/// Show the id of the ledger. A request with this id in the header `Ledger-Id` is rejected by any other ledger.
#[utoipa::path(get, path = "/v1/ledger", responses((status = 200, body = Ledger), (status = 421)))]
pub async fn identity(State(app): State<BankApp>) -> Result<Json<Ledger>, Problem> {
    Ok(Json(Ledger { id: app.store.position().await?.id }))
}

/// Bank with the position of its database, read once: its id never changes while the bank runs.
#[derive(Clone)]
pub struct OwnLedger {
    app: BankApp,
    position: Arc<OnceCell<DatabasePosition>>,
}

impl OwnLedger {
    pub fn of(app: BankApp) -> Self {
        Self { app, position: Arc::default() }
    }
}

/// Rejects requests that name another ledger, and names this one in each answer.
pub async fn guard(
    State(OwnLedger { app, position }): State<OwnLedger>,
    request: Request,
    next: Next,
) -> Response {
    let own = match position.get_or_try_init(|| app.store.position()).await {
        Ok(own) => own,
        Err(fault) => return Problem::from(fault).into_response(),
    };
    if let Some(named) = request.headers().get(LEDGER_ID) {
        let id = named.to_str().ok().and_then(|id| id.parse().ok());
        let Some(id) = id else {
            return Problem::field("Ledger-Id", "must be a UUID").into_response();
        };
        if let Err(problem) = check(id, own, &app.settings.store.accept_loss) {
            return with_ledger(problem.into_response(), own);
        }
    }
    with_ledger(next.run(request).await, own)
}

/// Names the ledger in an answer.
fn with_ledger(mut response: Response, own: &DatabasePosition) -> Response {
    if let Ok(id) = HeaderValue::from_str(&own.id.to_string()) {
        response.headers_mut().insert(LEDGER_ID, id);
    }
    response
}

/// Rejects a ledger that is not the caller's, unless its loss was accepted.
fn check(expected: Uuid, own: &DatabasePosition, accept_loss: &str) -> Result<(), Problem> {
    let expected = DatabasePosition { service: NAME.to_owned(), id: expected, events: 0, messages: 0 };
    expected.check(own, accept_loss).map_err(|lost| {
        let detail = format!("this is ledger {}, and not ledger {}: {lost}", own.id, expected.id);
        Problem::new(StatusCode::MISDIRECTED_REQUEST, detail)
    })
}
