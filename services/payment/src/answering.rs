//! Shell: finds payments that came to nothing without a word to the others, and has the service say it.

use std::time::Duration;

use saga_core::decider::Decider;
use saga_core::query::{FoundRow, Query};
use saga_core::row::RowKey;
use saga_engine::host::http::{Problem, answered};
use saga_engine::host::reading::with_histories;
use tracing::{info, warn};
use uuid::Uuid;

use crate::PaymentApp;
use crate::domain::Payment;
use crate::ledger::is_silent;
use crate::policy::Command;
use crate::silences::{Looked, Silences, THE_LOOK};

/// Payments in one look, and in one transaction. Small beside a batch, which customers wait for.
const PAGE: usize = 100;

/// Pause after a look that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Looks through all payments, unless that was done before, and does nothing afterwards.
pub(crate) async fn run(app: PaymentApp) {
    loop {
        match look(&app).await {
            Ok(Looked::To(_)) => {}
            Ok(Looked::ToTheEnd) => return std::future::pending().await,
            Err(problem) => {
                warn!("cancellations of earlier builds cannot be answered yet: {}", problem.detail);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One page.
async fn look(app: &PaymentApp) -> Result<Looked, Problem> {
    let store = app.store.as_ref();
    let known = store.row(RowKey::of::<Silences>(THE_LOOK)).await?;
    let known: Silences = match known {
        Some(row) => serde_json::from_str(&row.state).map_err(|error| Problem::internal(&error))?,
        None => Silences::default(),
    };
    if known.is_over {
        return Ok(Looked::ToTheEnd);
    }
    let ended = ["VOID", "FAILED"].map(Into::into).to_vec();
    let after = known.after.map(|order| order.to_string());
    let query = Query { one_of: vec![("status", ended)], after, limit: PAGE, ..Query::default() };
    let rows = store.find(Payment::KIND, query).await?;
    let looked = match rows.len() {
        // One whose id is damaged ends no look: the next one begins behind the last that has one.
        PAGE => {
            let last = rows.iter().rev().find_map(|row| row.id.parse().ok());
            last.map(Looked::To)
                .ok_or_else(|| Problem::internal(&"a page of payments without a single id"))?
        }
        _ => Looked::ToTheEnd,
    };
    // One that is damaged is for whoever verifies the database.
    let can_be_read = |row: &FoundRow| serde_json::from_str::<Payment>(&row.state).is_ok();
    let rows = rows.into_iter().filter(can_be_read).collect();
    let rows = with_histories(store, Payment::KIND, rows).await?;
    let silent = rows.iter().filter(|(_, history)| is_silent(history));
    let orders: Vec<Uuid> = silent.filter_map(|(row, _)| row.id.parse().ok()).collect();
    let count = orders.len();
    let outcome = app.engine.ask(Uuid::now_v7(), Command::Answer { orders, looked }, None).await?;
    answered(outcome, |rejection| Problem::internal(rejection))?;
    if count > 0 {
        info!(payments = count, "cancellations that an earlier build left unanswered are answered");
    }
    Ok(looked)
}
