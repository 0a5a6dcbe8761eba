//! Shell: the routes of notifications.

use admin_api::actor::{Actor, Reason};
use admin_api::notifications::{
    Acknowledge, NotificationsView, OpenFinding, SentNotification, TestNotification,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use saga_engine::host::http::Problem;
use saga_engine::runtime::clock::Clock as _;
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
    OpenApiRouter::new()
        .routes(routes!(notifications))
        .routes(routes!(test_notification))
        .routes(routes!(acknowledge))
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
    let now = admin.app.clock.now();
    Ok(Json(NotificationsView {
        to: webhook::shown(&admin.app.settings.service.notifications.webhook.url),
        breaker: breakers.into_iter().find(|breaker| breaker.name == RECEIVER),
        in_flight: state.in_flight().map(|sent| sent.id),
        open: state.open().iter().map(|(key, open)| open_finding(key, open, now)).collect(),
        notifications: state.recent().map(|sent| with_failure(sent, &failing)).collect(),
    }))
}

fn open_finding(key: &str, open: &Open, now: Timestamp) -> OpenFinding {
    let (notified_at, acknowledged) = (open.notified_at(), open.acknowledged(now).cloned());
    let Open { text, since, cleared_at, .. } = open.clone();
    OpenFinding { key: key.to_owned(), text, since, notified_at, cleared_at, acknowledged }
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

/// Say that somebody works on a finding: until then, nobody is reminded of it, unless it becomes much worse.
#[utoipa::path(post, operation_id = "acknowledge_finding", path = "/api/admin/findings/acknowledge", params(Operator), request_body = Acknowledge,
    responses((status = 200, body = OpenFinding), (status = 404, description = "no finding of this key is open")))]
async fn acknowledge(
    Change { admin, path: (), operator, body }: Change<(), Acknowledge>,
) -> Result<Json<OpenFinding>, Problem> {
    let Acknowledge { key, seconds, reason } = body;
    let by = Actor { operator, reason };
    let time = SignedDuration::from_secs(seconds.into());
    let acknowledge = NotificationCommand::Acknowledge { key: key.clone(), by: by.clone(), time };
    admin.ask(by, CommandKind::Notify(acknowledge)).await?;
    let state = rows::row::<NotificationState>(admin.app.store.as_ref(), NOTIFICATION_STATE).await?;
    let open = state.as_ref().and_then(|state| state.open().get(&key));
    let open = open.ok_or_else(|| Problem::not_found("open finding of this key"))?;
    Ok(Json(open_finding(&key, open, admin.app.clock.now())))
}
