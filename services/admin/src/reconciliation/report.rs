//! Shell: asks every service for its ledger, and says whether they agree: they do, they do not, or it cannot be told
//! yet. Whatever is down, the answer comes in its time.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::overview::{Verdict, counted};
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::query::Query;
use saga_engine::host::http::Problem;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

use super::answers::{AT_ONCE, Asking};
use super::asking::Heard;
use super::closing::{Closing, THE_CLOSING};
use super::findings::Discrepancy;
use super::ledgers::{Baseline, Summary, missed};
use super::second_look::{is_quiet, published, settle};
use super::settled::SettledItem;
use super::under_way::{Unanswered, UnderWay, under_way};
use crate::AdminApp;
use crate::audit_log::{Action, AuditEntry, Entry};
use crate::other_services::OtherServices;
use crate::rows;

/// Pause between looks while waiting for quiet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Nobody is asked in the last moments: who has no time to answer would be told of as away.
const TIME_TO_ANSWER: Duration = Duration::from_secs(1);
/// The least time for which anything can be told.
const LEAST: Duration = Duration::from_secs(1);

/// How much of the books a look has read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scope {
    /// Whether it was everything. Otherwise it was what has changed since the books were closed, which they are when
    /// everything agrees and nothing is under way; what was unchanged is carried forward.
    pub whole: bool,
    /// Orders that were read one by one, where it was not everything.
    #[serde(default)]
    pub orders_read: u64,
    /// When the books were closed with which this look begins; absent when it was everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// When books were closed last after everything was read; absent when they never were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub whole_at: Option<Timestamp>,
}

/// What is wanted of a look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// How long a busy system has to come to rest.
    pub(crate) patience: Option<Duration>,
    /// Everything is read, whatever is known.
    pub(crate) whole: bool,
    /// How long the reading may take, where that is longer than whoever asks would wait otherwise.
    pub(crate) within: Option<Duration>,
}

/// What a look came to, and what it closed, if it did.
pub(crate) struct Looked {
    pub(crate) report: Report,
    pub(crate) closing: Option<Closing>,
}

/// What a reconciliation found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Whether the verdict is `BALANCED`.
    pub balanced: bool,
    /// Whether everything adds up.
    pub verdict: Verdict,
    /// The same in words.
    pub headline: String,
    /// What is under way; empty when all is quiet.
    pub under_way: Vec<UnderWay>,
    /// Who could not be asked, or not everything; empty when everybody answered.
    pub unanswered: Vec<Unanswered>,
    /// How much there is of everything, of those who answered.
    pub summary: Summary,
    /// What does not add up, for certain; at most 200.
    pub discrepancies: Vec<Discrepancy>,
    /// How much does not add up.
    pub discrepancy_count: u64,
    /// What does not add up either, and may yet; at most 200.
    pub suspected: Vec<Discrepancy>,
    /// How much that is.
    pub suspected_count: u64,
    /// What does not add up either, and an operator has settled outside; at most 200.
    pub settled: Vec<SettledItem>,
    /// How much that is.
    pub settled_count: u64,
    /// What operators accepted of steps that were not there from the first, by step.
    pub baselines: BTreeMap<String, Baseline>,
    /// How much was read for that.
    #[serde(default)]
    pub scope: Scope,
    /// When the services had all been asked.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
}

/// Compares the ledgers. A system in which something is under way, or somebody is away, has `patience` to come to
/// rest; the answer comes within it too, unless reading may take longer. Without it the answer is of now, and takes as
/// long as it takes, but no more than ten seconds.
///
/// # Errors
/// When admin's own database fails.
pub(crate) async fn reconcile(
    app: &AdminApp,
    services: &OtherServices,
    Wanted { patience, whole, within }: Wanted,
) -> Result<Looked, Problem> {
    let began = Instant::now();
    let waits = patience.map_or(AT_ONCE, |patience| patience.max(LEAST));
    let answers_at = began + waits;
    let until = within.map_or(answers_at, |within| answers_at.max(began + within));
    // What is busy then is read all the same: the other half is for reading.
    let reads_at = began + patience.unwrap_or_default() / 2;
    let asking = Asking { app, services, until, patience: waits };
    let baselines = baselines(app).await?;
    // One that is damaged is told by the comparison of admin's rows with their histories, which the look needs for that.
    let closing: Option<Closing> = rows::row(app.store.as_ref(), THE_CLOSING).await.ok().flatten();
    let is_small = |closing: &Closing| closing.orders.orders < app.settings.service.audit_whole_below;
    let begins = Begins {
        from: closing.as_ref().filter(|closing| !whole && !is_small(closing)),
        closing: closing.as_ref(),
    };
    let mut told: Option<Report> = None;
    loop {
        let heard = asking.service_stats().await;
        if is_quiet(&heard) || (told.is_none() && Instant::now() >= reads_at) {
            let looked = compare(asking, &heard, &baselines, begins).await;
            match looked.report.verdict {
                Verdict::Balanced | Verdict::Unbalanced => return Ok(looked),
                Verdict::InFlight => told = Some(looked.report),
            }
        } else if let Some(report) = &mut told {
            report.under_way = under_way(&heard.service_stats);
            report.unanswered = heard.unanswered;
        }
        let is_over = patience.is_none() || Instant::now() + LOOK_AGAIN + TIME_TO_ANSWER >= answers_at;
        match told.take() {
            Some(report) if is_over => return Ok(Looked { report, closing: None }),
            other => told = other,
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// What a look begins with.
#[derive(Clone, Copy)]
struct Begins<'a> {
    /// The last closing, if it is carried forward.
    from: Option<&'a Closing>,
    /// The last closing.
    closing: Option<&'a Closing>,
}

/// The services whose rows are summed up: what they said while they were read is in the sums, or is not.
const SUMMED_UP: [&str; 3] = ["order", "inventory", "bank"];

/// One reading of everything, or of what has changed, and a second look at what seems wrong.
async fn compare(
    asking: Asking<'_>,
    before: &Heard,
    baselines: &BTreeMap<String, Baseline>,
    Begins { from, closing }: Begins<'_>,
) -> Looked {
    // A service of an earlier build does not say: then nothing is carried forward.
    let places = asking.places(None).await.ok();
    let carried = match from {
        // Another database, or a copy that has lost what was closed or went another way since, is read anew.
        Some(from) if asking.places(Some(from)).await.is_ok_and(|places| places == from.places) => {
            asking.gather_changes(before, baselines.clone(), from).await.map(|carried| (from, carried))
        }
        Some(_) | None => None,
    };
    let mut scope = Scope { whole_at: closing.map(|closing| closing.whole_at), ..Scope::default() };
    let (mut ledgers, mut unanswered) = match carried {
        Some((from, (ledgers, orders_read))) => {
            scope = Scope { orders_read, since: Some(from.at), ..scope };
            (ledgers, vec![])
        }
        None => {
            scope.whole = true;
            asking.gather(before, baselines.clone()).await
        }
    };
    let after = asking.service_stats().await;
    let carry = ledgers.to_carry();
    let is_whole = before.unanswered.is_empty() && after.unanswered.is_empty();
    if is_whole {
        ledgers.messages(&after.service_stats);
    }
    let mut under_way = [under_way(&before.service_stats), under_way(&after.service_stats)].concat();
    // Quiet only if nothing moved while the ledgers were read.
    if is_whole && published(before) != published(&after) {
        let what = "facts were published while the ledgers were read";
        under_way.push(UnderWay::new(what, "a moment in which nothing is said"));
    }
    let mut closed = ledgers.close();
    unanswered.extend([before.unanswered.clone(), after.unanswered].concat());
    // While somebody is away nothing comes to rest, and what looks wrong stays no more than that.
    if is_whole {
        unanswered.extend(settle(asking, &mut closed, baselines).await);
    }
    let waiting = closed.summary.pending - closed.summary.overdue;
    if waiting > 0 {
        let waiting = counted(waiting, "order is", "orders are");
        let what = format!("order: {waiting} neither confirmed nor cancelled");
        under_way.push(UnderWay::new(what, "stock, payment or their deadline"));
    }
    let is_told = |known: &UnderWay, other: &UnderWay| known.what == other.what;
    let mut seen: Vec<UnderWay> = Vec::new();
    for one in under_way {
        if !seen.iter().any(|known| is_told(known, &one)) {
            seen.push(one);
        }
    }
    unanswered.sort_by(|one, other| one.service.cmp(&other.service));
    unanswered.dedup_by(|one, other| one.service == other.service);
    let findings = closed.findings;
    let verdict = match (findings.certain, findings.count) {
        (1.., _) => Verdict::Unbalanced,
        (0, 0) if seen.is_empty() && unanswered.is_empty() => Verdict::Balanced,
        (0, _) => Verdict::InFlight,
    };
    let places = match (verdict, places, asking.places(None).await) {
        (Verdict::Balanced, Some(before), Ok(after)) => {
            SUMMED_UP.iter().all(|service| before.get(*service) == after.get(*service)).then_some(before)
        }
        (Verdict::Balanced | Verdict::Unbalanced | Verdict::InFlight, ..) => None,
    };
    let at = Timestamp::now();
    let whole_at = if scope.whole { Some(at) } else { scope.whole_at };
    let closing = match (places, carry, whole_at) {
        (Some(places), Some((orders, skus, settled)), Some(whole_at)) => {
            scope.whole_at = Some(whole_at);
            Some(Closing { places, at, whole_at, orders, skus, settled })
        }
        _ => None,
    };
    let (discrepancies, suspected) =
        findings.listed.into_iter().partition(|found: &Discrepancy| found.certain);
    let report = Report {
        balanced: verdict == Verdict::Balanced,
        verdict,
        headline: verdict.headline().to_owned(),
        under_way: seen,
        unanswered,
        summary: closed.summary,
        discrepancies,
        discrepancy_count: findings.certain,
        suspected,
        suspected_count: findings.count - findings.certain,
        settled: closed.settled.listed,
        settled_count: closed.settled.count,
        baselines: baselines.clone(),
        scope,
        checked_at: at,
    };
    Looked { report, closing }
}

/// How many messages a step will never come to: they were published for it, and nothing is under way.
///
/// # Errors
/// 409 while something is, 422 when there is no such step, 503 when a service does not answer.
pub(crate) async fn missed_for_ever(
    app: &AdminApp,
    services: &OtherServices,
    step: &str,
) -> Result<i64, Problem> {
    let heard = Asking::at_once(app, services).service_stats().await;
    if let Some(Unanswered { service, why }) = heard.unanswered.first() {
        return Err(Problem::unavailable(format!("{service} did not tell how it is: {why}"), 1));
    }
    let under_way: Vec<_> = under_way(&heard.service_stats).into_iter().map(|one| one.what).collect();
    if !under_way.is_empty() {
        let detail = format!("something is under way, and may come yet: {}", under_way.join("; "));
        return Err(Problem::conflict(detail));
    }
    let known = missed(&heard.service_stats).find(|(known, _)| known.step == step);
    known.map(|(_, missed)| missed).ok_or_else(|| Problem::field("step", "there is no such step"))
}

/// What operators accepted, by step: the audit log has it, and the newest entry about a step counts.
pub(super) async fn baselines(app: &AdminApp) -> Result<BTreeMap<String, Baseline>, Problem> {
    const PAGE: usize = 200;
    let action = Action::AuditBaseline.to_string();
    let mut query =
        Query { equals: vec![("action", FieldValue::Text(action))], limit: PAGE, ..Query::default() };
    let mut baselines = BTreeMap::new();
    loop {
        let page = app.store.find(AuditEntry::KIND, query.clone()).await?;
        for row in &page {
            // One that is damaged is told by the comparison of admin's rows with their histories.
            let entry =
                rows::parsed(row).ok().filter(|entry: &AuditEntry| entry.says_done(Action::AuditBaseline));
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
