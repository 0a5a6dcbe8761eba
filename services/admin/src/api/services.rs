//! Shell: the route of the services.

use std::collections::BTreeMap;

use admin_api::services::ServiceState;
use axum::Json;
use axum::extract::State;
use futures::future::join_all;
use saga_core::service_stats::ServiceStats;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use crate::service_client::all;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(services_state))
}

/// Show health, outbox, retries, tasks and steps of every service.
#[utoipa::path(get, path = "/api/admin/services", responses((status = 200, body = Vec<ServiceState>)))]
async fn services_state(State(admin): State<Admin>) -> Json<Vec<ServiceState>> {
    let services = &admin.services;
    let states = all().into_iter().map(|service| async move {
        let service_stats = services.get::<ServiceStats>(service, "/internal/stats").await;
        let (ready, degraded, checks, problem) = match services.readiness(service).await {
            Ok(readiness) => (readiness.ready, readiness.degraded, readiness.checks, None),
            Err(problem) => (false, false, BTreeMap::new(), Some(problem.detail)),
        };
        let url = services.address(service).unwrap_or_default().to_owned();
        let service = service.to_owned();
        ServiceState { service, url, ready, degraded, checks, problem, service_stats: service_stats.ok() }
    });
    Json(join_all(states).await)
}
