//! What the tests share: a small service of their own, the machinery around it, and a way to wait.

mod authority;
mod depot;
mod disk;
mod engine_harness;
mod facts;
mod nats;
mod operator_commands;
mod operator_harness;
mod postgres;
mod shelf;
mod supplier;
mod writes;

use std::time::{Duration, Instant};

pub use self::authority::*;
pub use self::depot::*;
pub use self::disk::*;
pub use self::engine_harness::*;
pub use self::facts::*;
pub use self::nats::*;
pub use self::operator_commands::*;
pub use self::operator_harness::*;
pub use self::postgres::*;
pub use self::shelf::*;
pub use self::supplier::*;
pub use self::writes::*;

/// Everything here takes milliseconds. A machine that is busy with other things gets this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `holds`, and fails naming `what` when that takes too long.
pub async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The answer, when it comes in time.
pub async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}
