//! Shell: the route of the overview.

use admin_api::overview::Overview;
use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use crate::overview::snapshot::{self, SHOWN};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(overview))
}

/// Show the state of everything, and the findings that need a human. Takes at most two seconds.
#[utoipa::path(get, path = "/api/admin/overview", responses((status = 200, body = Overview)))]
async fn overview(State(admin): State<Admin>) -> Json<Overview> {
    Json(snapshot::read(&admin.app, &admin.services, SHOWN).await)
}
