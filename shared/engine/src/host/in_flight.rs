//! Shell: counts in-flight sagas of a process, and limits them. Decisions are made by [`saga_core::shedding`].

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::metric::{Measurement, Metric};
use saga_core::query::Query;
use saga_core::shedding::{InFlightLimits, Overload, Shedding};
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::store::roles::Queries;
use crate::store::{Store, StoreFault};

/// Limit on the in-flight sagas of a service, and how they are counted.
pub struct InFlightLimit<X> {
    /// Bounds above which new sagas are rejected.
    pub bounds: fn(&X) -> InFlightLimits,
    /// Kind, field and value of the rows of in-flight sagas.
    pub rows: (&'static str, &'static str, &'static str),
    /// Counter of sagas that began.
    pub began: &'static Metric,
    /// Histogram of the durations of ended sagas; its first label is the outcome.
    pub ended: &'static Metric,
    /// Outcomes of sagas that passed every step, which shows that no step is blocked.
    pub full_path_outcomes: &'static [&'static str],
}

/// In-flight sagas of a service, with the decision whether another may start. Clones share the count.
#[derive(Debug, Clone)]
pub struct InFlight(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shedding: Mutex<Shedding>,
    origin: Instant,
    rows: (&'static str, &'static str, &'static str),
}

/// Interval at which in-flight sagas are counted in a database that several replicas share.
const RECOUNT_INTERVAL: Duration = Duration::from_millis(500);

/// Permit for one new saga. Counts as in flight until dropped, when the caller has its answer.
#[derive(Debug)]
#[must_use = "a dropped permit does not count as in flight"]
pub struct InFlightPermit(InFlight);

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.0.0.shedding.lock().record_answer();
    }
}

impl InFlight {
    /// Starts with the in-flight rows of the store, and follows the metrics from then on. Must be called before any saga
    /// moves.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn new<X>(
        limit: &InFlightLimit<X>,
        settings: &X,
        store: &dyn Queries,
        metrics: &Metrics,
    ) -> Result<Self, StoreFault> {
        let rows = limit.rows;
        let mut shedding = Shedding::new((limit.bounds)(settings));
        shedding.restore(count(store, rows).await?);
        let shared = Self(Arc::new(Inner { shedding: Mutex::new(shedding), origin: Instant::now(), rows }));
        let (began, ended, full_path_outcomes) = (limit.began, limit.ended, limit.full_path_outcomes);
        let listener = shared.clone();
        metrics.listen(move |measurement: &Measurement| {
            if measurement.metric.name == began.name {
                listener.0.shedding.lock().record_begin();
            } else if measurement.metric.name == ended.name {
                let end = measurement.labels.first().map_or("", String::as_str);
                listener.with(|shedding, at| shedding.record_end(full_path_outcomes.contains(&end), at));
            }
        });
        Ok(shared)
    }

    /// Recounts at an interval, because other replicas begin and end sagas in the same database.
    pub(super) fn recount(self, store: Arc<dyn Store>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                tokio::time::sleep(RECOUNT_INTERVAL).await;
                // The readiness check `store` reports a database that does not answer.
                if let Ok(count) = count(store.as_ref(), self.0.rows).await {
                    self.with(|shedding, at| shedding.recount(count, at));
                }
            }
        })
    }

    /// Takes a permit for one new saga.
    ///
    /// # Errors
    /// When too many sagas are in flight.
    pub fn admit(&self) -> Result<InFlightPermit, Overload> {
        self.with(Shedding::admit).map(|()| InFlightPermit(self.clone()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Shedding, Duration) -> T) -> T {
        let mut shedding = self.0.shedding.lock();
        // The clock is read under the lock, so that the time of one call is never before that of the last.
        act(&mut shedding, self.0.origin.elapsed())
    }
}

/// Counts the rows of in-flight sagas.
async fn count(
    store: &dyn Queries,
    (kind, field, value): (&'static str, &'static str, &'static str),
) -> Result<u64, StoreFault> {
    let query = Query { equals: vec![(field, value.into())], ..Query::default() };
    Ok(store.counts(kind, field, query).await?.values().sum())
}
