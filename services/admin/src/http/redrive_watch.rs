//! Shell: the route that tells of a redrive as it moves.

use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, stream};
use saga_core::row::RowKey;
use saga_engine::host::http::{Problem, Segment};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::redrives::found;
use crate::redrive::decider::Redrive;
use crate::redrive::events::RedriveStatus;
use crate::redrive::progress::RedriveView;
use crate::rows::row;

/// Pause between two looks at a redrive that moves.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Watchers hear at least this often that nothing has changed.
const SAY_ANYWAY: Duration = Duration::from_secs(5);

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(events))
}

/// What a watcher is told, as it is described.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is written as a stream of events")]
struct WatchedEvent {
    /// `progress` as it moves, `end` once nothing will happen any more.
    #[schema(pattern = "^(progress|end)$")]
    event: String,
    /// How far it is, as JSON: what `GET /api/admin/dlq/redrive/{id}` answers.
    data: String,
}

/// Watch a redrive: `progress` events as it moves, `end` once nothing will happen any more.
#[utoipa::path(get, operation_id = "watch_redrive", path = "/api/admin/dlq/redrive/{id}/events", params(("id" = Uuid, Path)), responses(
    (status = 200, body = WatchedEvent, content_type = "text/event-stream"), (status = 404),
))]
async fn events(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Response, Problem> {
    found(&admin, id).await?;
    let permit = admin.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::unavailable("too many streams of events are open", 5))?;
    let watch = Watch { admin, id, said: None, said_at: Instant::now(), is_over: false, _permit: permit };
    Ok(Sse::new(told(watch)).keep_alive(KeepAlive::default()).into_response())
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

fn told(watch: Watch) -> impl Stream<Item = Result<Event, axum::Error>> {
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
    /// Resolves when the redrive does not stand there any more, or nobody can say so.
    async fn other_status(&self, status: RedriveStatus) {
        loop {
            let changed = self.admin.app.engine.changed(RowKey::of::<Redrive>(self.id));
            match row::<Redrive>(self.admin.app.store.as_ref(), self.id).await {
                Ok(Some(redrive)) if redrive.drive().is_some_and(|drive| drive.status == status) => {
                    changed.await;
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The next thing to say: a change, or after a while that there is none. `None` when it cannot be told.
    async fn next(&mut self) -> Option<RedriveView> {
        loop {
            if let Some(status) = self.said.as_ref().map(|said| said.status) {
                // Numbers move all the time: they are looked at now and then, a change of status at once.
                let _ = timeout(LOOK_AGAIN, self.other_status(status)).await;
            }
            let view = found(&self.admin, self.id).await.ok()?;
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
