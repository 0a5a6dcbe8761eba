//! Shell: what people can ask of this program.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::load::LoadOptions;
use crate::member::Member;
use crate::system::Setting;

/// Longest wait that the audit is asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "sagactl", version, about = "Starts, stops, watches, loads and audits a local order saga")]
pub struct Arguments {
    /// Folder with the data of the local system.
    #[arg(long, global = true, value_name = "DIR", env = "SAGA_DATA", default_value = ".saga")]
    pub data: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start nats-server and the five services, each a process of its own
    Up(UpOptions),
    /// Stop everything that `up` started
    Down,
    /// Show every process: pid, port, readiness, memory, uptime. Exit code 0 when all are ready
    Status {
        /// One JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Stop one process
    Stop {
        /// Which.
        name: Member,
    },
    /// Start one process again, and wait until it is ready
    Start {
        /// Which.
        name: Member,
    },
    /// Kill one process (SIGKILL), as a crash would
    Kill {
        /// Which.
        name: Member,
    },
    /// Delete the rows of a kind and fold them anew from the events; the service must be stopped
    Rebuild {
        /// Which service.
        service: Member,
        /// Kind of rows, e.g. "saga" of admin.
        kind: String,
    },
    /// Ask whether the books balance. Exit code 0 when they do, 2 when not
    Audit {
        /// Gives a busy system this long to become quiet.
        #[arg(long, default_value = "30s", value_parser = audit_wait)]
        wait: Duration,
        /// The audit's own JSON.
        #[arg(long)]
        json: bool,
    },
    /// Send orders at a fixed rate, measure how long each takes to its end, and audit the books
    Load(LoadOptions),
}

/// How to start the system.
#[derive(Debug, Args)]
pub struct UpOptions {
    /// Return when everything is ready; the processes go on.
    #[arg(long)]
    pub detach: bool,
    /// Delete the data of earlier runs first.
    #[arg(long)]
    pub fresh: bool,
    /// Ports from N on: admin N, order, inventory, payment, bank, nats N+5. Without it 8080 to 8084 and 4222.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=65_530))]
    pub port_base: Option<u16>,
    /// A setting of a service, e.g. order.service.deadline=5s (may be repeated).
    #[arg(long, value_name = "SERVICE.KEY=VALUE")]
    pub set: Vec<Setting>,
    /// Start with an empty catalogue.
    #[arg(long)]
    pub no_seed: bool,
}

/// Reads `250ms`, `30s`, `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime_serde::re::humantime::parse_duration(text)
        .map_err(|_| "write it like 250ms, 30s or 2m".to_owned())
}

fn audit_wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait > LONGEST_WAIT { Err(format!("at most {}s", LONGEST_WAIT.as_secs())) } else { Ok(wait) }
}
