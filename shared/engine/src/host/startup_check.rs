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
    let found = if store.is_shared() { current_position(store, &mut retry).await? } else { opened_at };
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

/// Reads the position of a database. Waits while the database is away: a restart of its server ends no service.
///
/// # Errors
/// When the database has lost events, or cannot be used.
async fn current_position(
    store: &dyn Store,
    retry: &mut BrokerRetry,
) -> Result<DatabasePosition, StoreFault> {
    loop {
        match store.position().await {
            Err(fault @ StoreFault::Database { .. }) => {
                let failure = "the database does not say how far it has come";
                retry.pause_after(&format!("{failure}: {}", error_chain(&fault))).await;
            }
            position => return position,
        }
    }
}
