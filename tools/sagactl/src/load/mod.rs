//! Shell: load: orders at a fixed rate, followed to their end.
//!
//! Open loop: arrivals come when they are due, whether or not earlier ones have been answered, and every
//! latency counts from when the order *should* have been sent. A slow system cannot slow its own exam down.
//!
//! An order from here to the report: [`schedule`] says what it orders, [`generator`] sends it when it is due,
//! [`facts`] hears what the services say of it, [`measured`] puts the two together, [`report`] counts.

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

// What is said of it in the end.
mod books;
mod percentiles;
mod report;

// The other kind of run: one order after another.
mod rest;

use std::process::ExitCode;

pub use self::options::LoadOptions;
use crate::local::{Reach, System, status};

/// `sagactl load`: orders at a rate, or one after another.
///
/// `system` is the local one, whose memory can be seen; it is `None` of services elsewhere.
pub async fn run(reach: &Reach, system: Option<&System>, options: LoadOptions) -> anyhow::Result<ExitCode> {
    let memory = || system.map(status::memory).unwrap_or_default();
    match options.rest.or(options.count) {
        Some(count) => rest::run(reach, count, options.json).await,
        None => generator::run(reach, memory, &options).await,
    }
}
