//! Shell: the routes of faults made on purpose, in all services and the bank.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use futures::future::join_all;
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::faults::{ActiveFault, FaultKind, FaultsView, NewFault};
use shared::http::{Problem, Segment};
use shared::operator;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::extract::{Ask, Operator, Why};
use crate::letters::By;
use crate::operations::Action;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(faults, inject, clear_all)).routes(routes!(clear))
}

/// A fault, and where it is.
#[derive(Debug, Serialize, ToSchema)]
struct FaultOf {
    /// The service that makes it.
    service: String,
    /// The fault.
    #[serde(flatten)]
    fault: ActiveFault,
}

/// Faults of all services.
#[derive(Debug, Default, Serialize, ToSchema)]
struct AllFaults {
    /// What is active.
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
    let services = &admin.services;
    let asked = services.all().map(|(service, _)| async move {
        (service, services.get_soon::<FaultsView>(service, "/internal/faults").await.ok())
    });
    let mut all = AllFaults::default();
    let own = (crate::NAME, Some(admin.app.faults.view()));
    for (service, view) in [own].into_iter().chain(join_all(asked).await) {
        let Some(view) = view else {
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
struct InjectFault {
    /// Where.
    #[garde(skip)]
    service: String,
    /// What goes wrong.
    #[garde(skip)]
    kind: FaultKind,
    /// In which step; in all of the service's without it.
    #[garde(skip)]
    step: Option<String>,
    /// On how many occasions of a hundred: 1 to 100; on all without it.
    #[garde(inner(range(min = 1, max = 100)))]
    probability: Option<u8>,
    /// How often, until it ends by itself: 1 to 1000000; for ever without it.
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    next: Option<u32>,
    /// How long, in milliseconds: 1 to 600000.
    #[garde(inner(range(min = 1, max = 600_000)))]
    delay_ms: Option<u64>,
    /// Starts the random numbers of all faults of the service anew.
    #[garde(skip)]
    seed: Option<u64>,
    /// Why.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    reason: Option<String>,
}

/// Make a fault on purpose.
#[utoipa::path(post, path = "/api/admin/faults", params(Operator), request_body = InjectFault, responses(
    (status = 201, body = FaultOf), (status = 403, body = Problem), (status = 422, body = Problem),
    (status = 503, body = Problem),
))]
async fn inject(
    State(admin): State<Admin>,
    Operator(operator): Operator,
    Ask(asked): Ask<InjectFault>,
) -> Result<(StatusCode, Json<FaultOf>), Problem> {
    let InjectFault { service, kind, step, probability, next, delay_ms, seed, reason } = asked;
    admin.known_service(&service, &[]).map_err(|problem| Problem::field("service", problem.detail))?;
    let new = NewFault { kind, step, probability, next, delay_ms, seed };
    let detail = serde_json::to_value(&new).map_err(|error| Problem::internal(&error))?;
    let (by, target) = (By { operator, reason }, service.clone());
    let injected = admin.logged(by, Action::FaultInject, target, Some(detail.clone()), async {
        if service == crate::NAME {
            return operator::inject(&admin.app.faults, new);
        }
        admin.services.tell(Method::POST, &service, "/internal/faults", Some(detail)).await
    });
    let fault = injected.await?;
    Ok((StatusCode::CREATED, Json(FaultOf { service, fault })))
}

/// How many faults were ended.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Cleared {
    /// Faults.
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
    State(admin): State<Admin>,
    Operator(operator): Operator,
    Ask(Why { reason }): Ask<Why>,
) -> Result<Json<Cleared>, Problem> {
    let (by, services) = (By { operator, reason }, &admin.services);
    let cleared = admin.logged(by, Action::FaultClearAll, "all".to_owned(), None, async {
        let asked = services.all().map(|(service, _)| async move {
            let path = "/internal/faults";
            (service, services.tell::<ClearedThere>(Method::DELETE, service, path, None).await)
        });
        let own = admin.app.faults.clear();
        let mut all = Cleared { cleared: u64::try_from(own).unwrap_or(u64::MAX), unreachable: vec![] };
        for (service, answer) in join_all(asked).await {
            match answer {
                Ok(there) => all.cleared += there.cleared,
                Err(_) => all.unreachable.push(service),
            }
        }
        Ok(all)
    });
    cleared.await.map(Json)
}

/// End one fault.
#[utoipa::path(delete, path = "/api/admin/faults/{service}/{id}",
    params(("service" = String, Path), ("id" = u64, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = Cleared), (status = 404, body = Problem), (status = 503, body = Problem),
))]
async fn clear(
    State(admin): State<Admin>,
    Segment((service, id)): Segment<(String, u64)>,
    Operator(operator): Operator,
    Ask(Why { reason }): Ask<Why>,
) -> Result<Json<Cleared>, Problem> {
    admin.known_service(&service, &[])?;
    let (by, target) = (By { operator, reason }, service.clone());
    let cleared = admin.logged(by, Action::FaultClear, target, Some(json!({ "id": id })), async {
        if service == crate::NAME {
            let is_gone = admin.app.faults.remove(id);
            return if is_gone { Ok(()) } else { Err(Problem::not_found(format_args!("fault {id}"))) };
        }
        admin.services.tell_only(Method::DELETE, &service, &format!("/internal/faults/{id}")).await
    });
    cleared.await?;
    Ok(Json(Cleared { cleared: 1, unreachable: vec![] }))
}
