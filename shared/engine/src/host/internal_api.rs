//! Shell: internal API of every service for operators' programs, below `/internal/`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures::future::{join, join_all};
use garde::Validate;
use jiff::Timestamp;
use saga_core::dead_letter::{DeadLettered, StoredDeadLetter};
use saga_core::service::{Service, steps_of, stream_of};
use saga_core::service_stats::{HistoryPosition, ServiceStats, StepStats};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::app::{App, Republished};
use super::health_report::HealthReport;
use super::http::{Body, Params, Problem, Segment};
use super::queries::{ChangedIds, changed_ids, position};
use crate::runtime::admission::{BreakerAction, BreakerView};
use crate::runtime::bus::Durable;
use crate::runtime::bus::{Bus as _, ConsumerProgress};
use crate::runtime::clock::Clock as _;
use crate::runtime::injected_faults::{ActiveFault, FaultRejection, FaultsView, NewFault};
use crate::runtime::overrides::Overrides;
use crate::store::{OutboxItem, StoredDeadLetters, VerificationPart, VerificationReport};

/// Maximum number of entries in one answer.
const LIMIT: usize = 1000;

/// Routes of the internal API that every service has.
pub fn routes<S: Service, X: Send + Sync + 'static>(app: App<S, X>) -> Router {
    Router::new()
        .route("/internal/stats", get(stats::<S, X>))
        .route("/internal/health", get(health::<S, X>))
        .route("/internal/verify", get(verify::<S, X>))
        .route("/internal/position", get(history_position::<S, X>))
        .route("/internal/changes", get(changes::<S, X>))
        .route("/internal/outbox", get(outbox::<S, X>))
        .route("/internal/outbox/retry", post(retry_failed::<S, X>))
        .route("/internal/outbox/republish", post(republish::<S, X>))
        .route("/internal/dead-letters", get(dead_letters::<S, X>))
        .route("/internal/breakers", get(breakers::<S, X>))
        .route("/internal/breakers/{name}", post(set_breaker::<S, X>))
        .route(
            "/internal/faults",
            get(faults::<S, X>).post(inject_fault::<S, X>).delete(clear_faults::<S, X>),
        )
        .route("/internal/faults/{id}", delete(clear_fault::<S, X>))
        .route("/internal/traces", post(keep_traces::<S, X>))
        .with_state(app)
}

async fn health<S: Service, X: Send + Sync + 'static>(State(app): State<App<S, X>>) -> Json<HealthReport> {
    Json(HealthReport::of(&app).await)
}

async fn stats<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<ServiceStats>, Problem> {
    service_stats_of(&app).await.map(Json)
}

/// Collects message counts, queue lengths and store statistics of this service.
///
/// # Errors
/// When the store fails.
pub async fn service_stats_of<S: Service, X: Send + Sync>(app: &App<S, X>) -> Result<ServiceStats, Problem> {
    // The broker first: an acknowledged message is committed, so the counts that are read later include it.
    let progress = join_all(steps_of::<S>().into_iter().map(async |step| {
        let durables = Durable::all(S::NAME, &[step]);
        let subjects = durables.iter().flat_map(|durable| durable.subscription.subjects(S::NAME)).collect();
        let producers = durables.iter().map(|durable| durable.subscription.producer.to_owned());
        let producers: Vec<String> = producers.collect();
        let progress_of_durables = join_all(durables.into_iter().map(|durable| reach(app, durable))).await;
        let acknowledged = producers.into_iter().zip(&progress_of_durables);
        let acknowledged =
            acknowledged.filter_map(|(producer, reach)| Some((producer, (*reach)?.acknowledged)));
        let waiting =
            progress_of_durables.iter().map(|progress| progress.map(|progress| progress.backlog.all())).sum();
        (step.name, subjects, waiting, acknowledged.collect())
    }));
    let (progress, newest): (Vec<_>, _) = join(progress, newest(app)).await;
    let counts = app.store.message_counts().await?;
    let stats = app.store.stats().await?;
    let lost_before = app.store.lost_before().await?;
    let of = |counts: &BTreeMap<String, u64>, step: &str| counts.get(step).copied().unwrap_or(0);
    let state = |(step, subjects, waiting, acknowledged): (&str, Vec<String>, Option<u64>, _)| StepStats {
        step: step.to_owned(),
        subjects,
        handled: of(&counts.handled, step),
        retrying: of(&counts.retrying, step),
        dead: of(&counts.dead, step),
        waiting,
        acknowledged,
    };
    let steps = progress.into_iter().map(state).collect();
    Ok(ServiceStats {
        service: S::NAME.to_owned(),
        instance: app.settings.instance.clone(),
        at: app.clock.now(),
        stats,
        calls_open: app.controls.admission.open_tasks(),
        published: counts.published,
        newest,
        lost_before,
        steps,
    })
}

/// Limit on the broker's answer. A connected broker answers at once.
const BROKER_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Reads the progress of a step at the broker; `None` when the broker does not answer.
async fn reach<S: Service, X: Send + Sync>(app: &App<S, X>, durable: Durable) -> Option<ConsumerProgress> {
    let Some(bus) = &app.messaging.bus else { return Some(ConsumerProgress::default()) };
    if !bus.is_connected() {
        return None;
    }
    timeout(BROKER_ANSWERS_WITHIN, bus.progress(durable)).await.ok()?.ok()
}

/// Reads the sequence number of the newest message in the service's stream; `None` when the broker does not answer.
async fn newest<S: Service, X: Send + Sync>(app: &App<S, X>) -> Option<u64> {
    let bus = app.messaging.bus.as_ref().filter(|bus| bus.is_connected())?;
    timeout(BROKER_ANSWERS_WITHIN, bus.last_sequence(&stream_of(S::NAME))).await.ok()?.ok()
}

/// Query parameters of a verification: of everything, of a part with so many events, or of rows changed since a position.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifyQuery {
    after: Option<String>,
    events: Option<u64>,
    /// Kinds of rows to leave out of a partial verification, separated by commas.
    exclude: Option<String>,
    /// Position after which changed rows are verified.
    since: Option<i64>,
}

async fn verify<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Params(VerifyQuery { after, events, exclude, since }): Params<VerifyQuery>,
) -> Result<Json<VerificationReport>, Problem> {
    Ok(Json(match (since, events) {
        (Some(since), events) => app.store.verify_changed(since, events.unwrap_or(u64::MAX)).await?,
        (None, Some(events)) => {
            let excluded_kinds =
                exclude.iter().flat_map(|kinds| kinds.split(',')).map(str::to_owned).collect();
            app.store.verify_part(VerificationPart { after, events, excluded_kinds }).await?
        }
        (None, None) => app.store.verify().await?,
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    at: Option<i64>,
}

async fn history_position<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Params(At { at }): Params<At>,
) -> Result<Json<HistoryPosition>, Problem> {
    position(app.store.as_ref(), at).await.map(Json)
}

/// Query parameters of changed rows: their kind, the position after which they changed, and an optional field in place
/// of the id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangesQuery {
    kind: String,
    after: i64,
    by: Option<String>,
}

async fn changes<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Params(ChangesQuery { kind, after, by }): Params<ChangesQuery>,
) -> Result<Json<ChangedIds>, Problem> {
    let kind = S::rows().into_iter().find(|known| known.name == kind);
    let kind = kind.ok_or_else(|| Problem::field("kind", "there is no such kind of rows"))?;
    let by = by.map(|by| {
        let field = kind.fields.iter().find(|field| **field == by).copied();
        field.ok_or_else(|| Problem::field("by", "there is no such field"))
    });
    changed_ids(app.store.as_ref(), kind.name, after, by.transpose()?).await.map(Json)
}

async fn outbox<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<Vec<OutboxItem>>, Problem> {
    Ok(Json(app.store.outbox_items(LIMIT).await?))
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
    let count = app.store.retry_failed_entries(seq).await?;
    app.engine.relay_queue().request_scan();
    Ok(Json(BTreeMap::from([("retried", count)])))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Republish {
    since: Timestamp,
}

async fn republish<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Params(Republish { since }): Params<Republish>,
) -> Result<Json<Republished>, Problem> {
    Ok(Json(app.republish(since).await?))
}

/// Newest dead letters, without secrets.
#[derive(Debug, Serialize)]
struct NewestDeadLetters {
    entries: Vec<DeadLettered>,
    /// Damaged dead letters, as `kind/id`.
    unreadable: Vec<String>,
    /// True if there are older dead letters, which admin lists.
    more: bool,
}

async fn dead_letters<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<NewestDeadLetters>, Problem> {
    let StoredDeadLetters { readable, unreadable } = app.store.dead_letters(LIMIT + 1).await?;
    let more = readable.len() + unreadable.len() > LIMIT;
    let shown = |stored: StoredDeadLetter| stored.dead_letter.redacted(S::SECRETS);
    let entries = readable.into_iter().take(LIMIT).map(shown).collect();
    let unreadable = unreadable.iter().map(|id| format!("dead_letter/{id}")).collect();
    Ok(Json(NewestDeadLetters { entries, unreadable, more }))
}

async fn breakers<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Json<Vec<BreakerView>> {
    Json(app.controls.admission.breakers())
}

#[derive(Debug, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct BreakerChange {
    #[garde(skip)]
    action: BreakerAction,
}

async fn set_breaker<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Segment(name): Segment<String>,
    Body(BreakerChange { action }, _): Body<BreakerChange>,
) -> Result<Json<BreakerView>, Problem> {
    change_breaker(&app.controls.overrides, &name, action).await.map(Json)
}

/// Applies an operator's action to a breaker.
///
/// # Errors
/// 404 for an unknown breaker, 503 when the store fails.
pub async fn change_breaker(
    overrides: &Overrides,
    name: &str,
    action: BreakerAction,
) -> Result<BreakerView, Problem> {
    let changed = overrides.set_breaker(name, action).await?;
    changed.ok_or_else(|| Problem::not_found(format_args!("breaker {name}")))
}

async fn faults<S: Service, X: Send + Sync + 'static>(State(app): State<App<S, X>>) -> Json<FaultsView> {
    Json(app.controls.faults.view())
}

#[derive(Debug, Deserialize, Validate)]
#[serde(transparent)]
struct Injected(#[garde(skip)] NewFault);

/// Traces to record, as hexadecimal ids.
#[derive(Debug, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
struct KeptTraces {
    #[garde(length(max = 1000))]
    traces: Vec<String>,
}

/// Records traces that other processes keep because of a failure. For programs without the broker.
async fn keep_traces<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Body(KeptTraces { traces }, _): Body<KeptTraces>,
) -> Json<BTreeMap<&'static str, usize>> {
    let traces: Vec<_> = traces.iter().filter_map(|id| u128::from_str_radix(id, 16).ok()).collect();
    traces.iter().for_each(|trace_id| app.engine.tracer().keep_announced(*trace_id));
    Json(BTreeMap::from([("kept", traces.len())]))
}

async fn inject_fault<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Body(Injected(new), _): Body<Injected>,
) -> Result<(StatusCode, Json<ActiveFault>), Problem> {
    inject(&app.controls.overrides, new).await.map(|fault| (StatusCode::CREATED, Json(fault)))
}

/// Injects a fault into every replica.
///
/// # Errors
/// 403 while faults are disabled, 422 that names the bad member, 503 when the store fails.
pub async fn inject(overrides: &Overrides, new: NewFault) -> Result<ActiveFault, Problem> {
    overrides.inject(new).await?.map_err(|rejection| match rejection {
        FaultRejection::Disabled => {
            Problem::new(StatusCode::FORBIDDEN, "faults.enabled is false here: no fault can be injected")
        }
        FaultRejection::Invalid(member, why) => Problem::field(member, why),
    })
}

async fn clear_faults<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
) -> Result<Json<BTreeMap<&'static str, usize>>, Problem> {
    Ok(Json(BTreeMap::from([("cleared", app.controls.overrides.clear().await?)])))
}

async fn clear_fault<S: Service, X: Send + Sync + 'static>(
    State(app): State<App<S, X>>,
    Segment(id): Segment<u64>,
) -> Result<StatusCode, Problem> {
    remove(&app.controls.overrides, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes an injected fault.
///
/// # Errors
/// 404 for an unknown fault, 503 when the store fails.
pub async fn remove(overrides: &Overrides, id: u64) -> Result<(), Problem> {
    match overrides.remove(id).await? {
        true => Ok(()),
        false => Err(Problem::not_found(format_args!("fault {id}"))),
    }
}
