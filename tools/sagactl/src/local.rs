//! Shell: subcommands for the local system.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use devstack::audit::{self, Audit, Operator};
use devstack::options::Target;
use devstack::start::{self, StartOptions};
use devstack::up::{self, UpOptions};
use devstack::{Component, Endpoints, System, catalogue, credentials, proxy, rebuild, stop};

#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Start a local system: nats-server and the five services, each as a process; also several of each
    Up(UpOptions),
    /// Stop all processes that `up` started
    Down,
    /// Stop a process
    Stop(Name),
    /// Start a stopped process and wait until it is ready
    Start(StartOptions),
    /// Kill a process (SIGKILL), as in a crash
    Kill(Name),
    /// Delete the rows of a kind and rebuild them from the events; the service must be stopped
    Rebuild {
        /// Service that owns the rows.
        #[arg(value_parser = Component::parser_of(Component::services()))]
        service: Component,
        /// Kind of rows, e.g. "saga" of admin.
        kind: String,
        /// First restore what was purged to the archive (`retention.archive`).
        #[arg(long)]
        archived: bool,
    },
    /// Spread requests over the replicas of each service; `up --replicas` starts it
    #[command(hide = true)]
    Proxy,
    /// List the demo's products and wait until they can be ordered; `up` does this too
    Seed(Target),
    /// Create the credentials of a system in containers; existing ones are kept, and none is printed
    Credentials {
        /// Folder, created if missing, with a folder for each program, to be mounted by that program.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct Name {
    /// A service, one of its replicas (order-2), nats, postgres.
    name: Component,
}

/// Addresses of the services; `folder` is that of the local system.
pub fn endpoints(target: &Target, folder: &Path) -> anyhow::Result<Endpoints> {
    match target.by_name {
        true => Endpoints::by_name(target.credentials.as_deref()),
        false => System::open(folder)?.endpoints(),
    }
}

/// Runs a command for the system in `folder`, an absolute path.
pub async fn run(command: LocalCommand, folder: PathBuf, operator: Operator) -> anyhow::Result<ExitCode> {
    let system = || System::open(&folder);
    let audit = |command| Audit::of(operator, command);
    match command {
        LocalCommand::Up(options) => return up::run(folder, options, &audit("up")).await,
        LocalCommand::Rebuild { service, kind, archived } => {
            return rebuild::run(&system()?, service, &kind, archived);
        }
        LocalCommand::Down => stop::down(&folder, &audit("down")).await?,
        LocalCommand::Proxy => proxy::run(system()?).await?,
        LocalCommand::Stop(Name { name }) => {
            let system = system()?;
            then_deliver(&system, stop::stop(&system, name, &audit("stop"))).await?;
        }
        LocalCommand::Start(options) => {
            let system = system()?;
            then_deliver(&system, start::start(system.clone(), options, &audit("start"))).await?;
        }
        LocalCommand::Kill(Name { name }) => {
            let system = system()?;
            then_deliver(&system, stop::kill(&system, name, &audit("kill"))).await?;
        }
        LocalCommand::Seed(target) => catalogue::seed(&endpoints(&target, &folder)?).await?,
        LocalCommand::Credentials { folder } => credentials::run(&folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes processes, and then sends to admin's audit log what it lacks.
async fn then_deliver(
    system: &System,
    change: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let changed = change.await;
    audit::deliver(system).await;
    changed
}
