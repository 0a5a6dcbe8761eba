//! Shell: the routes of dead letters: list, count, group, show.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::order::SECRETS;
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::dead_letter::DeadLettered;
use saga_core::decider::Decider;
use saga_core::query::Query;
use saga_core::row::RowKey;
use saga_engine::host::http::{Params, Problem, Segment};
use saga_engine::host::queries::for_each_event;
use saga_engine::runtime::clock::Clock as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::checked_filter;
use super::paging::{checked_limit, cursor, position_of};
use crate::dead_letter::filter::{Filter, Wanted};
use crate::dead_letter::grouping::{self, DeadLetterGroup};
use crate::dead_letter::history::{DeadLetterDetail, History};
use crate::dead_letter::item::DeadLetterItem;
use crate::dead_letter::reading::{self, Found};
use crate::dead_letter::view::DeadLetterView;
use crate::dead_letter::weighing;
use crate::glance;
use crate::rows;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(counts))
        .routes(routes!(groups))
        .routes(routes!(show))
}

/// Which dead letters to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListParams {
    /// Only in one of these statuses, separated by commas: PENDING, REPLAYING, RESOLVED, DISCARDED, SETTLED.
    #[param(
        pattern = "^(PENDING|REPLAYING|RESOLVED|DISCARDED|SETTLED)(,(PENDING|REPLAYING|RESOLVED|DISCARDED|SETTLED))*$"
    )]
    status: Option<String>,
    /// Only of this service.
    #[param(min_length = 1, max_length = 200)]
    service: Option<String>,
    /// Only of this step, or kind of task.
    #[param(min_length = 1, max_length = 200)]
    step: Option<String>,
    /// Only of this type of message.
    #[serde(rename = "type")]
    #[param(rename = "type", min_length = 1, max_length = 200)]
    message_type: Option<String>,
    /// Only of this cause.
    #[param(min_length = 1, max_length = 200)]
    fingerprint: Option<String>,
    /// Only of this saga.
    saga: Option<Uuid>,
    /// Only those that failed last at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    failed_after: Option<Timestamp>,
    /// Only those that failed last before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    failed_before: Option<Timestamp>,
    /// Only those with this text in the reason or the type; the case of ASCII letters does not matter.
    #[param(min_length = 1, max_length = 200)]
    text: Option<String>,
    /// At most this many (1 to 200; 50 when not given).
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<String>,
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

/// A page of dead letters.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterPage {
    /// The dead letters, the one that failed last first.
    dead_letters: Vec<DeadLetterItem>,
    /// Ids of those on this page that are damaged and cannot be shown; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many there are on all pages; not counted, and absent, with `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    /// Messages that this view has still to hear; absent when the broker does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<u64>,
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
    let wanted = Wanted { filter: checked_filter(filter, "")?, statuses, ..Wanted::default() };
    let store = admin.app.store.as_ref();
    let total = async {
        match &wanted.filter.text {
            None => glance::counted(store, DeadLetterView::KIND, "status", wanted.query()).await,
            Some(_) => None,
        }
    };
    let found = reading::find(store, &wanted, true, after.as_ref(), limit);
    let (found, total, behind) = tokio::join!(found, total, admin.behind());
    let Found { dead_letters, unreadable, next } = found?;
    let mut dead_letters: Vec<_> =
        dead_letters.iter().filter_map(|(id, view)| DeadLetterItem::of(*id, view)).collect();
    weighing::weigh(store, &mut dead_letters, admin.app.clock.now()).await?;
    let next = next.as_ref().map(cursor);
    Ok(Json(DeadLetterPage { dead_letters, unreadable, next, total, behind }))
}

/// How many dead letters there are.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterCounts {
    /// Those that wait for a human or are being replayed.
    total: u64,
    /// Every one that is known, by status.
    #[schema(value_type = BTreeMap<String, u64>)]
    by_status: BTreeMap<&'static str, u64>,
    /// Those that wait for a human or are being replayed, by service.
    by_service: BTreeMap<String, u64>,
}

/// Count the dead letters of all services.
#[utoipa::path(get, operation_id = "count_dead_letters", path = "/api/admin/dlq/count", responses((status = 200, body = DeadLetterCounts)))]
async fn counts(State(admin): State<Admin>) -> Result<Json<DeadLetterCounts>, Problem> {
    let store = admin.app.store.as_ref();
    let mut by_status: BTreeMap<_, _> =
        DeadLetterStatus::ALL.iter().map(|status| (status.as_str(), 0)).collect();
    for (status, count) in store.counts(DeadLetterView::KIND, "status", Query::default()).await? {
        if let Some(status) = DeadLetterStatus::named(&status) {
            by_status.insert(status.as_str(), count);
        }
    }
    let unresolved = Wanted {
        statuses: vec![DeadLetterStatus::Pending, DeadLetterStatus::Replaying],
        ..Wanted::default()
    };
    let by_service = store.counts(DeadLetterView::KIND, "service", unresolved.query()).await?;
    Ok(Json(DeadLetterCounts { total: by_service.values().sum(), by_status, by_service }))
}

/// Which dead letters to group.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct GroupParams {
    /// Only in one of these statuses, separated by commas; PENDING when not given.
    #[param(
        pattern = "^(PENDING|REPLAYING|RESOLVED|DISCARDED|SETTLED)(,(PENDING|REPLAYING|RESOLVED|DISCARDED|SETTLED))*$"
    )]
    status: Option<String>,
    /// Only of this service.
    #[param(min_length = 1, max_length = 200)]
    service: Option<String>,
    /// Only of this step, or kind of task.
    #[param(min_length = 1, max_length = 200)]
    step: Option<String>,
    /// Only of this type of message.
    #[serde(rename = "type")]
    #[param(rename = "type", min_length = 1, max_length = 200)]
    message_type: Option<String>,
    /// At most this many groups (1 to 200; 50 when not given).
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// Dead letters by cause.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterGroups {
    /// The groups, largest first.
    groups: Vec<DeadLetterGroup>,
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
    let wanted = Wanted { filter, statuses, ..Wanted::default() };
    let groups = grouping::groups(admin.app.store.as_ref(), &wanted, limit, admin.app.clock.now()).await?;
    Ok(Json(DeadLetterGroups { groups }))
}

/// A dead letter with its history, or 404.
pub(super) async fn found(admin: &Admin, id: Uuid) -> Result<(DeadLetterItem, History), Problem> {
    let unknown = || Problem::not_found(format_args!("dead letter {id}"));
    let view = rows::row::<DeadLetterView>(admin.app.store.as_ref(), id).await?.ok_or_else(unknown)?;
    let mut item = [DeadLetterItem::of(id, &view).ok_or_else(unknown)?];
    weighing::weigh(admin.app.store.as_ref(), &mut item, admin.app.clock.now()).await?;
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

/// A dead letter with everything known of it but what is secret, or 404.
pub(super) async fn detail(admin: &Admin, id: Uuid) -> Result<DeadLetterDetail, Problem> {
    let (item, mut history) = found(admin, id).await?;
    history.announced = history.announced.map(|announced| announced.redacted(&SECRETS));
    let payload = history.announced.as_ref().map(payload_of).unwrap_or_default();
    history.detail(item, payload).ok_or_else(|| Problem::internal(&"a dead letter without an announcement"))
}

/// Show a dead letter with everything known of it; card tokens are blanked (`***`). Its version is also the `ETag`.
#[utoipa::path(get, operation_id = "show_dead_letter", path = "/api/admin/dlq/{id}", params(("id" = Uuid, Path)), responses(
    (status = 200, body = DeadLetterDetail, headers(("ETag", description = "its version"))), (status = 404),
))]
async fn show(State(admin): State<Admin>, Segment(id): Segment<Uuid>) -> Result<Response, Problem> {
    let detail = detail(&admin, id).await?;
    let tag = format!("\"{}\"", detail.item.version);
    let tag = HeaderValue::from_str(&tag).map_err(|error| Problem::internal(&error))?;
    Ok(([(header::ETAG, tag)], Json(detail)).into_response())
}
