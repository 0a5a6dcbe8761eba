//! Shell: the admin service's routes, and what they share: asking the engine, and writing down who asked a
//! service for what.

mod breakers;
mod change;
mod dlq;
mod edit;
mod extract;
mod faults;
mod log;
mod outbox;
mod redrive;
mod sagas;
mod services;

use std::sync::Arc;

use serde_json::Value;
use shared::engine::{Input, Outcome};
use shared::http::Problem;
use tokio::sync::Semaphore;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::AdminApp;
use crate::commands::{Command, Rejection, Reply, Wish};
use crate::letters::{By, LetterRejection};
use crate::operations::{Action, DONE};
use crate::policy::AdminService;
use crate::redrive::RedriveRejection;
use crate::services::Services;

/// Streams of events open at once. The bound on requests does not hold for them: it counts until the head of the
/// answer is out.
const MOST_STREAMS: usize = 64;

#[derive(OpenApi)]
#[openapi(info(
    title = "Admin service",
    description = "All sagas, dead letters, redrives, breakers, faults, and the audit of the books."
))]
struct Api;

/// What the routes stand on.
#[derive(Clone)]
struct Admin {
    app: AdminApp,
    services: Services,
    streams: Arc<Semaphore>,
}

/// All routes.
pub fn routes(app: AdminApp) -> OpenApiRouter {
    let services = Services::of(&app.settings.service);
    let streams = Arc::new(Semaphore::new(MOST_STREAMS));
    OpenApiRouter::with_openapi(Api::openapi())
        .merge(sagas::routes())
        .merge(dlq::routes())
        .merge(change::routes())
        .merge(edit::routes())
        .merge(redrive::routes())
        .merge(breakers::routes())
        .merge(faults::routes())
        .merge(outbox::routes())
        .merge(log::routes())
        .merge(services::routes())
        .with_state(Admin { app, services, streams })
}

impl Admin {
    /// Asks the engine. Facts that follow belong to `saga`, when there is one.
    async fn ask(&self, by: By, wish: Wish, saga: Option<Uuid>) -> Result<Reply, Problem> {
        self.ask_as(Uuid::now_v7(), by, wish, saga).await
    }

    /// The same, under an id that is already known.
    async fn ask_as(&self, id: Uuid, by: By, wish: Wish, saga: Option<Uuid>) -> Result<Reply, Problem> {
        let input = Input::command(id, saga.unwrap_or(id), Command { id, by, wish }, None);
        settled(self.app.engine.settle(input).await?)
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
        self.ask_as(entry, by.clone(), Wish::Log { action, target, detail }, None).await?;
        let answer = asked.await;
        let outcome = match &answer {
            Ok(_) => DONE.to_owned(),
            Err(problem) => problem.detail.clone(),
        };
        self.ask(by, Wish::EndLog { entry, outcome, detail: None }, None).await?;
        answer
    }

    /// # Errors
    /// 404 for a service that there is not, or that cannot be asked for this.
    fn known_service(&self, service: &str, without: &[&str]) -> Result<(), Problem> {
        let mut names = self.services.all().map(|(name, _)| name).into_iter().chain([crate::NAME]);
        if names.any(|name| name == service) && !without.contains(&service) {
            return Ok(());
        }
        Err(Problem::not_found(format_args!("service {service}")))
    }
}

fn settled(outcome: Outcome<AdminService>) -> Result<Reply, Problem> {
    match outcome {
        Outcome::Done(reply) | Outcome::Replayed(reply) => Ok(reply),
        Outcome::Rejected(rejection) => Err(problem_of(&rejection)),
        other @ (Outcome::Duplicate
        | Outcome::KeyReused
        | Outcome::Retried(_)
        | Outcome::Dead(_)
        | Outcome::Faulted(_)) => Err(Problem::internal(&format_args!("{other:?}"))),
    }
}

fn problem_of(rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::Letter(LetterRejection::Unknown) => Problem::not_found("such dead letter"),
        Rejection::Redrive(RedriveRejection::Unknown) => Problem::not_found("such redrive"),
        Rejection::Letter(_) | Rejection::Redrive(_) | Rejection::Roster(_) => {
            Problem::conflict(rejection.to_string())
        }
    }
}
