//! Shell: leadership among replicas: whether this replica holds the relay's lease, as far as it knows.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

pub(super) struct Leadership {
    is_leader: watch::Sender<bool>,
    /// Ends the leadership with the lease, even if the database is unreachable.
    ending: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Leadership {
    pub(super) fn none() -> Self {
        Self { is_leader: watch::Sender::new(false), ending: Mutex::new(None) }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.is_leader.subscribe()
    }

    pub(super) fn is_held(&self) -> bool {
        *self.is_leader.borrow()
    }

    /// Starts or extends the leadership until `end`.
    pub(super) fn hold_until(&self, end: Instant) {
        let is_leader = self.is_leader.clone();
        let ending = tokio::spawn(async move {
            sleep_until(end).await;
            set(&is_leader, false);
        });
        *self.ending.lock() = Some(AbortOnDropHandle::new(ending));
        set(&self.is_leader, true);
    }

    pub(super) fn end(&self) {
        *self.ending.lock() = None;
        set(&self.is_leader, false);
    }
}

fn set(is_leader: &watch::Sender<bool>, value: bool) {
    if is_leader.send_if_modified(|known| std::mem::replace(known, value) != value) {
        match value {
            true => info!("this replica is the leader: it publishes, and receives messages first"),
            false => info!("this replica is no longer the leader"),
        }
    }
}
