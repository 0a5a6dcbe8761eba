//! Shell: the routes of redrives: preview, start, list, show, pause, resume, cancel.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use garde::Validate;
use saga_core::query::Query;
use saga_engine::host::http::{Params, Problem, Segment, one_line, trimmed_if_any};
use saga_engine::host::queries::readable_rows;
use saga_engine::runtime::clock::Clock as _;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{
    Because, Change, NeededWhy, Operator, TokenHolder, Why, checked_filter, may_force, needed,
};
use crate::commands::CommandKind;
use crate::dead_letter::filter::{Filter, Wanted};
use crate::dead_letter::grouping::{DeadLetterGroup, groups};
use crate::dead_letter::reading;
use crate::dead_letter::weighing;
use crate::dead_letter::worth::WorthOfMany;
use crate::redrive::decider::Redrive;
use crate::redrive::events::{Plan, RedriveCommand};
use crate::redrive::progress::{self, RedriveView};
use crate::request::By;
use crate::rows;

/// Groups that a preview shows.
const PREVIEWED_GROUPS: usize = 50;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// What to redrive, and how.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
struct StartRedrive {
    /// Which dead letters, of those that wait for a human; at least one member.
    filter: Filter,
    /// How many are sent first, and must be resolved before the rest follows: 0 to 100, 1 when not given.
    #[garde(range(max = 100))]
    #[schema(maximum = 100)]
    #[serde(default = "one")]
    canary: u32,
    /// Dead letters per second at most, 1 to 10000; as fast as it goes when not given.
    #[garde(inner(range(min = 1, max = 10_000)))]
    #[schema(minimum = 1, maximum = 10_000)]
    rate: Option<u32>,
    /// Why, 1 to 500 characters; not needed for a preview.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
    /// Even those of which three replays have failed.
    #[serde(default)]
    force: bool,
    /// Only tell what it would do.
    #[serde(default)]
    preview: bool,
}

const fn one() -> u32 {
    1
}

/// What a redrive would do.
#[derive(Debug, Serialize, ToSchema)]
struct Preview {
    /// Always `true`: nothing has changed.
    preview: bool,
    /// Dead letters that match.
    matching: u64,
    /// Those that would be sent.
    replayable: u64,
    /// Those of which three replays have failed.
    over_limit: u64,
    /// What handling those that match would be worth now.
    #[serde(flatten)]
    worth: WorthOfMany,
    /// The largest groups among those that match.
    groups: Vec<DeadLetterGroup>,
}

/// Hand many dead letters back one after another: a few first, then the rest, never faster than told, and no more
/// once the error comes back.
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
    let store = admin.app.store.as_ref();
    let mut wanted = Wanted::pending(filter.clone());
    let matching = reading::count(store, &wanted).await?;
    if asked.preview {
        let now = admin.app.clock.now();
        let groups = groups(store, &wanted, PREVIEWED_GROUPS, now).await?;
        let mut worth = WorthOfMany::default();
        for cause in weighing::by_cause(store, &wanted, now).await?.values() {
            worth.add_all(cause);
        }
        wanted.replayable = true;
        let within_limit = reading::count(store, &wanted).await?;
        let replayable = if asked.force { matching } else { within_limit };
        let over_limit = matching.saturating_sub(within_limit);
        let preview = Preview { preview: true, matching, replayable, over_limit, worth, groups };
        return Ok(Json(preview).into_response());
    }
    may_force(asked.force, holder)?;
    let reason = needed(asked.reason, Because::ChangesMany)?;
    let (id, by) = (Uuid::now_v7(), By { operator, reason });
    let (canary, rate, force) = (asked.canary, asked.rate, asked.force);
    let plan = Plan { filter, canary, rate, force, by: by.clone(), matching };
    admin.ask_as(id, by, CommandKind::Redrive(id, RedriveCommand::Start(Box::new(plan)))).await?;
    let view = found(&admin, id).await?;
    let location = format!("/api/admin/dlq/redrive/{id}");
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(view)).into_response())
}

/// Which redrives to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListParams {
    /// At most this many (1 to 200; 50 when not given).
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<Uuid>,
}

/// A page of redrives.
#[derive(Debug, Serialize, ToSchema)]
struct RedrivePage {
    /// The redrives, newest first.
    redrives: Vec<RedriveView>,
    /// Ids of those on this page that are damaged and cannot be shown; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List redrives, newest first.
#[utoipa::path(get, operation_id = "list_redrives", path = "/api/admin/dlq/redrive", params(ListParams), responses(
    (status = 200, body = RedrivePage),
))]
async fn list(
    State(admin): State<Admin>,
    Params(params): Params<ListParams>,
) -> Result<Json<RedrivePage>, Problem> {
    let (page, next) = admin.page::<Redrive>(Query::default(), params.limit, params.cursor).await?;
    let (drives, unreadable) =
        readable_rows(&page, |row| Ok((rows::id_of(row)?, rows::parsed::<Redrive>(row)?)));
    let mut redrives = Vec::with_capacity(drives.len());
    for (id, redrive) in drives {
        if let Some(drive) = redrive.drive() {
            redrives.push(progress::view_of(admin.app.store.as_ref(), id, drive.clone()).await?);
        }
    }
    Ok(Json(RedrivePage { redrives, unreadable, next }))
}

/// Show a redrive, and how far it is.
#[utoipa::path(get, operation_id = "show_redrive", path = "/api/admin/dlq/redrive/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = RedriveView), (status = 404),
))]
async fn show(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Json<RedriveView>, Problem> {
    found(&admin, id).await.map(Json)
}

/// A redrive with what it has done so far, or 404.
pub(super) async fn found(admin: &Admin, id: Uuid) -> Result<RedriveView, Problem> {
    let view = progress::view(admin.app.store.as_ref(), id).await?;
    view.ok_or_else(|| Problem::not_found(format_args!("redrive {id}")))
}

/// Changes the course of a redrive, and answers it as it is then.
async fn steer(asked: Change<Uuid, Why>, command: RedriveCommand) -> Result<Json<RedriveView>, Problem> {
    let Change { admin, path: id, operator, body: Why { reason } } = asked;
    admin.ask(By { operator, reason }, CommandKind::Redrive(id, command)).await?;
    found(&admin, id).await.map(Json)
}

/// Send nothing more for now.
#[utoipa::path(post, operation_id = "pause_redrive", path = "/api/admin/dlq/redrive/{id}/pause", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = RedriveView), (status = 404), (status = 409),
))]
async fn pause(asked: Change<Uuid, Why>) -> Result<Json<RedriveView>, Problem> {
    steer(asked, RedriveCommand::Pause).await
}

/// Go on; with a new round and its canary, after it stopped by itself. A new round sends what matches now, those among
/// it that were parked since the redrive began: `remaining` says how many there are.
#[utoipa::path(post, operation_id = "resume_redrive", path = "/api/admin/dlq/redrive/{id}/resume", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = RedriveView), (status = 404), (status = 409),
))]
async fn resume(asked: Change<Uuid, Why>) -> Result<Json<RedriveView>, Problem> {
    steer(asked, RedriveCommand::Resume).await
}

/// Send nothing more, ever; needs a reason. What is on its way goes on.
#[utoipa::path(post, operation_id = "cancel_redrive", path = "/api/admin/dlq/redrive/{id}/cancel", params(("id" = Uuid, Path), Operator),
    request_body = NeededWhy, responses(
    (status = 200, body = RedriveView), (status = 404), (status = 409),
))]
async fn cancel(asked: Change<Uuid, Why>) -> Result<Json<RedriveView>, Problem> {
    let Change { admin, path, operator, body: Why { reason } } = asked;
    let reason = needed(reason, Because::GivesUp)?;
    steer(Change { admin, path, operator, body: Why { reason } }, RedriveCommand::Cancel).await
}
