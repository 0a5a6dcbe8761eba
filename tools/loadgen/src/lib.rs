//! Shell: load: orders at a fixed rate or by waiting clients, followed to their end.
//!
//! Open loop: orders are sent when they are due, whether or not earlier ones have been answered. Latency counts from the due
//! time, so that a slow system cannot slow down its own test (coordinated omission).
//! Closed loop: a number of clients with one order at a time each. It shows what a system does at its own pace.
//!
//! The generator shares the cores with the system that it measures, so it is cheap. It has one thread, no task and no queue
//! per order, and subscribes only to the facts that end an order.
//!
//! Path of an order: `schedule` defines it, `generator` sends it when it is due, by a connection of `sender`.
//! `subscription` receives its end, `measurements` joins both, `report` counts.

// Orders of a run, and the products that they need.
mod options;
mod products;
mod schedule;

// The run: requests, facts, progress.
mod generator;
mod progress;
mod sender;
mod subscription;

// Measurements.
mod backlog;
mod cost;
mod ledger;
mod measurements;
mod timeline;

// Result.
mod percentiles;
mod reconcile;
mod report;

// The other kind of run: one order after another.
mod sequential;

use std::process::ExitCode;

pub use self::options::LoadOptions;
use devstack::{Endpoints, System, status};

/// `sagactl load`. Resources are measured only with `system`, the local one.
pub async fn run(
    endpoints: &Endpoints,
    system: Option<&System>,
    options: LoadOptions,
) -> anyhow::Result<ExitCode> {
    let usage = || system.map(status::usage).unwrap_or_default();
    match options.rest {
        Some(count) => sequential::run(endpoints, count, options.json).await,
        None => generator::run(endpoints, usage, &options).await,
    }
}
