//! Shell: the routes of injected faults, in all services and the bank.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use contract::bank;
use garde::Validate;
use saga_core::fault::FaultKind;
use saga_engine::host::http::{Problem, one_line, trimmed_if_any};
use saga_engine::host::internal_api;
use saga_engine::runtime::injected_faults::{ActiveFault, FaultsView, NewFault};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Change, Operator, Why};
use super::{Admin, known_service};
use crate::audit_log::Action;
use crate::other_services::{self, each};
use crate::request::By;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(faults, inject, clear_all))
        .routes(routes!(clear_service))
        .routes(routes!(clear))
}

/// A fault, and where it is.
#[derive(Debug, Serialize, ToSchema)]
struct FaultOf {
    /// The service that makes it.
    service: String,
    /// What goes wrong, and how often it did.
    #[serde(flatten)]
    fault: ActiveFault,
}

/// Faults of all services.
#[derive(Debug, Default, Serialize, ToSchema)]
struct AllFaults {
    /// Every fault that is active, service by service.
    faults: Vec<FaultOf>,
    /// Services that do not answer.
    unreachable: Vec<&'static str>,
    /// Services with `faults.enabled` off.
    disabled: Vec<&'static str>,
    /// What the random numbers of each started with.
    #[schema(value_type = BTreeMap<String, u64>)]
    seeds: BTreeMap<&'static str, u64>,
}

/// Show the faults that are active in all services and the bank.
#[utoipa::path(get, path = "/api/admin/faults", responses((status = 200, body = AllFaults)))]
async fn faults(State(admin): State<Admin>) -> Json<AllFaults> {
    let asked = each(other_services::all(), |service| {
        admin.services.get_soon::<FaultsView>(service, "/internal/faults")
    });
    let mut all = AllFaults::default();
    let own = (crate::NAME, Ok(admin.app.controls.faults.view()));
    for (service, view) in [own].into_iter().chain(asked.await) {
        let Ok(view) = view else {
            all.unreachable.push(service);
            continue;
        };
        if !view.enabled {
            all.disabled.push(service);
        }
        all.seeds.insert(service, view.seed);
        all.faults
            .extend(view.faults.into_iter().map(|fault| FaultOf { service: service.to_owned(), fault }));
    }
    Json(all)
}

/// A fault to be made.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
struct InjectFault {
    /// The service that makes it: admin, one of the others, or the bank.
    service: String,
    /// What is to go wrong there: the name of a kind, as `sagactl faults kinds` lists them.
    #[schema(example = "fail_transiently")]
    kind: String,
    /// In which step; in all of the service's without it.
    step: Option<String>,
    /// On how many occasions of a hundred: 1 to 100; on all without it.
    #[garde(inner(range(min = 1, max = 100)))]
    #[schema(minimum = 1, maximum = 100)]
    probability: Option<u8>,
    /// How often, until it ends by itself: 1 to 1000000; for ever without it.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    #[schema(minimum = 1, maximum = 1_000_000)]
    next: Option<u32>,
    /// How long, in milliseconds: 1 to 600000.
    #[garde(inner(range(min = 1, max = 600_000)))]
    #[schema(minimum = 1, maximum = 600_000)]
    delay_ms: Option<u64>,
    /// Starts the random numbers of all faults of the service anew.
    seed: Option<u64>,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// Make a fault on purpose.
#[utoipa::path(post, path = "/api/admin/faults", params(Operator), request_body = InjectFault, responses(
    (status = 201, body = FaultOf), (status = 403),
))]
async fn inject(
    Change { admin, path: (), operator, body }: Change<(), InjectFault>,
) -> Result<(StatusCode, Json<FaultOf>), Problem> {
    let InjectFault { service, kind, step, probability, next, delay_ms, seed, reason } = body;
    known_service(&service, &other_services::all())
        .map_err(|problem| Problem::field("service", problem.detail))?;
    let kinds = FaultKind::OF_A_SERVICE.iter().chain(&bank::FAULTS).map(|known| known.name);
    if !kinds.clone().any(|known| known == kind) {
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        return Err(Problem::field("kind", format!("there is no kind {kind:?}; there are {kinds}")));
    }
    let new = NewFault { kind, step, probability, next, delay_ms, seed };
    let detail = serde_json::to_value(&new).map_err(|error| Problem::internal(&error))?;
    let (by, target) = (By { operator, reason }, service.clone());
    let injected = admin.logged(by, Action::FaultInject, target, Some(detail.clone()), async {
        if service == crate::NAME {
            return internal_api::inject(&admin.app.controls.overrides, new).await;
        }
        admin.services.tell(Method::POST, &service, "/internal/faults", Some(detail)).await
    });
    let fault = injected.await?;
    Ok((StatusCode::CREATED, Json(FaultOf { service, fault })))
}

/// How many faults were ended.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Cleared {
    /// Faults that were active, and are not any more.
    cleared: u64,
    /// Services that do not answer: theirs go on.
    unreachable: Vec<&'static str>,
}

/// What a service answers to being asked to end its faults.
#[derive(Debug, Deserialize)]
struct ClearedThere {
    cleared: u64,
}

/// End all faults, in all services and the bank.
#[utoipa::path(delete, path = "/api/admin/faults", params(Operator),
    request_body(content = Option<Why>), responses((status = 200, body = Cleared)))]
async fn clear_all(
    Change { admin, path: (), operator, body: Why { reason } }: Change<(), Why>,
) -> Result<Json<Cleared>, Problem> {
    let cleared =
        admin.logged(By { operator, reason }, Action::FaultClearAll, "all".to_owned(), None, async {
            let tell = |service| {
                admin.services.tell::<ClearedThere>(Method::DELETE, service, "/internal/faults", None)
            };
            let own = admin.app.controls.overrides.clear().await?;
            let mut all = Cleared { cleared: u64::try_from(own).unwrap_or(u64::MAX), unreachable: vec![] };
            for (service, answer) in each(other_services::all(), tell).await {
                match answer {
                    Ok(there) => all.cleared += there.cleared,
                    Err(_) => all.unreachable.push(service),
                }
            }
            Ok(all)
        });
    cleared.await.map(Json)
}

/// End all faults of one service, or of the bank.
#[utoipa::path(delete, path = "/api/admin/faults/{service}", params(("service" = String, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = Cleared), (status = 404),
))]
async fn clear_service(
    Change { admin, path: service, operator, body: Why { reason } }: Change<String, Why>,
) -> Result<Json<Cleared>, Problem> {
    known_service(&service, &other_services::all())?;
    let (by, target) = (By { operator, reason }, service.clone());
    let cleared = admin.logged(by, Action::FaultClearAll, target, None, async {
        if service == crate::NAME {
            return Ok(u64::try_from(admin.app.controls.overrides.clear().await?).unwrap_or(u64::MAX));
        }
        let ClearedThere { cleared } =
            admin.services.tell(Method::DELETE, &service, "/internal/faults", None).await?;
        Ok(cleared)
    });
    Ok(Json(Cleared { cleared: cleared.await?, unreachable: vec![] }))
}

/// End one fault, by the number it has in its service.
#[utoipa::path(delete, path = "/api/admin/faults/{service}/{id}",
    params(("service" = String, Path), ("id" = u64, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = Cleared), (status = 404),
))]
async fn clear(
    Change { admin, path: (service, id), operator, body: Why { reason } }: Change<(String, u64), Why>,
) -> Result<Json<Cleared>, Problem> {
    known_service(&service, &other_services::all())?;
    let (by, target) = (By { operator, reason }, service.clone());
    let cleared = admin.logged(by, Action::FaultClear, target, Some(json!({ "id": id })), async {
        if service == crate::NAME {
            return internal_api::remove(&admin.app.controls.overrides, id).await;
        }
        admin.services.tell_only(Method::DELETE, &service, &format!("/internal/faults/{id}")).await
    });
    cleared.await?;
    Ok(Json(Cleared { cleared: 1, unreachable: vec![] }))
}
