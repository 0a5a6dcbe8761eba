//! Shell: the routes of the circuit breakers of all services.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use futures::future::join_all;
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::http::{Problem, Segment};
use shared::operator::{self, BreakerAction};
use shared::resilience::{Guard, GuardView};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::extract::{Ask, Operator, needed};
use crate::letters::By;
use crate::operations::Action;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(breakers)).routes(routes!(turn))
}

/// The breakers of one service.
#[derive(Debug, Serialize, ToSchema)]
struct BreakersOf {
    /// The service.
    service: &'static str,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Its breakers; none when it does not answer.
    breakers: Vec<GuardView>,
}

/// Show the circuit breakers of all services.
#[utoipa::path(get, path = "/api/admin/breakers", responses((status = 200, body = Vec<BreakersOf>)))]
async fn breakers(State(admin): State<Admin>) -> Json<Vec<BreakersOf>> {
    let own = admin.app.breakers.all().map(Guard::view).collect();
    let mut all = vec![BreakersOf { service: crate::NAME, problem: None, breakers: own }];
    let services = &admin.services;
    // The bank calls nobody: it has none.
    let asked = services.all().into_iter().filter(|(service, _)| *service != "bank");
    let asked = asked.map(|(service, _)| async move {
        match services.get_soon(service, "/internal/breakers").await {
            Ok(breakers) => BreakersOf { service, problem: None, breakers },
            Err(problem) => BreakersOf { service, problem: Some(problem.detail), breakers: vec![] },
        }
    });
    all.extend(join_all(asked).await);
    Json(all)
}

/// What to do with a breaker.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Turn {
    /// `open` and `closed` hold until another action; `reset` lets it work by itself again.
    #[garde(skip)]
    action: BreakerAction,
    /// Why; not needed for `reset`.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    reason: Option<String>,
}

/// Force a circuit breaker open or closed, or let it work by itself again.
#[utoipa::path(post, path = "/api/admin/breakers/{service}/{name}",
    params(("service" = String, Path), ("name" = String, Path), Operator), request_body = Turn, responses(
    (status = 200, body = GuardView), (status = 404, body = Problem), (status = 422, body = Problem),
    (status = 503, body = Problem),
))]
async fn turn(
    State(admin): State<Admin>,
    Segment((service, name)): Segment<(String, String)>,
    Operator(operator): Operator,
    Ask(Turn { action, reason }): Ask<Turn>,
) -> Result<Json<GuardView>, Problem> {
    admin.known_service(&service, &["bank"])?;
    let unknown = || Problem::not_found(format_args!("breaker {name} in {service}"));
    // Names of breakers are those of steps and dependencies: anything else would change the path asked.
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(unknown());
    }
    let (what, reason) = match action {
        BreakerAction::Open => (Action::BreakerOpen, Some(needed(reason, "forcing a breaker needs one")?)),
        BreakerAction::Closed => {
            (Action::BreakerClosed, Some(needed(reason, "forcing a breaker needs one")?))
        }
        BreakerAction::Reset => (Action::BreakerReset, reason),
    };
    let target = format!("{service}/{name}");
    let turned = admin.logged(By { operator, reason }, what, target, None, async {
        if service == crate::NAME {
            return operator::turn(&admin.app.breakers, &name, action);
        }
        let (path, body) = (format!("/internal/breakers/{name}"), json!({ "action": action }));
        admin.services.tell(Method::POST, &service, &path, Some(body)).await
    });
    turned.await.map(Json)
}
