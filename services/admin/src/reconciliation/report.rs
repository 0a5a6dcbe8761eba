//! Shell: asks every service for its ledger, until nothing is under way, and says whether they agree.

use std::time::Duration;

use contract::reconciliation::{ChargeEntry, OrderEntry, PaymentEntry, ReservationEntry, StockEntry};
use futures::future::try_join_all;
use jiff::Timestamp;
use saga_core::machinery::Machinery;
use saga_engine::host::http::Problem;
use saga_engine::store::FoldReport;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::ledgers::{Discrepancy, Ledgers, Summary};
use crate::AdminApp;
use crate::other_services::{OtherServices, all};

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
    /// Nothing is under way, and something does not add up.
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
    loop {
        let before = machinery(app, services).await?;
        let mut under_way = busy(&before);
        if under_way.is_empty() || Instant::now() >= until {
            let mut ledgers = gather(app, services).await?;
            // Quiet only if nothing moved while the ledgers were read.
            let after = machinery(app, services).await?;
            ledgers.messages(&after);
            under_way.extend(busy(&after));
            if counts(&before) != counts(&after) {
                under_way.push("facts were published while the ledgers were read".to_owned());
            }
            under_way.dedup();
            if under_way.is_empty() || Instant::now() >= until {
                return Ok(report(ledgers, under_way));
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn report(ledgers: Ledgers, under_way: Vec<String>) -> Report {
    let (summary, discrepancies, discrepancy_count) = ledgers.reconcile();
    let verdict = match (under_way.is_empty() && summary.pending == 0, discrepancy_count) {
        (false, _) => Verdict::InFlight,
        (true, 0) => Verdict::Balanced,
        (true, _) => Verdict::Unbalanced,
    };
    Report {
        balanced: verdict == Verdict::Balanced,
        verdict,
        under_way,
        summary,
        discrepancies,
        discrepancy_count,
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

async fn gather(app: &AdminApp, services: &OtherServices) -> Result<Ledgers, Problem> {
    let mut ledgers = Ledgers::default();
    services.each_entry("order", "/internal/ledger", |entry: OrderEntry| ledgers.order(entry)).await?;
    let (reservations, stock) = ("/internal/ledger/reservations", "/internal/ledger/stock");
    services
        .each_entry("inventory", reservations, |entry: ReservationEntry| ledgers.reservation(entry))
        .await?;
    services.each_entry("inventory", stock, |entry: StockEntry| ledgers.stock(&entry)).await?;
    services.each_entry("payment", "/internal/ledger", |entry: PaymentEntry| ledgers.payment(entry)).await?;
    services.each_entry("bank", "/v1/charges", |entry: ChargeEntry| ledgers.charge(entry)).await?;
    for service in all() {
        let folds: FoldReport = services.get(service, "/internal/verify").await?;
        ledgers.rows(service, folds.rows, &folds.differing);
    }
    let folds = app.store.verify().await?;
    ledgers.rows(crate::NAME, folds.rows, &folds.differing);
    Ok(ledgers)
}
