//! Shell: a system that this program started for itself, and whose processes it may kill, pause and start again.

use std::fs::File;
use std::path::Path;
use std::process::Child;

use anyhow::bail;
use nix::sys::signal::Signal;

use super::member::{Member, Ports};
use super::plan::{Layout, Setting};
use super::supervise::ShutdownSignal;
use super::system::System;
use super::{folder, process, stop, up};
use cli::exit;

/// The processes of a system. While this exists, nobody else starts or stops any of them.
pub struct RunningSystem {
    pub system: System,
    children: Vec<Child>,
    _lock: File,
}

impl RunningSystem {
    /// Starts a whole system, with the demo's products, in a folder that is empty.
    pub async fn start(
        path: &Path,
        (ports, layout): (Ports, Layout),
        settings: Vec<Setting>,
        shutdown_signal: &mut ShutdownSignal,
    ) -> anyhow::Result<Self> {
        let plan = up::plan(ports, layout)?.with(settings);
        let lock = folder::lock(path).await?;
        let system = up::prepare(path, plan, false)?;
        let mut started = Vec::new();
        let outcome = tokio::select! {
            outcome = up::bring_up(&system, &mut started, true) => outcome,
            () = shutdown_signal.recv() => Err(exit::Refusal::new(exit::INTERRUPTED, "interrupted while starting").into()),
        };
        let children = started.into_iter().map(|(_, started)| started.child).collect();
        let mut running = Self { system, children, _lock: lock };
        match outcome {
            Ok(()) => Ok(running),
            Err(error) => {
                running.stop().await?;
                Err(error)
            }
        }
    }

    /// Stops everything, also what is paused.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        for member in self.system.members() {
            self.signal(member, Signal::SIGCONT)?;
        }
        let stopped = stop::all(&self.system).await;
        self.reap();
        stopped
    }

    /// The processes that do not run.
    pub fn missing(&self) -> Vec<Member> {
        self.system.members().filter(|member| !self.runs(*member)).collect()
    }

    pub fn runs(&self, member: Member) -> bool {
        process::find(&self.system, member).is_some()
    }

    /// What a process wrote last.
    pub fn last_words(&self, member: Member) -> String {
        process::last_words(&self.system, member, process::Since::default())
    }

    /// Signals a process; one that does not run is left alone.
    pub fn signal(&self, member: Member, signal: Signal) -> anyhow::Result<()> {
        process::find(&self.system, member).map_or(Ok(()), |running| process::send(running, signal))
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(&self, member: Member) -> anyhow::Result<()> {
        stop::kill(&self.system, member).await
    }

    /// Tells a process to end in good order, and waits for nothing.
    pub fn tell_to_stop(&self, member: Member) -> anyhow::Result<()> {
        self.signal(member, stop::signal_of(member))
    }

    /// Starts a process that was killed or told to stop. Whether it is ready is another question: what it needs may be away.
    pub async fn start_again(&mut self, member: Member) -> anyhow::Result<()> {
        if !process::wait_until_gone(&self.system, member, stop::PATIENCE).await {
            bail!("{member} runs, although it was to stop");
        }
        self.reap();
        process::wait_for_port(&self.system, member).await?;
        self.children.push(process::spawn(&self.system, member)?.child);
        Ok(())
    }

    /// Lets the kernel forget children that ended.
    fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}
