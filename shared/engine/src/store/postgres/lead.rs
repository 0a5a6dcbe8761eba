//! Shell: whether this process leads those that share the database: it has the lease of the relay, as far as it knows.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

pub(super) struct Lead {
    leads: watch::Sender<bool>,
    /// Ends it when its lease does: whoever cannot be reached says nothing.
    ending: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Lead {
    pub(super) fn none() -> Self {
        Self { leads: watch::Sender::new(false), ending: Mutex::new(None) }
    }

    pub(super) fn watched(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    pub(super) fn is_held(&self) -> bool {
        *self.leads.borrow()
    }

    /// It leads until then, unless it is said again.
    pub(super) fn until(&self, end: Instant) {
        let leads = self.leads.clone();
        let ending = tokio::spawn(async move {
            sleep_until(end).await;
            set(&leads, false);
        });
        *self.ending.lock() = Some(AbortOnDropHandle::new(ending));
        set(&self.leads, true);
    }

    pub(super) fn over(&self) {
        *self.ending.lock() = None;
        set(&self.leads, false);
    }
}

fn set(leads: &watch::Sender<bool>, value: bool) {
    if leads.send_if_modified(|known| std::mem::replace(known, value) != value) {
        match value {
            true => info!("leads its replicas: it publishes, and is given messages first"),
            false => info!("does not lead its replicas any more"),
        }
    }
}
