//! Shell: the audit: asks every service for its books and compares them.

use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shared::books::{ChargeEntry, OrderEntry, PaymentEntry, ReservationEntry, StockEntry};
use shared::http::Problem;
use shared::operator::Machinery;
use shared::store::FoldReport;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::AdminApp;
use crate::books::{Books, Discrepancy, Summary};
use crate::services::Services;

/// Pause between looks while waiting for quiet.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the audit says.
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

/// The audit's report.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Whether the verdict is `BALANCED`.
    pub balanced: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// What is under way, by service; empty when all is quiet.
    pub under_way: Vec<String>,
    /// What was counted.
    pub summary: Summary,
    /// What does not add up, at most 200.
    pub discrepancies: Vec<Discrepancy>,
    /// How much does not add up.
    pub discrepancy_count: u64,
    /// When it was done.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
}

/// Waits for quiet, at most `patience`, and compares the books.
///
/// # Errors
/// 503 when a service does not answer: an audit without it would prove nothing.
pub(crate) async fn audit(
    app: &AdminApp,
    services: &Services,
    patience: Duration,
) -> Result<Report, Problem> {
    let until = Instant::now() + patience;
    loop {
        let before = machinery(app, services).await?;
        let mut under_way = busy(&before);
        if under_way.is_empty() || Instant::now() >= until {
            let mut books = gather(services, app).await?;
            // Quiet only if nothing moved while the books were read.
            let after = machinery(app, services).await?;
            books.messages(&after);
            under_way.extend(busy(&after));
            if counts(&before) != counts(&after) {
                under_way.push("facts were published while the books were read".to_owned());
            }
            under_way.dedup();
            if under_way.is_empty() || Instant::now() >= until {
                return Ok(report(books, under_way));
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn report(books: Books, under_way: Vec<String>) -> Report {
    let (summary, discrepancies, discrepancy_count) = books.close();
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
pub(crate) async fn machinery(app: &AdminApp, services: &Services) -> Result<Vec<Machinery>, Problem> {
    let own = shared::operator::machinery_of(app).await?;
    let asked = services.all().map(|(name, _)| services.get::<Machinery>(name, "/internal/machinery"));
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

async fn gather(services: &Services, app: &AdminApp) -> Result<Books, Problem> {
    let mut books = Books::default();
    services.each_entry("order", "/internal/books", |entry: OrderEntry| books.order(entry)).await?;
    let reservations = "/internal/books/reservations";
    services
        .each_entry("inventory", reservations, |entry: ReservationEntry| books.reservation(entry))
        .await?;
    services
        .each_entry("inventory", "/internal/books/stock", |entry: StockEntry| books.stock(&entry))
        .await?;
    services.each_entry("payment", "/internal/books", |entry: PaymentEntry| books.payment(entry)).await?;
    services.each_entry("bank", "/v1/charges", |entry: ChargeEntry| books.charge(entry)).await?;
    for (service, _) in services.all() {
        let folds: FoldReport = services.get(service, "/internal/verify").await?;
        books.rows(service, folds.rows, &folds.differing);
    }
    let folds = app.store.verify().await?;
    books.rows(crate::NAME, folds.rows, &folds.differing);
    Ok(books)
}
