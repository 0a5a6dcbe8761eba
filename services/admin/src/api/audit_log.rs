//! Shell: the routes of the audit log.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use saga_core::decider::FieldValue;
use saga_core::query::{FoundRow, Order, Query, text_in_json};
use saga_engine::host::http::{Body, Params, Problem};
use saga_engine::host::queries::readable_rows;
use saga_engine::runtime::clock::Clock as _;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Admin;
use super::extract::TokenHolder;
use admin_api::actor::Actor;
use admin_api::audit_log::{Entry, LogEntry, LogPage, LogParams, ProcessChange};

use crate::audit_log::AuditEntry;
use crate::commands::CommandKind;
use crate::rows;

/// Age up to which the reported time of a change counts. Commands of a local system report what they did while admin was down.
const MAX_REPORT_AGE: SignedDuration = SignedDuration::from_hours(1);

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(log)).routes(routes!(record_process_change))
}

/// List who changed what, newest first.
#[utoipa::path(get, path = "/api/admin/audit", params(LogParams), responses(
    (status = 200, body = LogPage),
))]
async fn log(
    State(admin): State<Admin>,
    Params(params): Params<LogParams>,
) -> Result<Json<LogPage>, Problem> {
    let wanted = [("action", params.action.map(|action| action.to_string())), ("target", params.target)];
    let equals = wanted.into_iter().filter_map(|(field, text)| Some((field, FieldValue::Text(text?))));
    let time = |at: Option<Timestamp>| at.map(|at| ("at", at.as_microsecond().into())).into_iter().collect();
    // Entries of changes at other services have ids of the time of their order.
    let last = match params.cursor {
        Some(cursor) => rows::row::<AuditEntry>(admin.app.store.as_ref(), cursor).await?,
        None => None,
    };
    let after = last.and_then(|AuditEntry(entry)| entry).map(|entry| entry.at.as_microsecond());
    let query = Query {
        equals: equals.collect(),
        from: time(params.since),
        below: time(params.until),
        contains: params.operator.map(|name| ("operator", name)).into_iter().collect(),
        text: params.text.as_deref().map(text_in_json),
        order: Some(Order { field: "at", after }),
        ..Query::default()
    };
    let (page, next) = admin.page::<AuditEntry>(query, params.limit, params.cursor).await?;
    let entry = |row: &FoundRow| {
        let AuditEntry(entry) = rows::parsed(row)?;
        Ok(entry.map(|entry| LogEntry { id: row.id.clone(), entry }))
    };
    let (entries, unreadable) = readable_rows(&page, entry);
    let entries = entries.into_iter().flatten().collect();
    Ok(Json(LogPage { entries, unreadable, next }))
}

/// Record that a process of a local system was started, stopped or killed, or that a token was issued or revoked. The same id
/// may come again. Where tokens are on, the holder of the token is the operator. A time that is in the future, or more than
/// an hour ago, is replaced by that of admin. What was reported instead is in the detail.
#[utoipa::path(post, path = "/api/admin/audit/processes", request_body = ProcessChange, responses((status = 204)))]
async fn record_process_change(
    State(admin): State<Admin>,
    holder: TokenHolder,
    Body(change, _): Body<ProcessChange>,
) -> Result<StatusCode, Problem> {
    let ProcessChange { id, at: reported_at, operator: reported_operator, change, process, command, outcome } =
        change;
    let mut detail = json!({ "command": command });
    let operator = holder.map_or_else(|| reported_operator.clone(), |Extension(caller)| caller.name);
    if operator != reported_operator {
        detail["reported_operator"] = json!(reported_operator);
    }
    let now = admin.app.clock.now();
    let is_recent = (SignedDuration::ZERO..=MAX_REPORT_AGE).contains(&now.duration_since(reported_at));
    let at = if is_recent { reported_at } else { now };
    if at != reported_at {
        detail["reported_at"] = json!(reported_at);
    }
    let (by, detail) = (Actor { operator, reason: None }, Some(detail));
    let entry = Entry { at, by: by.clone(), action: change.into(), target: process, detail, outcome };
    admin.ask_as(id, by, CommandKind::RecordEntry(entry)).await?;
    Ok(StatusCode::NO_CONTENT)
}
