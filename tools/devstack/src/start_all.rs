//! Shell: starting all processes of a system in order.

use std::fs::File;

use admin_api::audit_log::ProcessChangeKind;
use anyhow::bail;
use cli::{exit, note};
use client::http::Http;

use super::audit::Audit;
use super::component::Component;
use super::process::{self, StartedProcess};
use super::stop::stop_all;
use super::supervise::ShutdownSignal;
use super::system::System;
use super::{catalogue, data_dir, readiness, start};

/// Processes of a system that was just started.
pub struct StartedSystem {
    pub processes: Vec<(Component, StartedProcess)>,
    /// Processes that an operator has stopped or killed meanwhile.
    pub ended: Vec<Component>,
}

/// Starts all processes and waits until they are ready; then seeds the catalogue, on request. Stops all if that fails or is
/// interrupted. Releases the folder's `lock` while it waits: others may start and stop single processes, or all.
pub async fn start_all(
    system: &System,
    lock: File,
    seed: bool,
    shutdown_signal: &mut ShutdownSignal,
    audit: &Audit,
) -> anyhow::Result<StartedSystem> {
    let mut processes = Vec::new();
    let outcome = tokio::select! {
        outcome = start_in_order(system, lock, &mut processes, seed, audit) => outcome,
        () = shutdown_signal.recv() => Err(exit::ExitError::new(exit::INTERRUPTED, "interrupted while starting").into()),
    };
    if let Err(error) = outcome {
        if let Err(why) = stop_all_alone(system, audit).await {
            note(&format!("not everything was stopped: {why:#}"));
        }
        return Err(error);
    }
    let ended = ended(system, &processes);
    // What somebody has started since is not touched.
    if ended.len() == processes.len() {
        bail!("everything was stopped by another command while it started");
    }
    Ok(StartedSystem { processes, ended })
}

async fn stop_all_alone(system: &System, audit: &Audit) -> anyhow::Result<()> {
    let _lock = data_dir::lock(system.folder()).await?;
    stop_all(system, audit).await
}

fn ended(system: &System, started: &[(Component, StartedProcess)]) -> Vec<Component> {
    let started = started.iter().map(|(component, _)| *component);
    started.filter(|component| process::was_ended(system, *component)).collect()
}

async fn start_in_order(
    system: &System,
    lock: File,
    started: &mut Vec<(Component, StartedProcess)>,
    seed: bool,
    audit: &Audit,
) -> anyhow::Result<()> {
    let http = Http::new()?;
    note(&format!("starting the system in {}", system.folder().display()));
    let layout = system.layout();
    let services = layout.services().chain(layout.proxy());
    let mut lock = Some(lock);
    for components in [layout.infrastructure().collect::<Vec<_>>(), services.collect()] {
        let first = started.len();
        let taken = match lock.take() {
            Some(lock) => lock,
            None => data_dir::lock(system.folder()).await?,
        };
        if first > 0 && ended(system, started).len() == first {
            return Ok(());
        }
        for component in components {
            if !start::is_running(system, component) {
                let start = async { process::spawn(system, component) };
                let process = audit.record(system, ProcessChangeKind::Start, component, start).await?;
                started.push((component, process));
            }
        }
        drop(taken);
        readiness::wait(&http, system, &mut started[first..], readiness::LIMIT).await?;
    }
    if seed && let Err(error) = seed_catalogue(system).await {
        if ended(system, started).is_empty() {
            return Err(error);
        }
        note(&format!("the catalogue is not seeded: {error:#}"));
    }
    Ok(())
}

async fn seed_catalogue(system: &System) -> anyhow::Result<()> {
    catalogue::seed(&system.endpoints()?).await
}
