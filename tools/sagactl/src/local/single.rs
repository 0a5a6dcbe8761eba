//! Shell: stopping, starting and killing one process, while the others go on.

use std::process::ExitCode;

use anyhow::bail;

use super::member::Member;
use super::system::System;
use super::{broker, folder, process, readiness, stop};
use crate::http::Http;
use crate::output::note;

/// `sagactl stop NAME`. Nothing to do is success.
pub async fn stop(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = folder::lock(system.folder()).await?;
    if process::find(system, member).is_none() {
        note(&format!("{member} is not running"));
    }
    stop::one(system, member).await?;
    Ok(ExitCode::SUCCESS)
}

/// `sagactl start NAME`. Nothing to do is success.
pub async fn start(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = folder::lock(system.folder()).await?;
    if let Some(running) = process::find(system, member) {
        note(&format!("{member} runs already (pid {})", running.pid));
        return Ok(ExitCode::SUCCESS);
    }
    process::wait_for_port(system, member).await?;
    if member == Member::NATS {
        broker::configure(system)?;
    }
    let mut started = [(member, process::spawn(system, member)?)];
    if let Err(error) = readiness::wait(&Http::new()?, system, &mut started).await {
        stop::one(system, member).await?;
        return Err(error);
    }
    Ok(ExitCode::SUCCESS)
}

/// `sagactl kill NAME`.
pub async fn kill(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = folder::lock(system.folder()).await?;
    let Some(running) = process::find(system, member) else { bail!("{member} is not running") };
    stop::kill(system, member).await?;
    note(&format!("  {member:<10} killed (pid {})", running.pid));
    Ok(ExitCode::SUCCESS)
}
