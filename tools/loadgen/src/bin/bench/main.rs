//! Shell: tools of scripts/bench.sh: limits of the machine, resource usage of processes, the page of the results.

// Limits of the machine without the system.
mod broker;
mod floor;
mod fsync;
mod machine;
mod nats_server;
mod relay;
mod store;

// Resource usage.
mod proc;
mod usage;

// Page of the results.
mod budget_page;
mod chart;
mod page;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;

/// Measures the limits of the machine, and shows results.
#[derive(Debug, Parser)]
enum Arguments {
    /// Measure the limits of the machine: fsync, the broker alone, the store alone
    Floor(MeasureOptions),
    /// Measure the store alone: events per second by transaction size
    Store {
        #[command(flatten)]
        options: MeasureOptions,
        /// Use this empty PostgreSQL database instead of SQLite.
        #[arg(long, value_name = "URL")]
        postgres: Option<String>,
    },
    /// Measure the relay alone: messages per second from a full outbox
    Relay(MeasureOptions),
    /// Describe this machine
    Machine {
        /// Folder on the file system to describe.
        folder: PathBuf,
    },
    /// Print the resource usage of processes: NAME=PID…
    Usage {
        /// Processes, e.g. order=123.
        #[arg(value_parser = usage::named_pid, required = true)]
        processes: Vec<(String, u32)>,
    },
    /// Print the difference of two results of `usage` per saga
    Used {
        /// Earlier result.
        before: PathBuf,
        /// Later result.
        after: PathBuf,
        /// Number of sagas that ended in between.
        sagas: u64,
    },
    /// Print results as a table
    Table {
        /// File with the results of a run.
        results: PathBuf,
    },
    /// Write results as a page with charts
    Page {
        /// File with the results of a run.
        results: PathBuf,
        /// Folder for README.md, its charts and budget.md.
        folder: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct MeasureOptions {
    /// Folder on the disk to measure; left empty.
    folder: PathBuf,
    /// Time for each measurement.
    #[arg(long, default_value = "5")]
    seconds: u64,
    /// Path of nats-server.
    #[arg(long, env = "NATS_SERVER_BIN", default_value = "nats-server")]
    nats_server: PathBuf,
}

impl MeasureOptions {
    const fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match arguments {
        Arguments::Floor(options) => {
            let length = options.length();
            say(&runtime.block_on(floor::measure(&options.folder, &options.nats_server, length))?)
        }
        Arguments::Store { options, postgres } => say(&runtime.block_on(async {
            match &postgres {
                Some(url) => store::measure_postgres(url, options.length()).await,
                None => store::measure_sqlite(&options.folder, options.length()).await,
            }
        })?),
        Arguments::Relay(options) => {
            let length = options.length();
            say(&runtime.block_on(relay::measure(&options.folder, &options.nats_server, length))?)
        }
        Arguments::Machine { folder } => say(&machine::describe(&folder)?),
        Arguments::Usage { processes } => say(&usage::read(&processes)?),
        Arguments::Used { before, after, sagas } => {
            say(&usage::per_saga(&read(&before)?, &read(&after)?, sagas))
        }
        Arguments::Table { results } => print(&page::table(&read(&results)?)),
        Arguments::Page { results, folder } => {
            std::fs::create_dir_all(&folder)?;
            for (name, text) in page::files(&read(&results)?)? {
                std::fs::write(folder.join(name), text)?;
            }
            Ok(())
        }
    }
}

fn read(path: &std::path::Path) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn say(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
