//! Shell: stopping and killing processes.

use std::path::Path;
use std::time::Duration;

use admin_api::audit_log::ProcessChangeKind;
use anyhow::bail;
use cli::{exit, note};
use futures::future;
use nix::sys::signal::Signal;

use super::audit::Audit;
use super::component::Component;
use super::system::System;
use super::{data_dir, process};

/// A service ends within 10 seconds of SIGTERM.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The kernel ends a killed process at once, unless it hangs in the disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// `sagactl down`. Succeeds if nothing runs.
pub async fn down(path: &Path, audit: &Audit) -> anyhow::Result<()> {
    let Some(system) = System::find(path)? else {
        note(&format!("no system was ever started in {}", path.display()));
        return Ok(());
    };
    let _lock = data_dir::lock(path).await?;
    if system.components().all(|component| process::find(&system, component).is_none()) {
        note(&format!("nothing runs in {}", path.display()));
    }
    stop_all(&system, audit).await
}

/// `sagactl stop NAME`. Succeeds if it does not run.
pub async fn stop(system: &System, component: Component, audit: &Audit) -> anyhow::Result<()> {
    let components = system.named(component)?;
    let _lock = data_dir::lock(system.folder()).await?;
    // At once: others wait for the lock, and give up after the time that one stop takes.
    let stopped = components.into_iter().map(async |component| {
        if process::find(system, component).is_none() {
            note(&format!("{component} is not running"));
        }
        stop_one(system, component, audit).await
    });
    future::join_all(stopped).await.into_iter().collect()
}

/// `sagactl kill NAME`.
pub async fn kill(system: &System, component: Component, audit: &Audit) -> anyhow::Result<()> {
    let component = system.checked(component)?;
    let _lock = data_dir::lock(system.folder()).await?;
    let Some(running) = process::find(system, component) else {
        return Err(exit::rejected(format!("{component} is not running")));
    };
    let killed = audit.record(system, ProcessChangeKind::Kill, component, async {
        kill_one(system, component).await?;
        process::mark_killed(system, component, running)
    });
    killed.await?;
    note(&format!("  {component:<11} killed (pid {})", running.pid));
    Ok(())
}

/// Stops everything that runs. Call it with the folder's lock.
pub async fn stop_all(system: &System, audit: &Audit) -> anyhow::Result<()> {
    let layout = system.layout();
    let stop_one = |component| stop_one(system, component, audit);
    let services = future::join_all(layout.services().map(stop_one)).await;
    let proxy = future::join_all(layout.proxy().map(stop_one)).await;
    // Last, so that what the services publish while they stop is stored.
    let infrastructure = future::join_all(layout.infrastructure().map(stop_one)).await;
    services.into_iter().chain(proxy).chain(infrastructure).collect()
}

/// Stops a process: SIGTERM, then SIGKILL after the time limit. Does nothing if it does not run.
pub async fn stop_one(system: &System, component: Component, audit: &Audit) -> anyhow::Result<()> {
    let Some(running) = process::find(system, component) else {
        process::delete_pid_file(system, component);
        return Ok(());
    };
    let stopped = audit.record(system, ProcessChangeKind::Stop, component, async {
        process::send(running, stop_signal(component))?;
        if process::wait_until_gone(system, component, STOP_TIMEOUT).await {
            note(&format!("  {component:<11} stopped"));
        } else {
            note(&format!("  {component:<11} did not stop within {}s and is killed", STOP_TIMEOUT.as_secs()));
            kill_one(system, component).await?;
        }
        Ok(())
    });
    stopped.await?;
    process::delete_pid_file(system, component);
    Ok(())
}

/// Signal for a graceful stop. PostgreSQL waits at SIGTERM until all clients have disconnected.
pub fn stop_signal(component: Component) -> Signal {
    if component == Component::POSTGRES { Signal::SIGINT } else { Signal::SIGTERM }
}

/// Kills a process. Its pid file stays: it did not stop, it died.
pub async fn kill_one(system: &System, component: Component) -> anyhow::Result<()> {
    let Some(running) = process::find(system, component) else {
        return Ok(());
    };
    process::send(running, Signal::SIGKILL)?;
    if process::wait_until_gone(system, component, KILL_TIMEOUT).await {
        return Ok(());
    }
    bail!("{component} (pid {}) still runs {}s after SIGKILL", running.pid, KILL_TIMEOUT.as_secs())
}
