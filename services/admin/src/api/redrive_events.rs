//! Shell: the route that streams the progress of a redrive.

use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt as _, stream};
use saga_core::row::RowKey;
use saga_engine::host::http::{Problem, Segment};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::redrives::found;
use crate::redrive::decider::Redrive;
use crate::rows::row;
use admin_api::redrives::{RedriveStatus, RedriveUpdate, RedriveView};

/// Pause between two reads of the progress.
const POLL: Duration = Duration::from_millis(250);

/// Maximum time between two events.
const MAX_SILENCE: Duration = Duration::from_secs(5);

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Watch a redrive: `progress` events as it moves, `end` once nothing will happen any more.
#[utoipa::path(get, operation_id = "watch_redrive", path = "/api/admin/dlq/redrive/{id}/events", params(("id" = Uuid, Path)), responses(
    (status = 200, body = RedriveUpdate, content_type = "text/event-stream"), (status = 404),
))]
async fn events(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Response, Problem> {
    found(&admin, id).await?;
    let permit = admin.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Problem::unavailable("too many streams of events are open", 5))?;
    let stop = admin.app.stop.clone().cancelled_owned();
    let watch = Watch { admin, id, last: None, sent_at: Instant::now(), is_over: false, _permit: permit };
    Ok(Sse::new(stream_of(watch).take_until(stop)).keep_alive(KeepAlive::default()).into_response())
}

struct Watch {
    admin: Admin,
    id: Uuid,
    last: Option<RedriveView>,
    sent_at: Instant,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

fn stream_of(watch: Watch) -> impl Stream<Item = Result<Event, axum::Error>> {
    stream::unfold(watch, |mut watch| async move {
        if watch.is_over {
            return None;
        }
        let view = watch.next().await?;
        let event = Event::default().event(if watch.is_over { "end" } else { "progress" }).json_data(&view);
        Some((event, watch))
    })
}

impl Watch {
    /// Waits until the status changes, or cannot be read.
    async fn status_changed(&self, status: RedriveStatus) {
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

    /// Returns the next state to send: a change, or the same after a while. `None` when it cannot be read.
    async fn next(&mut self) -> Option<RedriveView> {
        loop {
            if let Some(status) = self.last.as_ref().map(|last| last.status) {
                // Counts change all the time and are polled; a change of status is sent at once.
                let _ = timeout(POLL, self.status_changed(status)).await;
            }
            let view = found(&self.admin, self.id).await.ok()?;
            let is_news = self.last.as_ref() != Some(&view);
            self.is_over = !is_news && view.status.is_over();
            if is_news || self.is_over || self.sent_at.elapsed() >= MAX_SILENCE {
                self.last = Some(view.clone());
                self.sent_at = Instant::now();
                return Some(view);
            }
        }
    }
}
