//! Shell: the routes of redrives: preview, start, list, show, steer, watch.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream;
use garde::Validate;
use serde::{Deserialize, Serialize};
use shared::decider::Decider;
use shared::http::{Params, Problem, Segment};
use shared::row::RowKey;
use shared::store::Query;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Ask, Operator, Why, checked_filter, checked_limit, needed, paged};
use crate::commands::{Steer, Wish};
use crate::filter::{Filter, Wanted};
use crate::letters::By;
use crate::progress::{self, RedriveView};
use crate::reading::{self, LetterGroup};
use crate::redrive::{Plan, Redrive};

/// Pause between two looks at a redrive that moves.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Watchers hear at least this often that nothing has changed.
const SAY_ANYWAY: Duration = Duration::from_secs(5);

/// Groups that a preview shows.
const PREVIEWED_GROUPS: usize = 50;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
        .routes(routes!(events))
}

/// What to redrive, and how.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct StartRedrive {
    /// Which letters, of those that wait for a human; at least one member.
    #[garde(skip)]
    filter: Filter,
    /// How many are sent first, and must be resolved before the rest follows: 0 to 100, 1 when not given.
    #[garde(range(max = 100))]
    #[serde(default = "one")]
    canary: u32,
    /// Letters per second at most, 1 to 10000; as fast as it goes when not given.
    #[garde(inner(range(min = 1, max = 10_000)))]
    rate: Option<u32>,
    /// Why; not needed for a preview.
    #[garde(inner(length(chars, min = 1, max = 500)))]
    reason: Option<String>,
    /// Even those of which three replays have failed.
    #[garde(skip)]
    #[serde(default)]
    force: bool,
    /// Only tell what it would do.
    #[garde(skip)]
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
    /// Letters that match.
    matching: u64,
    /// Those that would be sent.
    replayable: u64,
    /// Those of which three replays have failed.
    over_limit: u64,
    /// The largest groups among those that match.
    groups: Vec<LetterGroup>,
}

/// Hand many dead letters back one after another: a few first, then the rest, never faster than told, and no more
/// once the error comes back.
#[utoipa::path(post, path = "/api/admin/dlq/redrive", params(Operator), request_body = StartRedrive, responses(
    (status = 200, body = Preview, description = "A preview"), (status = 202, body = RedriveView),
    (status = 409, body = Problem), (status = 422, body = Problem),
))]
async fn start(
    State(admin): State<Admin>,
    Operator(operator): Operator,
    Ask(asked): Ask<StartRedrive>,
) -> Result<Response, Problem> {
    if asked.filter.is_empty() {
        return Err(Problem::field("filter", "must have at least one member"));
    }
    let filter = checked_filter(asked.filter, "filter.")?;
    let store = admin.app.store.as_ref();
    let mut wanted = Wanted::pending(filter.clone());
    let matching = reading::count(store, &wanted).await?;
    if asked.preview {
        let groups = reading::groups(store, &wanted, PREVIEWED_GROUPS).await?;
        wanted.replayable = true;
        let within_limit = reading::count(store, &wanted).await?;
        let replayable = if asked.force { matching } else { within_limit };
        let over_limit = matching.saturating_sub(within_limit);
        return Ok(Json(Preview { preview: true, matching, replayable, over_limit, groups }).into_response());
    }
    let reason = Some(needed(asked.reason, "a redrive needs one")?);
    let (id, by) = (Uuid::now_v7(), By { operator, reason });
    let (canary, rate, force) = (asked.canary, asked.rate, asked.force);
    let plan = Plan { filter, canary, rate, force, by: by.clone(), matching };
    admin.ask_as(id, by, Wish::Start(Box::new(plan)), None).await?;
    let view = progress::known_redrive(store, id).await?;
    let location = format!("/api/admin/dlq/redrive/{id}");
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(view)).into_response())
}

/// Which redrives to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListParams {
    /// At most this many (1 to 200; 50 when not given).
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<Uuid>,
}

/// A page of redrives.
#[derive(Debug, Serialize, ToSchema)]
struct RedrivePage {
    /// The redrives, newest first.
    redrives: Vec<RedriveView>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List redrives, newest first.
#[utoipa::path(get, path = "/api/admin/dlq/redrive", params(ListParams), responses(
    (status = 200, body = RedrivePage), (status = 400, body = Problem), (status = 422, body = Problem),
))]
async fn list(
    State(admin): State<Admin>,
    Params(params): Params<ListParams>,
) -> Result<Json<RedrivePage>, Problem> {
    let limit = checked_limit(params.limit)?;
    let store = admin.app.store.as_ref();
    let after = params.cursor.map(|cursor| cursor.to_string());
    let query = Query { after, descending: true, limit: limit + 1, ..Query::default() };
    let (rows, next) = paged(store.find(Redrive::KIND, query).await?, limit);
    let mut redrives = Vec::with_capacity(rows.len());
    for row in &rows {
        let id = row.id.parse().map_err(|error| Problem::internal(&error))?;
        if let Some(drive) = reading::parsed::<Redrive>(row)?.drive() {
            redrives.push(progress::redrive(store, id, drive.clone()).await?);
        }
    }
    Ok(Json(RedrivePage { redrives, next }))
}

/// Show a redrive, and how far it is.
#[utoipa::path(get, path = "/api/admin/dlq/redrive/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = RedriveView), (status = 404, body = Problem),
))]
async fn show(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Json<RedriveView>, Problem> {
    progress::known_redrive(admin.app.store.as_ref(), id).await.map(Json)
}

async fn steer(admin: &Admin, id: Uuid, by: By, steer: Steer) -> Result<Json<RedriveView>, Problem> {
    admin.ask(by, Wish::Steer(id, steer), Some(id)).await?;
    progress::known_redrive(admin.app.store.as_ref(), id).await.map(Json)
}

/// Send nothing more for now.
#[utoipa::path(post, path = "/api/admin/dlq/redrive/{id}/pause", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = RedriveView), (status = 404, body = Problem), (status = 409, body = Problem),
))]
async fn pause(
    State(admin): State<Admin>,
    Segment(id): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(Why { reason }): Ask<Why>,
) -> Result<Json<RedriveView>, Problem> {
    steer(&admin, id, By { operator, reason }, Steer::Pause).await
}

/// Go on; with a new round and its canary, after it stopped by itself.
#[utoipa::path(post, path = "/api/admin/dlq/redrive/{id}/resume", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = RedriveView), (status = 404, body = Problem), (status = 409, body = Problem),
))]
async fn resume(
    State(admin): State<Admin>,
    Segment(id): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(Why { reason }): Ask<Why>,
) -> Result<Json<RedriveView>, Problem> {
    steer(&admin, id, By { operator, reason }, Steer::Resume).await
}

/// Send nothing more, ever. What is on its way goes on.
#[utoipa::path(post, path = "/api/admin/dlq/redrive/{id}/cancel", params(("id" = Uuid, Path), Operator),
    request_body(content = Option<Why>), responses(
    (status = 200, body = RedriveView), (status = 404, body = Problem), (status = 409, body = Problem),
))]
async fn cancel(
    State(admin): State<Admin>,
    Segment(id): Segment<Uuid>,
    Operator(operator): Operator,
    Ask(Why { reason }): Ask<Why>,
) -> Result<Json<RedriveView>, Problem> {
    steer(&admin, id, By { operator, reason }, Steer::Cancel).await
}

/// Watch a redrive: `progress` events as it moves, `end` once nothing will happen any more.
#[utoipa::path(get, path = "/api/admin/dlq/redrive/{id}/events", params(("id" = Uuid, Path)), responses(
    (status = 200, body = RedriveView, content_type = "text/event-stream"), (status = 404, body = Problem),
    (status = 503, body = Problem),
))]
async fn events(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Response, Problem> {
    progress::known_redrive(admin.app.store.as_ref(), id).await?;
    let permit = admin.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::unavailable("too many streams of events are open", 5))?;
    let watch = Watch { admin, id, said: None, said_at: Instant::now(), is_over: false, _permit: permit };
    Ok(Sse::new(progress(watch)).keep_alive(KeepAlive::default()).into_response())
}

/// Somebody who watches a redrive.
struct Watch {
    admin: Admin,
    id: Uuid,
    said: Option<RedriveView>,
    said_at: Instant,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

fn progress(watch: Watch) -> impl Stream<Item = Result<Event, axum::Error>> {
    stream::unfold(watch, |mut watch| async move {
        if watch.is_over {
            return None;
        }
        let stop = watch.admin.app.stop.clone();
        let view = tokio::select! {
            () = stop.cancelled() => return None,
            view = watch.next() => view?,
        };
        let event = Event::default().event(if watch.is_over { "end" } else { "progress" }).json_data(&view);
        Some((event, watch))
    })
}

impl Watch {
    /// The next thing to say: a change, or after a while that there is none. `None` when it cannot be told.
    async fn next(&mut self) -> Option<RedriveView> {
        loop {
            if self.said.is_some() {
                // Numbers move all the time: they are looked at now and then, a change of status at once.
                let changed = self.admin.app.engine.changed(RowKey::of::<Redrive>(self.id));
                let _ = timeout(LOOK_AGAIN, changed).await;
            }
            let view = progress::known_redrive(self.admin.app.store.as_ref(), self.id).await.ok()?;
            let is_news = self.said.as_ref() != Some(&view);
            self.is_over = !is_news && view.status.is_over();
            if is_news || self.is_over || self.said_at.elapsed() >= SAY_ANYWAY {
                self.said = Some(view.clone());
                self.said_at = Instant::now();
                return Some(view);
            }
        }
    }
}
