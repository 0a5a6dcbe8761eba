//! Shell: the routes of the audit log.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::ids::began_at;
use saga_core::query::{FoundRow, Query, text_in_json};
use saga_engine::host::http::{Body, Params, Problem};
use saga_engine::host::queries::readable_rows;
use saga_engine::runtime::clock::Clock as _;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::{Uuid, Variant, Version};

use super::Admin;
use super::audit_search::{BOUNDS, Found, newest_after, search};
use super::extract::TokenHolder;
use super::paging::checked_limit;
use admin_api::actor::Actor;
use admin_api::audit_log::{Entry, LogEntry, LogPage, LogParams, MAX_ID_AGE, ProcessChange};

use crate::audit_log::AuditEntry;
use crate::commands::CommandKind;
use crate::rows;

/// Age up to which the reported time of a change counts. Commands of a local system report what they did while admin was down.
const MAX_REPORT_AGE: SignedDuration = SignedDuration::from_hours(1);

/// Time by which the id of a report may be in the future, as clocks differ.
const MAX_ID_LEAD: SignedDuration = SignedDuration::from_hours(1);

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
    let LogParams { operator, action, target, since, until, text, limit, cursor } = params;
    let limit = checked_limit(limit)?;
    let store = admin.app.store.as_ref();
    // The id of an order may also be in the detail.
    let order = target.as_ref().and_then(|target| target.parse::<Uuid>().ok());
    let target = target.filter(|_| order.is_none());
    let wanted = [("action", action.map(|action| action.to_string())), ("target", target)];
    let equals = wanted.into_iter().filter_map(|(field, text)| Some((field, FieldValue::Text(text?))));
    let times = |times: &[Option<Timestamp>]| -> Vec<(&'static str, FieldValue)> {
        times.iter().flatten().map(|at| ("at", at.as_microsecond().into())).collect()
    };
    let order_text = order.map(|order| order.to_string());
    // Entries of changes at other services have ids of the time of their order.
    let last = match cursor {
        Some(cursor) => {
            let equals = vec![("id", FieldValue::Text(cursor.to_string()))];
            let query = Query { equals, order: Some(newest_after(None)), limit: 1, ..Query::default() };
            store.find(AuditEntry::KIND, query).await?.pop()
        }
        None => None,
    };
    let query = Query {
        equals: equals.collect(),
        from: times(&[since, order.and_then(earliest_change)]),
        below: times(&[until]),
        texts: [&text, &order_text].into_iter().flatten().map(|text| text_in_json(text)).collect(),
        order: Some(newest_after(last.as_ref())),
        after: cursor.map(|cursor| cursor.to_string()),
        ..Query::default()
    };
    let queries = match &operator {
        Some(name) => by_operator(&query, name).into(),
        None => vec![query],
    };
    let is_wanted = |entry: &Entry| {
        operator.as_ref().is_none_or(|name| is_by(entry, name))
            && order_text.as_ref().is_none_or(|order| concerns(entry, order))
    };
    let find = |query| store.find(AuditEntry::KIND, query);
    let Found { rows, next, read } = search(find, queries, is_wanted, limit, BOUNDS).await?;
    tracing::debug!(rows = read, found = rows.len(), "searched the audit log");
    let entry = |row: &FoundRow| {
        let AuditEntry(entry) = rows::parsed(row)?;
        Ok(entry.map(|entry| LogEntry { id: row.id.clone(), entry }))
    };
    let (entries, unreadable) = readable_rows(&rows, entry);
    let entries = entries.into_iter().flatten().collect();
    Ok(Json(LogPage { entries, unreadable, next }))
}

/// Earliest time at which an order may have been changed, if its id has a time: clocks differ.
fn earliest_change(order: Uuid) -> Option<Timestamp> {
    made_at(order)?.checked_sub(MAX_ID_LEAD).ok()
}

/// Time in an id; `None` if it is no UUIDv7.
fn made_at(id: Uuid) -> Option<Timestamp> {
    let is_v7 = id.get_variant() == Variant::RFC4122 && id.get_version() == Some(Version::SortRand);
    is_v7.then(|| began_at(id))
}

/// Queries for entries whose operator's name contains a text, and for those whose reported operator may.
fn by_operator(query: &Query, name: &str) -> [Query; 2] {
    let (mut author, mut reported) = (query.clone(), query.clone());
    author.contains.push(("operator", name.to_owned()));
    reported.texts.extend(["\"reported_operator\":\"".to_owned(), text_in_json(name)]);
    [author, reported]
}

/// True if the name of the operator, or the one reported, contains a text, whatever the case of ASCII letters.
fn is_by(entry: &Entry, name: &str) -> bool {
    let reported = entry.detail.as_ref().and_then(|detail| detail["reported_operator"].as_str());
    let name = name.to_ascii_lowercase();
    let contains = |operator: &str| operator.to_ascii_lowercase().contains(&name);
    contains(&entry.by.operator) || reported.is_some_and(contains)
}

/// True if an order, or something else with an id, is the target of a change or in its detail.
fn concerns(entry: &Entry, id: &str) -> bool {
    entry.target == id || entry.detail.as_ref().is_some_and(|detail| detail.to_string().contains(id))
}

/// Checks that an id is a UUIDv7 of about now.
///
/// # Errors
/// Returns 400 for another one.
fn check_id(id: Uuid, now: Timestamp) -> Result<(), Problem> {
    let invalid = |why: &str| Err(Problem::new(StatusCode::BAD_REQUEST, format!("the id {id} {why}")));
    let Some(made) = made_at(id) else { return invalid("is no UUIDv7") };
    if now.duration_since(made) > MAX_ID_AGE || made.duration_since(now) > MAX_ID_LEAD {
        return invalid(&format!("is of {made}, which is too far from now"));
    }
    Ok(())
}

/// Record that a process of a local system was started, stopped or killed, or that a token was issued or revoked. The same id
/// may come again. Where tokens are on, the holder of the token is the operator. A time that is in the future, or more than
/// an hour ago, is replaced by that of admin. What was reported instead is in the detail. An id that is no UUIDv7 of the last
/// year is rejected.
#[utoipa::path(post, path = "/api/admin/audit/processes", request_body = ProcessChange, responses((status = 204), (status = 400)))]
async fn record_process_change(
    State(admin): State<Admin>,
    holder: TokenHolder,
    Body(change, _): Body<ProcessChange>,
) -> Result<StatusCode, Problem> {
    let ProcessChange {
        id,
        at: reported_at,
        operator: reported_operator,
        change,
        process,
        command,
        expires,
        outcome,
    } = change;
    let now = admin.app.clock.now();
    check_id(id, now)?;
    let mut detail = json!({ "command": command });
    if let Some(expires) = expires {
        detail["expires"] = json!(expires);
    }
    let operator = holder.map_or_else(|| reported_operator.clone(), |Extension(caller)| caller.name);
    if operator != reported_operator {
        detail["reported_operator"] = json!(reported_operator);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_not_changed_before_the_time_in_its_id() {
        let id = uuid::Timestamp::from_unix(uuid::NoContext, 1_800_000_000, 0);
        assert_eq!(earliest_change(Uuid::new_v7(id)), Timestamp::from_second(1_800_000_000 - 3_600).ok());
        let derived = saga_core::ids::derived(&["a dead letter"]);
        assert_eq!([derived, Uuid::from_u128(1), Uuid::max()].map(earliest_change), [None; 3]);
    }
}
