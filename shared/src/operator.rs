//! Shell: what every service answers to admin, beside its own books: `/internal/…`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use garde::Validate;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::app::App;
use crate::books::Page;
use crate::bus::consumer;
use crate::contract::DeadLettered;
use crate::faults::{ActiveFault, FaultRefusal, Faults, FaultsView, NewFault};
use crate::gate::Breakers;
use crate::http::{Body, Params, Problem, Segment};
use crate::resilience::{Guard, GuardView};
use crate::row::{RowKey, StoredEvent};
use crate::service::Service;
use crate::store::{FoldReport, FoundRow, OutboxItem, Query, Stats, Store};

/// Most entries that one answer holds.
const LIMIT: usize = 1000;

/// The machinery of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machinery {
    /// Service.
    pub service: String,
    /// Which of its instances answers.
    pub instance: String,
    /// When it was asked.
    pub at: Timestamp,
    /// What its store says.
    pub stats: Stats,
    /// Calls waiting and in flight in this process.
    pub calls_open: usize,
    /// Distinct facts it has published, by subject.
    pub published: BTreeMap<String, u64>,
    /// Its steps.
    pub steps: Vec<StepState>,
}

/// One step of one service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepState {
    /// Step.
    pub step: String,
    /// Subjects it hears.
    pub subjects: Vec<String>,
    /// Messages it has handled.
    pub handled: u64,
    /// Messages that wait for another try.
    pub retrying: u64,
    /// Messages that are parked.
    pub dead: u64,
    /// Messages that the broker still has for it, or waits to hear of; `None` when the broker does not answer.
    pub waiting: Option<u64>,
}

impl Machinery {
    /// Whether nothing is under way in this service.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let stats = &self.stats;
        let is_idle = stats.outbox_pending == 0 && stats.retries == 0 && stats.tasks == 0;
        is_idle && self.steps.iter().all(|step| step.waiting == Some(0))
    }

    /// What is not quiet, for people.
    #[must_use]
    pub fn what_is_under_way(&self) -> String {
        let (service, stats) = (&self.service, &self.stats);
        let heard = |step: &StepState| match step.waiting {
            Some(0) => None,
            Some(count) => Some(format!(", {count} for {}", step.step)),
            None => Some(format!(", {} does not reach the broker", step.step)),
        };
        let steps: String = self.steps.iter().filter_map(heard).collect();
        let (outbox, retries, tasks) = (stats.outbox_pending, stats.retries, stats.tasks);
        format!("{service}: {outbox} to publish, {retries} to try again, {tasks} calls open{steps}")
    }
}

/// The routes.
pub fn routes<S: Service, X: Send + Sync + 'static>(app: App<S, X>) -> Router {
    Router::new()
        .route("/internal/machinery", get(machinery::<S, X>))
        .route("/internal/verify", get(verify::<S, X>))
        .route("/internal/outbox", get(outbox::<S, X>))
        .route("/internal/outbox/retry", post(retry_failed::<S, X>))
        .route("/internal/dead-letters", get(dead_letters::<S, X>))
        .route("/internal/breakers", get(breakers::<S, X>))
        .route("/internal/breakers/{name}", post(turn_breaker::<S, X>))
        .route(
            "/internal/faults",
            get(faults::<S, X>).post(inject_fault::<S, X>).delete(clear_faults::<S, X>),
        )
        .route("/internal/faults/{id}", delete(clear_fault::<S, X>))
        .with_state(app)
}

async fn machinery<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<Machinery>, Problem> {
    machinery_of(&app).await.map(Json)
}

/// The machinery of this service.
///
/// # Errors
/// When the store fails.
pub async fn machinery_of<S: Service, X: Send + Sync>(app: &App<S, X>) -> Result<Machinery, Problem> {
    // The broker first: what it no longer waits for is committed, so the tallies, read later, have it.
    let mut heard = Vec::new();
    for step in S::steps() {
        let mut waiting = Some(0);
        let mut subjects = Vec::new();
        for subscription in step.hears {
            subjects.extend(subscription.subjects(S::NAME));
            let more = match &app.bus {
                Some(bus) => consumer::waiting(bus, step, subscription).await.ok(),
                None => Some(0),
            };
            waiting = waiting.zip(more).map(|(all, more)| all + more);
        }
        heard.push((step.name, subjects, waiting));
    }
    let tallies = app.store.tallies().await?;
    let stats = app.store.stats().await?;
    let of = |counts: &BTreeMap<String, u64>, step: &str| counts.get(step).copied().unwrap_or(0);
    let state = |(step, subjects, waiting): (&str, Vec<String>, Option<u64>)| StepState {
        step: step.to_owned(),
        subjects,
        handled: of(&tallies.handled, step),
        retrying: of(&tallies.retrying, step),
        dead: of(&tallies.dead, step),
        waiting,
    };
    let steps = heard.into_iter().map(state).collect();
    Ok(Machinery {
        service: S::NAME.to_owned(),
        instance: app.settings.instance.clone(),
        at: Timestamp::now(),
        stats,
        calls_open: app.engine.calls().open(),
        published: tallies.published,
        steps,
    })
}

async fn verify<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<FoldReport>, Problem> {
    Ok(Json(app.store.verify().await?))
}

async fn outbox<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<Vec<OutboxItem>>, Problem> {
    Ok(Json(app.store.outbox(LIMIT).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryFailed {
    seq: Option<i64>,
}

async fn retry_failed<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Params(RetryFailed { seq }): Params<RetryFailed>,
) -> Result<Json<BTreeMap<&'static str, u64>>, Problem> {
    let count = app.store.retry_failed(seq).await?;
    app.engine.relay_wake().notify_one();
    Ok(Json(BTreeMap::from([("retried", count)])))
}

async fn dead_letters<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<Vec<DeadLettered>>, Problem> {
    let stored = app.store.dead_letters(LIMIT).await?;
    Ok(Json(stored.into_iter().map(|stored| stored.letter).collect()))
}

async fn breakers<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Json<Vec<GuardView>> {
    Json(app.breakers.all().map(Guard::view).collect())
}

/// What an operator does with a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BreakerAction {
    /// Opens it, until another action.
    Open,
    /// Closes it, until another action.
    Closed,
    /// Lets it work by itself, from an empty window on.
    Reset,
}

#[derive(Debug, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct Turn {
    #[garde(skip)]
    action: BreakerAction,
}

async fn turn_breaker<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Segment(name): Segment<String>,
    Body(Turn { action }, _): Body<Turn>,
) -> Result<Json<GuardView>, Problem> {
    turn(&app.breakers, &name, action).map(Json)
}

/// Does with a breaker what an operator wants.
///
/// # Errors
/// 404 when there is no such breaker.
pub fn turn(breakers: &Breakers, name: &str, action: BreakerAction) -> Result<GuardView, Problem> {
    let guard = breakers.get(name).ok_or_else(|| Problem::not_found(format_args!("breaker {name}")))?;
    match action {
        BreakerAction::Open => guard.force_open(),
        BreakerAction::Closed => guard.force_closed(),
        BreakerAction::Reset => guard.reset(),
    }
    Ok(guard.view())
}

async fn faults<S: Service, X: Send + Sync + 'static>(State(app): State<App<S, X>>) -> Json<FaultsView> {
    Json(app.faults.view())
}

#[derive(Debug, Deserialize, Validate)]
#[serde(transparent)]
struct Injected(#[garde(skip)] NewFault);

async fn inject_fault<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Body(Injected(new), _): Body<Injected>,
) -> Result<(StatusCode, Json<ActiveFault>), Problem> {
    inject(&app.faults, new).map(|fault| (StatusCode::CREATED, Json(fault)))
}

/// Injects a fault.
///
/// # Errors
/// 403 when faults are off here, 422 that names the member at fault.
pub fn inject(faults: &Faults, new: NewFault) -> Result<ActiveFault, Problem> {
    faults.inject(new).map_err(|refusal| match refusal {
        FaultRefusal::Disabled => {
            Problem::new(StatusCode::FORBIDDEN, "faults.enabled is false here: no fault can be injected")
        }
        FaultRefusal::Impossible(member, why) => Problem::field(member, why),
    })
}

async fn clear_faults<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Json<BTreeMap<&'static str, usize>> {
    Json(BTreeMap::from([("cleared", app.faults.clear())]))
}

async fn clear_fault<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Segment(id): Segment<u64>,
) -> Result<StatusCode, Problem> {
    if app.faults.remove(id) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found(format_args!("fault {id}")))
    }
}

/// An event of a row's history, as people see it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// The row's version after it, from 1.
    pub version: i64,
    /// What happened.
    pub event: String,
    /// The details.
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
    /// Id of the input that caused it.
    pub causation_id: Uuid,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    pub recorded_at: Timestamp,
    /// When its fact reached the broker.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub published_at: Option<Timestamp>,
}

/// Names of members that are never shown: a card's token is the customer's secret.
const HIDDEN: &str = "token";

/// A row's history, oldest first; card tokens are blanked out.
///
/// # Errors
/// 404 when there is none.
pub async fn history(store: &dyn Store, key: RowKey) -> Result<Vec<EventView>, Problem> {
    let what = format!("{} {}", key.kind, key.id);
    let events = store.events(key).await?;
    if events.is_empty() {
        return Err(Problem::not_found(what));
    }
    let view = |event: StoredEvent| {
        let mut data = serde_json::from_str(&event.data).unwrap_or_default();
        blank_secrets(&mut data);
        EventView {
            version: event.version,
            event: event.name,
            data,
            causation_id: event.causation_id,
            recorded_at: event.recorded_at,
            published_at: event.published_at,
        }
    };
    Ok(events.into_iter().map(view).collect())
}

fn blank_secrets(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                if name == HIDDEN {
                    *member = serde_json::Value::from("***");
                } else {
                    blank_secrets(member);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(blank_secrets),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

/// A stretch of a service's books.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Start behind this key.
    pub after: Option<String>,
}

/// Entries of the books in one page: enough to make a page worth its round trip, few enough to stay small.
const BOOK_PAGE: usize = 2_000;

/// One page of a service's books.
///
/// # Errors
/// When the store fails or a row cannot be read.
pub async fn page<T>(
    store: &dyn Store,
    kind: &'static str,
    range: Range,
    entry: impl Fn(&FoundRow) -> Result<T, Problem>,
) -> Result<Page<T>, Problem> {
    let query = Query { after: range.after, limit: BOOK_PAGE, ..Query::default() };
    let rows = store.find(kind, query).await?;
    let next = rows.last().filter(|_| rows.len() == BOOK_PAGE).map(|row| row.id.clone());
    Ok(Page { entries: rows.iter().map(entry).collect::<Result<_, _>>()?, next })
}
