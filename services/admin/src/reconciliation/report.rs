//! Shell: asks every service for its ledger, until nothing is under way, and says whether they agree.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::saga_view::SagaView;
use futures::future::try_join_all;
use futures::try_join;
use jiff::Timestamp;
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::machinery::Machinery;
use saga_core::query::{FoundRow, Query};
use saga_engine::host::http::Problem;
use saga_engine::host::reading::{Page, Range, entries_page};
use saga_engine::store::FoldReport;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::accounts::{Accounts, Pages, View};
use super::findings::Discrepancy;
use super::ledgers::{Baseline, Ledgers, Summary, missed};
use crate::AdminApp;
use crate::audit_log::{Action, AuditEntry, DONE, Entry};
use crate::other_services::{OtherServices, all};
use crate::rows;

const ORDER: &str = "order";
const INVENTORY: &str = "inventory";

/// Pause between looks while waiting for quiet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whether everything adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Nothing is under way, and everything adds up.
    Balanced,
    /// Something is under way: what does not add up may yet.
    InFlight,
    /// Something does not add up, and nothing is under way that could mend it: no order that is overdue, row that is
    /// not the fold of its events, or fact that the broker refused is "in flight".
    Unbalanced,
}

/// What a reconciliation found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Whether the verdict is `BALANCED`.
    pub balanced: bool,
    /// Whether everything adds up, as far as can be said while something is under way.
    pub verdict: Verdict,
    /// What is under way, by service; empty when all is quiet.
    pub under_way: Vec<String>,
    /// How much there is of everything.
    pub summary: Summary,
    /// What does not add up, at most 200.
    pub discrepancies: Vec<Discrepancy>,
    /// How much does not add up.
    pub discrepancy_count: u64,
    /// What operators accepted of steps that were not there from the first, by step.
    pub baselines: BTreeMap<String, Baseline>,
    /// When the services had all been asked.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
}

/// Waits for quiet, at most `patience`, and compares the ledgers.
///
/// # Errors
/// 503 when a service does not answer: without it nothing would be proven.
pub(crate) async fn reconcile(
    app: &AdminApp,
    services: &OtherServices,
    patience: Duration,
) -> Result<Report, Problem> {
    let until = Instant::now() + patience;
    let baselines = baselines(app).await?;
    loop {
        let before = machinery(app, services).await?;
        let mut under_way = busy(&before);
        if under_way.is_empty() || Instant::now() >= until {
            let mut ledgers = gather(app, services, clock_of_orders(&before), baselines.clone()).await?;
            // Quiet only if nothing moved while the ledgers were read.
            let after = machinery(app, services).await?;
            ledgers.messages(&after);
            under_way.extend(busy(&after));
            if counts(&before) != counts(&after) {
                under_way.push("facts were published while the ledgers were read".to_owned());
            }
            under_way.dedup();
            if under_way.is_empty() || Instant::now() >= until {
                return Ok(report(ledgers, under_way, baselines));
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn report(ledgers: Ledgers, mut under_way: Vec<String>, baselines: BTreeMap<String, Baseline>) -> Report {
    let (summary, findings) = ledgers.close();
    let waiting = summary.pending - summary.overdue;
    if waiting > 0 {
        under_way.push(format!("order: {waiting} orders wait for stock, payment or their deadline"));
    }
    let verdict = match (findings.count, under_way.is_empty()) {
        // What is still to come mends none of these.
        _ if findings.certain > 0 => Verdict::Unbalanced,
        (_, false) => Verdict::InFlight,
        (0, true) => Verdict::Balanced,
        (_, true) => Verdict::Unbalanced,
    };
    Report {
        balanced: verdict == Verdict::Balanced,
        verdict,
        under_way,
        summary,
        discrepancies: findings.listed,
        discrepancy_count: findings.count,
        baselines,
        checked_at: Timestamp::now(),
    }
}

/// The machinery of every service, admin's own first.
async fn machinery(app: &AdminApp, services: &OtherServices) -> Result<Vec<Machinery>, Problem> {
    let own = saga_engine::host::internal_api::machinery_of(app).await?;
    let asked = all().into_iter().map(|service| services.get::<Machinery>(service, "/internal/machinery"));
    let mut all = vec![own];
    all.extend(try_join_all(asked).await?);
    Ok(all)
}

fn busy(machinery: &[Machinery]) -> Vec<String> {
    let is_busy = |service: &&Machinery| !service.is_quiet();
    machinery.iter().filter(is_busy).map(Machinery::what_is_under_way).collect()
}

fn counts(machinery: &[Machinery]) -> Vec<u64> {
    machinery.iter().flat_map(|service| service.published.values().copied()).collect()
}

/// The time by the clock that deadlines go by.
fn clock_of_orders(machinery: &[Machinery]) -> Timestamp {
    let order = machinery.iter().find(|service| service.service == ORDER);
    order.map_or_else(Timestamp::now, |service| service.at)
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
    let machinery = machinery(app, services).await?;
    let under_way = busy(&machinery);
    if !under_way.is_empty() {
        let detail = format!("something is under way, and may come yet: {}", under_way.join("; "));
        return Err(Problem::conflict(detail));
    }
    let known = missed(&machinery).find(|(known, _)| known.step == step);
    known.map(|(_, missed)| missed).ok_or_else(|| Problem::field("step", "there is no such step"))
}

/// What operators accepted, by step: the audit log has it, and the newest entry about a step counts.
async fn baselines(app: &AdminApp) -> Result<BTreeMap<String, Baseline>, Problem> {
    const PAGE: usize = 200;
    let action = Action::AuditBaseline.to_string();
    let mut query =
        Query { equals: vec![("action", FieldValue::Text(action))], limit: PAGE, ..Query::default() };
    let mut baselines = BTreeMap::new();
    loop {
        let page = app.store.find(AuditEntry::KIND, query.clone()).await?;
        for row in &page {
            // One that is damaged is told by the comparison of admin's rows with their histories.
            let entry = rows::parsed(row).ok().and_then(|AuditEntry(entry)| entry);
            let Some(Entry { target, detail: Some(detail), outcome, .. }) = entry else { continue };
            if outcome == DONE
                && let Ok(baseline) = serde_json::from_value(detail)
            {
                baselines.insert(target, baseline);
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => query.after = Some(last.id.clone()),
            Some(_) | None => return Ok(baselines),
        }
    }
}

async fn gather(
    app: &AdminApp,
    services: &OtherServices,
    now: Timestamp,
    baselines: BTreeMap<String, Baseline>,
) -> Result<Ledgers, Problem> {
    let mut ledgers = Ledgers::new(now, baselines);
    let (copies, stock) = ((ORDER, "/internal/ledger/catalogue"), (INVENTORY, "/internal/ledger/stock"));
    take_all(services, copies, &mut ledgers, Ledgers::copy).await?;
    take_all(services, stock, &mut ledgers, Ledgers::stock).await?;
    take_accounts(app, services, &mut ledgers).await?;
    for service in all() {
        let folds: FoldReport = services.get(service, "/internal/verify").await?;
        ledgers.rows(service, folds.rows, &folds.differing);
    }
    let folds = app.store.verify().await?;
    ledgers.rows(crate::NAME, folds.rows, &folds.differing);
    Ok(ledgers)
}

/// Every entry of a ledger, page by page.
async fn take_all<T: DeserializeOwned>(
    services: &OtherServices,
    (service, path): (&str, &str),
    ledgers: &mut Ledgers,
    take: fn(&mut Ledgers, T),
) -> Result<(), Problem> {
    let mut after = None;
    loop {
        let page: Page<T> = services.page(service, path, after.as_deref()).await?;
        ledgers.unreadable(service, &page.unreadable);
        page.entries.into_iter().for_each(|entry| take(ledgers, entry));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The ledgers of all services side by side, a page of each at a time.
async fn take_accounts(
    app: &AdminApp,
    services: &OtherServices,
    ledgers: &mut Ledgers,
) -> Result<(), Problem> {
    let mut accounts = Accounts::default();
    loop {
        while accounts.want_more() {
            let Accounts { orders, reservations, payments, charges, views } = &mut accounts;
            let unreadable = try_join!(
                refill(services, ORDER, "/internal/ledger", orders),
                refill(services, INVENTORY, "/internal/ledger/reservations", reservations),
                refill(services, "payment", "/internal/ledger", payments),
                refill(services, "bank", "/v1/charges", charges),
                refill_views(app, views),
            )?;
            for (service, rows) in <[_; 5]>::from(unreadable) {
                ledgers.unreadable(service, &rows);
            }
        }
        let Some((key, account)) = accounts.pop() else { return Ok(()) };
        ledgers.account(&key, &account);
    }
}

/// Fetches the next page of a ledger, if it is needed. Answers which rows of it cannot be read.
async fn refill<T: DeserializeOwned>(
    services: &OtherServices,
    service: &'static str,
    path: &str,
    pages: &mut Pages<T>,
) -> Result<(&'static str, Vec<String>), Problem> {
    if !pages.wants_more() {
        return Ok((service, Vec::new()));
    }
    let Page { entries, next, unreadable } = services.page(service, path, pages.after()).await?;
    pages.take(entries, next);
    Ok((service, unreadable))
}

/// The same of admin's own view of the sagas.
async fn refill_views(
    app: &AdminApp,
    pages: &mut Pages<View>,
) -> Result<(&'static str, Vec<String>), Problem> {
    if !pages.wants_more() {
        return Ok((crate::NAME, Vec::new()));
    }
    let range = Range { after: pages.after().map(str::to_owned) };
    let entry = |row: &FoundRow| Some((row.id.clone(), serde_json::from_str(&row.state).ok()?));
    let Page { entries, next, unreadable } =
        entries_page(app.store.as_ref(), SagaView::KIND, range, entry).await?;
    pages.take(entries, next);
    Ok((crate::NAME, unreadable))
}
