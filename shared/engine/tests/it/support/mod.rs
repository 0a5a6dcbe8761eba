//! Shared by the tests: a small service, its harnesses, and ways to wait.

mod authority;
mod depot;
mod disk;
mod engine_harness;
mod facts;
mod lines;
mod nats;
mod operator_commands;
mod operator_harness;
mod pgbouncer;
mod postgres;
mod recorder;
mod shelf;
mod supplier;
mod writes;

use std::time::{Duration, Instant};

pub use self::authority::*;
pub use self::depot::*;
pub use self::disk::*;
pub use self::engine_harness::*;
pub use self::facts::*;
pub use self::lines::*;
pub use self::nats::*;
pub use self::operator_commands::*;
pub use self::operator_harness::*;
pub use self::pgbouncer::*;
pub use self::postgres::*;
pub use self::recorder::*;
pub use self::shelf::*;
pub use self::supplier::*;
pub use self::writes::*;

/// Time-out of anything that normally takes milliseconds. Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `holds` is true, and fails with `what` after the time-out.
pub async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !in_time(what, holds()).await {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for an answer, and fails with `what` after the time-out.
pub async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}
