//! Shell: the routes of dead letters: list, count, group, show.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::order::SECRETS;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::dead_letter::DeadLettered;
use saga_core::decider::Decider;
use saga_core::query::Query;
use saga_core::row::RowKey;
use saga_engine::host::http::{Params, Problem, Segment};
use saga_engine::host::queries::for_each_event;
use saga_engine::runtime::clock::Clock as _;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::checked_filter;
use super::paging::{checked_limit, cursor, position_of};
use admin_api::dead_letters::{
    DeadLetterCounts, DeadLetterDetail, DeadLetterGroups, DeadLetterItem, DeadLetterPage, Filter,
    GroupParams, ListParams,
};

use crate::dead_letters::filter::Selection;
use crate::dead_letters::grouping;
use crate::dead_letters::history::History;
use crate::dead_letters::item::item_of;
use crate::dead_letters::reading::{self, Found};
use crate::dead_letters::replay_values;
use crate::dead_letters::view::DeadLetterView;
use crate::rows;
use crate::sagas::summary::count_soon;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(counts))
        .routes(routes!(groups))
        .routes(routes!(show))
}

fn statuses(list: Option<&str>) -> Result<Vec<DeadLetterStatus>, Problem> {
    let named = |name: &str| {
        let names: Vec<_> = DeadLetterStatus::ALL.iter().map(|status| status.as_str()).collect();
        DeadLetterStatus::named(name)
            .ok_or_else(|| Problem::field("status", format!("{name:?} is none of {}", names.join(", "))))
    };
    let wanted: BTreeSet<_> =
        list.into_iter().flat_map(|list| list.split(',')).map(named).collect::<Result<_, _>>()?;
    Ok(wanted.into_iter().collect())
}

/// List the dead letters of all services.
#[utoipa::path(get, operation_id = "list_dead_letters", path = "/api/admin/dlq", params(ListParams), responses(
    (status = 200, body = DeadLetterPage),
))]
async fn list(
    State(admin): State<Admin>,
    Params(params): Params<ListParams>,
) -> Result<Json<DeadLetterPage>, Problem> {
    let limit = checked_limit(params.limit)?;
    let after = params.cursor.as_deref().map(position_of).transpose()?;
    let filter = Filter {
        fingerprint: params.fingerprint,
        service: params.service,
        step: params.step,
        message_type: params.message_type,
        saga: params.saga,
        failed_after: params.failed_after,
        failed_before: params.failed_before,
        text: params.text,
    };
    let statuses = statuses(params.status.as_deref())?;
    let wanted = Selection { filter: checked_filter(filter, "")?, statuses, ..Selection::default() };
    let store = admin.app.store.as_ref();
    let total = async {
        match &wanted.filter.text {
            None => count_soon(store, DeadLetterView::KIND, "status", wanted.query()).await,
            Some(_) => None,
        }
    };
    let found = reading::find(store, &wanted, true, after.as_ref(), limit);
    let (found, total, unconsumed) = tokio::join!(found, total, admin.unconsumed());
    let Found { dead_letters, unreadable, next } = found?;
    let mut dead_letters: Vec<_> = dead_letters.iter().filter_map(|(id, view)| item_of(*id, view)).collect();
    replay_values::set_values(store, &mut dead_letters, admin.app.clock.now()).await?;
    let next = next.as_ref().map(cursor);
    Ok(Json(DeadLetterPage { dead_letters, unreadable, next, total, unconsumed }))
}

/// Count the dead letters of all services.
#[utoipa::path(get, operation_id = "count_dead_letters", path = "/api/admin/dlq/count", responses((status = 200, body = DeadLetterCounts)))]
async fn counts(State(admin): State<Admin>) -> Result<Json<DeadLetterCounts>, Problem> {
    let store = admin.app.store.as_ref();
    let mut by_status: BTreeMap<_, _> =
        DeadLetterStatus::ALL.iter().map(|status| (status.as_str().to_owned(), 0)).collect();
    for (status, count) in store.counts(DeadLetterView::KIND, "status", Query::default()).await? {
        if let Some(status) = DeadLetterStatus::named(&status) {
            by_status.insert(status.as_str().to_owned(), count);
        }
    }
    let unresolved = Selection {
        statuses: vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying],
        ..Selection::default()
    };
    let by_service = store.counts(DeadLetterView::KIND, "service", unresolved.query()).await?;
    Ok(Json(DeadLetterCounts { total: by_service.values().sum(), by_status, by_service }))
}

/// Group the dead letters of all services by what caused them.
#[utoipa::path(get, operation_id = "group_dead_letters", path = "/api/admin/dlq/groups", params(GroupParams), responses(
    (status = 200, body = DeadLetterGroups),
))]
async fn groups(
    State(admin): State<Admin>,
    Params(params): Params<GroupParams>,
) -> Result<Json<DeadLetterGroups>, Problem> {
    let limit = checked_limit(params.limit)?;
    let GroupParams { service, step, message_type, .. } = params;
    let filter = checked_filter(Filter { service, step, message_type, ..Filter::default() }, "")?;
    let statuses = statuses(Some(params.status.as_deref().unwrap_or("PENDING")))?;
    let wanted = Selection { filter, statuses, ..Selection::default() };
    let groups = grouping::groups(admin.app.store.as_ref(), &wanted, limit, admin.app.clock.now()).await?;
    Ok(Json(DeadLetterGroups { groups }))
}

/// Reads a dead letter with its history, or returns 404.
pub(super) async fn found(admin: &Admin, id: Uuid) -> Result<(DeadLetterItem, History), Problem> {
    let unknown = || Problem::not_found(format_args!("dead letter {id}"));
    let view = rows::row::<DeadLetterView>(admin.app.store.as_ref(), id).await?.ok_or_else(unknown)?;
    let mut item = [item_of(id, &view).ok_or_else(unknown)?];
    replay_values::set_values(admin.app.store.as_ref(), &mut item, admin.app.clock.now()).await?;
    let [item] = item;
    let mut history = History::default();
    for_each_event(admin.app.store.as_ref(), RowKey::of::<DeadLetterView>(id), |event| {
        history.take(&event).map_err(|error| Problem::internal(&error))
    })
    .await?;
    Ok((item, history))
}

fn payload_of(announced: &DeadLettered) -> Value {
    let bytes = BASE64.decode(&announced.payload_base64).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Reads a dead letter in full, without secrets, or returns 404.
pub(super) async fn detail(admin: &Admin, id: Uuid) -> Result<DeadLetterDetail, Problem> {
    let (item, mut history) = found(admin, id).await?;
    history.announced = history.announced.map(|announced| announced.redacted(SECRETS));
    let payload = history.announced.as_ref().map(payload_of).unwrap_or_default();
    history.detail(item, payload).ok_or_else(|| Problem::internal(&"a dead letter without a report"))
}

/// Show a dead letter in full. Card tokens are blanked (`***`). Its version is also the `ETag`.
#[utoipa::path(get, operation_id = "show_dead_letter", path = "/api/admin/dlq/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = DeadLetterDetail, headers(("ETag", description = "its version"))), (status = 404),
))]
async fn show(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Response, Problem> {
    let detail = detail(&admin, id).await?;
    let tag = format!("\"{}\"", detail.item.version);
    let tag = HeaderValue::from_str(&tag).map_err(|error| Problem::internal(&error))?;
    Ok(([(header::ETAG, tag)], Json(detail)).into_response())
}
