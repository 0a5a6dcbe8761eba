//! Shell: stopping, starting and killing one process, while the others go on.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::member::Member;
use super::system::System;
use super::{broker, folder, process, readiness, stop};
use crate::args::duration;
use crate::http::Http;
use crate::output::{exit, note};

/// `sagactl stop NAME`. Nothing to do is success.
pub async fn stop(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = folder::lock(system.folder()).await?;
    if process::find(system, member).is_none() {
        note(&format!("{member} is not running"));
    }
    stop::one(system, member).await?;
    Ok(ExitCode::SUCCESS)
}

/// What to start, and how.
#[derive(Debug, Args)]
pub struct StartOptions {
    /// The process that is meant.
    name: Member,
    /// How long it may take until it is ready.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    within: Duration,
    /// Accept this loss of its data, by the name that its refused start gave it; for this start only.
    #[arg(long, value_name = "LOSS")]
    accept_loss: Option<String>,
}

/// `sagactl start NAME`. Nothing to do is success.
pub async fn start(system: System, options: StartOptions) -> anyhow::Result<ExitCode> {
    let StartOptions { name: member, within, accept_loss } = options;
    let system = &match accept_loss {
        Some(_) if member == Member::NATS => {
            return Err(exit::refuse("nats keeps no database: --accept-loss is for services"));
        }
        Some(loss) => system.with(member, format!("store.accept_loss={loss}")),
        None => system,
    };
    let _lock = folder::lock(system.folder()).await?;
    if let Some(running) = process::find(system, member) {
        note(&format!("{member} runs already (pid {})", running.pid));
        return Ok(ExitCode::SUCCESS);
    }
    process::wait_for_port(system, member).await?;
    // Somebody may have deleted it, to begin anew.
    std::fs::create_dir_all(system.data_of(member)).with_context(|| folder::unwritable(system.folder()))?;
    if member == Member::NATS {
        broker::configure(system)?;
    }
    let mut started = [(member, process::spawn(system, member)?)];
    if let Err(error) = readiness::wait(&Http::new()?, system, &mut started, within).await {
        stop::one(system, member).await?;
        return Err(error);
    }
    Ok(ExitCode::SUCCESS)
}

/// `sagactl kill NAME`.
pub async fn kill(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = folder::lock(system.folder()).await?;
    let Some(running) = process::find(system, member) else {
        return Err(exit::refuse(format!("{member} is not running")));
    };
    stop::kill(system, member).await?;
    note(&format!("  {member:<10} killed (pid {})", running.pid));
    Ok(ExitCode::SUCCESS)
}
