//! Shell: the routes of injected faults.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use contract::bank;
use saga_core::fault::{FaultKind, FaultsView, NewFault};
use saga_engine::host::http::Problem;
use saga_engine::host::internal_api;
use serde::Deserialize;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Change, Operator};
use super::{Admin, known_service};
use admin_api::actor::Reason;
use admin_api::audit_log::Action;
use admin_api::faults::{AllFaults, ClearedFaults, InjectFault, ServiceFault};

use crate::service_client::{all, each};
use crate::topology::NAME;
use admin_api::actor::Actor;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(faults, inject, clear_all))
        .routes(routes!(clear_service))
        .routes(routes!(clear))
}

/// List the active faults of all services and the bank.
#[utoipa::path(get, path = "/api/admin/faults", responses((status = 200, body = AllFaults)))]
async fn faults(State(admin): State<Admin>) -> Json<AllFaults> {
    let asked = each(all(), |service| admin.services.get_soon::<FaultsView>(service, "/internal/faults"));
    let mut found = AllFaults::default();
    let own = (NAME, Ok(admin.app.controls.faults.view()));
    for (service, view) in [own].into_iter().chain(asked.await) {
        let Ok(view) = view else {
            found.unreachable.push(service.to_owned());
            continue;
        };
        if !view.enabled {
            found.disabled.push(service.to_owned());
        }
        found.seeds.insert(service.to_owned(), view.seed);
        found
            .faults
            .extend(view.faults.into_iter().map(|fault| ServiceFault { service: service.to_owned(), fault }));
    }
    Json(found)
}

/// Inject a fault.
#[utoipa::path(post, path = "/api/admin/faults", params(Operator), request_body = InjectFault, responses(
    (status = 201, body = ServiceFault), (status = 403),
))]
async fn inject(
    Change { admin, path: (), operator, body }: Change<(), InjectFault>,
) -> Result<(StatusCode, Json<ServiceFault>), Problem> {
    let InjectFault { service, kind, step, probability, next, for_seconds, delay_ms, seed, reason } = body;
    known_service(&service, &all()).map_err(|problem| Problem::field("service", problem.detail))?;
    let kinds = FaultKind::OF_A_SERVICE.iter().chain(&bank::FAULTS).map(|known| known.name);
    if !kinds.clone().any(|known| known == kind) {
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        return Err(Problem::field("kind", format!("there is no kind {kind:?}; there are {kinds}")));
    }
    let new = NewFault { kind, step, probability, next, for_seconds, delay_ms, seed };
    let detail = serde_json::to_value(&new).map_err(|error| Problem::internal(&error))?;
    let (by, target) = (Actor { operator, reason }, service.clone());
    let injected = admin.logged(by, Action::FaultInject, target, Some(detail.clone()), async {
        if service == NAME {
            return internal_api::inject(&admin.app.controls.overrides, new).await;
        }
        admin.services.command(Method::POST, &service, "/internal/faults", Some(detail)).await
    });
    let fault = injected.await?;
    Ok((StatusCode::CREATED, Json(ServiceFault { service, fault })))
}

/// Response of a service whose faults were cleared.
#[derive(Debug, Deserialize)]
struct ClearedThere {
    cleared: u64,
}

/// Clear all faults of all services and the bank.
#[utoipa::path(delete, path = "/api/admin/faults", params(Operator),
    request_body(content = Option<Reason>), responses((status = 200, body = ClearedFaults)))]
async fn clear_all(
    Change { admin, path: (), operator, body: Reason { reason } }: Change<(), Reason>,
) -> Result<Json<ClearedFaults>, Problem> {
    let cleared =
        admin.logged(Actor { operator, reason }, Action::FaultClearAll, "all".to_owned(), None, async {
            let clear = |service| {
                admin.services.command::<ClearedThere>(Method::DELETE, service, "/internal/faults", None)
            };
            let own = admin.app.controls.overrides.clear().await?;
            let mut found =
                ClearedFaults { cleared: u64::try_from(own).unwrap_or(u64::MAX), unreachable: vec![] };
            for (service, answer) in each(all(), clear).await {
                match answer {
                    Ok(there) => found.cleared += there.cleared,
                    Err(_) => found.unreachable.push(service.to_owned()),
                }
            }
            Ok(found)
        });
    cleared.await.map(Json)
}

/// Clear all faults of one service, or of the bank.
#[utoipa::path(delete, path = "/api/admin/faults/{service}", params(("service" = String, Path), Operator),
    request_body(content = Option<Reason>), responses(
    (status = 200, body = ClearedFaults), (status = 404),
))]
async fn clear_service(
    Change { admin, path: service, operator, body: Reason { reason } }: Change<String, Reason>,
) -> Result<Json<ClearedFaults>, Problem> {
    known_service(&service, &all())?;
    let (by, target) = (Actor { operator, reason }, service.clone());
    let cleared = admin.logged(by, Action::FaultClearAll, target, None, async {
        if service == NAME {
            return Ok(u64::try_from(admin.app.controls.overrides.clear().await?).unwrap_or(u64::MAX));
        }
        let ClearedThere { cleared } =
            admin.services.command(Method::DELETE, &service, "/internal/faults", None).await?;
        Ok(cleared)
    });
    Ok(Json(ClearedFaults { cleared: cleared.await?, unreachable: vec![] }))
}

/// Clear one fault, by its number in the service.
#[utoipa::path(delete, path = "/api/admin/faults/{service}/{id}",
    params(("service" = String, Path), ("id" = u64, Path), Operator),
    request_body(content = Option<Reason>), responses(
    (status = 200, body = ClearedFaults), (status = 404),
))]
async fn clear(
    Change { admin, path: (service, id), operator, body: Reason { reason } }: Change<(String, u64), Reason>,
) -> Result<Json<ClearedFaults>, Problem> {
    known_service(&service, &all())?;
    let (by, target) = (Actor { operator, reason }, service.clone());
    let cleared = admin.logged(by, Action::FaultClear, target, Some(json!({ "id": id })), async {
        if service == NAME {
            return internal_api::remove(&admin.app.controls.overrides, id).await;
        }
        admin.services.command_only(Method::DELETE, &service, &format!("/internal/faults/{id}")).await
    });
    cleared.await?;
    Ok(Json(ClearedFaults { cleared: 1, unreachable: vec![] }))
}
