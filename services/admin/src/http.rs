//! Shell: the admin service's routes.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use futures::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shared::contract::DeadLettered;
use shared::decider::{Decider, FieldValue};
use shared::http::{Params, Problem, Readiness, Segment};
use shared::money::Money;
use shared::operator::Machinery;
use shared::row::RowKey;
use shared::saga::{HeardFact, Owed, SagaStatus, SagaView};
use shared::store::{FoundRow, OutboxItem, Query};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::AdminApp;
use crate::audit::{self, Report};
use crate::policy::DeadLetterView;
use crate::services::Services;

#[derive(OpenApi)]
#[openapi(info(
    title = "Admin service",
    description = "All sagas, dead letters, and the audit of the books."
))]
struct Api;

#[derive(Clone)]
struct Admin {
    app: AdminApp,
    services: Services,
}

/// All routes.
pub fn routes(app: AdminApp) -> OpenApiRouter {
    let services = Services::of(&app.settings.service);
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(sagas))
        .routes(routes!(saga))
        .routes(routes!(dead_letters))
        .routes(routes!(count_dead_letters))
        .routes(routes!(dead_letter))
        .routes(routes!(outbox))
        .routes(routes!(services_state))
        .routes(routes!(books))
        .with_state(Admin { app, services })
}

/// A saga in a list.
#[derive(Debug, Serialize, ToSchema)]
struct SagaItem {
    /// Its id: the order's.
    id: String,
    /// Where it stands.
    status: SagaStatus,
    /// The next step, and who owes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Owed>,
    /// Who ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    /// What it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Money>,
    /// When the order gives up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline: Option<Timestamp>,
    /// Whether it should have ended by now.
    overdue: bool,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_because: Option<&'static str>,
    /// When the last fact was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_fact_at: Option<Timestamp>,
}

impl SagaItem {
    fn of(row: &FoundRow, now: Timestamp) -> Result<(Self, SagaView), Problem> {
        let view: SagaView = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
        let status = view.status();
        let item = Self {
            id: row.id.clone(),
            status,
            next: view.remaining().into_iter().next(),
            customer: view.customer.clone(),
            total: view.total,
            deadline: view.deadline,
            overdue: !status.is_terminal() && view.deadline.is_some_and(|deadline| deadline < now),
            cancelled_because: view.cancelled_because.map(shared::contract::CancelReason::as_str),
            last_fact_at: view.last_fact_at(),
        };
        Ok((item, view))
    }
}

/// Which sagas to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct SagaParams {
    /// Only in this status.
    status: Option<SagaStatus>,
    /// Only those past their deadline that have not ended.
    overdue: Option<bool>,
    /// Only those whose next step is this one.
    stuck_at: Option<String>,
    /// Only of this customer.
    customer: Option<String>,
    /// Only those that contain this text.
    text: Option<String>,
    /// At most this many (1 to 200; 50 when not given).
    limit: Option<usize>,
    /// Where the last page ended.
    cursor: Option<Uuid>,
}

/// A page of sagas, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct SagaPage {
    /// The sagas.
    sagas: Vec<SagaItem>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn checked_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(50) {
        limit @ 1..=200 => Ok(limit),
        _ => Err(Problem::field("limit", "must be 1 to 200")),
    }
}

fn paged(mut rows: Vec<FoundRow>, limit: usize) -> (Vec<FoundRow>, Option<String>) {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    (rows, next)
}

/// List sagas, newest first.
#[utoipa::path(get, path = "/api/admin/sagas", params(SagaParams), responses(
    (status = 200, body = SagaPage), (status = 400, body = Problem), (status = 422, body = Problem),
))]
async fn sagas(
    State(admin): State<Admin>,
    Params(params): Params<SagaParams>,
) -> Result<Json<SagaPage>, Problem> {
    let limit = checked_limit(params.limit)?;
    let now = Timestamp::now();
    let mut query = Query {
        text: params.text,
        after: params.cursor.map(|cursor| cursor.to_string()),
        descending: true,
        limit: limit + 1,
        ..Query::default()
    };
    if let Some(status) = params.status {
        query.equals.push(("status", status.as_str().into()));
    }
    if let Some(step) = params.stuck_at {
        query.equals.push(("next_step", FieldValue::Text(step)));
    }
    if let Some(customer) = params.customer {
        query.equals.push(("customer", FieldValue::Text(customer)));
    }
    if params.overdue == Some(true) {
        query.equals.push(("finished", 0.into()));
        query.below.push(("deadline", now.as_microsecond().into()));
    }
    let (rows, next) = paged(admin.app.store.find(SagaView::KIND, query).await?, limit);
    let sagas =
        rows.iter().map(|row| SagaItem::of(row, now).map(|(item, _)| item)).collect::<Result<_, _>>()?;
    Ok(Json(SagaPage { sagas, next }))
}

/// A saga with its history.
#[derive(Debug, Serialize, ToSchema)]
struct SagaDetail {
    /// The saga.
    #[serde(flatten)]
    saga: SagaItem,
    /// What was said, oldest first.
    timeline: Vec<Moment>,
    /// Steps that are still to come, and who owes them.
    remaining: Vec<Owed>,
}

/// A fact in a saga's timeline.
#[derive(Debug, Serialize, ToSchema)]
struct Moment {
    /// Milliseconds since the saga's first fact.
    after_ms: i64,
    /// The fact.
    #[serde(flatten)]
    fact: HeardFact,
}

/// Show a saga: its timeline, the steps that remain, and who owes them.
#[utoipa::path(get, path = "/api/admin/sagas/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = SagaDetail), (status = 404, body = Problem),
))]
async fn saga(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Json<SagaDetail>, Problem> {
    let key = RowKey::of::<SagaView>(id);
    let row = admin.app.store.row(key.clone()).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("saga {id}")))?;
    let (saga, view) = SagaItem::of(&row, Timestamp::now())?;
    let events = admin.app.store.events(key).await?;
    let mut facts = events
        .iter()
        .map(|event| serde_json::from_str::<HeardFact>(&event.data))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Problem::internal(&error))?;
    facts.sort_by_key(|fact| (fact.occurred_at, fact.message_id));
    let start = facts.first().map(|fact| fact.occurred_at).unwrap_or_default();
    let moment = |fact: HeardFact| {
        let after_ms = i64::try_from(fact.occurred_at.duration_since(start).as_millis()).unwrap_or(i64::MAX);
        Moment { after_ms, fact }
    };
    Ok(Json(SagaDetail {
        saga,
        timeline: facts.into_iter().map(moment).collect(),
        remaining: view.remaining(),
    }))
}

/// Which dead letters to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DeadLetterParams {
    /// Only of this service.
    service: Option<String>,
    /// Only of this step.
    step: Option<String>,
    /// Only of this saga.
    saga: Option<Uuid>,
    /// At most this many (1 to 200; 50 when not given).
    limit: Option<usize>,
    /// Where the last page ended.
    cursor: Option<Uuid>,
}

/// A page of dead letters.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterPage {
    /// The dead letters.
    dead_letters: Vec<DeadLettered>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn letter_of(row: &FoundRow) -> Result<DeadLettered, Problem> {
    let view: DeadLetterView = serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?;
    view.0.ok_or_else(|| Problem::internal(&"a stored dead letter that is none"))
}

/// List the dead letters of all services.
#[utoipa::path(get, path = "/api/admin/dlq", params(DeadLetterParams), responses(
    (status = 200, body = DeadLetterPage), (status = 400, body = Problem), (status = 422, body = Problem),
))]
async fn dead_letters(
    State(admin): State<Admin>,
    Params(params): Params<DeadLetterParams>,
) -> Result<Json<DeadLetterPage>, Problem> {
    let limit = checked_limit(params.limit)?;
    let wanted = [
        ("service", params.service),
        ("step", params.step),
        ("saga", params.saga.map(|saga| saga.to_string())),
    ];
    let equals =
        wanted.into_iter().filter_map(|(field, value)| Some((field, FieldValue::Text(value?)))).collect();
    let after = params.cursor.map(|cursor| cursor.to_string());
    let query = Query { equals, after, limit: limit + 1, ..Query::default() };
    let (rows, next) = paged(admin.app.store.find(DeadLetterView::KIND, query).await?, limit);
    let dead_letters = rows.iter().map(letter_of).collect::<Result<_, _>>()?;
    Ok(Json(DeadLetterPage { dead_letters, next }))
}

/// How many dead letters there are.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterCount {
    /// In all services.
    total: u64,
    /// By service.
    by_service: std::collections::BTreeMap<String, u64>,
    /// Services that did not answer; their dead letters are not counted.
    unreachable: Vec<String>,
}

/// Count the dead letters of all services, by their own tables.
#[utoipa::path(get, path = "/api/admin/dlq/count", responses((status = 200, body = DeadLetterCount)))]
async fn count_dead_letters(State(admin): State<Admin>) -> Result<Json<DeadLetterCount>, Problem> {
    let own = admin.app.store.stats().await?.dead_letters;
    let mut count =
        DeadLetterCount { total: own, by_service: [("admin".to_owned(), own)].into(), unreachable: vec![] };
    for (service, machinery) in all_machinery(&admin).await {
        match machinery {
            Ok(machinery) => {
                count.total += machinery.stats.dead_letters;
                count.by_service.insert(service.to_owned(), machinery.stats.dead_letters);
            }
            Err(_) => count.unreachable.push(service.to_owned()),
        }
    }
    Ok(Json(count))
}

async fn all_machinery(admin: &Admin) -> Vec<(&'static str, Result<Machinery, Problem>)> {
    let asked = admin.services.all().map(|(service, _)| async move {
        (service, admin.services.get(service, "/internal/machinery").await)
    });
    join_all(asked).await
}

/// Show a dead letter with everything known of it.
#[utoipa::path(get, path = "/api/admin/dlq/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = DeadLettered), (status = 404, body = Problem),
))]
async fn dead_letter(
    State(admin): State<Admin>,
    Segment(id): Segment<Uuid>,
) -> Result<Json<DeadLettered>, Problem> {
    let row = admin.app.store.row(RowKey::of::<DeadLetterView>(id)).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("dead letter {id}")))?;
    letter_of(&row).map(Json)
}

/// The outbox of one service.
#[derive(Debug, Serialize, ToSchema)]
struct OutboxOf {
    /// The service.
    service: String,
    /// Its entries, oldest first; absent when it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<OutboxItem>>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Show what waits to be published, and what the broker refused.
#[utoipa::path(get, path = "/api/admin/outbox", responses((status = 200, body = Vec<OutboxOf>)))]
async fn outbox(State(admin): State<Admin>) -> Result<Json<Vec<OutboxOf>>, Problem> {
    let entries = admin.app.store.outbox(1000).await?;
    let mut all = vec![OutboxOf { service: crate::NAME.to_owned(), entries: Some(entries), problem: None }];
    // The bank promises nobody anything.
    let asked = admin.services.all().into_iter().filter(|(service, _)| *service != "bank");
    let asked = asked.map(|(service, _)| async {
        let answer = admin.services.get::<Vec<OutboxItem>>(service, "/internal/outbox").await;
        let service = service.to_owned();
        match answer {
            Ok(entries) => OutboxOf { service, entries: Some(entries), problem: None },
            Err(problem) => OutboxOf { service, entries: None, problem: Some(problem.detail) },
        }
    });
    all.extend(join_all(asked).await);
    Ok(Json(all))
}

/// How one service is.
#[derive(Debug, Serialize, ToSchema)]
struct ServiceState {
    /// The service.
    service: String,
    /// Where it is.
    url: String,
    /// Whether it can do its work.
    ready: bool,
    /// What its parts say.
    #[schema(value_type = Object)]
    checks: std::collections::BTreeMap<String, String>,
    /// Its machinery; absent when it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    machinery: Option<Machinery>,
}

/// Show how every service is: health, outbox, retries, tasks, steps.
#[utoipa::path(get, path = "/api/admin/services", responses((status = 200, body = Vec<ServiceState>)))]
async fn services_state(State(admin): State<Admin>) -> Json<Vec<ServiceState>> {
    let services = &admin.services;
    let asked = services.all().map(|(service, url)| async move {
        let machinery = services.get::<Machinery>(service, "/internal/machinery").await;
        let readiness = services.get::<Readiness>(service, "/readyz").await;
        let (ready, checks) = match (readiness, &machinery) {
            (Ok(readiness), _) => (readiness.ready, readiness.checks),
            (Err(_), Ok(_)) => (false, [("service".to_owned(), "not ready".to_owned())].into()),
            (Err(problem), Err(_)) => (false, [("service".to_owned(), problem.detail)].into()),
        };
        ServiceState {
            service: service.to_owned(),
            url: url.to_owned(),
            ready,
            checks,
            machinery: machinery.ok(),
        }
    });
    Json(join_all(asked).await)
}

/// How to audit.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AuditParams {
    /// Wait at most this many seconds (0 to 30) until nothing is under way.
    wait: Option<u64>,
}

/// Audit the books: stock, money, facts and rows of all services. A quiet system is proven right or wrong; of a
/// busy one the answer says what is under way.
#[utoipa::path(get, path = "/api/admin/audit", params(AuditParams), responses(
    (status = 200, body = Report), (status = 503, body = Problem),
))]
async fn books(
    State(admin): State<Admin>,
    Params(params): Params<AuditParams>,
) -> Result<Json<Report>, Problem> {
    let wait = params.wait.unwrap_or(0);
    if wait > 30 {
        return Err(Problem::field("wait", "must be 0 to 30"));
    }
    audit::audit(&admin.app, &admin.services, Duration::from_secs(wait)).await.map(Json)
}
