//! Shell: reconciles on request, and periodically. The result is stored for all instances of admin.

use std::future::pending;
use std::time::Duration;

use admin_api::reconciliation::{ReconciliationSummary, Report};
use jiff::Timestamp;
use saga_core::retry::error_chain;
use saga_core::row::RowKey;
use saga_engine::host::http::Problem;
use saga_engine::runtime::clock::Clock as _;
use saga_engine::store::{Lease, StoreFault};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use super::reconcile::{Options, Outcome, reconcile};
use crate::app::{AdminApp, execute_as_system};
use crate::commands::CommandKind;
use crate::ledgers::checkpoint::{CHECKPOINT, Checkpoint};
use crate::ledgers::state::{RECONCILIATION_STATE, ReconciliationState};
use crate::rows;
use crate::service_client::ServiceClient;
use crate::settings::ReconcileEvery;

/// Delay of the reconciliation after a manual resolution, as more may follow.
const AFTER_RESOLUTION: Duration = Duration::from_secs(5);

/// Time limit of a periodic reconciliation. Millions of orders are read in minutes.
const TIMEOUT: Duration = Duration::from_mins(30);

/// Maximum delay of the first reconciliation after a start.
const AFTER_START: Duration = Duration::from_mins(1);

/// Limit of the interval, below the end of any clock.
const MAX_EVERY: Duration = Duration::from_hours(24 * 365);

/// Lease of the instance that reconciles.
const LEASE: &str = "reconciliation";

/// Number of renewals of the lease while it lasts.
const RENEWALS: u32 = 3;

/// Duration of the lease, and so the delay after an instance has died.
const LEASE_DURATION: Duration = Duration::from_mins(1);

/// Reconciles until the service stops, one at a time over all instances. A result of another instance or of a request counts
/// too. A manual resolution invalidates the last result, and brings the next reconciliation forward.
pub(crate) async fn run(app: AdminApp) {
    let ReconcileEvery(Some(every)) = app.settings.service.reconcile_every else { return pending().await };
    let every = every.min(MAX_EVERY);
    let services = ServiceClient::of(&app.settings.service, app.http_client.clone());
    let changed = || app.engine.changed(RowKey::of::<ReconciliationState>(RECONCILIATION_STATE));
    // Other services may be starting; and an instance that restarts often reconciles all the same.
    let first = remaining(every, &app).await.unwrap_or(every.min(AFTER_START));
    let (mut due, mut is_changed) = (Instant::now() + first, changed());
    loop {
        let is_due = timeout_at(due, is_changed).await.is_err();
        // Subscribed before reading: a change after the read still wakes the loop.
        is_changed = changed();
        due = match remaining(every, &app).await {
            Some(remaining) => Instant::now() + remaining,
            None if !is_due => due.min(Instant::now() + AFTER_RESOLUTION),
            None => Instant::now() + reconcile_once(&app, &services, every).await,
        };
    }
}

/// Reconciles, unless another instance does. Returns the time until the next reconciliation.
async fn reconcile_once(app: &AdminApp, services: &ServiceClient, every: Duration) -> Duration {
    let lease = match acquire_lease(app, None).await {
        Ok(Some(lease)) => lease,
        // The other instance stores its result soon, or its lease expires.
        Ok(None) => return every.min(LEASE_DURATION / RENEWALS),
        Err(fault) => {
            warn!("the reconciliation lease cannot be read: {}", error_chain(&fault));
            return every.min(LEASE_DURATION / RENEWALS);
        }
    };
    // Another instance may have completed one meanwhile.
    let rest = remaining(every, app).await;
    if rest.is_none() {
        tokio::select! {
            () = reconcile_periodically(app, services) => {}
            () = lease_lost(app, lease) => {
                warn!("another instance reconciles: this one did not renew its lease in time");
            }
        }
    }
    if let Err(fault) = app.store.release_lease(LEASE, &app.settings.instance).await {
        warn!("the reconciliation lease was not released, and will expire: {}", error_chain(&fault));
    }
    rest.unwrap_or(every)
}

async fn reconcile_periodically(app: &AdminApp, services: &ServiceClient) {
    let options = Options {
        within: Some(TIMEOUT),
        full: is_full_verification_due(app).await,
        patience: None,
        periodic: true,
    };
    if let Err(problem) = reconcile_and_store(app, services, options).await {
        warn!("the periodic reconciliation failed: {}", problem.detail);
    }
}

/// Renews the lease until it is lost.
async fn lease_lost(app: &AdminApp, mut lease: Lease) {
    loop {
        sleep(LEASE_DURATION / RENEWALS).await;
        match acquire_lease(app, Some(&lease)).await {
            Ok(Some(renewed)) => lease = renewed,
            Ok(None) => return,
            // Nobody else can take it either.
            Err(_) => {}
        }
    }
}

/// Takes or renews the lease; `None` while another instance has it.
async fn acquire_lease(app: &AdminApp, current: Option<&Lease>) -> Result<Option<Lease>, StoreFault> {
    let now = app.clock.now();
    let until = now.saturating_add(LEASE_DURATION).unwrap_or(now);
    app.store.acquire_lease(LEASE, current, &app.settings.instance, now, until).await
}

/// Returns the time until the next reconciliation is due; `None` when it is due.
async fn remaining(every: Duration, app: &AdminApp) -> Option<Duration> {
    let state: ReconciliationState = rows::row(app.store.as_ref(), RECONCILIATION_STATE).await.ok()??;
    // A result from the future is ignored.
    let age = Timestamp::now().duration_since(state.last?.at).try_into().ok()?;
    every.checked_sub(age).filter(|rest| !rest.is_zero())
}

async fn is_full_verification_due(app: &AdminApp) -> bool {
    let checkpoint = rows::row::<Checkpoint>(app.store.as_ref(), CHECKPOINT).await;
    let Ok(Some(Checkpoint { full_at, .. })) = checkpoint else { return true };
    match Duration::try_from(Timestamp::now().duration_since(full_at)) {
        Ok(age) => age >= app.settings.service.full_verification_every,
        // A checkpoint from the future is ignored.
        Err(_) => true,
    }
}

/// Reconciles, and stores the result.
pub(crate) async fn reconcile_and_store(
    app: &AdminApp,
    services: &ServiceClient,
    options: Options,
) -> Result<Report, Problem> {
    let state: Option<ReconciliationState> = rows::row(app.store.as_ref(), RECONCILIATION_STATE).await?;
    let invalidated = state.unwrap_or_default().invalidated;
    let Outcome { report, checkpoint } = reconcile(app, services, options).await?;
    let result = summary(&report);
    let unanswered = options.periodic.then(|| report.unanswered.clone());
    let checkpoint = checkpoint.map(Box::new);
    let command = CommandKind::Reconciled { result, invalidated, unanswered, checkpoint };
    // The report is valid even if it cannot be stored.
    if let Err(why) = execute_as_system(app, command).await {
        warn!("the result of the reconciliation was not stored: {why}");
    }
    Ok(report)
}

const fn summary(report: &Report) -> ReconciliationSummary {
    ReconciliationSummary {
        verdict: report.verdict,
        at: report.checked_at,
        discrepancies: report.discrepancy_count,
        resolved_to_check: report.resolved_to_check,
    }
}
