//! Shell: carries out the disruptions of a plan, and ends them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};

use super::disk::SmallDisk;
use super::network::{LinkState, Links};
use super::plan::{Disruption, FaultKind, PlannedDisruption};
use cli::note;
use client::http::{self, Http};
use devstack::{Component, RunningSystem, System};

/// Stopped and running time of a starved process.
const STARVATION: (Duration, Duration) = (Duration::from_millis(90), Duration::from_millis(10));
/// Interval of the attempts to clear a fault, and their time limit: admin or the service may be down.
const CLEAR_RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_mins(1));
/// Without an answer in this time admin is disrupted itself.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

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
            Disruption::FillDisk(component) => self.disk_of(component)?.fill(),
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
            Disruption::FillDisk(component) => {
                self.disk_of(component)?.free()?;
                self.running.begin_stop(component)?;
                self.running.restart(component).await
            }
            // Admin or the service may be back only after the next step of the plan.
            Disruption::Fault(service, _) => {
                self.clearing.spawn(clear(self.http.clone(), self.running.system.clone(), service));
                Ok(())
            }
        }
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

/// Clears the faults of a service, with retries.
async fn clear(http: Http, system: System, service: Component) -> anyhow::Result<()> {
    let url = format!("{}/api/admin/faults/{service}", system.url_of(Component::ADMIN));
    let until = Instant::now() + CLEAR_RETRY.1;
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
        tokio::time::sleep(CLEAR_RETRY.0).await;
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
