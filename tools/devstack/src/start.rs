//! Shell: starting single processes while the others run.

use std::time::Duration;

use admin_api::audit_log::ProcessChangeKind;
use anyhow::{Context as _, bail};
use clap::Args;
use cli::args::duration;
use cli::{exit, note};
use client::http::Http;
use futures::future;

use super::audit::Audit;
use super::component::Component;
use super::process::StartedProcess;
use super::stop::stop_one;
use super::system::System;
use super::{broker, command_line, data_dir, postgres, process, readiness};

#[derive(Debug, Args)]
pub struct StartOptions {
    /// Process to start: a service, one of its replicas, nats, postgres.
    name: Component,
    /// Time limit for it to become ready.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    within: Duration,
    /// Accept a loss of data, by the name that the rejected start printed. Holds for this start only.
    #[arg(long, value_name = "LOSS")]
    accept_loss: Option<String>,
}

/// `sagactl start NAME`. Succeeds if it runs already.
pub async fn start(system: System, options: StartOptions, audit: &Audit) -> anyhow::Result<()> {
    let StartOptions { name, within, accept_loss } = options;
    let components = system.named(name)?;
    let system = &match accept_loss {
        Some(_) if name.participant().is_none() => {
            return Err(exit::rejected(format!("{name} has no database: --accept-loss is for services")));
        }
        Some(loss) => system.with(name, format!("store.accept_loss={loss}")),
        None => system,
    };
    let mut started = Vec::new();
    for component in components {
        started.extend(start_one(system, component, audit).await?.map(|process| (component, process)));
    }
    // Without the lock: the process may wait for another, which somebody has to start meanwhile.
    let http = Http::new()?;
    let waits =
        started.iter_mut().map(|one| readiness::wait(&http, system, std::slice::from_mut(one), within));
    let (ready, mut stopped) = (future::join_all(waits).await, Ok(()));
    for ((component, process), _) in started.iter().zip(&ready).filter(|(_, ready)| ready.is_err()) {
        stopped = stop_started(system, *component, process.child.id(), audit).await.and(stopped);
    }
    // The reason why a process is not ready comes first.
    ready.into_iter().collect::<anyhow::Result<()>>()?;
    stopped?;
    let started = started.iter().map(|(component, _)| *component);
    let ended = Component::names(started.filter(|component| process::was_ended(system, *component)));
    if !ended.is_empty() {
        bail!("another command has stopped {ended} meanwhile");
    }
    Ok(())
}

/// Starts a process with the lock of the folder; `None` if it runs already.
async fn start_one(
    system: &System,
    component: Component,
    audit: &Audit,
) -> anyhow::Result<Option<StartedProcess>> {
    if is_running(system, component) {
        return Ok(None);
    }
    // Also without the lock: a port may be held for a minute.
    process::wait_for_ports(system, component, process::PORT_TIMEOUT).await?;
    let _lock = data_dir::lock(system.folder()).await?;
    if is_running(system, component) {
        return Ok(None);
    }
    let started = audit.record(system, ProcessChangeKind::Start, component, async {
        configure(system, component)?;
        process::spawn(system, component)
    });
    started.await.map(Some)
}

/// Writes what a process needs at its start.
fn configure(system: &System, component: Component) -> anyhow::Result<()> {
    // The user may have deleted it, for an empty database.
    std::fs::create_dir_all(system.data_of(component))
        .with_context(|| data_dir::unwritable(system.folder()))?;
    match component.kind() {
        Component::NATS => broker::configure(system, component),
        Component::POSTGRES => postgres::prepare(system),
        _ => check_broker_key(system, component),
    }
}

/// Returns whether a process runs, and notes that it does.
pub fn is_running(system: &System, component: Component) -> bool {
    let running = process::find(system, component);
    if let Some(running) = running {
        note(&format!("{component} already runs (pid {})", running.pid));
    }
    running.is_some()
}

/// Stops a process that does not become ready, unless somebody has started another one in its place.
async fn stop_started(system: &System, component: Component, pid: u32, audit: &Audit) -> anyhow::Result<()> {
    let _lock = data_dir::lock(system.folder()).await?;
    match process::find(system, component) {
        Some(running) if running.pid != pid => Ok(()),
        Some(_) | None => stop_one(system, component, audit).await,
    }
}

fn check_broker_key(system: &System, component: Component) -> anyhow::Result<()> {
    let key = system.broker_key_of(&component.kind().to_string());
    if component.has_stream() && !key.exists() {
        bail!(
            "{component} has no key for the broker: {} does not exist; {} and then {} creates a new one",
            key.display(),
            command_line::for_system(system.folder(), "down"),
            command_line::for_system(system.folder(), "up --detach")
        );
    }
    Ok(())
}
