//! Shell: the routes of redrives: preview, start, list, show, pause, resume, cancel.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use saga_core::query::Query;
use saga_engine::host::http::{Params, Problem, Segment};
use saga_engine::runtime::clock::Clock as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Change, Operator, ReasonRule, TokenHolder, checked_filter, may_force, required_reason};
use crate::commands::CommandKind;
use admin_api::actor::{Actor, Reason, RequiredReason};
use admin_api::redrives::{Preview, RedrivePage, RedriveParams, RedriveView, StartRedrive};
use admin_api::replay_value::ReplayValues;

use crate::dead_letters::filter::Selection;
use crate::dead_letters::grouping::groups;
use crate::dead_letters::reading;
use crate::dead_letters::replay_values;
use crate::redrive::decider::Redrive;
use crate::redrive::events::{Plan, RedriveCommand};
use crate::redrive::progress;

/// Maximum number of groups in a preview.
const PREVIEWED_GROUPS: usize = 50;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// Replay many dead letters: a canary first, then the rest at a limited rate. It stops when the error comes back.
#[utoipa::path(post, operation_id = "start_redrive", path = "/api/admin/dlq/redrive", params(Operator), request_body = StartRedrive, responses(
    (status = 200, body = Preview, description = "A preview"), (status = 202, body = RedriveView),
    (status = 409),
))]
async fn start(
    holder: TokenHolder,
    Change { admin, path: (), operator, body: asked }: Change<(), StartRedrive>,
) -> Result<Response, Problem> {
    if asked.filter.is_empty() {
        return Err(Problem::field("filter", "must have at least one member"));
    }
    let filter = checked_filter(asked.filter, "filter.")?;
    let wanted = Selection::pending(filter.clone());
    let matching = reading::count(admin.app.store.as_ref(), &wanted).await?;
    if asked.preview {
        return Ok(Json(preview(&admin, wanted, matching, asked.force).await?).into_response());
    }
    may_force(asked.force, holder)?;
    let reason = required_reason(asked.reason, ReasonRule::ChangesMany)?;
    let (id, by) = (Uuid::now_v7(), Actor { operator, reason });
    let (canary, rate, force) = (asked.canary, asked.rate, asked.force);
    let plan = Plan { filter, canary, rate, force, by: by.clone(), matching };
    admin.ask_as(id, by, CommandKind::Redrive(id, RedriveCommand::Start(Box::new(plan)))).await?;
    let view = found(&admin, id).await?;
    let location = format!("/api/admin/dlq/redrive/{id}");
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(view)).into_response())
}

async fn preview(
    admin: &Admin,
    mut wanted: Selection,
    matching: u64,
    force: bool,
) -> Result<Preview, Problem> {
    let (store, now) = (admin.app.store.as_ref(), admin.app.clock.now());
    let groups = groups(store, &wanted, PREVIEWED_GROUPS, now).await?;
    let mut values = ReplayValues::default();
    for cause in replay_values::by_cause(store, &wanted, now).await?.values() {
        values.add_all(cause);
    }
    wanted.replayable = true;
    let within_limit = reading::count(store, &wanted).await?;
    let replayable = if force { matching } else { within_limit };
    let over_limit = matching.saturating_sub(within_limit);
    Ok(Preview { preview: true, matching, replayable, over_limit, replay_values: values, groups })
}

/// List redrives, newest first.
#[utoipa::path(get, operation_id = "list_redrives", path = "/api/admin/dlq/redrive", params(RedriveParams), responses(
    (status = 200, body = RedrivePage),
))]
async fn list(
    State(admin): State<Admin>,
    Params(params): Params<RedriveParams>,
) -> Result<Json<RedrivePage>, Problem> {
    let (page, next) = admin.page::<Redrive>(Query::default(), params.limit, params.cursor).await?;
    let (redrives, unreadable) = progress::views(admin.app.store.as_ref(), &page).await?;
    Ok(Json(RedrivePage { redrives, unreadable, next }))
}

/// Show a redrive with its progress.
#[utoipa::path(get, operation_id = "show_redrive", path = "/api/admin/dlq/redrive/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = RedriveView), (status = 404),
))]
async fn show(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Json<RedriveView>, Problem> {
    found(&admin, id).await.map(Json)
}

/// Reads a redrive with its progress, or returns 404.
pub(super) async fn found(admin: &Admin, id: Uuid) -> Result<RedriveView, Problem> {
    let view = progress::view(admin.app.store.as_ref(), id).await?;
    view.ok_or_else(|| Problem::not_found(format_args!("redrive {id}")))
}

/// Changes a redrive, and returns it.
async fn steer(asked: Change<Uuid, Reason>, command: RedriveCommand) -> Result<Json<RedriveView>, Problem> {
    let Change { admin, path: id, operator, body: Reason { reason } } = asked;
    admin.ask(Actor { operator, reason }, CommandKind::Redrive(id, command)).await?;
    found(&admin, id).await.map(Json)
}

/// Pause a redrive.
#[utoipa::path(post, operation_id = "pause_redrive", path = "/api/admin/dlq/redrive/{id}/pause", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Reason>), responses(
    (status = 200, body = RedriveView), (status = 404), (status = 409),
))]
async fn pause(asked: Change<Uuid, Reason>) -> Result<Json<RedriveView>, Problem> {
    steer(asked, RedriveCommand::Pause).await
}

/// Resume a redrive; after an automatic stop with a new round and its canary. A new round replays what matches now, newer
/// dead letters included: `remaining` counts them.
#[utoipa::path(post, operation_id = "resume_redrive", path = "/api/admin/dlq/redrive/{id}/resume", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Reason>), responses(
    (status = 200, body = RedriveView), (status = 404), (status = 409),
))]
async fn resume(asked: Change<Uuid, Reason>) -> Result<Json<RedriveView>, Problem> {
    steer(asked, RedriveCommand::Resume).await
}

/// Cancel a redrive. Needs a reason. Replays in flight continue.
#[utoipa::path(post, operation_id = "cancel_redrive", path = "/api/admin/dlq/redrive/{id}/cancel", params(("id" = Uuid, Path), Operator),
    request_body = RequiredReason, responses(
    (status = 200, body = RedriveView), (status = 404), (status = 409),
))]
async fn cancel(asked: Change<Uuid, Reason>) -> Result<Json<RedriveView>, Problem> {
    let Change { admin, path, operator, body: Reason { reason } } = asked;
    let reason = required_reason(reason, ReasonRule::GivesUp)?;
    steer(Change { admin, path, operator, body: Reason { reason } }, RedriveCommand::Cancel).await
}
