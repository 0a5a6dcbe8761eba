//! In-flight sagas of replicas, which see in the database what the others have ended.

use std::time::Duration;

use saga_core::metric::Metric;
use saga_core::shedding::InFlightLimits;
use saga_engine::host::in_flight::{InFlight, InFlightLimit};
use saga_engine::host::metrics::Metrics;
use saga_engine::store::{Store, StoreFault};

use crate::support::{ShelfEvent, commit, in_memory, put, recorded};

const BEGAN: Metric = Metric::counter("began_total", &[], "Sagas that began");
const ENDED: Metric = Metric::histogram("ended_seconds", &["outcome"], &[1.0], "Durations of ended sagas");

/// New shelves are in flight, and a listed one has completed.
fn limit() -> InFlightLimit<()> {
    InFlightLimit {
        bounds: |()| InFlightLimits { min_limit: 10, max_wait: Duration::from_millis(100), max_limit: 1_000 },
        rows: ("shelf", "status", "NEW"),
        began: &BEGAN,
        ended: &ENDED,
        full_path_outcomes: &[],
        full_path_rows: &[("LISTED", None)],
    }
}

async fn begin(store: &dyn Store, label: &str) -> Result<(), StoreFault> {
    commit(store, recorded(label, &[], &[put(1)])).await.map(drop)
}

async fn complete(store: &dyn Store, label: &str) -> Result<(), StoreFault> {
    commit(store, recorded(label, &[put(1)], &[ShelfEvent::Listed])).await.map(drop)
}

/// Nothing ends in this process: its messages go to the leader.
#[tokio::test(start_paused = true)]
async fn follower_sheds_while_others_complete_and_admits_all_in_an_outage() -> Result<(), StoreFault> {
    let store = in_memory();
    let follower = InFlight::new(&limit(), &(), store.as_ref(), &Metrics::default()).await?;
    let mut position = follower.recount_once(store.as_ref(), None).await?;
    for number in 0..100 {
        begin(store.as_ref(), &format!("shelf {number}")).await?;
    }
    position = follower.recount_once(store.as_ref(), Some(position)).await?;
    // One completes a second, far fewer than the limit admits.
    let mut admitted = 0;
    for second in 0..5 {
        complete(store.as_ref(), &format!("shelf {second}")).await?;
        for _ in 0..2 {
            tokio::time::advance(Duration::from_millis(500)).await;
            position = follower.recount_once(store.as_ref(), Some(position)).await?;
            admitted += (0..20).filter(|_| follower.admit().is_ok()).count();
        }
    }
    assert!(admitted < 20, "{admitted} of 200 although 95 are in flight, and one completes in a second");

    for _ in 0..4 {
        tokio::time::advance(Duration::from_millis(500)).await;
        position = follower.recount_once(store.as_ref(), Some(position)).await?;
    }
    assert!((0..20).all(|_| follower.admit().is_ok()), "nothing completes any more: an outage");
    Ok(())
}
