//! Shell: the subcommands for the local system.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use devstack::options::Whose;
use devstack::single::{self, StartOptions};
use devstack::up::{self, UpOptions};
use devstack::{Member, Reach, System, credentials, front, rebuild, seed, stop};

/// What to do with the local system.
#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Start nats-server and the five services, each a process of its own; also several of each
    Up(UpOptions),
    /// Stop everything that `up` started
    Down,
    /// Stop one process
    Stop(One),
    /// Start one process again, and wait until it is ready
    Start(StartOptions),
    /// Kill one process (SIGKILL), as a crash would
    Kill(One),
    /// Delete the rows of a kind and fold them anew from the events; the service must be stopped
    Rebuild {
        /// Service whose rows they are.
        #[arg(value_parser = Member::parser_of(Member::services()))]
        service: Member,
        /// Kind of rows, e.g. "saga" of admin.
        kind: String,
        /// Bring back first what has left for the archive (`retention.archive`).
        #[arg(long)]
        archived: bool,
    },
    /// Spread requests over the replicas of each service; `up --replicas` starts it
    #[command(hide = true)]
    Front,
    /// List the demo's products, and wait until they can be ordered; `up` does so by itself
    Seed(Whose),
    /// Make the secrets of a system in containers: what is there already is kept. None is printed
    Credentials {
        /// The folder, which is made when it is not there: a folder below it for each program, to be given to that one.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct One {
    /// The process that is meant.
    name: Member,
}

/// Where the services are that are meant; `folder` is that of the local system.
pub fn reach(whose: &Whose, folder: &Path) -> anyhow::Result<Reach> {
    match whose.by_name {
        true => Reach::by_name(whose.credentials.as_deref()),
        false => System::open(folder)?.reach(),
    }
}

/// Does it with the system in `folder`, an absolute path.
pub async fn run(command: LocalCommand, folder: PathBuf) -> anyhow::Result<ExitCode> {
    let system = || System::open(&folder);
    match command {
        LocalCommand::Up(options) => up::run(folder, options).await,
        LocalCommand::Down => stop::down(&folder).await,
        LocalCommand::Front => front::run(system()?).await,
        LocalCommand::Stop(One { name }) => single::stop(&system()?, name).await,
        LocalCommand::Start(options) => single::start(system()?, options).await,
        LocalCommand::Kill(One { name }) => single::kill(&system()?, name).await,
        LocalCommand::Rebuild { service, kind, archived } => {
            rebuild::run(&system()?, service, &kind, archived)
        }
        LocalCommand::Seed(whose) => seed::run(&reach(&whose, &folder)?).await,
        LocalCommand::Credentials { folder } => credentials::run(&folder),
    }
}
