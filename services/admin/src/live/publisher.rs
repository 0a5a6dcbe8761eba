//! Shell: the task that reads the overview and the newest redrives for all open pages.

use std::sync::Arc;
use std::time::Duration;

use admin_api::live::{LiveRates, SagaDurations};
use admin_api::overview::Overview;
use admin_api::redrives::RedriveView;
use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::decider::Decider as _;
use saga_core::query::Query;
use saga_engine::nats::NatsBus;
use saga_engine::runtime::clock::Clock as _;
use saga_engine::store::StoreFault;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::rates::Rates;
use crate::app::AdminApp;
use crate::overview::snapshot::{self, SHOWN};
use crate::redrive::decider::Redrive;
use crate::redrive::progress;
use crate::service_client::ServiceClient;

/// Time between two events of the rates, and between two reads of the overview if that is quicker.
const INTERVAL: Duration = Duration::from_secs(1);

/// Redrives that pages are told of, the newest.
const REDRIVES: usize = 5;

/// Source of the events of all open pages.
#[derive(Clone)]
pub(crate) struct Live(Arc<Inner>);

struct Inner {
    app: AdminApp,
    services: ServiceClient,
    rates: Arc<Mutex<Rates>>,
    snapshots: watch::Sender<Snapshot>,
    /// The task that reads, while a page is open.
    reader: Mutex<Option<JoinHandle<()>>>,
}

/// State that pages show, as JSON.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Overview as it was when it changed last.
    pub(crate) overview: Versioned<Overview>,
    /// Time at which the overview was last read.
    pub(crate) overview_at: Option<Timestamp>,
    /// Newest redrives with their progress.
    pub(crate) redrives: Versioned<Vec<RedriveView>>,
    /// Durations of the last minute, and an hour ago.
    durations: [Option<SagaDurations>; 2],
}

/// Value with its JSON text and a number that rises with each change; 0 before the first.
#[derive(Debug, Clone)]
pub(crate) struct Versioned<T> {
    pub(crate) version: u64,
    pub(crate) json: Arc<str>,
    value: Option<Arc<T>>,
}

impl<T> Default for Versioned<T> {
    fn default() -> Self {
        Self { version: 0, json: Arc::default(), value: None }
    }
}

impl<T: Serialize> Versioned<T> {
    /// Replaces the value, unless `is_same` says that nothing has changed.
    fn update(&mut self, value: T, is_same: impl FnOnce(&T, &T) -> bool) {
        if self.value.as_deref().is_none_or(|known| !is_same(known, &value)) {
            // Plain data always serializes.
            let json = serde_json::to_string(&value).unwrap_or_default().into();
            *self = Self { version: self.version + 1, json, value: Some(Arc::new(value)) };
        }
    }
}

impl Live {
    /// Starts to count sagas. Reads nothing yet.
    pub(crate) fn new(app: AdminApp, services: ServiceClient) -> Self {
        let rates = Arc::new(Mutex::new(Rates::new(app.clock.now().as_second())));
        let (counted, clock) = (rates.clone(), app.clock.clone());
        app.metrics.listen(move |measurement| counted.lock().record(measurement, clock.now().as_second()));
        let (snapshots, _) = watch::channel(Snapshot::default());
        Self(Arc::new(Inner { app, services, rates, snapshots, reader: Mutex::default() }))
    }

    /// Snapshots from now on. Starts to read if this is the first page.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Snapshot> {
        let mut reader = self.0.reader.lock();
        let mut receiver = self.0.snapshots.subscribe();
        if reader.as_ref().is_none_or(JoinHandle::is_finished) {
            *reader = Some(tokio::spawn(self.clone().run()));
        } else {
            receiver.mark_changed();
        }
        receiver
    }

    /// Rates of a snapshot, with the seconds after `after`.
    pub(crate) fn rates(&self, snapshot: &Snapshot, after: Option<i64>) -> LiveRates {
        let at = self.0.app.clock.now();
        let is_follower = self.0.app.messaging.bus.as_ref().is_some_and(NatsBus::is_follower);
        let seconds = (!is_follower).then(|| self.0.rates.lock().ended_seconds(after, at.as_second()));
        let ([duration, duration_an_hour_ago], overview_at) = (snapshot.durations, snapshot.overview_at);
        LiveRates { at, overview_at, seconds, duration, duration_an_hour_ago }
    }

    /// Tells all pages of a change, and of the durations now.
    fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        let durations = self.0.rates.lock().durations(self.0.app.clock.now().as_second());
        self.0.snapshots.send_modify(|snapshot| {
            snapshot.durations = durations;
            change(snapshot);
        });
    }

    /// Reads until no page is open or the service stops.
    async fn run(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.0.app.stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // Under the lock, so that a page that opens now either is counted or starts another reader.
            let mut reader = self.0.reader.lock();
            if self.0.snapshots.receiver_count() == 0 {
                *reader = None;
                return;
            }
            drop(reader);
            self.read().await;
        }
    }

    /// Reads once. Pages are told each second, also while a service does not answer and the overview takes longer.
    async fn read(&self) {
        let Inner { app, services, .. } = &*self.0;
        let mut reading = std::pin::pin!(async {
            tokio::join!(snapshot::read(app, services, SHOWN), newest_redrives(app))
        });
        let (overview, redrives) = loop {
            match timeout(INTERVAL, &mut reading).await {
                Ok(read) => break read,
                Err(_) => self.publish(|_| {}),
            }
        };
        self.publish(|snapshot| {
            snapshot.overview_at = Some(overview.at);
            snapshot
                .overview
                .update(overview, |known, new| *known == Overview { at: known.at, ..new.clone() });
            if let Ok(redrives) = redrives {
                snapshot.redrives.update(redrives, PartialEq::eq);
            }
        });
    }
}

async fn newest_redrives(app: &AdminApp) -> Result<Vec<RedriveView>, StoreFault> {
    let query = Query { descending: true, limit: REDRIVES, ..Query::default() };
    let page = app.store.find(Redrive::KIND, query).await?;
    Ok(progress::views(app.store.as_ref(), &page).await?.0)
}
