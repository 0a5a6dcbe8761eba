//! Shell: trims what is finished, beside the loops.

use std::time::Duration;

use saga_core::retry::error_chain;
use saga_core::service::Service;
use tracing::error;

use super::app::App;
use crate::runtime::clock::Clock as _;

pub(super) async fn trim<S: Service, X: Send + Sync + 'static>(app: App<S, X>) {
    loop {
        tokio::time::sleep(app.settings.retention.every).await;
        let retention = &app.settings.retention;
        let cutoffs = retention.cutoffs(app.clock.now());
        loop {
            match app.store.trim(cutoffs, retention.chunk).await {
                // Small chunks with a breath between them: the engine's batches go first.
                Ok(gone) if gone as usize >= retention.chunk => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Ok(_) => break,
                Err(fault) => {
                    error!("finished entries cannot be trimmed: {}", error_chain(&fault));
                    break;
                }
            }
        }
    }
}
