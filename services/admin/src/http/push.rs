//! Shell: the routes of what people are told by itself.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use contract::overview::RECEIVER;
use jiff::Timestamp;
use saga_engine::host::http::Problem;
use saga_engine::runtime::admission::BreakerView;
use saga_engine::store::FailingTask;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{Change, Operator, Why};
use crate::commands::{CommandKind, Reply};
use crate::push::notice::Notice;
use crate::push::told::{Known, Sent, THE_TOLD, Told, ToldCommand};
use crate::request::By;
use crate::rows;
use crate::webhook;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(push)).routes(routes!(push_test))
}

/// Who is told what, and what of it has arrived.
#[derive(Debug, Serialize, ToSchema)]
struct PushView {
    /// Who is told: the scheme, host and port of the receiver's address; absent for standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// The breaker before the receiver: closed while it answers; otherwise notices wait, and none is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerView>,
    /// Id of the notice that is being sent; absent when none is. There is no other before it has arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<Uuid>,
    /// What is wrong, or was until a moment ago, and whether somebody was told.
    telling: Vec<Telling>,
    /// The last notices, the newest first, at most 20.
    notices: Vec<SentView>,
}

/// A notice, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
struct SentView {
    #[serde(flatten)]
    sent: Sent,
    /// Why it did not arrive when it was sent last; absent when it has arrived, or is being sent the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// When it is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt: Option<Timestamp>,
}

impl SentView {
    fn of(sent: &Sent, failing: &[(Uuid, FailingTask)]) -> Self {
        let is_open = sent.delivered_at.is_none() && sent.given_up.is_none();
        let failing = failing.iter().find(|(id, _)| is_open && *id == sent.id).map(|(_, failing)| failing);
        let failure = failing.map(|failing| failing.last_error.clone());
        Self { sent: sent.clone(), failure, next_attempt: failing.map(|failing| failing.next_attempt) }
    }
}

/// Notices in one look at those that did not arrive: one, and a test.
const MOST_FAILING: usize = 100;

/// Something that is wrong, or was until a moment ago.
#[derive(Debug, Serialize, ToSchema)]
struct Telling {
    /// What it is known by, such as `breaker:payment/bank`.
    key: String,
    #[serde(flatten)]
    known: Known,
}

/// Show what people are told by itself, and what of it has arrived.
#[utoipa::path(get, path = "/api/admin/push", responses((status = 200, body = PushView)))]
async fn push(State(admin): State<Admin>) -> Result<Json<PushView>, Problem> {
    let store = admin.app.store.as_ref();
    // First: what arrives in between is shown as arrived.
    let failing = store.failing_tasks(MOST_FAILING).await?.into_iter();
    let id = |failing: &FailingTask| serde_json::from_str::<Notice>(&failing.task.payload).ok();
    let failing: Vec<_> = failing.filter_map(|failing| Some((id(&failing)?.id, failing))).collect();
    let told = rows::row::<Told>(store, THE_TOLD).await?.unwrap_or_default();
    let breakers = admin.app.controls.admission.breakers();
    let telling = told.known().iter();
    Ok(Json(PushView {
        to: webhook::shown(&admin.app.settings.service.push.webhook.url),
        breaker: breakers.into_iter().find(|breaker| breaker.name == RECEIVER),
        under_way: told.under_way().map(|notice| notice.id),
        telling: telling.map(|(key, known)| Telling { key: key.clone(), known: known.clone() }).collect(),
        notices: told.recent().map(|sent| SentView::of(sent, &failing)).collect(),
    }))
}

/// A test that is on its way.
#[derive(Debug, Serialize, ToSchema)]
struct TestSent {
    /// Id of its notice, which is its `webhook-id`.
    id: Uuid,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// Send a notice that says nothing but that it arrived.
#[utoipa::path(post, path = "/api/admin/push/test", params(Operator), request_body(content = Option<Why>), responses(
    (status = 202, body = TestSent), (status = 409, description = "another test has not arrived yet"),
))]
async fn push_test(
    Change { admin, path: (), operator, body: Why { reason } }: Change<(), Why>,
) -> Result<(StatusCode, Json<TestSent>), Problem> {
    match admin.ask(By { operator, reason }, CommandKind::Push(ToldCommand::Test)).await? {
        Reply::Notice(Some(notice)) => {
            Ok((StatusCode::ACCEPTED, Json(TestSent { id: notice.id, at: notice.at })))
        }
        Reply::Notice(None) | Reply::Done | Reply::Changed(_) | Reply::Many(_) => {
            Err(Problem::internal(&"a test that is none"))
        }
    }
}
