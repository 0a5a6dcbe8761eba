//! What the tests share: a small service of their own, the machinery around it, and a way to wait.

pub mod desk;
pub mod nats;
pub mod rig;
pub mod shelf;
pub mod shop;
pub mod wishes;
pub mod writes;

use std::time::{Duration, Instant};

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
