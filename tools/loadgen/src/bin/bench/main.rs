//! Shell: the tools of scripts/bench.sh: what the machine can do at all, what processes use, and the page that is made
//! of the results.

// What can be had of this machine, without the system.
mod broker;
mod floor;
mod fsync;
mod machine;
mod relay;
mod server;
mod store;

// A long past.
mod seed;

// What processes use.
mod counts;
mod proc;

// What is not measured, as nobody has built it.
mod hot;

// What is made of the results.
mod chart;
mod cost;
mod page;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;

/// Measures what is below the system, and shows what was measured.
#[derive(Debug, Parser)]
enum Arguments {
    /// The machine's own limits: one fsync, the broker alone, the store alone
    Floor(Place),
    /// The store alone: events per second, by size of the transaction
    Store {
        #[command(flatten)]
        place: Place,
        /// An empty database of PostgreSQL that is meant, in place of SQLite's in the folder.
        #[arg(long, value_name = "URL")]
        postgres: Option<String>,
    },
    /// The relay alone: what it publishes per second of a full outbox
    Relay(Place),
    /// Many finished orders beside those of a local system that is down, in all of its databases and streams
    Seed(seed::Wanted),
    /// What hot products cost when the work is spread over 1, 4 and 16 partitions: a simulation
    Hot(hot::World),
    /// What this machine is
    Machine {
        /// Folder whose file system is meant.
        folder: PathBuf,
    },
    /// What each process has used so far: NAME=PID…
    Usage {
        /// Processes.
        #[arg(value_parser = counts::named_pid, required = true)]
        processes: Vec<(String, u32)>,
    },
    /// What each used between two answers of `usage`
    Used {
        /// The earlier answer.
        before: PathBuf,
        /// The later one.
        after: PathBuf,
        /// Sagas that ended in between.
        sagas: u64,
    },
    /// The results as a table, for a terminal
    Table {
        /// The results of a run.
        results: PathBuf,
    },
    /// The results as a page with charts
    Page {
        /// The results of a run.
        results: PathBuf,
        /// Where README.md, its charts and budget.md go.
        folder: PathBuf,
    },
}

/// Where and how long something is measured.
#[derive(Debug, clap::Args)]
struct Place {
    /// Folder on the disk that is meant; nothing is left in it.
    folder: PathBuf,
    /// How long each is measured.
    #[arg(long, default_value = "5")]
    seconds: u64,
    /// The broker's program.
    #[arg(long, env = "NATS_SERVER_BIN", default_value = "nats-server")]
    nats_server: PathBuf,
}

impl Place {
    const fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody listens when standard error is closed.
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match arguments {
        Arguments::Floor(place) => {
            let length = place.length();
            say(&runtime.block_on(floor::measure(&place.folder, &place.nats_server, length))?)
        }
        Arguments::Store { place, postgres } => say(&runtime.block_on(async {
            match &postgres {
                Some(url) => store::measure_on_a_server(url, place.length()).await,
                None => store::measure(&place.folder, place.length()).await,
            }
        })?),
        Arguments::Relay(place) => {
            let length = place.length();
            say(&runtime.block_on(relay::measure(&place.folder, &place.nats_server, length))?)
        }
        Arguments::Seed(wanted) => say(&runtime.block_on(seed::make(&wanted))?),
        Arguments::Hot(world) => say(&hot::simulate(&world)?),
        Arguments::Machine { folder } => say(&machine::look(&folder)?),
        Arguments::Usage { processes } => say(&counts::look(&processes)?),
        Arguments::Used { before, after, sagas } => {
            say(&counts::between(&read(&before)?, &read(&after)?, sagas))
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
