//! Shell: the route of the audit log: who did what, to what, and why.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::decider::{Decider, FieldValue};
use shared::http::{Params, Problem};
use shared::store::Query;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Admin;
use super::extract::{checked_limit, paged};
use crate::operations::{Action, Operation};
use crate::reading;

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
    /// Only about this: a dead letter, a redrive, a service, a breaker as `service/name`.
    target: Option<String>,
    /// At most this many (1 to 200; 50 when not given).
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<Uuid>,
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
struct LogEntry {
    /// Its id.
    id: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who.
    operator: String,
    /// What was done.
    action: Action,
    /// To what.
    target: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// More.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    detail: Option<Value>,
    /// `done`, `asked` as long as the service has not answered, or why it refused.
    outcome: String,
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
struct LogPage {
    /// The entries, newest first.
    entries: Vec<LogEntry>,
    /// `cursor` of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Show who did what, newest first.
#[utoipa::path(get, path = "/api/admin/audit/log", params(LogParams), responses(
    (status = 200, body = LogPage), (status = 400, body = Problem), (status = 422, body = Problem),
))]
async fn log(
    State(admin): State<Admin>,
    Params(params): Params<LogParams>,
) -> Result<Json<LogPage>, Problem> {
    let limit = checked_limit(params.limit)?;
    let wanted = [
        ("operator", params.operator),
        ("action", params.action.map(|action| action.as_str().to_owned())),
        ("target", params.target),
    ];
    let equals = wanted.into_iter().filter_map(|(field, text)| Some((field, FieldValue::Text(text?))));
    let query = Query {
        equals: equals.collect(),
        after: params.cursor.map(|cursor| cursor.to_string()),
        descending: true,
        limit: limit + 1,
        ..Query::default()
    };
    let (rows, next) = paged(admin.app.store.find(Operation::KIND, query).await?, limit);
    let mut entries = Vec::with_capacity(rows.len());
    for row in &rows {
        let operation: Operation = reading::parsed(row)?;
        entries.extend(operation.0.map(|entry| LogEntry {
            id: row.id.clone(),
            at: entry.at,
            operator: entry.by.operator,
            action: entry.action,
            target: entry.target,
            reason: entry.by.reason,
            detail: entry.detail,
            outcome: entry.outcome,
        }));
    }
    Ok(Json(LogPage { entries, next }))
}
