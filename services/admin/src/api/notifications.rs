//! Shell: the routes of notifications.

use admin_api::actor::{Actor, Reason};
use admin_api::notifications::{NotificationsView, OpenFinding, SentNotification, TestNotification};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use saga_engine::host::http::Problem;
use saga_engine::store::FailingTask;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Change, Operator};
use crate::commands::{CommandKind, Reply};
use crate::notifications::content::Notification;
use crate::notifications::open_finding::Open;
use crate::notifications::settings::RECEIVER;
use crate::notifications::state::{NOTIFICATION_STATE, NotificationCommand, NotificationState};
use crate::notifications::webhook;
use crate::rows;

/// Failing tasks that are read: one notification and one test.
const MAX_FAILING: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(notifications)).routes(routes!(test_notification))
}

/// Show the state of the notifications, and the last ones with their delivery.
#[utoipa::path(get, path = "/api/admin/notifications", responses((status = 200, body = NotificationsView)))]
async fn notifications(State(admin): State<Admin>) -> Result<Json<NotificationsView>, Problem> {
    let store = admin.app.store.as_ref();
    // Read first: a notification that is delivered in between is shown as delivered.
    let failing = store.failing_tasks(MAX_FAILING).await?.into_iter();
    let id = |failing: &FailingTask| serde_json::from_str::<Notification>(&failing.task.payload).ok();
    let failing: Vec<_> = failing.filter_map(|failing| Some((id(&failing)?.id, failing))).collect();
    let state = rows::row::<NotificationState>(store, NOTIFICATION_STATE).await?.unwrap_or_default();
    let breakers = admin.app.controls.admission.breakers();
    Ok(Json(NotificationsView {
        to: webhook::shown(&admin.app.settings.service.notifications.webhook.url),
        breaker: breakers.into_iter().find(|breaker| breaker.name == RECEIVER),
        in_flight: state.in_flight().map(|sent| sent.id),
        open: state.open().iter().map(|(key, open)| open_finding(key, open)).collect(),
        notifications: state.recent().map(|sent| with_failure(sent, &failing)).collect(),
    }))
}

fn open_finding(key: &str, open: &Open) -> OpenFinding {
    let notified_at = open.notified_at();
    let Open { text, since, cleared_at, .. } = open.clone();
    OpenFinding { key: key.to_owned(), text, since, notified_at, cleared_at }
}

fn with_failure(sent: &SentNotification, failing: &[(Uuid, FailingTask)]) -> SentNotification {
    let is_open = sent.delivered_at.is_none() && sent.given_up.is_none();
    let failing = failing.iter().find(|(id, _)| is_open && *id == sent.id).map(|(_, failing)| failing);
    let failure = failing.map(|failing| failing.last_error.clone());
    SentNotification { failure, next_attempt: failing.map(|failing| failing.next_attempt), ..sent.clone() }
}

/// Send a test notification.
#[utoipa::path(post, path = "/api/admin/notifications/test", params(Operator), request_body(content = Option<Reason>), responses(
    (status = 202, body = TestNotification),
    (status = 409, description = "another test has not been delivered yet"),
))]
async fn test_notification(
    Change { admin, path: (), operator, body: Reason { reason } }: Change<(), Reason>,
) -> Result<(StatusCode, Json<TestNotification>), Problem> {
    let test = NotificationCommand::Test(admin.app.settings.service.notifications.system.clone());
    match admin.ask(Actor { operator, reason }, CommandKind::Notify(test)).await? {
        Reply::Notification(Some(sent)) => {
            Ok((StatusCode::ACCEPTED, Json(TestNotification { id: sent.id, at: sent.at })))
        }
        Reply::Notification(None) | Reply::Done | Reply::Changed(_) | Reply::Many(_) => {
            Err(Problem::internal(&"a test without a notification"))
        }
    }
}
