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
use cli::note;

/// A service ends within 10 seconds of SIGTERM; one that does not is stuck.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel ends a killed process at once, unless it hangs in the disk.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// `sagactl down`: that nothing runs is no error.
pub async fn down(path: &Path) -> anyhow::Result<ExitCode> {
    let Some(system) = System::find(path)? else {
        note(&format!("nothing was ever started in {}", path.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let _lock = folder::lock(path).await?;
    if system.members().all(|member| process::find(&system, member).is_none()) {
        note(&format!("nothing runs in {}", path.display()));
    }
    all(&system).await?;
    Ok(ExitCode::SUCCESS)
}

/// Stops everything that runs, to be called under the lock.
pub async fn all(system: &System) -> anyhow::Result<()> {
    let layout = system.layout();
    let services = future::join_all(layout.services().map(|member| one(system, member))).await;
    let front = future::join_all(layout.front().map(|member| one(system, member))).await;
    // What they need goes last, so that what the services publish while they stop is kept.
    let ground = future::join_all(layout.ground().map(|member| one(system, member))).await;
    services.into_iter().chain(front).chain(ground).collect()
}

/// Stops one process: SIGTERM, and SIGKILL when that does not help. Does nothing when it does not run.
pub async fn one(system: &System, member: Member) -> anyhow::Result<()> {
    let Some(running) = process::find(system, member) else {
        process::forget(system, member);
        return Ok(());
    };
    process::send(running, signal_of(member))?;
    if process::wait_until_gone(system, member, PATIENCE).await {
        note(&format!("  {member:<11} stopped"));
    } else {
        note(&format!("  {member:<11} did not stop within {}s and is killed", PATIENCE.as_secs()));
        kill(system, member).await?;
    }
    process::forget(system, member);
    Ok(())
}

/// What ends a process in good order. To a database server SIGTERM says to wait until nobody is connected any more.
pub fn signal_of(member: Member) -> Signal {
    if member == Member::POSTGRES { Signal::SIGINT } else { Signal::SIGTERM }
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
