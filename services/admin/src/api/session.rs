//! Shell: the route that tells a client what it may do.

use admin_api::live::Session;
use axum::Json;
use axum::extract::State;
use saga_core::access::Role;
use saga_engine::host::metrics::names;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::extract::TokenHolder;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(session))
}

/// Show the caller's role, and what this system allows.
#[utoipa::path(get, operation_id = "show_session", path = "/api/admin/session", responses((status = 200, body = Session)))]
async fn session(State(admin): State<Admin>, holder: TokenHolder) -> Json<Session> {
    let settings = &admin.app.settings;
    let caller = holder.map(|caller| caller.0);
    Json(Session {
        role: caller.as_ref().map_or(Role::Admin, |caller| caller.role),
        requires_token: settings.http.tokens.is_some(),
        name: caller.map(|caller| caller.name),
        requires_operator: settings.service.require_operator,
        faults_enabled: settings.faults.enabled,
        system: settings.service.notifications.system.clone(),
        runbooks: settings.service.links.runbooks.clone(),
        version: names::VERSION.to_owned(),
    })
}
