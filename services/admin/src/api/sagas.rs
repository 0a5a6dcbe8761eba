//! Shell: the routes of sagas.

use admin_api::sagas::{SagaDetail, SagaItem, SagaPage, SagaParams, TimelineEntry};
use axum::Json;
use axum::extract::State;
use contract::saga_fact::{DeadLetterRef, SagaFact};
use contract::saga_view::{SagaEvent, SagaView};
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::{FoundRow, Query, text_in_json};
use saga_core::row::RowKey;
use saga_engine::host::http::{Params, Problem, Segment};
use saga_engine::host::queries::{for_each_event, readable_rows};
use saga_engine::runtime::clock::Clock as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use crate::rows;
use crate::sagas::summary::{Wait, count_soon, only_overdue, overdue_before};

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(sagas)).routes(routes!(saga))
}

fn item_of_row(row: &FoundRow, now: Timestamp) -> Result<(SagaItem, SagaView), Problem> {
    let view: SagaView = rows::parsed(row)?;
    let status = view.status();
    let wait = Wait::of(&view);
    let dead_letters =
        view.open_dead_letters().map(|(id, step)| DeadLetterRef { dead_letter: id, step: step.to_owned() });
    let overdue =
        status.can_be_overdue() && view.deadline.is_some_and(|deadline| deadline < overdue_before(now));
    let item = SagaItem {
        id: row.id.clone(),
        status,
        next: view.remaining().into_iter().next(),
        customer: view.customer.clone(),
        total: view.total,
        deadline: view.deadline,
        overdue,
        dead_letters: dead_letters.collect(),
        cancelled_because: view.cancelled_because.map(|reason| reason.as_str().to_owned()),
        last_fact_at: view.last_fact_at(),
        waits_since: wait.since,
        waits_until: wait.until,
        manual_resolution: view.manual_resolution.clone(),
    };
    Ok((item, view))
}

/// Reads one saga.
///
/// # Errors
/// Returns 404 when there is none.
pub(super) async fn item_of(admin: &Admin, id: Uuid) -> Result<SagaItem, Problem> {
    let row = admin.app.store.row(RowKey::of::<SagaView>(id)).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("saga {id}")))?;
    Ok(item_of_row(&row, admin.app.clock.now())?.0)
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
    let texts = params.text.as_deref().map(text_in_json).into_iter().collect();
    let mut query = Query { texts, ..Query::default() };
    if let Some(status) = params.status {
        query.equals.push(("status", status.as_str().into()));
    }
    if let Some(step) = params.stuck_at {
        check_step(&step)?;
        query.equals.push(("next_step", FieldValue::Text(step)));
    }
    if let Some(customer) = params.customer {
        query.contains.push(("customer", customer));
    }
    if params.overdue == Some(true) {
        only_overdue(&mut query, now);
    }
    let total = count_soon(admin.app.store.as_ref(), SagaView::KIND, "status", query.clone());
    let page = admin.page::<SagaView>(query, params.limit, params.cursor);
    let (page, total, unconsumed) = tokio::join!(page, total, admin.unconsumed());
    let (page, next) = page?;
    let item = |row: &FoundRow| Ok(item_of_row(row, now)?.0);
    let (sagas, unreadable) = readable_rows(&page, item);
    Ok(Json(SagaPage { sagas, unreadable, next, total, unconsumed }))
}

/// # Errors
/// Returns 422 for a step that no saga waits for.
pub(super) fn check_step(step: &str) -> Result<(), Problem> {
    if contract::saga::steps().any(|known| known == step) {
        return Ok(());
    }
    let steps = contract::saga::steps().collect::<Vec<_>>().join(", ");
    Err(Problem::field("stuck_at", format!("there is no step {step}; steps are {steps}")))
}

/// Show a saga with its timeline, the remaining steps, and the services that owe them.
#[utoipa::path(get, path = "/api/admin/sagas/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = SagaDetail), (status = 404),
))]
async fn saga(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Json<SagaDetail>, Problem> {
    let key = RowKey::of::<SagaView>(id);
    let row = admin.app.store.row(key.clone()).await?;
    let row = row.ok_or_else(|| Problem::not_found(format_args!("saga {id}")))?;
    let (saga, view) = item_of_row(&row, admin.app.clock.now())?;
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
