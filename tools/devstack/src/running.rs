//! Shell: a system that this program has started for itself, and whose processes it may kill, pause and restart.

use std::fs::File;
use std::path::Path;
use std::process::Child;

use anyhow::bail;
use nix::sys::signal::Signal;

use super::audit::Audit;
use super::component::{Component, Ports};
use super::plan::{Layout, Setting};
use super::process::OutputStart;
use super::start_all::start_all;
use super::supervise::ShutdownSignal;
use super::system::System;
use super::{data_dir, process, process_output, stop, up};

/// Processes of a system. While this exists, nobody else starts or stops any of them.
pub struct RunningSystem {
    pub system: System,
    children: Vec<Child>,
    _lock: File,
}

impl RunningSystem {
    /// Starts a system with a seeded catalogue in an empty folder.
    pub async fn start(
        path: &Path,
        (ports, layout): (Ports, Layout),
        settings: Vec<Setting>,
        shutdown_signal: &mut ShutdownSignal,
    ) -> anyhow::Result<Self> {
        let plan = up::plan(ports, layout)?.with(settings);
        up::wait_for_ports(&System::planned(path, plan.clone())).await?;
        let lock = data_dir::lock(path).await?;
        let system = up::prepare(path, plan, false)?;
        let started = start_all(&system, lock, true, shutdown_signal, &Audit::off()).await?;
        let children = started.processes.into_iter().map(|(_, started)| started.child).collect();
        let lock = data_dir::lock(path).await?;
        Ok(Self { system, children, _lock: lock })
    }

    /// Stops everything, including paused processes.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        for component in self.system.components() {
            self.signal(component, Signal::SIGCONT)?;
        }
        let stopped = stop::stop_all(&self.system, &Audit::off()).await;
        self.reap();
        stopped
    }

    /// Processes that do not run.
    pub fn missing(&self) -> Vec<Component> {
        self.system.components().filter(|component| !self.is_running(*component)).collect()
    }

    pub fn is_running(&self, component: Component) -> bool {
        process::find(&self.system, component).is_some()
    }

    /// Last output of a process, for an error message.
    pub fn last_output(&self, component: Component) -> String {
        process_output::last_output(&self.system, component, OutputStart::default())
    }

    /// Signals a process, if it runs.
    pub fn signal(&self, component: Component, signal: Signal) -> anyhow::Result<()> {
        process::signal(&self.system, component, signal)
    }

    /// Kills a process and waits until it has ended.
    pub async fn kill(&self, component: Component) -> anyhow::Result<()> {
        stop::kill_one(&self.system, component).await
    }

    /// Sends the signal for a graceful stop without waiting.
    pub fn begin_stop(&self, component: Component) -> anyhow::Result<()> {
        self.signal(component, stop::stop_signal(component))
    }

    /// Waits until a process has ended, for as long as a stop may take.
    ///
    /// # Errors
    /// If it still runs then.
    pub async fn wait_until_stopped(&self, component: Component) -> anyhow::Result<()> {
        if !process::wait_until_gone(&self.system, component, stop::STOP_TIMEOUT).await {
            bail!("{component} still runs after its stop");
        }
        Ok(())
    }

    /// Starts a process that was killed or stopped. Does not wait until it is ready: its dependencies may be down.
    pub async fn restart(&mut self, component: Component) -> anyhow::Result<()> {
        self.wait_until_stopped(component).await?;
        self.reap();
        process::wait_for_ports(&self.system, component, process::PORT_TIMEOUT).await?;
        self.children.push(process::spawn(&self.system, component)?.child);
        Ok(())
    }

    fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}
