//! Shell: the routes of the outboxes.

use admin_api::audit_log::Action;
use admin_api::outbox::{RepublishEntries, RetriedEntries, RetryEntries, ServiceOutbox};
use axum::Json;
use axum::extract::State;
use axum::http::Method;
use saga_core::outbox::{OutboxItem, Republished};
use saga_engine::host::http::Problem;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Change, Operator, ReasonRule, required_reason};
use super::{Admin, known_service};
use crate::service_client::{each, on_the_broker};
use crate::topology::NAME;
use admin_api::actor::Actor;

pub(super) fn routes() -> OpenApiRouter<Admin> {
    OpenApiRouter::new().routes(routes!(outbox)).routes(routes!(retry)).routes(routes!(republish))
}

/// Maximum number of entries of one service in a response.
const MAX_ENTRIES: usize = 1000;

fn outbox_of(service: &str, answer: Result<Vec<OutboxItem>, Problem>) -> ServiceOutbox {
    let service = service.to_owned();
    match answer {
        Ok(entries) => {
            let more = entries.len() >= MAX_ENTRIES;
            ServiceOutbox { service, more, entries: Some(entries), problem: None }
        }
        Err(problem) => ServiceOutbox { service, entries: None, problem: Some(problem.detail), more: false },
    }
}

/// List unpublished entries, and entries that the broker rejected.
#[utoipa::path(get, path = "/api/admin/outbox", responses((status = 200, body = Vec<ServiceOutbox>)))]
async fn outbox(State(admin): State<Admin>) -> Result<Json<Vec<ServiceOutbox>>, Problem> {
    let entries = admin.app.store.outbox_items(MAX_ENTRIES).await?;
    let mut all = vec![outbox_of(NAME, Ok(entries))];
    let asked = each(on_the_broker(), |service| admin.services.get_soon(service, "/internal/outbox"));
    all.extend(asked.await.into_iter().map(|(service, answer)| outbox_of(service, answer)));
    Ok(Json(all))
}

/// Publish entries that the broker rejected.
#[utoipa::path(post, path = "/api/admin/outbox/{service}/retry", params(("service" = String, Path), Operator),
    request_body(content = Option<RetryEntries>), responses(
    (status = 200, body = RetriedEntries), (status = 404),
))]
async fn retry(
    Change { admin, path: service, operator, body }: Change<String, RetryEntries>,
) -> Result<Json<RetriedEntries>, Problem> {
    let RetryEntries { seq, reason } = body;
    known_service(&service, &on_the_broker())?;
    let reason = if seq.is_none() { required_reason(reason, ReasonRule::ChangesMany)? } else { reason };
    let detail = seq.map(|seq| json!({ "seq": seq }));
    let retried =
        admin.logged(Actor { operator, reason }, Action::OutboxRetry, service.clone(), detail, async {
            let retried = if service == NAME {
                let retried = admin.app.store.retry_failed_entries(seq).await?;
                admin.app.engine.relay_queue().request_scan();
                RetriedEntries { retried }
            } else {
                let query = seq.map(|seq| format!("?seq={seq}")).unwrap_or_default();
                let path = format!("/internal/outbox/retry{query}");
                admin.services.command(Method::POST, &service, &path, None).await?
            };
            match (retried, seq) {
                (RetriedEntries { retried: 0 }, Some(seq)) => {
                    let what = format!("entry {seq} in the outbox of {service} that the broker rejected");
                    Err(Problem::not_found(what))
                }
                (retried, _) => Ok(retried),
            }
        });
    retried.await.map(Json)
}

/// Publish again what the broker has lost.
#[utoipa::path(post, path = "/api/admin/outbox/{service}/republish", params(("service" = String, Path), Operator),
    request_body(content = RepublishEntries), responses(
    (status = 200, body = Republished), (status = 404),
))]
async fn republish(
    Change { admin, path: service, operator, body }: Change<String, RepublishEntries>,
) -> Result<Json<Republished>, Problem> {
    let RepublishEntries { since, reason } = body;
    known_service(&service, &on_the_broker())?;
    let reason = required_reason(reason, ReasonRule::ChangesMany)?;
    let detail = Some(json!({ "since": since }));
    let republished =
        admin.logged(Actor { operator, reason }, Action::OutboxRepublish, service.clone(), detail, async {
            if service == NAME {
                return Ok(admin.app.republish(since).await?);
            }
            let path = format!("/internal/outbox/republish?since={since}");
            admin.services.command_long::<Republished>(&service, &path).await
        });
    republished.await.map(Json)
}
