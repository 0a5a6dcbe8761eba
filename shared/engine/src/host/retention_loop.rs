//! Shell: periodic trimming of finished bookkeeping rows, and purge of what retention no longer keeps.
//!
//! Both wait while the time is in doubt, and for a while after a jump: what was deleted by a wrong time is lost.

use std::sync::Arc;
use std::time::Duration;

use saga_core::retry::error_chain;
use saga_core::row::RowKind;
use tracing::{error, warn};

use super::archive::{Archive, PAUSE_BETWEEN_CHUNKS, purge};
use super::retention::RetentionSettings;
use crate::runtime::clock::{BrokerClock, Clock as _};
use crate::store::Store;

/// Periodic retention of one process.
pub struct RetentionLoop {
    /// Database to purge.
    pub store: Arc<dyn Store>,
    /// Clock by which rows are old.
    pub clock: Arc<BrokerClock>,
    /// Periods and interval.
    pub settings: RetentionSettings,
    /// Kinds of rows in the database.
    pub rows: Vec<RowKind>,
    /// Time for which the broker keeps messages.
    pub delivered: Duration,
    /// Archive for what is purged.
    pub archive: Option<Archive>,
}

impl RetentionLoop {
    /// Trims and purges every `retention.every`, until dropped.
    pub async fn run(self) {
        let mut was_waiting = false;
        loop {
            tokio::time::sleep(self.settings.every).await;
            if !self.clock.may_purge() {
                if !std::mem::replace(&mut was_waiting, true) {
                    warn!(
                        "nothing is purged until the broker tells its time, and for an hour after its clock has jumped"
                    );
                }
                continue;
            }
            was_waiting = false;
            self.trim().await;
            let RetentionSettings { chunk, .. } = self.settings;
            let before = self.settings.purge_cutoffs(self.clock.now(), &self.rows, self.delivered);
            if let Err(fault) = purge(self.store.as_ref(), self.archive.as_ref(), before, chunk).await {
                error!("old rows cannot be purged: {}", error_chain(&fault));
            }
        }
    }

    /// Deletes inbox marks, idempotency keys and published entries that are older than their retention.
    async fn trim(&self) {
        let (cutoffs, chunk) = (self.settings.cutoffs(self.clock.now()), self.settings.chunk);
        loop {
            match self.store.trim(cutoffs, chunk).await {
                Ok(deleted) if deleted as usize >= chunk => tokio::time::sleep(PAUSE_BETWEEN_CHUNKS).await,
                Ok(_) => return,
                Err(fault) => {
                    error!("finished entries cannot be trimmed: {}", error_chain(&fault));
                    return;
                }
            }
        }
    }
}
