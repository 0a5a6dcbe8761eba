//! Shell: the routes of sagas.

use axum::Json;
use axum::extract::State;
use contract::manual_resolution::ManualResolution;
use contract::money::Money;
use contract::saga::SagaStatus;
use contract::saga_fact::{DeadLetterRef, SagaFact};
use contract::saga_view::{Owed, SagaEvent, SagaView};
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::{FoundRow, Query};
use saga_core::row::RowKey;
use saga_engine::host::http::{Params, Problem, Segment};
use saga_engine::host::queries::{for_each_event, readable_rows};
use saga_engine::runtime::clock::Clock as _;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use crate::glance::{self, WaitsOf};
use crate::rows;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(sagas)).routes(routes!(saga))
}

/// A saga in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaItem {
    /// Its id, which is the order's.
    id: String,
    /// Where it stands, as far as its facts tell.
    status: SagaStatus,
    /// The next step, and who owes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Owed>,
    /// The customer who ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<String>,
    /// What the order costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Money>,
    /// When the order gives up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline: Option<Timestamp>,
    /// Whether it should have ended half a minute ago, and has not, nor failed.
    overdue: bool,
    /// Dead letters in its way, each with the step that failed; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parked: Vec<DeadLetterRef>,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_because: Option<&'static str>,
    /// When the last fact was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_fact_at: Option<Timestamp>,
    /// Since when it waits for what comes next; absent once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    waits_since: Option<Timestamp>,
    /// Until when its order waits; absent when nothing ends the waiting, or it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    waits_until: Option<Timestamp>,
    /// What a human has settled outside, with what did not add up then; absent when nobody has.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<ManualResolution>,
}

impl SagaItem {
    fn of(row: &FoundRow, now: Timestamp) -> Result<(Self, SagaView), Problem> {
        let view: SagaView = rows::parsed(row)?;
        let status = view.status();
        let waits = WaitsOf::of(&view);
        let parked = view
            .open_dead_letters()
            .map(|(id, step)| DeadLetterRef { dead_letter: id, step: step.to_owned() });
        let item = Self {
            id: row.id.clone(),
            status,
            next: view.remaining().into_iter().next(),
            customer: view.customer.clone(),
            total: view.total,
            deadline: view.deadline,
            overdue: status.can_be_overdue()
                && view.deadline.is_some_and(|deadline| deadline < glance::late(now)),
            parked: parked.collect(),
            cancelled_because: view.cancelled_because.map(contract::order::CancelReason::as_str),
            last_fact_at: view.last_fact_at(),
            waits_since: waits.since,
            waits_until: waits.until,
            settled: view.manual_resolution.clone(),
        };
        Ok((item, view))
    }
}

/// One saga, as lists show it.
///
/// # Errors
/// 404 when there is none.
pub(super) async fn item_of(admin: &Admin, id: Uuid) -> Result<SagaItem, Problem> {
    let row = admin.app.store.row(RowKey::of::<SagaView>(id)).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("saga {id}")))?;
    Ok(SagaItem::of(&row, admin.app.clock.now())?.0)
}

/// Which sagas to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SagaParams {
    /// Only in this status.
    #[param(inline)]
    status: Option<SagaStatus>,
    /// Only those that should have ended half a minute ago, and have not, nor failed.
    overdue: Option<bool>,
    /// Only those whose next step is this one.
    #[param(schema_with = steps_schema)]
    stuck_at: Option<String>,
    /// Only of this customer.
    customer: Option<String>,
    /// Only those that contain this text.
    text: Option<String>,
    /// At most this many (1 to 200; 50 when not given).
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<Uuid>,
}

/// A page of sagas, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct SagaPage {
    /// At most `limit` of them.
    sagas: Vec<SagaItem>,
    /// Ids of those on this page that are damaged and cannot be shown; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many there are on all pages; absent when counting them takes long, as with `text` it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    /// Messages that this view has still to hear; absent when the broker does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<u64>,
}

/// List sagas, newest first.
#[utoipa::path(get, path = "/api/admin/sagas", params(SagaParams), responses(
    (status = 200, body = SagaPage),
))]
async fn sagas(
    State(admin): State<Admin>,
    Params(params): Params<SagaParams>,
) -> Result<Json<SagaPage>, Problem> {
    let now = admin.app.clock.now();
    let mut query = Query { text: params.text, ..Query::default() };
    if let Some(status) = params.status {
        query.equals.push(("status", status.as_str().into()));
    }
    if let Some(step) = params.stuck_at {
        check_step(&step)?;
        query.equals.push(("next_step", FieldValue::Text(step)));
    }
    if let Some(customer) = params.customer {
        query.equals.push(("customer", FieldValue::Text(customer)));
    }
    if params.overdue == Some(true) {
        glance::only_overdue(&mut query, now);
    }
    let total = glance::counted(admin.app.store.as_ref(), SagaView::KIND, "status", query.clone());
    let page = admin.page::<SagaView>(query, params.limit, params.cursor);
    let (page, total, behind) = tokio::join!(page, total, admin.behind());
    let (page, next) = page?;
    let item = |row: &FoundRow| Ok(SagaItem::of(row, now)?.0);
    let (sagas, unreadable) = readable_rows(&page, item);
    Ok(Json(SagaPage { sagas, unreadable, next, total, behind }))
}

fn steps_schema() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(contract::saga::steps())).build()
}

/// # Errors
/// 422 for what is no step that a saga may wait for.
fn check_step(step: &str) -> Result<(), Problem> {
    if contract::saga::steps().any(|known| known == step) {
        return Ok(());
    }
    let steps = contract::saga::steps().collect::<Vec<_>>().join(", ");
    Err(Problem::field("stuck_at", format!("there is no step {step}; steps are {steps}")))
}

/// A saga with its history.
#[derive(Debug, Serialize, ToSchema)]
struct SagaDetail {
    /// What lists show of it.
    #[serde(flatten)]
    saga: SagaItem,
    /// What was said, oldest first.
    timeline: Vec<TimelineEntry>,
    /// Steps that are still to come, and who owes them.
    remaining: Vec<Owed>,
}

/// A fact in a saga's timeline.
#[derive(Debug, Serialize, ToSchema)]
struct TimelineEntry {
    /// Milliseconds since the saga's first fact.
    after_ms: i64,
    /// What was said, by whom, and when.
    #[serde(flatten)]
    fact: SagaFact,
}

/// Show a saga: its timeline, the steps that remain, and who owes them.
#[utoipa::path(get, path = "/api/admin/sagas/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = SagaDetail), (status = 404),
))]
async fn saga(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Json<SagaDetail>, Problem> {
    let key = RowKey::of::<SagaView>(id);
    let row = admin.app.store.row(key.clone()).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("saga {id}")))?;
    let (saga, view) = SagaItem::of(&row, admin.app.clock.now())?;
    let mut facts = Vec::new();
    for_each_event(admin.app.store.as_ref(), key, |event| {
        let event: SagaEvent =
            serde_json::from_str(&event.data).map_err(|error| Problem::internal(&error))?;
        facts.extend(event.into_fact());
        Ok(())
    })
    .await?;
    facts.sort_by_key(|fact| (fact.occurred_at, fact.message_id));
    let start = facts.first().map(|fact| fact.occurred_at).unwrap_or_default();
    let entry = |fact: SagaFact| {
        let after_ms = i64::try_from(fact.occurred_at.duration_since(start).as_millis()).unwrap_or(i64::MAX);
        TimelineEntry { after_ms, fact }
    };
    Ok(Json(SagaDetail {
        saga,
        timeline: facts.into_iter().map(entry).collect(),
        remaining: view.remaining(),
    }))
}
