//! Shell: the local system: nats-server and the five services as processes of this machine, in one folder.

// The processes, their names and ports.
pub mod member;

// How they are started, and the folder in which they live.
mod arguments;
mod folder;
pub mod plan;
mod system;
pub mod tokens;

// One process: start, find, signal; what the broker and the database server are told; whether it can do its work; its end.
mod broker;
mod credentials;
mod front;
mod postgres;
mod process;
mod readiness;
mod stop;
mod users;

// What can be asked of the system.
mod notices;
mod options;
pub mod processes;
mod rebuild;
mod revive;
mod running;
mod single;
pub mod status;
mod supervise;
pub mod told;
mod up;

// Where it is, and the products it sells.
pub mod catalogue;
mod reach;
mod seed;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use self::member::{Member, Ports};
pub use self::options::LayoutOptions;
pub use self::plan::{Layout, Setting};
pub use self::postgres::url_of as postgres_url;
pub use self::reach::Reach;
pub use self::running::RunningSystem;
pub use self::status::Usage;
pub use self::supervise::ShutdownSignal;
pub use self::system::System;
pub use self::users::SAGACTL;
use crate::args::Whose;

/// What to do with the local system.
#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Start nats-server and the five services, each a process of its own; also several of each
    Up(up::UpOptions),
    /// Stop everything that `up` started
    Down,
    /// Stop one process
    Stop(One),
    /// Start one process again, and wait until it is ready
    Start(single::StartOptions),
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

/// Signals a process, if it runs.
pub fn signal(system: &System, member: Member, signal: nix::sys::signal::Signal) {
    // One that is gone needs none.
    let _ = process::find(system, member).map(|running| process::send(running, signal));
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
