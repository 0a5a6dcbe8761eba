//! Shell: how many messages wait at the broker for each consumer: asked every few seconds, for metrics.

use std::time::Duration;

use saga_core::service::Service;
use tracing::debug;

use super::admission::StepAdmission;
use super::bus::{Bus, Durable};
use super::observer::SharedObserver;

/// As often as Prometheus scrapes, more or less; each consumer is one question to the broker.
const EVERY: Duration = Duration::from_secs(5);

/// Asks until dropped. What the broker does not say stays as it was said last: that it is away is told elsewhere.
pub async fn run<S: Service, B: Bus>(bus: B, steps: Vec<StepAdmission>, observer: SharedObserver) {
    loop {
        for admission in &steps {
            for durable in Durable::all(S::NAME, &[admission.step()]) {
                match bus.waiting(durable).await {
                    Ok(messages) => observer.lagging(&durable.name(), messages),
                    Err(why) => {
                        debug!(consumer = durable.name(), "the broker does not say what waits: {why}")
                    }
                }
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
