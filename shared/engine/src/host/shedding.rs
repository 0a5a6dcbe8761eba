//! Shell: load shedding that the routes and the loops of one process share, with a clock. What is decided is in
//! [`saga_core::shedding`].

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::metric::{Measurement, Metric};
use saga_core::query::Query;
use saga_core::shedding::{Bounds, Overload, Shedding};
use tokio::time::Instant;

use super::metrics::Metrics;
use crate::store::{Store, StoreFault};

/// How a service knows what it has under way, and how much of it is too much.
pub struct UnderWay<X> {
    /// When no more of it begins.
    pub bounds: fn(&X) -> Bounds,
    /// The kind of its rows, and the field and its value by which those are known that are under way.
    pub rows: (&'static str, &'static str, &'static str),
    /// Counts what begins.
    pub began: &'static Metric,
    /// Measures how long each was under way, by how it ended.
    pub ended: &'static Metric,
    /// The ends that show that the whole way is open.
    pub by_the_whole_way: &'static [&'static str],
}

/// What a service has under way, and whether more of it may begin. Clones are the same one.
#[derive(Debug, Clone)]
pub struct SharedShedding(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shedding: Mutex<Shedding>,
    origin: Instant,
    rows: (&'static str, &'static str, &'static str),
}

/// Where several processes share the work, what is under way is counted so often.
const RECOUNTED_EVERY: Duration = Duration::from_millis(500);

/// Let in: it counts as under way until this is dropped, when whoever asked has an answer.
#[derive(Debug)]
#[must_use = "what is not held is not under way"]
pub struct LetIn(SharedShedding);

impl Drop for LetIn {
    fn drop(&mut self) {
        self.0.0.shedding.lock().answered();
    }
}

impl SharedShedding {
    /// Begins with what the rows say is under way, and goes on by what is measured. Before anything of it moves.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn of<X>(
        under_way: &UnderWay<X>,
        settings: &X,
        store: &dyn Store,
        metrics: &Metrics,
    ) -> Result<Self, StoreFault> {
        let rows = under_way.rows;
        let mut shedding = Shedding::new((under_way.bounds)(settings));
        shedding.had_begun(count(store, rows).await?);
        let shared = Self(Arc::new(Inner { shedding: Mutex::new(shedding), origin: Instant::now(), rows }));
        let (began, ended, by_the_whole_way) = (under_way.began, under_way.ended, under_way.by_the_whole_way);
        let hearing = shared.clone();
        metrics.tell(move |measurement: &Measurement| {
            if measurement.metric.name == began.name {
                hearing.0.shedding.lock().begun();
            } else if measurement.metric.name == ended.name {
                let end = measurement.labels.first().map_or("", String::as_str);
                hearing.with(|shedding, at| shedding.ended(by_the_whole_way.contains(&end), at));
            }
        });
        Ok(shared)
    }

    /// Counts again and again what is under way in a database that others share: what they have begun, and ended.
    pub(super) fn recount(self, store: Arc<dyn Store>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                tokio::time::sleep(RECOUNTED_EVERY).await;
                // Readiness tells of a database that does not answer.
                if let Ok(count) = count(store.as_ref(), self.0.rows).await {
                    self.with(|shedding, at| shedding.recounted(count, at));
                }
            }
        })
    }

    /// Lets something in.
    ///
    /// # Errors
    /// When too much is under way.
    pub fn let_in(&self) -> Result<LetIn, Overload> {
        self.with(Shedding::let_in).map(|()| LetIn(self.clone()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Shedding, Duration) -> T) -> T {
        let mut shedding = self.0.shedding.lock();
        // The clock is read under the lock, so that its time does not go back.
        act(&mut shedding, self.0.origin.elapsed())
    }
}

/// How many rows say that they are under way.
async fn count(
    store: &dyn Store,
    (kind, field, value): (&'static str, &'static str, &'static str),
) -> Result<u64, StoreFault> {
    let query = Query { equals: vec![(field, value.into())], ..Query::default() };
    Ok(store.counts(kind, field, query).await?.values().sum())
}
