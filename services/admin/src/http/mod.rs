//! Shell: the admin service's routes, and what they share: asking the engine, and writing down who asked a
//! service for what.

mod audit_entries;
mod breakers;
mod dead_letter_changes;
mod dead_letter_edits;
mod dead_letters;
mod extract;
mod faults;
mod many;
mod outbox;
mod overview;
mod paging;
mod push;
mod redrive_watch;
mod redrives;
mod sagas;
mod services;
mod settling;

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

use crate::AdminApp;
use crate::audit_log::{Action, DONE};
use crate::commands::{Command, CommandKind, Rejection, Reply};
use crate::dead_letter::events::DeadLetterRejection;
use crate::dead_letter::item::DeadLetterItem;
use crate::other_services::OtherServices;
use crate::policy::AdminService;
use crate::redrive::events::RedriveRejection;
use crate::request::By;

/// Streams of events open at once. The bound on requests does not hold for them: it counts until the head of the
/// answer is out.
const MOST_STREAMS: usize = 64;

#[derive(OpenApi)]
#[openapi(info(
    title = "Admin service",
    description = "All sagas, dead letters, redrives, breakers, faults, the audit log, and the reconciliation."
))]
struct Api;

/// What the routes stand on.
#[derive(Clone)]
struct Admin {
    app: AdminApp,
    services: OtherServices,
    streams: Arc<Semaphore>,
}

/// What operators may ask, with its description.
pub fn routes(app: AdminApp) -> OpenApiRouter {
    let services = OtherServices::of(&app.settings.service, app.http_client.clone());
    let streams = Arc::new(Semaphore::new(MOST_STREAMS));
    OpenApiRouter::with_openapi(Api::openapi())
        .merge(sagas::routes())
        .merge(dead_letters::routes())
        .merge(dead_letter_changes::routes())
        .merge(dead_letter_edits::routes())
        .merge(many::routes())
        .merge(settling::routes())
        .merge(redrives::routes())
        .merge(redrive_watch::routes())
        .merge(breakers::routes())
        .merge(faults::routes())
        .merge(outbox::routes())
        .merge(audit_entries::routes())
        .merge(services::routes())
        .merge(overview::routes())
        .merge(push::routes())
        .with_state(Admin { app, services, streams })
}

impl Admin {
    /// Asks the engine.
    async fn ask(&self, by: By, kind: CommandKind) -> Result<Reply, Problem> {
        self.ask_as(Uuid::now_v7(), by, kind).await
    }

    /// The same, under an id that is already known.
    async fn ask_as(&self, id: Uuid, by: By, kind: CommandKind) -> Result<Reply, Problem> {
        let command = Command { id, by, kind };
        let input = Input::command(id, command.correlation_id(), command, None);
        let outcome = self.app.engine.process(input).await?.of_command();
        let outcome = outcome.ok_or_else(|| Problem::internal(&"a command that ended as something else"))?;
        command_reply(outcome, problem_of)
    }

    /// Changes one dead letter, and answers it as it is then.
    async fn change(&self, by: By, kind: CommandKind) -> Result<DeadLetterItem, Problem> {
        match self.ask(by, kind).await? {
            Reply::Changed(Some(dead_letter)) => Ok(*dead_letter),
            Reply::Changed(None) | Reply::Done | Reply::Many(_) | Reply::Notice(_) => {
                Err(Problem::internal(&"a changed dead letter that is none"))
            }
        }
    }

    /// Messages that admin's own steps have still to hear: so far its views are behind. `None` when the broker does not
    /// say soon.
    async fn behind(&self) -> Option<u64> {
        let steps = steps_of::<AdminService>().into_iter();
        join_all(steps.map(|step| waiting_messages(&self.app, step))).await.into_iter().sum()
    }

    /// Asks a service for something: it is written down before, with who wants it, and its outcome afterwards.
    async fn logged<T>(
        &self,
        by: By,
        action: Action,
        target: String,
        detail: Option<Value>,
        asked: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let entry = Uuid::now_v7();
        self.ask_as(entry, by.clone(), CommandKind::OpenEntry { action, target, detail }).await?;
        let answer = asked.await;
        let outcome = answer.as_ref().err().map_or_else(|| DONE.to_owned(), refused);
        self.ask(by, CommandKind::CloseEntry(entry, outcome)).await?;
        answer
    }
}

/// What the log says of what was refused: what is wrong with which field, where that is said.
fn refused(problem: &Problem) -> String {
    let told = |FieldError { field, detail }: &FieldError| format!("{field}: {detail}");
    let fields: Vec<_> = problem.errors.iter().map(told).collect();
    if fields.is_empty() { problem.detail.clone() } else { format!("invalid: {}", fields.join("; ")) }
}

/// # Errors
/// 404 for a service that is neither admin nor one of these.
fn known_service(service: &str, others: &[&str]) -> Result<(), Problem> {
    if service == crate::NAME || others.contains(&service) {
        return Ok(());
    }
    Err(Problem::not_found(format_args!("service {service}")))
}

fn problem_of(rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::DeadLetter(DeadLetterRejection::Unknown) => Problem::not_found("such dead letter"),
        Rejection::Redrive(RedriveRejection::Unknown) => Problem::not_found("such redrive"),
        Rejection::Saga(ResolutionRejection::Unknown) => Problem::not_found("such saga"),
        Rejection::DeadLetter(_)
        | Rejection::Redrive(_)
        | Rejection::Roster(_)
        | Rejection::Saga(_)
        | Rejection::Push(_) => Problem::conflict(rejection.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_what_was_wrong_with_which_field() {
        let problem = Problem::field("step", "there is no step x");
        assert_eq!(refused(&problem), "invalid: step: there is no step x");
        assert_eq!(refused(&Problem::conflict("it ended")), "it ended");
    }
}
