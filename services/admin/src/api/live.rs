//! Shell: the route that tells open pages what happens.

use admin_api::live::LiveUpdate;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt as _, stream};
use saga_engine::host::http::Problem;
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use crate::live::{Live, Snapshot, Versioned};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(live))
}

/// Watch the system: events `overview`, `redrives` and `rates`. With `Last-Event-ID`, rates begin after that event.
#[utoipa::path(get, operation_id = "watch_system", path = "/api/admin/live",
    params(("Last-Event-ID" = Option<String>, Header, description = "`id` of the last event")),
    responses((status = 200, body = LiveUpdate, content_type = "text/event-stream"), (status = 503)))]
async fn live(State(admin): State<Admin>, headers: HeaderMap) -> Result<Response, Problem> {
    let permit = admin.pages.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::unavailable("too many pages are open", 5))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let page = Page {
        snapshots: admin.live.subscribe(),
        live: admin.live,
        last_second: last,
        overview: 0,
        redrives: 0,
        _permit: permit,
    };
    let stop = admin.app.stop.clone().cancelled_owned();
    Ok(Sse::new(events(page).take_until(stop)).into_response())
}

/// An open page, and what it has been told.
struct Page {
    live: Live,
    snapshots: watch::Receiver<Snapshot>,
    last_second: Option<i64>,
    /// Versions that the page has.
    overview: u64,
    redrives: u64,
    _permit: OwnedSemaphorePermit,
}

fn events(page: Page) -> impl Stream<Item = Result<Event, axum::Error>> {
    let news = stream::unfold(page, |mut page| async move {
        page.snapshots.changed().await.ok()?;
        Some((page.news(), page))
    });
    news.flat_map(stream::iter).map(Ok)
}

impl Page {
    /// Events of what the page has not been told yet.
    fn news(&mut self) -> Vec<Event> {
        let snapshot = self.snapshots.borrow_and_update().clone();
        let overview = news("overview", &snapshot.overview, &mut self.overview);
        let redrives = news("redrives", &snapshot.redrives, &mut self.redrives);
        let rates = self.live.rates(&snapshot, self.last_second);
        let last = rates.seconds.as_ref().and_then(|seconds| seconds.last()).map(|last| last.second);
        self.last_second = last.or(self.last_second);
        let id = self.last_second.unwrap_or_default().to_string();
        let rates = Event::default().event("rates").id(id).json_data(&rates).ok();
        overview.into_iter().chain(redrives).chain(rates).collect()
    }
}

/// Event of a value, if the page has another version of it.
fn news<T>(name: &str, value: &Versioned<T>, seen: &mut u64) -> Option<Event> {
    let is_new = value.version != std::mem::replace(seen, value.version);
    is_new.then(|| Event::default().event(name).data(&*value.json))
}
