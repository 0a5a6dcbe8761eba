//! Shell: the routes of the circuit breakers of all services.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use saga_core::breaker::{BreakerAction, BreakerView};
use saga_engine::host::http::Problem;
use saga_engine::host::internal_api;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Change, Operator, ReasonRule, required_reason};
use super::{Admin, known_service};
use admin_api::audit_log::Action;
use admin_api::breakers::{ChangeBreaker, ServiceBreakers};

use crate::service_client::{each, on_the_broker};
use crate::topology::NAME;
use admin_api::actor::Actor;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(breakers)).routes(routes!(turn))
}

/// List the circuit breakers of all services. Of several replicas, one answers.
#[utoipa::path(get, path = "/api/admin/breakers", responses((status = 200, body = Vec<ServiceBreakers>)))]
async fn breakers(State(admin): State<Admin>) -> Json<Vec<ServiceBreakers>> {
    let own = admin.app.controls.admission.breakers();
    let mut all = vec![ServiceBreakers { service: NAME.to_owned(), problem: None, breakers: own }];
    let asked = each(on_the_broker(), |service| admin.services.get_soon(service, "/internal/breakers"));
    all.extend(asked.await.into_iter().map(|(service, answer)| match answer {
        Ok(breakers) => ServiceBreakers { service: service.to_owned(), problem: None, breakers },
        Err(problem) => {
            ServiceBreakers { service: service.to_owned(), problem: Some(problem.detail), breakers: vec![] }
        }
    }));
    Json(all)
}

/// Force a circuit breaker open or closed in every replica, or reset it.
#[utoipa::path(post, path = "/api/admin/breakers/{service}/{name}",
    params(("service" = String, Path), ("name" = String, Path), Operator), request_body = ChangeBreaker, responses(
    (status = 200, body = BreakerView), (status = 404),
))]
async fn turn(
    Change { admin, path: (service, name), operator, body }: Change<(String, String), ChangeBreaker>,
) -> Result<Json<BreakerView>, Problem> {
    let ChangeBreaker { action, reason } = body;
    known_service(&service, &on_the_broker())?;
    let unknown = || Problem::not_found(format_args!("breaker {name} in {service}"));
    // Other characters would change the path of the request.
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(unknown());
    }
    let (change, reason) = match action {
        BreakerAction::Open => (Action::BreakerOpen, required_reason(reason, ReasonRule::Forces)?),
        BreakerAction::Closed => (Action::BreakerClosed, required_reason(reason, ReasonRule::Forces)?),
        BreakerAction::Reset => (Action::BreakerReset, reason),
    };
    let target = format!("{service}/{name}");
    let turned = admin.logged(Actor { operator, reason }, change, target, None, async {
        if service == NAME {
            return internal_api::change_breaker(&admin.app.controls.overrides, &name, action).await;
        }
        let (path, body) = (format!("/internal/breakers/{name}"), json!({ "action": action }));
        admin.services.command(Method::POST, &service, &path, Some(body)).await
    });
    turned.await.map(Json)
}
