//! Shell: the route that shows how everything is, in one look.

use axum::Json;
use axum::extract::State;
use contract::overview::Overview;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use crate::look::{self, MOST_GROUPS_SHOWN};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(overview))
}

/// Show in one look how everything is, and whether somebody must do something. It takes at most two seconds.
#[utoipa::path(get, path = "/api/admin/overview", responses((status = 200, body = Overview)))]
async fn overview(State(admin): State<Admin>) -> Json<Overview> {
    Json(look::at_everything(&admin.app, &admin.services, MOST_GROUPS_SHOWN).await)
}
