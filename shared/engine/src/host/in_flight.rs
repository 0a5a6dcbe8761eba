//! Shell: counts in-flight sagas of a process, and limits them. Decisions are made by [`saga_core::shedding`].

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::decider::FieldValue;
use saga_core::metric::{Measurement, Metric};
use saga_core::query::Query;
use saga_core::shedding::{InFlightLimits, Overload, Recount, Shedding};
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::store::roles::{History, Queries};
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
    /// Rows of such sagas: the value of the field in `rows`, and a text that their state contains. Replicas find there what
    /// others have completed.
    pub full_path_rows: &'static [(&'static str, Option<&'static str>)],
}

/// In-flight sagas of a service, with the decision whether another may start. Clones share the count.
#[derive(Debug, Clone)]
pub struct InFlight(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shedding: Mutex<Shedding>,
    origin: Instant,
    rows: (&'static str, &'static str, &'static str),
    full_path_rows: &'static [(&'static str, Option<&'static str>)],
}

/// Interval at which sagas are counted in a database that several replicas share.
const RECOUNT_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of events in which a recount looks for ended sagas. Of more, only the last are counted.
const MAX_EVENTS: u16 = 4_000;

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
    /// If the store cannot be read.
    pub async fn new<X>(
        limit: &InFlightLimit<X>,
        settings: &X,
        store: &dyn Queries,
        metrics: &Metrics,
    ) -> Result<Self, StoreFault> {
        let (rows, full_path_rows) = (limit.rows, limit.full_path_rows);
        let mut shedding = Shedding::new((limit.bounds)(settings));
        shedding.restore(count(store, rows).await?);
        let (shedding, origin) = (Mutex::new(shedding), Instant::now());
        let shared = Self(Arc::new(Inner { shedding, origin, rows, full_path_rows }));
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
            let mut position = None;
            loop {
                // The readiness check `store` reports a database that does not answer.
                if let Ok(up_to) = self.recount_once(store.as_ref(), position).await {
                    position = Some(up_to);
                }
                tokio::time::sleep(RECOUNT_INTERVAL).await;
            }
        })
    }

    /// Counts the sagas of all replicas: those in flight, and those that ended since the event at `position`. Returns the
    /// position up to which it has counted.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn recount_once<S: Queries + History + ?Sized>(
        &self,
        store: &S,
        position: Option<i64>,
    ) -> Result<i64, StoreFault> {
        let Inner { rows: (kind, field, value), full_path_rows, .. } = &*self.0;
        let end = store.position().await?.events;
        let after = position.unwrap_or(end).max(end - i64::from(MAX_EVENTS));
        let changed = store.changed_rows(kind, after, MAX_EVENTS.into()).await?;
        let mut recount = Recount::default();
        if !changed.ids.is_empty() {
            let ids = changed.ids.into_iter().map(FieldValue::Text).collect();
            let mut query = Query { one_of: vec![("id", ids)], limit: 1, ..Query::default() };
            let by_value = store.counts(kind, field, query.clone()).await?;
            recount.ended = by_value.iter().filter(|(of, _)| of != value).map(|(_, count)| count).sum();
            for (full_path, text) in full_path_rows.iter().filter(|(of, _)| by_value.contains_key(*of)) {
                query.equals = vec![(field, (*full_path).into())];
                query.texts = text.map(str::to_owned).into_iter().collect();
                recount.has_completed |= !store.find(kind, query.clone()).await?.is_empty();
            }
        }
        // Counted last, so that no saga counts as in flight and as ended.
        recount.in_flight = count(store, self.0.rows).await?;
        self.with(|shedding, at| shedding.recount(recount, at));
        Ok(changed.up_to)
    }

    /// Takes a permit for one new saga.
    ///
    /// # Errors
    /// When too many sagas are in flight.
    pub fn admit(&self) -> Result<InFlightPermit, Overload> {
        self.with(Shedding::admit).map(|()| InFlightPermit(self.clone()))
    }

    /// Number of sagas that have begun and not ended, of all replicas.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.shedding.lock().started()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Shedding, Duration) -> T) -> T {
        let mut shedding = self.0.shedding.lock();
        // The clock is read under the lock, so that the time of one call is never before that of the last.
        act(&mut shedding, self.0.origin.elapsed())
    }
}

/// Counts the rows of in-flight sagas.
async fn count<S: Queries + ?Sized>(
    store: &S,
    (kind, field, value): (&'static str, &'static str, &'static str),
) -> Result<u64, StoreFault> {
    let query = Query { equals: vec![(field, value.into())], ..Query::default() };
    Ok(store.counts(kind, field, query).await?.values().sum())
}
