//! Shell: trims what is finished, and has leave what is old, beside the loops.

use saga_core::retry::error_chain;
use saga_core::service::Service;
use tracing::error;

use super::app::App;
use super::archive::{Archive, BREATH, depart};
use crate::runtime::clock::Clock as _;

pub(super) async fn trim<S: Service, X: Send + Sync + 'static>(app: App<S, X>, archive: Option<Archive>) {
    let rows = S::rows();
    let archive = archive.map(|archive| archive.beside(app.store.as_ref(), &app.settings.instance));
    loop {
        tokio::time::sleep(app.settings.retention.every).await;
        let retention = &app.settings.retention;
        let cutoffs = retention.cutoffs(app.clock.now());
        loop {
            match app.store.trim(cutoffs, retention.chunk).await {
                Ok(gone) if gone as usize >= retention.chunk => tokio::time::sleep(BREATH).await,
                Ok(_) => break,
                Err(fault) => {
                    error!("finished entries cannot be trimmed: {}", error_chain(&fault));
                    break;
                }
            }
        }
        let before = retention.departures(app.clock.now(), &rows, app.settings.bus.retention);
        if let Err(fault) = depart(app.store.as_ref(), archive.as_ref(), before, retention.chunk).await {
            error!("what is old cannot leave: {}", error_chain(&fault));
        }
    }
}
