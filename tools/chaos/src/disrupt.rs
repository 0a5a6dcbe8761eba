//! Shell: carries out the disruptions of a plan, and ends them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};

use super::disk::SmallDisk;
use super::network::{LinkState, Links};
use super::plan::{self, Disruption, FaultKind, Link, PlannedDisruption};
use cli::note;
use client::http::{self, Http};
use devstack::{Component, RunningSystem, System};

/// Stopped and running time of a starved process.
const STARVATION: (Duration, Duration) = (Duration::from_millis(90), Duration::from_millis(10));
/// Interval of the attempts to clear a fault.
const CLEAR_INTERVAL: Duration = Duration::from_millis(250);
/// Time limit for clearing a fault: admin or the service may be down, or cut off.
const CLEAR_LIMIT: Duration = plan::MAX_LENGTH.saturating_add(Duration::from_mins(1));
/// Without an answer in this time admin is disrupted itself.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Days by which the broker's clock jumps.
const DAYS_AHEAD: i64 = 2;

pub struct Disruptor<'a> {
    running: &'a mut RunningSystem,
    links: &'a Links,
    disks: &'a [SmallDisk],
    /// Tasks that starve processes; they end when this is dropped.
    starving: JoinSet<()>,
    starved: BTreeMap<Component, AbortHandle>,
    clearing: JoinSet<anyhow::Result<()>>,
    http: Http,
}

impl<'a> Disruptor<'a> {
    pub fn of(
        running: &'a mut RunningSystem,
        links: &'a Links,
        disks: &'a [SmallDisk],
    ) -> anyhow::Result<Self> {
        let (starving, starved, clearing) = (JoinSet::new(), BTreeMap::new(), JoinSet::new());
        Ok(Self { running, links, disks, starving, starved, clearing, http: Http::new()? })
    }

    /// Carries out a plan, and returns when the last disruption has ended.
    ///
    /// # Errors
    /// If a process has crashed, or cannot be started again.
    pub async fn run(mut self, plan: &[PlannedDisruption], began: Instant) -> anyhow::Result<()> {
        let begins = plan.iter().map(|planned| (planned.at, true, planned));
        let ends = plan.iter().map(|planned| (planned.until, false, planned));
        let mut moments: Vec<_> = begins.chain(ends).collect();
        moments.sort_by_key(|(at, is_begin, _)| (*at, *is_begin));
        for (at, is_begin, PlannedDisruption { disruption, until, .. }) in moments {
            tokio::time::sleep_until((began + at).into()).await;
            if is_begin {
                note(&format!(
                    "  {:>6.1}s  {disruption}, for {:.1}s",
                    at.as_secs_f64(),
                    (*until - at).as_secs_f64()
                ));
                self.begin(*disruption).await.with_context(|| disruption.to_string())?;
            } else {
                self.end(*disruption).await.with_context(|| format!("after {disruption}"))?;
            }
        }
        while let Some(cleared) = self.clearing.join_next().await {
            cleared??;
        }
        Ok(())
    }

    async fn begin(&mut self, disruption: Disruption) -> anyhow::Result<()> {
        match disruption {
            Disruption::Kill(component)
            | Disruption::Pause(component)
            | Disruption::Starve(component)
            | Disruption::Restart(component)
            | Disruption::ReadOnly(component)
            | Disruption::Restore(component)
                if !self.running.is_running(component) =>
            {
                bail!("{component} has crashed; {}", self.running.last_output(component))
            }
            Disruption::Kill(component) => self.running.kill(component).await,
            Disruption::Restart(component) => self.running.begin_stop(component),
            Disruption::Pause(component) => self.running.signal(component, Signal::SIGSTOP),
            Disruption::Starve(component) => {
                let system = self.running.system.clone();
                self.starved.insert(component, self.starving.spawn(starve(system, component)));
                Ok(())
            }
            Disruption::Cut(link) => {
                self.links.set(link, LinkState::Cut);
                Ok(())
            }
            Disruption::Silence(link) => {
                self.links.set(link, LinkState::Silent);
                Ok(())
            }
            Disruption::CutPath(path) => {
                self.set_path(path, LinkState::Cut);
                Ok(())
            }
            Disruption::FillDisk(component) => self.disk_of(component)?.fill(),
            Disruption::ReadOnly(component) => self.set_read_only(component, true),
            Disruption::Jump(_) => {
                self.links.set_days_ahead(DAYS_AHEAD);
                Ok(())
            }
            Disruption::Restore(component) => {
                self.running.begin_stop(component)?;
                self.running.wait_until_stopped(component).await?;
                Copy::older(&self.running.system, component).take()?;
                self.running.restart(component).await
            }
            Disruption::Fault(service, kind) => {
                self.inject(service, kind).await;
                Ok(())
            }
        }
    }

    async fn end(&mut self, disruption: Disruption) -> anyhow::Result<()> {
        match disruption {
            Disruption::Kill(component) | Disruption::Restart(component) => {
                self.running.restart(component).await
            }
            Disruption::Pause(component) => self.running.signal(component, Signal::SIGCONT),
            Disruption::Starve(component) => {
                if let Some(starving) = self.starved.remove(&component) {
                    starving.abort();
                }
                self.running.signal(component, Signal::SIGCONT)
            }
            Disruption::Cut(link) | Disruption::Silence(link) => {
                self.links.set(link, LinkState::Whole);
                Ok(())
            }
            Disruption::CutPath(path) => {
                self.set_path(path, LinkState::Whole);
                Ok(())
            }
            Disruption::FillDisk(component) => {
                self.disk_of(component)?.free()?;
                if component.participant().is_some() {
                    return Ok(());
                }
                self.running.begin_stop(component)?;
                self.running.restart(component).await
            }
            Disruption::ReadOnly(component) => self.set_read_only(component, false),
            Disruption::Jump(_) => {
                self.links.set_days_ahead(0);
                Ok(())
            }
            Disruption::Restore(component) => self.start_with_older_copy(component).await,
            // Admin or the service may be back only after the next step of the plan.
            Disruption::Fault(service, _) => {
                self.clearing.spawn(clear(self.http.clone(), self.running.system.clone(), service));
                Ok(())
            }
        }
    }

    fn set_path(&self, path: Link, state: LinkState) {
        path.links(self.running.system.layout()).for_each(|link| self.links.set(link, state));
    }

    /// Has PostgreSQL reject all writes, or accept them again.
    fn set_read_only(&self, component: Component, is_read_only: bool) -> anyhow::Result<()> {
        let file = self.running.system.data_of(component).join("data/postgresql.auto.conf");
        let value = if is_read_only { "on" } else { "off" };
        fs::write(&file, format!("default_transaction_read_only = {value}\n"))
            .with_context(|| file.display().to_string())?;
        // It reads its configuration again.
        self.running.signal(component, Signal::SIGHUP)
    }

    /// Starts a service with an older copy of its database, which it must refuse, and then with its own.
    async fn start_with_older_copy(&mut self, component: Component) -> anyhow::Result<()> {
        let (older, newest) =
            (Copy::older(&self.running.system, component), Copy::newest(&self.running.system, component));
        self.running.kill(component).await?;
        newest.take()?;
        older.put_back()?;
        self.running.restart(component).await?;
        if self.running.wait_until_stopped(component).await.is_err() {
            // Nothing was published since: the copy is as good. Otherwise the ledgers will not balance.
            note(&format!("           {component} goes on with the copy"));
            return Ok(());
        }
        newest.put_back()?;
        self.running.restart(component).await
    }

    fn disk_of(&self, component: Component) -> anyhow::Result<&SmallDisk> {
        let folder = self.running.system.data_of(component);
        self.disks.iter().find(|disk| disk.folder() == folder).context("it has no disk of its own")
    }

    /// Injects a fault, unless admin or the service is down.
    async fn inject(&self, service: Component, kind: FaultKind) {
        let name: &str = kind.into();
        let mut fault = json!({"service": service, "kind": name, "reason": "chaos"});
        match kind {
            FaultKind::Delay => (fault["delay_ms"], fault["probability"]) = (500.into(), 50.into()),
            FaultKind::PublishTwice => fault["probability"] = 50.into(),
            FaultKind::FailTransiently => fault["next"] = 5.into(),
            FaultKind::Pause => {}
        }
        let url = format!("{}/api/admin/faults", self.running.system.url_of(Component::ADMIN));
        let request = self.http.request(Method::POST, &url).timeout(ADMIN_TIMEOUT).json(&fault);
        let why = match http::fetch(request, &url).await {
            Ok(answer) if answer.status.is_success() => return,
            Ok(answer) => answer.error_text(),
            Err(error) => format!("{error:#}"),
        };
        note(&format!("           not injected: {why}"));
    }
}

/// Copy of the database of a stopped service on SQLite.
struct Copy {
    database: PathBuf,
    copy: PathBuf,
}

impl Copy {
    fn older(system: &System, service: Component) -> Self {
        Self::named(system, service, "older")
    }

    fn newest(system: &System, service: Component) -> Self {
        Self::named(system, service, "newest")
    }

    fn named(system: &System, service: Component, name: &str) -> Self {
        let database = system.data_of(service).join(format!("{service}.db"));
        let copy = system.folder().join(format!("{service}.{name}"));
        Self { database, copy }
    }

    /// Files of the database, and of its copy: after a kill some commits are only in the write-ahead log.
    fn files(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        let with = |path: &Path, suffix: &str| {
            let mut path = path.to_owned().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        let files =
            ["", "-wal", "-shm"].map(|suffix| (with(&self.database, suffix), with(&self.copy, suffix)));
        files.into_iter()
    }

    fn take(&self) -> io::Result<()> {
        self.files().try_for_each(|(file, copy)| replace(&file, &copy))
    }

    fn put_back(&self) -> io::Result<()> {
        self.files().try_for_each(|(file, copy)| replace(&copy, &file))
    }
}

/// Copies a file, or removes the target if there is none.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match fs::copy(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Clears the faults of a service, with retries.
async fn clear(http: Http, system: System, service: Component) -> anyhow::Result<()> {
    let url = format!("{}/api/admin/faults/{service}", system.url_of(Component::ADMIN));
    let until = Instant::now() + CLEAR_LIMIT;
    loop {
        let request = http.request(Method::DELETE, &url).timeout(ADMIN_TIMEOUT);
        let why = match http::fetch(request.json(&json!({"reason": "chaos"})), &url).await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => answer.error_text(),
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= until {
            bail!("the faults of {service} cannot be cleared: {why}");
        }
        tokio::time::sleep(CLEAR_INTERVAL).await;
    }
}

/// Lets a process run for a tenth of the time until aborted.
async fn starve(system: System, component: Component) {
    loop {
        for (signal, time) in [(Signal::SIGSTOP, STARVATION.0), (Signal::SIGCONT, STARVATION.1)] {
            // A process that ended needs none.
            let _ = devstack::process::signal(&system, component, signal);
            tokio::time::sleep(time).await;
        }
    }
}
