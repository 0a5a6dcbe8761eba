//! Shell: shows how much of the stock is held for orders, as the rows have it: what a process counts, it forgets with its
//! end.

use std::time::Duration;

use contract::metrics::HELD_UNITS;
use saga_core::decider::Decider as _;
use saga_core::query::{FoundRow, Query};
use saga_core::retry::error_chain;
use saga_engine::store::Store;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::InventoryApp;
use crate::domain::Reservation;

/// Pause between looks: as often as admin looks at the sagas.
const EVERY: Duration = Duration::from_secs(5);

/// Reservations that a look reads, the oldest: what is stuck is among them.
const MOST: usize = 1_000;

/// A look takes milliseconds. One that takes longer than this tells of what was.
const WITHIN: Duration = Duration::from_millis(1_500);

/// Looks until dropped.
pub async fn run(app: InventoryApp) {
    let mut problem = String::new();
    loop {
        let units = match look(app.store.as_ref()).await {
            Ok(units) => {
                problem.clear();
                units as f64
            }
            Err(why) => {
                // Once for each cause, and not every few seconds.
                if why != problem {
                    warn!("nobody knows how much of the stock is held: {why}");
                    problem = why;
                }
                f64::NAN
            }
        };
        app.metrics.set(&HELD_UNITS, &[], units);
        sleep(EVERY).await;
    }
}

/// How many units are held.
///
/// # Errors
/// Why that cannot be told.
async fn look(store: &dyn Store) -> Result<u64, String> {
    let held = vec![("status", Reservation::Held(vec![]).status().into())];
    let held = Query { equals: held, limit: MOST, ..Query::default() };
    match timeout(WITHIN, store.find(Reservation::KIND, held)).await {
        Ok(Ok(rows)) => Ok(rows.iter().map(units).sum()),
        Ok(Err(fault)) => Err(error_chain(&fault)),
        Err(_) => Err(format!("the database does not answer within {} s", WITHIN.as_secs_f64())),
    }
}

/// How many a reservation holds; of one that cannot be read nobody knows, and it is left out.
fn units(row: &FoundRow) -> u64 {
    let reservation: Reservation = serde_json::from_str(&row.state).unwrap_or_default();
    reservation.lines().iter().map(|line| u64::from(line.quantity)).sum()
}

#[cfg(test)]
mod tests {
    use saga_core::row::RowKind;
    use saga_engine::store::sqlite::SqliteStore;

    use super::*;
    use crate::domain::Product;

    #[tokio::test]
    async fn a_look_that_fails_is_no_number() {
        let of = |kind| SqliteStore::in_memory(vec![kind]).expect("a database in memory");
        assert_eq!(look(&of(RowKind::of::<Reservation>())).await, Ok(0));
        let why = look(&of(RowKind::of::<Product>())).await.expect_err("there is no such table");
        assert!(why.contains("row_reservation"), "{why}");
    }
}
