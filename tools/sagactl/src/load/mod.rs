//! Shell: load: orders at a fixed rate, followed to their end.
//!
//! Open loop: arrivals come when they are due, whether or not earlier ones have been answered, and every
//! latency counts from when the order *should* have been sent. A slow system cannot slow its own exam down.
//!
//! An order from here to the report: [`plan`] says what it orders, [`generator`] sends it when it is due,
//! [`facts`] hears what the services say of it, [`ledger`] puts the two together, [`report`] counts.

mod backlog;
mod facts;
mod generator;
mod ledger;
mod options;
mod plan;
mod progress;
mod report;
mod rest;
mod sender;
mod shelf;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::options::{Mix, rate};
use crate::args::duration;
use crate::local::System;

/// Longest run: its orders fit the shelf.
const LONGEST: Duration = Duration::from_hours(2);

/// How to load the system.
#[derive(Debug, Args)]
pub struct LoadOptions {
    /// Orders per second.
    #[arg(long, value_parser = rate, required_unless_present_any = ["rest", "at_rest"])]
    pub rate: Option<u32>,
    /// How long orders are sent and measured.
    #[arg(long, default_value = "60s", value_parser = run_length)]
    pub duration: Duration,
    /// How long orders are sent before, without being measured.
    #[arg(long, default_value = "0s", value_parser = duration)]
    pub warmup: Duration,
    /// Which orders, in percent.
    #[arg(long, value_name = "KIND=PERCENT,…", default_value = "happy=90,declined=5,out_of_stock=5")]
    pub mix: Mix,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Instead: N orders one after another, each measured from POST to CONFIRMED.
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "at_rest"], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rest: Option<u32>,
    /// The same as --rest COUNT.
    #[arg(long, conflicts_with = "rate", requires = "count")]
    pub at_rest: bool,
    /// How many orders with --at-rest.
    #[arg(long, value_name = "N", requires = "at_rest", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: Option<u32>,
}

/// `sagactl load`.
pub async fn run(system: &System, options: LoadOptions) -> anyhow::Result<ExitCode> {
    if let Some(count) = options.rest.or(options.count) {
        return rest::run(system, count, options.json).await;
    }
    generator::run(system, &options).await
}

fn run_length(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    match length {
        Duration::ZERO => Err("must be longer than 0s".to_owned()),
        length if length > LONGEST => Err(format!("at most {}s", LONGEST.as_secs())),
        length => Ok(length),
    }
}
