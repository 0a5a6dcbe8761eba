//! Shell: does to a system what the plan says, and undoes it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};

use super::disk::SmallDisk;
use super::links::{LinkState, Links};
use super::plan::{Disruption, Harm, Trouble};
use cli::note;
use client::http::{self, Http};
use devstack::{Member, RunningSystem, System};

/// One that is starved gets so much of this time.
const STARVES: (Duration, Duration) = (Duration::from_millis(90), Duration::from_millis(10));
/// Whoever is away when a fault is to be cleared is asked again this often, for so long.
const CLEARS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_mins(1));
/// Admin answers within it, or is disrupted itself.
const ADMIN_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// What can be done to a system, and is under way.
pub struct Disruptor<'a> {
    running: &'a mut RunningSystem,
    links: &'a Links,
    disks: &'a [SmallDisk],
    /// Those that are starved; when this is dropped nobody is any more.
    starving: JoinSet<()>,
    starved: BTreeMap<Member, AbortHandle>,
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

    /// Does all of it, and returns when the last is undone.
    ///
    /// # Errors
    /// When a process that was to be harmed has ended by itself, or cannot be started again.
    pub async fn run(mut self, plan: &[Disruption], began: Instant) -> anyhow::Result<()> {
        let begins = plan.iter().map(|disruption| (disruption.at, true, disruption));
        let ends = plan.iter().map(|disruption| (disruption.until, false, disruption));
        let mut moments: Vec<_> = begins.chain(ends).collect();
        moments.sort_by_key(|(at, is_begin, _)| (*at, *is_begin));
        for (at, is_begin, Disruption { harm, until, .. }) in moments {
            tokio::time::sleep_until((began + at).into()).await;
            if is_begin {
                note(&format!(
                    "  {:>6.1}s  {harm}, for {:.1}s",
                    at.as_secs_f64(),
                    (*until - at).as_secs_f64()
                ));
                self.begin(*harm).await.with_context(|| harm.to_string())?;
            } else {
                self.end(*harm).await.with_context(|| format!("after {harm}"))?;
            }
        }
        while let Some(cleared) = self.clearing.join_next().await {
            cleared??;
        }
        Ok(())
    }

    async fn begin(&mut self, harm: Harm) -> anyhow::Result<()> {
        match harm {
            Harm::Kill(member) | Harm::Pause(member) | Harm::Starve(member) | Harm::Restart(member)
                if !self.running.runs(member) =>
            {
                bail!("{member} has ended by itself; {}", self.running.last_words(member))
            }
            Harm::Kill(member) => self.running.kill(member).await,
            Harm::Restart(member) => self.running.tell_to_stop(member),
            Harm::Pause(member) => self.running.signal(member, Signal::SIGSTOP),
            Harm::Starve(member) => {
                let system = self.running.system.clone();
                self.starved.insert(member, self.starving.spawn(starve(system, member)));
                Ok(())
            }
            Harm::Cut(link) => {
                self.links.set(link, LinkState::Cut);
                Ok(())
            }
            Harm::Silence(link) => {
                self.links.set(link, LinkState::Silent);
                Ok(())
            }
            Harm::FillDisk(member) => self.disk_of(member)?.fill(),
            Harm::Fault(service, trouble) => {
                self.inject(service, trouble).await;
                Ok(())
            }
        }
    }

    async fn end(&mut self, harm: Harm) -> anyhow::Result<()> {
        match harm {
            Harm::Kill(member) | Harm::Restart(member) => self.running.start_again(member).await,
            Harm::Pause(member) => self.running.signal(member, Signal::SIGCONT),
            Harm::Starve(member) => {
                if let Some(starving) = self.starved.remove(&member) {
                    starving.abort();
                }
                self.running.signal(member, Signal::SIGCONT)
            }
            Harm::Cut(link) | Harm::Silence(link) => {
                self.links.set(link, LinkState::Whole);
                Ok(())
            }
            Harm::FillDisk(member) => {
                self.disk_of(member)?.empty()?;
                self.running.tell_to_stop(member)?;
                self.running.start_again(member).await
            }
            // Whoever is needed for that may come back only by what is done next.
            Harm::Fault(service, _) => {
                self.clearing.spawn(clear(self.http.clone(), self.running.system.clone(), service));
                Ok(())
            }
        }
    }

    fn disk_of(&self, member: Member) -> anyhow::Result<&SmallDisk> {
        let folder = self.running.system.data_of(member);
        self.disks.iter().find(|disk| disk.folder() == folder).context("it has no disk of its own")
    }

    /// Asks for a fault. When admin or the service is away there is none.
    async fn inject(&self, service: Member, trouble: Trouble) {
        let kind: &str = trouble.into();
        let mut fault = json!({"service": service, "kind": kind, "reason": "chaos"});
        match trouble {
            Trouble::Delay => (fault["delay_ms"], fault["probability"]) = (500.into(), 50.into()),
            Trouble::PublishTwice => fault["probability"] = 50.into(),
            Trouble::FailTransiently => fault["next"] = 5.into(),
            Trouble::Pause => {}
        }
        let url = format!("{}/api/admin/faults", self.running.system.url_of(Member::ADMIN));
        let asked = self.http.request(Method::POST, &url).timeout(ADMIN_ANSWERS_WITHIN).json(&fault);
        let why = match http::answer(asked, &url).await {
            Ok(answer) if answer.status.is_success() => return,
            Ok(answer) => answer.complaint(),
            Err(error) => format!("{error:#}"),
        };
        note(&format!("           it was not injected: {why}"));
    }
}

/// Clears what was injected into a service, as soon as somebody can be asked to.
async fn clear(http: Http, system: System, service: Member) -> anyhow::Result<()> {
    let url = format!("{}/api/admin/faults/{service}", system.url_of(Member::ADMIN));
    let until = Instant::now() + CLEARS.1;
    loop {
        let asked = http.request(Method::DELETE, &url).timeout(ADMIN_ANSWERS_WITHIN);
        let why = match http::answer(asked.json(&json!({"reason": "chaos"})), &url).await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => answer.complaint(),
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= until {
            bail!("what was injected into {service} cannot be cleared: {why}");
        }
        tokio::time::sleep(CLEARS.0).await;
    }
}

/// Lets a process run for a tenth of the time, until aborted.
async fn starve(system: System, member: Member) {
    loop {
        for (signal, time) in [(Signal::SIGSTOP, STARVES.0), (Signal::SIGCONT, STARVES.1)] {
            devstack::signal(&system, member, signal);
            tokio::time::sleep(time).await;
        }
    }
}
