//! Shell: keeps the gauge of reserved units. It is read from the rows, so that a restart does not reset it.

use std::time::Duration;

use contract::metrics::RESERVED_UNITS;
use saga_core::decider::Decider as _;
use saga_core::query::{FoundRow, Query};
use saga_core::retry::error_chain;
use saga_engine::store::roles::Queries;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::InventoryApp;
use crate::domain::Reservation;

/// Pause between two reads, the same as admin's pause between two counts of sagas.
const INTERVAL: Duration = Duration::from_secs(5);

/// Reservations per read, oldest first: stuck ones are among them.
const LIMIT: usize = 1_000;

/// Time limit of a read. It usually takes milliseconds; a slower one would report an outdated value.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Updates the gauge until dropped. It is NaN while the database does not answer.
pub async fn run(app: InventoryApp) {
    let mut last_error = String::new();
    loop {
        let units = match reserved_units(app.store.as_ref()).await {
            Ok(units) => {
                last_error.clear();
                units as f64
            }
            Err(error) => {
                // Once per cause, not at each read.
                if error != last_error {
                    warn!("the number of reserved units is unknown: {error}");
                    last_error = error;
                }
                f64::NAN
            }
        };
        app.metrics.set(&RESERVED_UNITS, &[], units);
        sleep(INTERVAL).await;
    }
}

async fn reserved_units(store: &dyn Queries) -> Result<u64, String> {
    let reserved = vec![("status", Reservation::Reserved(vec![]).status().into())];
    let query = Query { equals: reserved, limit: LIMIT, ..Query::default() };
    match timeout(READ_TIMEOUT, store.find(Reservation::KIND, query)).await {
        Ok(Ok(rows)) => Ok(rows.iter().map(units).sum()),
        Ok(Err(fault)) => Err(error_chain(&fault)),
        Err(_) => Err(format!("the database does not answer within {} s", READ_TIMEOUT.as_secs_f64())),
    }
}

/// Units of one reservation; 0 if its row cannot be read.
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
    async fn failed_read_is_error_and_not_zero() {
        let store = |kind| SqliteStore::in_memory(vec![kind]).expect("a database in memory");
        assert_eq!(reserved_units(&store(RowKind::of::<Reservation>())).await, Ok(0));
        let error =
            reserved_units(&store(RowKind::of::<Product>())).await.expect_err("the rows are not declared");
        assert!(error.contains("rows of kind \"reservation\" are not declared"), "{error}");
    }
}
