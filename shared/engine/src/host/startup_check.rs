//! Shell: compares a service's database with the position that the broker remembers, before the service publishes or
//! consumes.

use saga_core::retry::error_chain;

use super::broker_retry::BrokerRetry;
use super::settings::StoreSettings;
use crate::nats::NatsBus;
use crate::store::{DatabasePosition, Store, StoreFault};

/// Rejects a database that is behind the messages which the service has published. `opened_at` is its position when it
/// was opened. Of a shared database the current position counts, because other replicas may have published since.
///
/// # Errors
/// When the database has lost events; the error names the loss.
pub(super) async fn check_database(
    bus: &NatsBus,
    service: &str,
    settings: &StoreSettings,
    store: &dyn Store,
    opened_at: DatabasePosition,
) -> anyhow::Result<()> {
    let mut retry = BrokerRetry::default();
    let last = loop {
        match bus.last_position(service).await {
            Ok(last) => break last,
            Err(fault) => {
                let failure = "the broker does not say how far the database had come";
                retry.pause_after(&format!("{failure}: {}", error_chain(&fault))).await;
            }
        }
    };
    let Some(last) = last else { return Ok(()) };
    let found = if store.is_shared() {
        read_patiently(OnOutage::Wait, || store.position()).await?
    } else {
        opened_at
    };
    last.check(&found, &settings.accept_loss).map_err(|lost| {
        anyhow::anyhow!("database {}, by what the broker has of it: {lost}", settings.shown_url())
    })?;
    if !last.is_ahead_of(&found) {
        return Ok(());
    }
    // The accepted position takes the place of the higher one, with which the database is compared from now on.
    while let Err(fault) = bus.record_position(service, &found, None).await {
        let failure = "the accepted position of the database is not recorded yet, retrying";
        retry.pause_after(&format!("{failure}: {}", error_chain(&fault))).await;
    }
    Ok(())
}

/// Reaction of a start to a database that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnOutage {
    /// Waits for the server of a shared database: its restart ends no service.
    Wait,
    /// Fails: a file does not come back.
    Fail,
}

impl OnOutage {
    pub(super) fn of(store: &dyn Store) -> Self {
        if store.is_shared() { Self::Wait } else { Self::Fail }
    }
}

/// Reads what a start needs.
///
/// # Errors
/// When the database cannot be used.
pub(super) async fn read_patiently<T, R>(on_outage: OnOutage, read: impl Fn() -> R) -> Result<T, StoreFault>
where
    R: Future<Output = Result<T, StoreFault>>,
{
    let mut retry = BrokerRetry::default();
    loop {
        match read().await {
            Err(fault @ StoreFault::Database { .. }) if on_outage == OnOutage::Wait => {
                retry
                    .pause_after(&format!("the start waits for the database: {}", error_chain(&fault)))
                    .await;
            }
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reads of a database that answers from the third read on. Returns their number, and the outcome.
    async fn read(on_outage: OnOutage) -> (u32, Result<(), StoreFault>) {
        let reads = Cell::new(0);
        let outcome = read_patiently(on_outage, async || {
            reads.set(reads.get() + 1);
            let away = StoreFault::Database { context: "reading", source: "the server stops".into() };
            if reads.get() < 3 { Err(away) } else { Ok(()) }
        });
        let outcome = outcome.await;
        (reads.get(), outcome)
    }

    #[tokio::test(start_paused = true)]
    async fn start_waits_for_a_server_that_goes_away_and_not_for_a_file() {
        assert!(matches!(read(OnOutage::Wait).await, (3, Ok(()))));
        assert!(matches!(read(OnOutage::Fail).await, (1, Err(_))));
    }
}
