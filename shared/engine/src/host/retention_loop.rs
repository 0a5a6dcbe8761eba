//! Shell: periodic trimming of finished bookkeeping rows, and purge of what retention no longer keeps.
//!
//! Both wait while the time is in doubt, and for a while after a jump: what was deleted by a wrong time is lost.

use saga_core::retry::error_chain;
use saga_core::service::Service;
use tracing::{error, warn};

use super::app::App;
use super::archive::{Archive, PAUSE_BETWEEN_CHUNKS, purge};
use crate::runtime::clock::Clock as _;

/// Trims and purges every `retention.every`, until dropped.
pub(super) async fn run<S: Service, X: Send + Sync + 'static>(app: App<S, X>, archive: Option<Archive>) {
    let rows = S::rows();
    let archive = archive.map(|archive| archive.for_store(app.store.as_ref(), &app.settings.instance));
    let mut was_waiting = false;
    loop {
        tokio::time::sleep(app.settings.retention.every).await;
        let may_purge = app.clock.may_purge();
        match (may_purge, std::mem::replace(&mut was_waiting, !may_purge)) {
            (true, _) => {}
            (false, true) => continue,
            (false, false) => {
                warn!("nothing is purged until an hour after the last jump of the broker's clock");
                continue;
            }
        }
        trim(&app).await;
        let retention = &app.settings.retention;
        let before = retention.purge_cutoffs(app.clock.now(), &rows, app.settings.bus.retention);
        if let Err(fault) = purge(app.store.as_ref(), archive.as_ref(), before, retention.chunk).await {
            error!("old rows cannot be purged: {}", error_chain(&fault));
        }
    }
}

/// Deletes inbox marks, idempotency keys and published entries that are older than their retention.
async fn trim<S: Service, X>(app: &App<S, X>) {
    let retention = &app.settings.retention;
    let cutoffs = retention.cutoffs(app.clock.now());
    loop {
        match app.store.trim(cutoffs, retention.chunk).await {
            Ok(deleted) if deleted as usize >= retention.chunk => {
                tokio::time::sleep(PAUSE_BETWEEN_CHUNKS).await;
            }
            Ok(_) => return,
            Err(fault) => {
                error!("finished entries cannot be trimmed: {}", error_chain(&fault));
                return;
            }
        }
    }
}
