//! Shell: the route that tells open pages what happens.

use std::collections::VecDeque;

use admin_api::live::LiveUpdate;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, stream};
use saga_engine::host::http::Problem;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
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
        stop: admin.app.stop.clone(),
        events: VecDeque::new(),
        last_second: last,
        overview: 0,
        redrives: 0,
        _permit: permit,
    };
    Ok(Sse::new(events(page)).into_response())
}

/// An open page, and what it has been told.
struct Page {
    live: Live,
    snapshots: watch::Receiver<Snapshot>,
    stop: CancellationToken,
    /// Events that are still to be sent.
    events: VecDeque<Event>,
    last_second: Option<i64>,
    /// Versions that the page has.
    overview: u64,
    redrives: u64,
    _permit: OwnedSemaphorePermit,
}

fn events(page: Page) -> impl Stream<Item = Result<Event, axum::Error>> {
    stream::unfold(page, |mut page| async move {
        while page.events.is_empty() {
            tokio::select! {
                () = page.stop.clone().cancelled_owned() => return None,
                changed = page.snapshots.changed() => changed.ok()?,
            }
            page.queue_news();
        }
        let event = page.events.pop_front()?;
        Some((Ok(event), page))
    })
}

impl Page {
    /// Queues what the page has not been told yet.
    fn queue_news(&mut self) {
        let snapshot = self.snapshots.borrow_and_update().clone();
        let overview = news("overview", &snapshot.overview, &mut self.overview);
        let redrives = news("redrives", &snapshot.redrives, &mut self.redrives);
        let rates = self.live.rates(self.last_second, snapshot.overview_at);
        let last = rates.seconds.as_ref().and_then(|seconds| seconds.last()).map(|last| last.second);
        self.last_second = last.or(self.last_second);
        let id = self.last_second.unwrap_or_default().to_string();
        let rates = Event::default().event("rates").id(id).json_data(&rates).ok();
        self.events.extend(overview.into_iter().chain(redrives).chain(rates));
    }
}

/// Event of a value, if the page has another version of it.
fn news<T>(name: &str, value: &Versioned<T>, seen: &mut u64) -> Option<Event> {
    let is_new = value.version != std::mem::replace(seen, value.version);
    is_new.then(|| Event::default().event(name).data(&*value.json))
}
