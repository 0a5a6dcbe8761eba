//! Shell: reads the ledgers of all services, and decides whether they agree. It answers within its time limit whatever is
//! down.

use std::collections::BTreeMap;
use std::time::Duration;

use admin_api::audit_log::{Action, Entry};
use admin_api::reconciliation::{Baseline, InFlight, Report, Scope, Unanswered, Verdict};
use admin_api::text::counted;
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::Query;
use saga_core::service_stats::HistoryPosition;
use saga_engine::host::http::Problem;
use tokio::time::{Instant, sleep};

use super::reading::AllStats;
use super::recheck::{is_quiet, published, recheck};
use super::request::{DEFAULT_TIMEOUT, Request};
use crate::app::AdminApp;
use crate::audit_log::AuditEntry;
use crate::ledgers::checkpoint::{CHECKPOINT, Checkpoint};
use crate::ledgers::in_flight::in_flight;
use crate::ledgers::totals::{LedgerResult, Ledgers, missed};
use crate::rows;
use crate::service_client::ServiceClient;

/// Pause between two checks while waiting for work in flight.
const POLL: Duration = Duration::from_millis(100);
/// Time at the end of a request in which no new reading starts, as it would not complete.
const MIN_READING_TIME: Duration = Duration::from_secs(1);
/// Minimum time limit of a request.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Advice for discrepancies that work in flight may resolve.
const AGAIN: &str = "wait until nothing is in flight, then run sagactl reconcile again";

/// Services with totals in a checkpoint. Facts of these during a reading may or may not be in the totals.
const WITH_TOTALS: [&str; 3] = ["order", "inventory", "bank"];

/// Options of a reconciliation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Time in which a busy system may come to rest.
    pub(crate) patience: Option<Duration>,
    /// Full verification.
    pub(crate) full: bool,
    /// Time limit of the reading, where it is longer than `patience`.
    pub(crate) within: Option<Duration>,
    /// True for a round of the periodic reconciliation.
    pub(crate) periodic: bool,
}

/// A report, and a new checkpoint if everything agreed.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// Reconciles all ledgers. A busy system has `patience` to come to rest, and the answer comes within it, unless the reading
/// may take longer. Without it the system is judged as it is, within ten seconds.
pub(crate) async fn reconcile(
    app: &AdminApp,
    services: &ServiceClient,
    Options { patience, full, within, periodic: _ }: Options,
) -> Result<Outcome, Problem> {
    let started = Instant::now();
    let wait = patience.map_or(DEFAULT_TIMEOUT, |patience| patience.max(MIN_TIMEOUT));
    let answer_at = started + wait;
    let until = within.map_or(answer_at, |within| answer_at.max(started + within));
    // A busy system is read after half of the time: the other half is for reading.
    let read_at = started + patience.unwrap_or_default() / 2;
    let request = Request { app, services, until, patience: wait };
    let baselines = baselines(app).await?;
    // A damaged checkpoint is reported by the verification of admin's own rows.
    let last: Option<Checkpoint> = rows::row(app.store.as_ref(), CHECKPOINT).await.ok().flatten();
    let is_small = |last: &Checkpoint| last.orders.orders < app.settings.service.full_verification_below;
    let from = last.as_ref().filter(|last| !full && !is_small(last));
    let start = Start { from, last: last.as_ref() };
    let mut inconclusive: Option<Report> = None;
    loop {
        let stats = request.stats().await;
        if is_quiet(&stats) || (inconclusive.is_none() && Instant::now() >= read_at) {
            let outcome = compare(request, &stats, &baselines, start).await;
            match outcome.report.verdict {
                Verdict::Balanced | Verdict::Unbalanced => return Ok(outcome),
                Verdict::InFlight => inconclusive = Some(outcome.report),
            }
        } else if let Some(report) = &mut inconclusive {
            report.in_flight = in_flight(&stats.service_stats);
            report.unanswered = stats.unanswered;
        }
        let is_over = patience.is_none() || Instant::now() + POLL + MIN_READING_TIME >= answer_at;
        match inconclusive.take() {
            Some(report) if is_over => return Ok(Outcome { report, checkpoint: None }),
            other => inconclusive = other,
        }
        sleep(POLL).await;
    }
}

/// Checkpoints that a reconciliation starts with.
#[derive(Clone, Copy)]
struct Start<'a> {
    /// Checkpoint of an incremental verification.
    from: Option<&'a Checkpoint>,
    last: Option<&'a Checkpoint>,
}

/// All ledgers, read fully or incrementally.
struct Reading {
    ledgers: Ledgers,
    unanswered: Vec<Unanswered>,
    scope: Scope,
}

/// Reads all ledgers once, rechecks suspected discrepancies, and decides.
async fn compare(
    request: Request<'_>,
    before: &AllStats,
    baselines: &BTreeMap<String, Baseline>,
    start: Start<'_>,
) -> Outcome {
    let positions = request.positions(None).await.ok();
    let Reading { mut ledgers, mut unanswered, mut scope } = read(request, before, baselines, start).await;
    let after = request.stats().await;
    let totals = ledgers.to_carry();
    let all_answered = before.unanswered.is_empty() && after.unanswered.is_empty();
    if all_answered {
        ledgers.messages(&after.service_stats);
    }
    let moving = unfinished(before, &after, all_answered);
    let mut result = ledgers.finish();
    unanswered.extend([before.unanswered.clone(), after.unanswered].concat());
    // While a service is down nothing comes to rest, and suspicions stay what they are.
    if all_answered {
        unanswered.extend(recheck(request, &mut result, baselines).await);
    }
    unanswered.sort_by(|one, other| one.service.cmp(&other.service));
    unanswered.dedup_by(|one, other| one.service == other.service);
    let moving = with_pending_orders(moving, &result);
    let verdict = match (result.discrepancies.certain, result.discrepancies.count) {
        (1.., _) => Verdict::Unbalanced,
        (0, 0) if moving.is_empty() && unanswered.is_empty() => Verdict::Balanced,
        (0, _) => Verdict::InFlight,
    };
    let at = Timestamp::now();
    let positions = match (verdict, positions) {
        (Verdict::Balanced, Some(positions)) => unmoved(request, positions).await,
        (Verdict::Balanced | Verdict::Unbalanced | Verdict::InFlight, _) => None,
    };
    let full_at = if scope.full { Some(at) } else { scope.full_at };
    let checkpoint = match (positions, totals, full_at) {
        (Some(positions), Some((orders, skus, resolved)), Some(full_at)) => {
            scope.full_at = Some(full_at);
            Some(Checkpoint { positions, at, full_at, orders, skus, resolved })
        }
        _ => None,
    };
    let report = Report { in_flight: moving, unanswered, scope, ..report(verdict, result, baselines, at) };
    Outcome { report, checkpoint }
}

async fn read(
    request: Request<'_>,
    before: &AllStats,
    baselines: &BTreeMap<String, Baseline>,
    Start { from, last }: Start<'_>,
) -> Reading {
    let scope = Scope { full_at: last.map(|last| last.full_at), ..Scope::default() };
    // A new database, or an older copy that took another course, is read fully.
    if let Some(from) = from
        && request.positions(Some(from)).await.is_ok_and(|positions| positions == from.positions)
        && let Some((ledgers, orders_read)) = request.read_changes(before, baselines.clone(), from).await
    {
        let scope = Scope { orders_read, since: Some(from.at), ..scope };
        return Reading { ledgers, unanswered: vec![], scope };
    }
    let (ledgers, unanswered) = request.read_all(before, baselines.clone()).await;
    Reading { ledgers, unanswered, scope: Scope { full: true, ..scope } }
}

/// Lists work in flight before or after the reading, each kind once.
fn unfinished(before: &AllStats, after: &AllStats, all_answered: bool) -> Vec<InFlight> {
    let mut found = [in_flight(&before.service_stats), in_flight(&after.service_stats)].concat();
    if all_answered && published(before) != published(after) {
        found.push(InFlight::new("facts were published during the reading", "a moment without new facts"));
    }
    let mut distinct: Vec<InFlight> = Vec::new();
    for one in found {
        if !distinct.iter().any(|known| known.what == one.what) {
            distinct.push(one);
        }
    }
    distinct
}

fn with_pending_orders(mut moving: Vec<InFlight>, result: &LedgerResult) -> Vec<InFlight> {
    let pending = result.summary.pending - result.summary.overdue;
    if pending > 0 {
        let pending = counted(pending, "order is", "orders are");
        let what = format!("order: {pending} neither confirmed nor cancelled");
        moving.push(InFlight::new(what, "stock, payment or their deadline"));
    }
    moving
}

/// Returns the positions, if the services with totals have not moved since.
async fn unmoved(
    request: Request<'_>,
    before: BTreeMap<String, HistoryPosition>,
) -> Option<BTreeMap<String, HistoryPosition>> {
    let after = request.positions(None).await.ok()?;
    WITH_TOTALS.iter().all(|service| before.get(*service) == after.get(*service)).then_some(before)
}

fn report(
    verdict: Verdict,
    LedgerResult { summary, discrepancies: found, resolved, .. }: LedgerResult,
    baselines: &BTreeMap<String, Baseline>,
    checked_at: Timestamp,
) -> Report {
    let (count, certain, by_rule) = (found.count, found.certain, found.counts());
    let (discrepancies, mut suspected) = found.samples();
    // Ordinary traffic causes suspicions: nothing is to be repaired before they are certain.
    suspected.iter_mut().for_each(|found| AGAIN.clone_into(&mut found.advice));
    Report {
        balanced: verdict == Verdict::Balanced,
        verdict,
        headline: verdict.headline().to_owned(),
        in_flight: vec![],
        unanswered: vec![],
        summary,
        by_rule,
        discrepancies,
        discrepancy_count: certain,
        suspected,
        suspected_count: count - certain,
        resolved: resolved.listed,
        resolved_count: resolved.count,
        resolved_to_check: resolved.to_check,
        baselines: baselines.clone(),
        scope: Scope::default(),
        checked_at,
    }
}

/// Counts the published messages that a step will never process.
///
/// # Errors
/// Returns 409 while something is in flight, 422 for an unknown step, and 503 when a service does not answer.
pub(crate) async fn missed_by(app: &AdminApp, services: &ServiceClient, step: &str) -> Result<i64, Problem> {
    let stats = Request::without_wait(app, services).stats().await;
    if let Some(Unanswered { service, why }) = stats.unanswered.first() {
        return Err(Problem::unavailable(format!("{service} did not answer: {why}"), 1));
    }
    let in_flight: Vec<_> = in_flight(&stats.service_stats).into_iter().map(|one| one.what).collect();
    if !in_flight.is_empty() {
        let detail =
            format!("messages may still arrive, because work is in flight: {}", in_flight.join("; "));
        return Err(Problem::conflict(detail));
    }
    let known: BTreeMap<&str, i64> =
        missed(&stats.service_stats).map(|(known, missed)| (known.step.as_str(), missed)).collect();
    known.get(step).copied().ok_or_else(|| {
        let steps: Vec<_> = known.keys().copied().collect();
        Problem::field("step", format!("there is no step {step:?}; there are {}", steps.join(", ")))
    })
}

/// Reads accepted baselines by step. They are in the audit log, and the newest entry of a step counts.
pub(super) async fn baselines(app: &AdminApp) -> Result<BTreeMap<String, Baseline>, Problem> {
    const PAGE: usize = 200;
    let action = Action::AcceptBaseline.to_string();
    let mut query =
        Query { equals: vec![("action", FieldValue::Text(action))], limit: PAGE, ..Query::default() };
    let mut baselines = BTreeMap::new();
    loop {
        let page = app.store.find(AuditEntry::KIND, query.clone()).await?;
        for row in &page {
            // Damaged entries are reported by the verification of admin's own rows.
            let entry = rows::parsed(row)
                .ok()
                .filter(|entry: &AuditEntry| entry.records_done(Action::AcceptBaseline));
            let Some(AuditEntry(Some(Entry { target, detail: Some(detail), .. }))) = entry else { continue };
            if let Ok(baseline) = serde_json::from_value(detail) {
                baselines.insert(target, baseline);
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => query.after = Some(last.id.clone()),
            Some(_) | None => return Ok(baselines),
        }
    }
}
