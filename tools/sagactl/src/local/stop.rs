//! Shell: stopping everything: the services together, then the broker.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use futures::future;
use nix::sys::signal::Signal;

use super::member::Member;
use super::system::System;
use super::{folder, process};
use crate::output::note;

/// A service ends within 10 seconds of SIGTERM; one that does not is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel ends a killed process at once, unless it hangs in the disk.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// `sagactl down`: that nothing runs is no error.
pub async fn down(path: &Path) -> anyhow::Result<ExitCode> {
    let Some(system) = System::find(path)? else {
        note(&format!("nothing was ever started in {}", path.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let _lock = folder::lock(path).await?;
    if Member::all().all(|member| process::find(&system, member).is_none()) {
        note(&format!("nothing runs in {}", path.display()));
    }
    all(&system).await?;
    Ok(ExitCode::SUCCESS)
}

/// Stops everything that runs, to be called under the lock.
pub async fn all(system: &System) -> anyhow::Result<()> {
    let services = future::join_all(Member::services().map(|member| one(system, member))).await;
    // The broker goes last, so that what the services publish while they stop is kept.
    let broker = one(system, Member::NATS).await;
    services.into_iter().chain([broker]).collect()
}

/// Stops one process: SIGTERM, and SIGKILL when that does not help. Does nothing when it does not run.
pub async fn one(system: &System, member: Member) -> anyhow::Result<()> {
    let Some(running) = process::find(system, member) else {
        process::forget(system, member);
        return Ok(());
    };
    process::send(running, Signal::SIGTERM)?;
    if process::wait_until_gone(system, member, PATIENCE).await {
        note(&format!("  {member:<10} stopped"));
    } else {
        note(&format!("  {member:<10} did not stop within {}s and is killed", PATIENCE.as_secs()));
        kill(system, member).await?;
    }
    process::forget(system, member);
    Ok(())
}

/// Kills one process. Its pid file stays: it did not stop, it died.
pub async fn kill(system: &System, member: Member) -> anyhow::Result<()> {
    let Some(running) = process::find(system, member) else {
        return Ok(());
    };
    process::send(running, Signal::SIGKILL)?;
    if process::wait_until_gone(system, member, KILL_PATIENCE).await {
        return Ok(());
    }
    bail!("{member} (pid {}) is still there {}s after SIGKILL", running.pid, KILL_PATIENCE.as_secs())
}
