//! Shell: the routes of the circuit breakers of all services.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use garde::Validate;
use saga_engine::host::http::{Problem, one_line, trimmed_if_any};
use saga_engine::host::internal_api;
use saga_engine::runtime::admission::{BreakerAction, BreakerView};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Because, Change, Operator, needed};
use super::{Admin, known_service};
use crate::audit_log::Action;
use crate::other_services::{each, on_the_broker};
use crate::request::By;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(breakers)).routes(routes!(turn))
}

/// The breakers of one service, as the replica has them that answers.
#[derive(Debug, Serialize, ToSchema)]
struct BreakersOf {
    /// The service that has them.
    service: &'static str,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Its breakers; none when it does not answer.
    breakers: Vec<BreakerView>,
}

/// Show the circuit breakers of all services: of replicas, those of the one that answers.
#[utoipa::path(get, path = "/api/admin/breakers", responses((status = 200, body = Vec<BreakersOf>)))]
async fn breakers(State(admin): State<Admin>) -> Json<Vec<BreakersOf>> {
    let own = admin.app.controls.admission.breakers();
    let mut all = vec![BreakersOf { service: crate::NAME, problem: None, breakers: own }];
    let asked = each(on_the_broker(), |service| admin.services.get_soon(service, "/internal/breakers"));
    all.extend(asked.await.into_iter().map(|(service, answer)| match answer {
        Ok(breakers) => BreakersOf { service, problem: None, breakers },
        Err(problem) => BreakersOf { service, problem: Some(problem.detail), breakers: vec![] },
    }));
    Json(all)
}

/// What to do with a breaker.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
struct Turn {
    /// `open` and `closed` hold until another action; `reset` lets it work by itself again.
    action: BreakerAction,
    /// Why, 1 to 500 characters; not needed for `reset`.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// Force a circuit breaker open or closed, or let it work by itself again, in every replica.
#[utoipa::path(post, path = "/api/admin/breakers/{service}/{name}",
    params(("service" = String, Path), ("name" = String, Path), Operator), request_body = Turn, responses(
    (status = 200, body = BreakerView), (status = 404),
))]
async fn turn(
    Change { admin, path: (service, name), operator, body }: Change<(String, String), Turn>,
) -> Result<Json<BreakerView>, Problem> {
    let Turn { action, reason } = body;
    known_service(&service, &on_the_broker())?;
    let unknown = || Problem::not_found(format_args!("breaker {name} in {service}"));
    // Names of breakers are those of steps and dependencies: anything else would change the path asked.
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(unknown());
    }
    let (what, reason) = match action {
        BreakerAction::Open => (Action::BreakerOpen, needed(reason, Because::Forces)?),
        BreakerAction::Closed => (Action::BreakerClosed, needed(reason, Because::Forces)?),
        BreakerAction::Reset => (Action::BreakerReset, reason),
    };
    let target = format!("{service}/{name}");
    let turned = admin.logged(By { operator, reason }, what, target, None, async {
        if service == crate::NAME {
            return internal_api::turn(&admin.app.controls.overrides, &name, action).await;
        }
        let (path, body) = (format!("/internal/breakers/{name}"), json!({ "action": action }));
        admin.services.tell(Method::POST, &service, &path, Some(body)).await
    });
    turned.await.map(Json)
}
