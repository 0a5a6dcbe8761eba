//! Shell: a service's database, held against what the broker knows of it, before anything is said or heard.

use saga_core::retry::error_chain;

use super::asking::AskingAgain;
use super::settings::StoreSettings;
use crate::nats::NatsBus;
use crate::store::{Mark, Store};

/// Refuses a database that is behind what the service has told the others. It had come to `came_to` when it was opened; of
/// one that is shared, where it has come to now counts.
///
/// # Errors
/// When the database has lost something, with its name.
pub(super) async fn hold_against(
    bus: &NatsBus,
    service: &str,
    settings: &StoreSettings,
    store: &dyn Store,
    came_to: Mark,
) -> anyhow::Result<()> {
    let mut asking = AskingAgain::default();
    loop {
        match bus.last_mark(service).await {
            Ok(None) => return Ok(()),
            Ok(Some(mark)) => {
                // What others have committed meanwhile they may have told already.
                let found = if store.is_shared() { store.mark().await? } else { came_to };
                return mark.check(&found, &settings.accept_loss).map_err(|lost| {
                    anyhow::anyhow!("database {}, by what the broker has of it: {lost}", settings.shown_url())
                });
            }
            Err(fault) => {
                let complaint = "the broker does not say how far the database had come";
                asking.after(&format!("{complaint}: {}", error_chain(&fault))).await;
            }
        }
    }
}
