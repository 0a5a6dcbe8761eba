//! Shell: what people can ask of this program.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::exit;
use crate::load::LoadOptions;
use crate::member::Member;
use crate::operator::{self, OperatorCommand};
use crate::system::Setting;

/// Longest wait that the audit is asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "sagactl",
    version,
    about = "Starts, stops, watches, loads and audits a local order saga, and mends what got stuck",
    after_help = exit::HELP
)]
pub struct Arguments {
    /// Folder with the data of the local system.
    #[arg(long, global = true, value_name = "DIR", env = "SAGA_DATA", default_value = ".saga", value_parser = folder)]
    pub data: PathBuf,
    /// Address of another admin than the local system's; then no data folder is needed.
    #[arg(long, global = true, value_name = "URL", env = "SAGA_ADMIN", value_parser = operator::address)]
    pub admin: Option<String>,
    /// Who does this, for the audit log [env: SAGA_OPERATOR=] [default: $USER]; with `log`: whose entries.
    // No default and no variable here: `log` must tell whether somebody was named.
    #[arg(long, global = true, value_name = "NAME", value_parser = operator::operator_name)]
    pub operator: Option<String>,
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
    /// See what is stuck or parked, and mend it.
    #[command(flatten)]
    Operate(OperatorCommand),
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

/// Reads a path. Whoever means a message's data is told how to say it.
fn folder(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("a folder has a name".to_owned()),
        json if json.starts_with('{') => {
            Err("this is the folder of the local system; a message's data is --new-data".to_owned())
        }
        path => Ok(path.into()),
    }
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parses(line: &str) -> bool {
        Arguments::try_parse_from(std::iter::once("sagactl").chain(line.split(' '))).is_ok()
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn commands_that_make_sense_are_taken() {
        let id = "01890000-0000-7000-8000-000000000001";
        let good = [
            "dlq list --status pending,replaying --since 10m --limit 5 --json",
            "dlq groups --service payment",
            &format!("dlq replay {id} {id}"),
            &format!("dlq replay {id} --force --reason lost"),
            "dlq replay --fingerprint abc --reason mended",
            &format!("dlq edit {id} --reason typo --new-data {{}}"),
            &format!("dlq edit {id} --reason typo"),
            &format!("dlq note {id} asked"),
            "dlq redrive --fingerprint abc --canary 3 --rate 10 --reason mended --detach",
            "dlq redrive --fingerprint abc --preview",
            &format!("redrive follow {id} --operator ada"),
            "saga list --status in_progress --overdue --stuck-at payment-processing",
            "breakers",
            "breakers --json",
            "breakers open payment/bank --reason maintenance",
            "breakers reset payment/bank",
            "faults",
            "faults list --json",
            "faults inject payment delay --step payment-processing --delay 500ms --probability 50",
            "faults clear",
            "faults clear payment 7",
            "outbox retry order 7",
            "log --operator ada --action dlq.replay --admin http://host:1",
        ];
        for line in good {
            assert!(parses(line), "{line}");
        }
    }

    #[test]
    fn commands_that_make_no_sense_are_refused() {
        let id = "01890000-0000-7000-8000-000000000001";
        let bad = [
            "dlq list --status LOST",
            "dlq replay",
            "dlq replay 7",
            "dlq replay --fingerprint abc",
            &format!("dlq replay {id} --force"),
            &format!("dlq replay {id} --fingerprint abc --reason x"),
            &format!("dlq edit {id} --new-data {{}}"),
            &format!("dlq edit {id} --reason x --new-data {{"),
            &format!("dlq edit {id} --reason x --new-data 1 --payload 2"),
            "dlq discard",
            "dlq redrive --fingerprint abc",
            "breakers open payment --reason x",
            "breakers open payment/bank",
            "faults inject payment",
            "faults inject payment delay --delay 1h",
            "faults clear payment",
            "saga list --status LOST",
            "log --operator jörg",
            "breakers --admin localhost:8080",
        ];
        for line in bad {
            assert!(!parses(line), "{line}");
        }
    }
}
