//! Shell: load: orders at a rate or by clients that wait, followed to their end.
//!
//! Open loop: arrivals come when they are due, whether or not earlier ones have been answered, and every
//! latency counts from when the order *should* have been sent. A slow system cannot slow its own exam down.
//! Closed loop: so many clients, each with one order at a time; it tells what a system can do at its own pace.
//!
//! The generator runs on the cores of the system that it measures, so it costs as little as it can: one thread, no
//! task and no queue per order, and of the facts only those that tell how an order ended.
//!
//! An order from here to the report: [`schedule`] says what it orders, [`generator`] sends it when it is due by a
//! [`sender`]'s connection, [`facts`] hears how it ended, [`measured`] puts the two together, [`report`] counts.

// What is asked for: the orders of a run, and the products that they need.
mod options;
mod schedule;
mod shelf;

// The run: what goes out, what comes back, what is shown meanwhile.
mod facts;
mod generator;
mod progress;
mod sender;

// What is kept of it.
mod backlog;
mod ledger;
mod measured;
mod timeline;

// What it costs, the generator and the system.
mod cost;

// What is said of it in the end.
mod books;
mod percentiles;
mod report;

// The other kind of run: one order after another.
mod rest;

use std::process::ExitCode;

pub use self::options::LoadOptions;
use devstack::{Reach, System, status};

/// `sagactl load`: orders at a rate, by clients that wait, or one after another.
///
/// `system` is the local one, whose processes can be seen; it is `None` of services elsewhere.
pub async fn run(reach: &Reach, system: Option<&System>, options: LoadOptions) -> anyhow::Result<ExitCode> {
    let look = || system.map(status::usage).unwrap_or_default();
    match options.rest.or(options.count) {
        Some(count) => rest::run(reach, count, options.json).await,
        None => generator::run(reach, look, &options).await,
    }
}
