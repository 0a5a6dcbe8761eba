//! Shell: the route that shows the audit log.

use axum::Json;
use axum::extract::State;
use saga_core::decider::FieldValue;
use saga_core::query::{FoundRow, Query};
use saga_engine::host::http::{Params, Problem};
use saga_engine::host::queries::readable_rows;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use crate::audit_log::{Action, AuditEntry, Entry};
use crate::rows;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(log))
}

/// Which entries to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogParams {
    /// Only of this operator.
    operator: Option<String>,
    /// Only of this action.
    #[param(inline)]
    action: Option<Action>,
    /// Only about this: a dead letter, a redrive, a service, a step, a breaker as `service/name`.
    target: Option<String>,
    /// At most this many (1 to 200; 50 when not given).
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<Uuid>,
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
struct LogEntry {
    /// Its id, a UUIDv7; of a redrive's start also the redrive's.
    id: String,
    /// Who did what, to what, and why.
    #[serde(flatten)]
    entry: Entry,
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
struct LogPage {
    /// The entries, newest first.
    entries: Vec<LogEntry>,
    /// Ids of those on this page that are damaged and cannot be shown; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Show who did what, newest first.
#[utoipa::path(get, path = "/api/admin/audit/log", params(LogParams), responses(
    (status = 200, body = LogPage),
))]
async fn log(
    State(admin): State<Admin>,
    Params(params): Params<LogParams>,
) -> Result<Json<LogPage>, Problem> {
    let wanted = [
        ("operator", params.operator),
        ("action", params.action.map(|action| action.to_string())),
        ("target", params.target),
    ];
    let equals = wanted.into_iter().filter_map(|(field, text)| Some((field, FieldValue::Text(text?))));
    let query = Query { equals: equals.collect(), ..Query::default() };
    let (page, next) = admin.page::<AuditEntry>(query, params.limit, params.cursor).await?;
    let entry = |row: &FoundRow| {
        let AuditEntry(entry) = rows::parsed(row)?;
        Ok(entry.map(|entry| LogEntry { id: row.id.clone(), entry }))
    };
    let (entries, unreadable) = readable_rows(&page, entry);
    let entries = entries.into_iter().flatten().collect();
    Ok(Json(LogPage { entries, unreadable, next }))
}
