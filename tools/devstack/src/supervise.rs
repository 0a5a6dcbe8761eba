//! Shell: `sagactl up` in the foreground: reports processes that end or return, and notifications, until a signal.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use cli::print;
use client::http::Http;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::audit::Audit;
use super::component::Component;
use super::stop::stop_all;
use super::system::System;
use super::{command_line, data_dir, notifications, process};

const POLL: Duration = Duration::from_millis(250);

/// A stop deletes the pid file this soon after the process has ended. One that is still there means a crash.
const PID_FILE_DELETED_WITHIN: Duration = Duration::from_millis(200);

/// SIGINT, SIGTERM and SIGHUP. While this exists they do not end the program.
pub struct ShutdownSignal([Signal; 3]);

impl ShutdownSignal {
    pub fn listen() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for one of them.
    pub async fn recv(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Supervises until a signal, and then stops everything. Also ends when everything was stopped by another command.
///
/// # Errors
/// If the last process has crashed.
pub async fn run(
    system: &System,
    audit: &Audit,
    mut children: Vec<(Component, Child)>,
    mut shutdown_signal: ShutdownSignal,
) -> anyhow::Result<()> {
    let mut known: BTreeSet<Component> = system.components().collect();
    let mut notifications = Box::pin(notifications::watch(system, Http::with_access(&system.access()?)?));
    loop {
        tokio::select! {
            () = shutdown_signal.recv() => break,
            () = &mut notifications => {}
            () = tokio::time::sleep(POLL) => {}
        }
        let mut ended = reap(&mut children);
        let running: BTreeSet<_> =
            system.components().filter(|component| process::find(system, *component).is_some()).collect();
        if !known.is_subset(&running) {
            tokio::time::sleep(PID_FILE_DELETED_WITHIN).await;
            ended.extend(reap(&mut children));
        }
        for component in known.difference(&running) {
            report_end(system, *component, ended.iter().find(|(ended, _)| ended == component));
        }
        for component in running.difference(&known) {
            print(&format!("{component} runs again"));
        }
        known = running;
        if known.is_empty() {
            return report_end_of_all(system);
        }
    }
    print("stopping everything");
    let _lock = data_dir::lock(system.folder()).await?;
    stop_all(system, audit).await?;
    reap(&mut children);
    Ok(())
}

fn report_end_of_all(system: &System) -> anyhow::Result<()> {
    let crashed = system.components().filter(|component| process::has_pid_file(system, *component));
    let crashed = Component::names(crashed);
    if crashed.is_empty() {
        print("everything was stopped");
        return Ok(());
    }
    anyhow::bail!(
        "nothing runs any more: {crashed} died and was not stopped; see the logs in {}",
        system.log_dir().display()
    )
}

/// Reaps children that ended, and returns their exit status.
fn reap(children: &mut Vec<(Component, Child)>) -> Vec<(Component, ExitStatus)> {
    let mut ended = Vec::new();
    children.retain_mut(|(component, child)| match child.try_wait() {
        Ok(Some(status)) => {
            ended.push((*component, status));
            false
        }
        Ok(None) => true,
        Err(_) => false,
    });
    ended
}

fn report_end(system: &System, component: Component, ended: Option<&(Component, ExitStatus)>) {
    if !process::has_pid_file(system, component) {
        print(&format!("{component} was stopped"));
        return;
    }
    let status = ended.map_or_else(String::new, |(_, status)| format!(" ({status})"));
    let start = command_line::for_system(system.folder(), &format!("start {component}"));
    let (log, stderr) = (system.log_of(component), system.stderr_of(component));
    print(&format!(
        "{component} died{status}: see {} and {}, and start it again with: {start}",
        log.display(),
        stderr.display()
    ));
}
