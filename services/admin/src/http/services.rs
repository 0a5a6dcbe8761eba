//! Shell: the routes of the services as a whole: how they are, and whether they agree.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use contract::reconciliation::WHOLE_WITHIN;
use futures::future::join_all;
use garde::Validate;
use saga_core::service_stats::ServiceStats;
use saga_engine::host::http::{Check, Params, Problem, TimeLimit, one_line, trimmed_if_any};
use saga_engine::runtime::clock::Clock as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::extract::{Because, Change, Operator, needed};
use crate::audit_log::Action;
use crate::auditing::audit;
use crate::other_services::all;
use crate::reconciliation::ledgers::Baseline;
use crate::reconciliation::report::{self, Report, Wanted};
use crate::request::By;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(services_state)).routes(routes!(reconcile)).routes(routes!(accept))
}

/// How one service is.
#[derive(Debug, Serialize, ToSchema)]
struct ServiceState {
    /// The service's name, such as `order`.
    service: &'static str,
    /// Where admin reaches it.
    url: String,
    /// Whether it can do what it promises.
    ready: bool,
    /// Something is not as it should be, and it does what it promises all the same.
    degraded: bool,
    /// What its checks say: the store, the broker and so on. None when it does not answer.
    checks: BTreeMap<String, Check>,
    /// Why it does not answer; absent when it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Its machinery; absent when it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    service_stats: Option<ServiceStats>,
}

/// Show how every service is: health, outbox, retries, tasks, steps.
#[utoipa::path(get, path = "/api/admin/services", responses((status = 200, body = Vec<ServiceState>)))]
async fn services_state(State(admin): State<Admin>) -> Json<Vec<ServiceState>> {
    let services = &admin.services;
    let asked = all().into_iter().map(|service| async move {
        let service_stats = services.get::<ServiceStats>(service, "/internal/stats").await;
        let (ready, degraded, checks, problem) = match services.readiness(service).await {
            Ok(readiness) => (readiness.ready, readiness.degraded, readiness.checks, None),
            Err(problem) => (false, false, BTreeMap::new(), Some(problem.detail)),
        };
        let url = services.address(service).unwrap_or_default().to_owned();
        ServiceState { service, url, ready, degraded, checks, problem, service_stats: service_stats.ok() }
    });
    Json(join_all(asked).await)
}

/// Once everything is read, or the time is over, that is written down and told.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// How patient to be.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReconcileParams {
    /// Answer within this many seconds (0 to 30; at least 1 is taken), waiting up to half of them for what is under way
    /// before a busy system is judged. Without it a busy system is judged as it is. With `whole` the reading takes as long
    /// as it takes beyond that, ten minutes at most.
    #[param(maximum = 30)]
    wait: Option<u64>,
    /// Whether everything is read, also what has not changed since the books were closed. What was changed by hand, and
    /// so without an event, is found by that alone.
    #[serde(default)]
    whole: bool,
}

/// Reconcile stock, money, facts and rows of all services: what each says of an order field by field, the saga view
/// and the copy of the catalogue against their sources. `BALANCED`: they agree. `UNBALANCED`: they do not, and nothing
/// that is under way can mend it: what looked wrong was looked at twice. `IN_FLIGHT`: it cannot be told yet, because
/// something is under way, or somebody does not answer. Of many orders only those are read that have changed since the
/// books were closed, and the sums of the others are carried forward; `scope` says so.
#[utoipa::path(get, path = "/api/admin/audit", params(ReconcileParams), responses(
    (status = 200, body = Report),
))]
async fn reconcile(
    State(admin): State<Admin>,
    Extension(limit): Extension<TimeLimit>,
    Params(params): Params<ReconcileParams>,
) -> Result<Json<Report>, Problem> {
    if params.wait.is_some_and(|wait| wait > 30) {
        return Err(Problem::field("wait", "must be 0 to 30"));
    }
    let patience = params.wait.map(Duration::from_secs);
    let within = params.whole.then_some(WHOLE_WITHIN);
    if let Some(within) = within {
        limit.lengthen(within + TOLD_WITHIN);
    }
    let wanted = Wanted { patience, whole: params.whole, within };
    audit(&admin.app, &admin.services, wanted).await.map(Json)
}

/// What is accepted of which step, and why.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct Accept {
    /// Name of the step, as the audit names it.
    #[garde(length(bytes, min = 1, max = 200))]
    #[schema(required = true, min_length = 1, max_length = 200)]
    step: String,
    /// Why, 1 to 500 characters; kept in the audit log. Required.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// Accept that a step never came to some of what was published for it: it, or its database, was not there yet, and
/// the streams no longer have it. From then on the audit counts that as its baseline, and does not look for facts in
/// the saga view (`admin-saga-view`) that were said before. First have the services say it again, if they can.
#[utoipa::path(post, path = "/api/admin/audit/baselines", params(Operator), request_body = Accept, responses(
    (status = 200, body = Baseline), (status = 409, description = "something is under way"),
))]
async fn accept(
    Change { admin, path: (), operator, body }: Change<(), Accept>,
) -> Result<Json<Baseline>, Problem> {
    let Accept { step, reason } = body;
    let reason = needed(reason, Because::GivesUp)?;
    let missed = report::missed_for_ever(&admin.app, &admin.services, &step).await?;
    let baseline = Baseline { missed, at: admin.app.clock.now() };
    let detail = serde_json::to_value(baseline).map_err(|error| Problem::internal(&error))?;
    let by = By { operator, reason };
    admin.logged(by, Action::AuditBaseline, step, Some(detail), async { Ok(()) }).await?;
    Ok(Json(baseline))
}
