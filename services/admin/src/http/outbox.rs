//! Shell: the routes of what the services have still to publish.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use garde::Validate;
use jiff::Timestamp;
use saga_engine::host::app::Republished;
use saga_engine::host::http::{Problem, one_line, trimmed_if_any};
use saga_engine::store::OutboxItem;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Because, Change, Operator, needed};
use super::{Admin, known_service};
use crate::audit_log::Action;
use crate::other_services::{each, on_the_broker};
use crate::request::By;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(outbox)).routes(routes!(retry)).routes(routes!(republish))
}

/// The outbox of one service.
#[derive(Debug, Serialize, ToSchema)]
struct OutboxOf {
    /// The service that promised to publish them.
    service: &'static str,
    /// Its entries, oldest first; absent when it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<OutboxItem>>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Whether more may wait than are shown here.
    more: bool,
}

/// Entries of one service that an answer holds.
const MOST: usize = 1000;

impl OutboxOf {
    fn new(service: &'static str, answer: Result<Vec<OutboxItem>, Problem>) -> Self {
        match answer {
            Ok(entries) => {
                Self { service, more: entries.len() >= MOST, entries: Some(entries), problem: None }
            }
            Err(problem) => Self { service, entries: None, problem: Some(problem.detail), more: false },
        }
    }
}

/// Show what waits to be published, and what the broker refused.
#[utoipa::path(get, path = "/api/admin/outbox", responses((status = 200, body = Vec<OutboxOf>)))]
async fn outbox(State(admin): State<Admin>) -> Result<Json<Vec<OutboxOf>>, Problem> {
    let entries = admin.app.store.outbox_items(MOST).await?;
    let mut all = vec![OutboxOf::new(crate::NAME, Ok(entries))];
    let asked = each(on_the_broker(), |service| admin.services.get_soon(service, "/internal/outbox"));
    all.extend(asked.await.into_iter().map(|(service, answer)| OutboxOf::new(service, answer)));
    Ok(Json(all))
}

/// Which entries to publish after all.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct RetryEntries {
    /// The one at this position; all that the broker refused without it, which needs a reason.
    #[garde(inner(range(min = 0)))]
    #[schema(minimum = 0)]
    seq: Option<i64>,
    /// Why, 1 to 500 characters; kept in the audit log.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// How many entries are tried again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct Retried {
    /// Entries that the relay takes up again.
    retried: u64,
}

/// Publish after all what the broker refused.
#[utoipa::path(post, path = "/api/admin/outbox/{service}/retry", params(("service" = String, Path), Operator),
    request_body(content = Option<RetryEntries>), responses(
    (status = 200, body = Retried), (status = 404),
))]
async fn retry(
    Change { admin, path: service, operator, body }: Change<String, RetryEntries>,
) -> Result<Json<Retried>, Problem> {
    let RetryEntries { seq, reason } = body;
    known_service(&service, &on_the_broker())?;
    let reason = if seq.is_none() { needed(reason, Because::ChangesMany)? } else { reason };
    let detail = seq.map(|seq| json!({ "seq": seq }));
    let retried =
        admin.logged(By { operator, reason }, Action::OutboxRetry, service.clone(), detail, async {
            let retried = if service == crate::NAME {
                let retried = admin.app.store.retry_failed_entries(seq).await?;
                admin.app.engine.relay_queue().request_scan();
                Retried { retried }
            } else {
                let query = seq.map(|seq| format!("?seq={seq}")).unwrap_or_default();
                let path = format!("/internal/outbox/retry{query}");
                admin.services.tell(Method::POST, &service, &path, None).await?
            };
            match (retried, seq) {
                (Retried { retried: 0 }, Some(seq)) => {
                    let what = format!("entry {seq} in the outbox of {service} that the broker refused");
                    Err(Problem::not_found(what))
                }
                (retried, _) => Ok(retried),
            }
        });
    retried.await.map(Json)
}

/// What to publish once more.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct RepublishEntries {
    /// Everything that was published since then, as far as it is kept.
    #[garde(skip)]
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Why, 1 to 500 characters; kept in the audit log. Required.
    #[garde(inner(length(chars, min = 1, max = 500), custom(one_line)))]
    #[schema(required = true, nullable = false, min_length = 1, max_length = 500, format = "trimmed-line")]
    #[serde(default, deserialize_with = "trimmed_if_any")]
    reason: Option<String>,
}

/// Publish once more what the broker has lost.
#[utoipa::path(post, path = "/api/admin/outbox/{service}/republish", params(("service" = String, Path), Operator),
    request_body(content = RepublishEntries), responses(
    (status = 200, body = Republished), (status = 404),
))]
async fn republish(
    Change { admin, path: service, operator, body }: Change<String, RepublishEntries>,
) -> Result<Json<Republished>, Problem> {
    let RepublishEntries { since, reason } = body;
    known_service(&service, &on_the_broker())?;
    let reason = needed(reason, Because::ChangesMany)?;
    let detail = Some(json!({ "since": since }));
    let republished =
        admin.logged(By { operator, reason }, Action::OutboxRepublish, service.clone(), detail, async {
            if service == crate::NAME {
                return Ok(admin.app.republish(since).await?);
            }
            let path = format!("/internal/outbox/republish?since={since}");
            admin.services.tell_at_length::<Republished>(&service, &path).await
        });
    republished.await.map(Json)
}
