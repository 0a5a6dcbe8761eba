//! Shell: the routes of the reconciliation.

use std::time::Duration;

use admin_api::actor::Actor;
use admin_api::audit_log::Action;
use admin_api::reconciliation::{
    AcceptBaseline, Baseline, FULL_VERIFICATION_TIMEOUT, ReconcileParams, Report,
};
use axum::extract::State;
use axum::{Extension, Json};
use saga_engine::host::http::{Params, Problem, TimeLimit};
use saga_engine::runtime::clock::Clock as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::extract::{Change, Operator, ReasonRule, required_reason};
use crate::reconciliation::periodic::reconcile_and_store;
use crate::reconciliation::reconcile::{Options, missed_by};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(reconcile)).routes(routes!(accept_baseline))
}

/// Time to store and send the report, beyond the time limit of the reading.
const RESPONSE_TIME: Duration = Duration::from_secs(10);

/// Reconcile orders, stock, money, facts and rows of all services, field by field, and the saga view and the catalogue copy
/// with their sources. `BALANCED`: all ledgers agree. `UNBALANCED`: they disagree, and nothing in flight can resolve it;
/// suspected discrepancies were read twice. `IN_FLIGHT`: inconclusive, because something is in flight or a service does not
/// answer. With many orders only changes since the last checkpoint are read, and the totals of the rest are carried forward:
/// see `scope`.
#[utoipa::path(get, path = "/api/admin/reconciliation", params(ReconcileParams), responses(
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
    let within = params.full.then_some(FULL_VERIFICATION_TIMEOUT);
    if let Some(within) = within {
        limit.lengthen(within + RESPONSE_TIME);
    }
    let options = Options { patience, full: params.full, within, periodic: false };
    reconcile_and_store(&admin.app, &admin.services, options).await.map(Json)
}

/// Accept that a step never processed some of its messages, because it or its database did not exist yet, and the streams no
/// longer have them. From then on that number is its baseline, and earlier facts are not looked for in the saga view
/// (`admin-saga-view`). First publish the messages again, if that is possible.
#[utoipa::path(post, path = "/api/admin/reconciliation/baselines", params(Operator), request_body = AcceptBaseline, responses(
    (status = 200, body = Baseline), (status = 409, description = "work is in flight"),
))]
async fn accept_baseline(
    Change { admin, path: (), operator, body }: Change<(), AcceptBaseline>,
) -> Result<Json<Baseline>, Problem> {
    let AcceptBaseline { step, reason } = body;
    let reason = required_reason(reason, ReasonRule::GivesUp)?;
    let missed = missed_by(&admin.app, &admin.services, &step).await?;
    let baseline = Baseline { missed, at: admin.app.clock.now() };
    let detail = serde_json::to_value(baseline).map_err(|error| Problem::internal(&error))?;
    let by = Actor { operator, reason };
    admin.logged(by, Action::AcceptBaseline, step, Some(detail), async { Ok(()) }).await?;
    Ok(Json(baseline))
}
