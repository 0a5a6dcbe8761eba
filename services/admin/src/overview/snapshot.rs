//! Shell: reads the state of everything. It answers within its time limit whatever is down, and names what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use admin_api::dead_letters::Filter;
use admin_api::overview::{
    DeadLetterSummary, FailingCheck, FaultSummary, OpenBreaker, OutboxSummary, Overview, SagaSummary,
    ServiceStatus, StepStatus, TaskSummary, Unavailable,
};
use contract::money::Money;
use contract::saga::SagaStatus;
use futures::future::join_all;
use saga_core::breaker::{self, BreakerView};
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::health::{Check, CheckState};
use saga_core::query::Query;
use saga_engine::host::health_report::HealthReport;
use saga_engine::host::http::Problem;
use saga_engine::runtime::clock::Clock as _;
use saga_engine::store::StoreFault;
use tokio::time::timeout;

use super::affected::Affected;
use super::findings::{HALF_OPEN, with_findings};
use super::waiting_orders::{delayed_steps, with_waiting_orders};
use crate::app::AdminApp;
use crate::dead_letters::filter::Selection;
use crate::dead_letters::reading;
use crate::ledgers::state::{RECONCILIATION_STATE, ReconciliationState};
use crate::notifications::state::{NOTIFICATION_STATE, NotificationState};
use crate::sagas::summary::{self, in_status, overdue, sums, unfinished, waiting_for_dead_letter};
use crate::sagas::sums::SagaSums;
use crate::service_client::{ServiceClient, all, each};
use crate::topology::NAME;
use crate::{dead_letters, rows};

/// Time limit of each question. All are asked at once: `sagactl status` answers within two seconds.
const TIMEOUT: Duration = Duration::from_millis(1_500);

/// Time limit of the money in affected sagas, which the overview can do without.
const AMOUNTS_TIMEOUT: Duration = Duration::from_millis(250);

/// Service that calls the bank.
const PAYMENT: &str = "payment";

/// Groups of dead letters in a response of the API, the largest.
pub(crate) const MAX_GROUPS_SHOWN: usize = 20;

/// Limits on what is read. Nobody sees the last two in notifications.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of groups of dead letters.
    pub(crate) groups: usize,
    /// Maximum number of groups whose cancelled orders are summed.
    pub(crate) cancelled: usize,
    /// Number of the newest sagas whose steps are measured.
    pub(crate) sagas: usize,
}

/// Limits of an overview that people look at.
pub(crate) const SHOWN: Limits = Limits { groups: MAX_GROUPS_SHOWN, cancelled: 5, sagas: 200 };

pub(crate) async fn read(app: &AdminApp, services: &ServiceClient, limits: Limits) -> Overview {
    let (store, now) = (app.store.as_ref(), app.clock.now());
    let own = timeout(TIMEOUT, HealthReport::of(app));
    let others = each(all(), |service| timeout(TIMEOUT, services.health_report(service)));
    let sagas = timeout(TIMEOUT, summary::summary(store, limits.sagas, now));
    let dead_letters = timeout(TIMEOUT, dead_letters::summary::summary(store, limits.groups, now));
    let reconciliation = timeout(TIMEOUT, rows::row::<ReconciliationState>(store, RECONCILIATION_STATE));
    let bank_ledger = timeout(TIMEOUT, services.get_soon(PAYMENT, "/internal/bank-ledger"));
    let notified = timeout(TIMEOUT, rows::row::<NotificationState>(store, NOTIFICATION_STATE));
    let (own, others, sagas, dead_letters, reconciliation, bank_ledger, notified) =
        tokio::join!(own, others, sagas, dead_letters, reconciliation, bank_ledger, notified);
    let own = own.map_err(|_| too_slow(NAME));
    let unconsumed = own.as_ref().ok().and_then(|own| own.steps.iter().map(|step| step.waiting).sum());
    let mut services = vec![status_of(NAME, own)];
    services.extend(others.into_iter().map(|(service, answer)| {
        let answer = answer.unwrap_or_else(|_| Err(Problem::unavailable(too_slow(service), 1)));
        status_of(service, answer.map_err(|problem| problem.detail))
    }));
    if let Some(payment) = services.iter_mut().find(|status| status.service == PAYMENT) {
        payment.bank_ledger = bank_ledger.ok().and_then(Result::ok);
    }
    let mut unavailable = Vec::new();
    let sagas = available("sagas", sagas, &mut unavailable);
    let dead_letters = available("dead letters", dead_letters, &mut unavailable);
    let reconciliation = available("reconciliation", reconciliation, &mut unavailable);
    let reconciliation = reconciliation.flatten().unwrap_or_default();
    let unanswered = reconciliation.unanswered().to_vec();
    let reconciliation = reconciliation.last;
    let affected = tokio::join!(
        affected(app, sagas.as_ref(), dead_letters.as_ref()),
        cancelled_amounts(app, dead_letters.as_ref(), limits.cancelled),
    );
    let affected = Affected { unanswered, cancelled: affected.1, ..affected.0 };
    let (needs_human, findings) = (false, Vec::new());
    let overview = Overview {
        at: now,
        needs_human,
        findings,
        services,
        sagas,
        dead_letters,
        reconciliation,
        unconsumed,
        unavailable,
    };
    let mut overview = with_findings(overview, &affected);
    if let Ok(Ok(Some(notified))) = notified {
        for finding in &mut overview.findings {
            finding.acknowledged = notified.acknowledged(&finding.key, now).cloned();
        }
    }
    let delayed = delayed_steps(&overview.findings);
    if delayed.is_empty() {
        return overview;
    }
    let waiting = summary::waiting_orders(app.store.as_ref(), &delayed, app.clock.now());
    match timeout(AMOUNTS_TIMEOUT, waiting).await {
        Ok(Ok(waiting)) => with_waiting_orders(overview, &waiting),
        Ok(Err(_)) | Err(_) => overview,
    }
}

/// Reads the money in sagas that findings are about.
async fn affected(
    app: &AdminApp,
    sagas: Option<&SagaSummary>,
    dead_letters: Option<&DeadLetterSummary>,
) -> Affected {
    let groups = dead_letters.iter().flat_map(|dead_letters| &dead_letters.groups);
    let steps: BTreeSet<&String> =
        groups.filter(|group| group.awaited > 0).map(|group| &group.step).take(MAX_GROUPS_SHOWN).collect();
    let awaited = steps
        .into_iter()
        .map(async |step| (step.clone(), sums_soon(app, Some(waiting_for_dead_letter(step))).await));
    let stuck = sagas.and_then(|sagas| sagas.by_status.get(SagaStatus::CompensationStuck.as_str()).copied());
    let has_overdue = sagas.is_some_and(|sagas| sagas.overdue > 0);
    let (stuck, overdue, awaited) = tokio::join!(
        sums_soon(
            app,
            stuck.is_some_and(|count| count > 0).then(|| in_status(SagaStatus::CompensationStuck))
        ),
        sums_soon(app, has_overdue.then(|| overdue(app.clock.now()))),
        join_all(awaited),
    );
    let stuck_is_discarded = has_discarded_soon(app, stuck.oldest.as_deref()).await;
    let dead_letter_threshold = app.settings.service.notifications.dead_letter_threshold;
    let awaited = awaited.into_iter().collect();
    Affected { stuck, stuck_is_discarded, overdue, awaited, dead_letter_threshold, ..Affected::default() }
}

/// True if a saga is known to have a discarded dead letter.
async fn has_discarded_soon(app: &AdminApp, saga: Option<&str>) -> bool {
    let Some(saga) = saga.and_then(|saga| saga.parse().ok()) else { return false };
    let filter = Filter { saga: Some(saga), ..Filter::default() };
    let discarded = Selection { filter, statuses: vec![DeadLetterStatus::Discarded], ..Selection::default() };
    let count = timeout(AMOUNTS_TIMEOUT, reading::count(app.store.as_ref(), &discarded)).await;
    count.is_ok_and(|count| count.is_ok_and(|count| count > 0))
}

/// Sums the totals of cancelled orders that dead letters belong to, by fingerprint.
async fn cancelled_amounts(
    app: &AdminApp,
    dead_letters: Option<&DeadLetterSummary>,
    limit: usize,
) -> BTreeMap<String, Vec<Money>> {
    let groups = dead_letters.iter().flat_map(|dead_letters| &dead_letters.groups);
    let groups = groups.filter(|group| group.cancelled > 0).take(limit).map(async |group| {
        let amounts = dead_letters::replay_values::cancelled_amounts(app.store.as_ref(), &group.fingerprint);
        let amounts = timeout(AMOUNTS_TIMEOUT, amounts).await.ok()?.ok()??;
        Some((group.fingerprint.clone(), amounts))
    });
    join_all(groups).await.into_iter().flatten().collect()
}

/// Sums the sagas that a query finds, unless that takes long.
async fn sums_soon(app: &AdminApp, query: Option<Query>) -> SagaSums {
    let Some(query) = query else { return SagaSums::default() };
    let found = timeout(AMOUNTS_TIMEOUT, sums(app.store.as_ref(), query)).await;
    found.ok().and_then(Result::ok).unwrap_or_default()
}

/// Sums the unfinished sagas; `None` when that takes long. Reads many rows: only for callers that can wait.
pub(crate) async fn open_sagas(app: &AdminApp) -> Option<SagaSums> {
    timeout(TIMEOUT, sums(app.store.as_ref(), unfinished())).await.ok()?.ok()
}

fn too_slow(who: &str) -> String {
    format!("{who} does not answer within {} s", TIMEOUT.as_secs_f64())
}

/// Returns the answer of admin's own database, or records that it is missing.
fn available<T, Elapsed>(
    what: &str,
    answer: Result<Result<T, StoreFault>, Elapsed>,
    unavailable: &mut Vec<Unavailable>,
) -> Option<T> {
    let problem = match answer {
        Ok(Ok(answer)) => return Some(answer),
        Ok(Err(fault)) => saga_core::retry::error_chain(&fault),
        Err(_) => too_slow("admin's database"),
    };
    unavailable.push(Unavailable { what: what.to_owned(), problem });
    None
}

fn status_of(service: &str, answer: Result<HealthReport, String>) -> ServiceStatus {
    let service = service.to_owned();
    let condition = match answer {
        Ok(condition) => condition,
        Err(problem) => return ServiceStatus { service, problem: Some(problem), ..ServiceStatus::default() },
    };
    let HealthReport { version, readiness, stats, in_flight, breakers, steps, faults } = condition;
    ServiceStatus {
        service,
        ready: readiness.ready,
        degraded: readiness.degraded,
        problem: None,
        version,
        in_flight,
        failing_checks: readiness.checks.iter().filter_map(failing_check).collect(),
        checks: readiness.checks,
        remarks: readiness.remarks,
        outbox: stats.as_ref().map(|stats| OutboxSummary {
            pending: stats.outbox_pending,
            oldest: stats.outbox_oldest,
            failed: stats.outbox_failed,
        }),
        tasks: stats.as_ref().map(|stats| TaskSummary { open: stats.tasks, oldest: stats.task_oldest }),
        retries: stats.as_ref().map(|stats| stats.retries),
        retrying_since: stats.as_ref().and_then(|stats| stats.retry_oldest),
        steps: steps
            .into_iter()
            .map(|step| StepStatus {
                step: step.step,
                waiting: step.waiting,
                stalled_since: step.stalled_since,
                paused: step.paused,
            })
            .collect(),
        breakers: breakers.iter().filter_map(open_breaker).collect(),
        faults: faults.into_iter().map(|fault| FaultSummary { kind: fault.kind, step: fault.step }).collect(),
        bank_ledger: None,
    }
}

fn failing_check((check, found): (&String, &Check)) -> Option<FailingCheck> {
    let failed = match found.state {
        CheckState::Ok => return None,
        CheckState::Degraded => false,
        CheckState::Failed => true,
    };
    Some(FailingCheck { check: check.clone(), failed, text: found.text.clone(), since: found.since })
}

fn open_breaker(view: &BreakerView) -> Option<OpenBreaker> {
    let (state, forced) = match view.state {
        breaker::State::Closed => return None,
        breaker::State::Open => ("OPEN", false),
        breaker::State::HalfOpen => (HALF_OPEN, false),
        breaker::State::ForcedOpen => ("FORCED_OPEN", true),
        breaker::State::ForcedClosed => ("FORCED_CLOSED", true),
    };
    let last = view.transitions.last();
    let since = if forced { last.map(|last| last.at) } else { view.not_closed_since };
    let why = last.map(|last| last.why.clone());
    Some(OpenBreaker { name: view.name.clone(), state: state.to_owned(), forced, since, why })
}
