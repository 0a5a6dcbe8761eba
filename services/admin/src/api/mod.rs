//! Shell: the routes of the admin service, and what they share: executing commands, and audit entries.

mod audit_log;
mod audit_search;
mod breakers;
mod bulk;
mod dead_letter_changes;
mod dead_letter_edits;
mod dead_letters;
mod extract;
mod faults;
mod live;
mod notifications;
mod outbox;
mod overview;
mod paging;
mod payments;
mod reconciliation;
mod records;
mod redrive_events;
mod redrives;
mod resolution;
mod sagas;
mod services;
mod session;

use std::sync::Arc;

use contract::manual_resolution::ResolutionRejection;
use futures::future::join_all;
use saga_core::input::Input;
use saga_core::service::steps_of;
use saga_engine::host::health_report::waiting_messages;
use saga_engine::host::http::{FieldError, Problem, command_reply};
use serde_json::Value;
use tokio::sync::Semaphore;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::app::AdminApp;
use admin_api::audit_log::Action;
use admin_api::dead_letters::DeadLetterItem;
use admin_api::live::LiveRates;

use crate::audit_log::DONE;
use crate::commands::{Command, CommandKind, Rejection, Reply};
use crate::dead_letters::events::DeadLetterRejection;
use crate::live::Live;
use crate::notifications::state::NotificationRejection;
use crate::redrive::events::RedriveRejection;
use crate::service::AdminService;
use crate::service_client::ServiceClient;
use crate::topology::NAME;
use admin_api::actor::Actor;

/// Maximum number of open event streams. The limit of requests does not apply to them, as it ends with the response head.
const MAX_STREAMS: usize = 64;

/// Maximum number of open pages, which share what is read for them.
const MAX_PAGES: usize = 1_000;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Admin service",
        description = "All sagas, dead letters, redrives, breakers, faults, the audit log, and the reconciliation."
    ),
    // The data of events of the live stream.
    components(schemas(LiveRates))
)]
struct Api;

/// State of the routes.
#[derive(Clone)]
struct Admin {
    app: AdminApp,
    services: ServiceClient,
    streams: Arc<Semaphore>,
    live: Live,
    pages: Arc<Semaphore>,
}

pub fn routes(app: AdminApp) -> OpenApiRouter {
    let services = ServiceClient::of(&app.settings.service, app.http_client.clone());
    let streams = Arc::new(Semaphore::new(MAX_STREAMS));
    let live = Live::new(app.clone(), services.clone());
    let pages = Arc::new(Semaphore::new(MAX_PAGES));
    OpenApiRouter::with_openapi(Api::openapi())
        .merge(sagas::routes())
        .merge(payments::routes())
        .merge(records::routes())
        .merge(dead_letters::routes())
        .merge(dead_letter_changes::routes())
        .merge(dead_letter_edits::routes())
        .merge(bulk::routes())
        .merge(resolution::routes())
        .merge(redrives::routes())
        .merge(redrive_events::routes())
        .merge(breakers::routes())
        .merge(faults::routes())
        .merge(outbox::routes())
        .merge(audit_log::routes())
        .merge(services::routes())
        .merge(reconciliation::routes())
        .merge(overview::routes())
        .merge(live::routes())
        .merge(session::routes())
        .merge(notifications::routes())
        .with_state(Admin { app, services, streams, live, pages })
}

impl Admin {
    async fn ask(&self, by: Actor, kind: CommandKind) -> Result<Reply, Problem> {
        self.ask_as(Uuid::now_v7(), by, kind).await
    }

    /// Executes a command with a given id.
    async fn ask_as(&self, id: Uuid, by: Actor, kind: CommandKind) -> Result<Reply, Problem> {
        let command = Command { id, by, kind };
        let input = Input::command(id, command.correlation_id(), command, None);
        let outcome = self.app.engine.process(input).await?.of_command();
        let outcome = outcome.ok_or_else(|| Problem::internal(&"a command that ended as something else"))?;
        command_reply(outcome, problem_of)
    }

    /// Changes one dead letter, and returns it.
    async fn change(&self, by: Actor, kind: CommandKind) -> Result<DeadLetterItem, Problem> {
        match self.ask(by, kind).await? {
            Reply::Changed(Some(dead_letter)) => Ok(*dead_letter),
            Reply::Changed(None) | Reply::Done | Reply::Many(_) | Reply::Notification(_) => {
                Err(Problem::internal(&"a changed dead letter that does not exist"))
            }
        }
    }

    /// Number of messages that admin has not consumed yet; `None` when the broker does not answer soon.
    async fn unconsumed(&self) -> Option<u64> {
        let steps = steps_of::<AdminService>().into_iter();
        join_all(steps.map(|step| waiting_messages(&self.app, step))).await.into_iter().sum()
    }

    /// Executes a change by another service. The audit entry is written before, its outcome after.
    async fn logged<T>(
        &self,
        by: Actor,
        action: Action,
        target: String,
        detail: Option<Value>,
        asked: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let entry = Uuid::now_v7();
        self.ask_as(entry, by.clone(), CommandKind::OpenEntry { action, target, detail }).await?;
        let answer = asked.await;
        let outcome = answer.as_ref().err().map_or_else(|| DONE.to_owned(), rejected);
        self.ask(by, CommandKind::CloseEntry(entry, outcome)).await?;
        answer
    }
}

/// Describes a rejection for the audit log, with the invalid fields.
fn rejected(problem: &Problem) -> String {
    let text = |FieldError { field, detail }: &FieldError| format!("{field}: {detail}");
    let fields: Vec<_> = problem.errors.iter().map(text).collect();
    if fields.is_empty() { problem.detail.clone() } else { format!("invalid: {}", fields.join("; ")) }
}

/// # Errors
/// Returns 404 for a service that is neither admin nor one of these.
fn known_service(service: &str, others: &[&str]) -> Result<(), Problem> {
    if service == NAME || others.contains(&service) {
        return Ok(());
    }
    Err(Problem::not_found(format_args!("service {service}")))
}

fn problem_of(rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::DeadLetter(DeadLetterRejection::Unknown) => Problem::not_found("such dead letter"),
        Rejection::Redrive(RedriveRejection::Unknown) => Problem::not_found("such redrive"),
        Rejection::Saga(ResolutionRejection::Unknown) => Problem::not_found("such saga"),
        Rejection::Notification(NotificationRejection::NotOpen) => {
            Problem::not_found("open finding of this key")
        }
        Rejection::DeadLetter(_)
        | Rejection::Redrive(_)
        | Rejection::ActiveRedrives(_)
        | Rejection::Saga(_)
        | Rejection::Notification(_) => Problem::conflict(rejection.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_text_names_invalid_fields() {
        let problem = Problem::field("step", "there is no step x");
        assert_eq!(rejected(&problem), "invalid: step: there is no step x");
        assert_eq!(rejected(&Problem::conflict("it ended")), "it ended");
    }
}
