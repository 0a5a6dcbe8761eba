//! Shell: the processes of a local system: which run, since when, and what they say of themselves.

use std::time::Duration;

use contract::topology::{OPERATOR, producers};
use futures::future;
use saga_core::service::stream_of;
use saga_engine::nats::NatsBus;

use super::member::Member;
use super::process;
use super::processes::{ProcessLook, Processes};
use super::readiness::{self, Condition};
use super::system::System;
use super::users::SAGACTL;
use client::http::Http;

/// Brokers of this machine answer at once, or there is no majority of them.
const SAY_WITHIN: Duration = Duration::from_secs(2);

/// Looks at all of them.
pub async fn processes(system: &System) -> anyhow::Result<Processes> {
    let http = Http::new()?;
    let looks = future::join_all(system.members().map(|member| look(&http, system, member)));
    let (mut rows, leaders) = tokio::join!(looks, leaders(system));
    for (stream, leader) in leaders {
        rows.iter_mut()
            .filter(|row| row.name.to_string() == leader)
            .for_each(|row| row.leads.push(stream.clone()));
    }
    let all_bytes =
        system.members().filter_map(|member| process::find(system, member)).map(|seen| seen.rss_bytes);
    Ok(Processes {
        data: system.folder().display().to_string(),
        ready: rows.iter().all(|row| row.ready),
        rss_mib: mib(all_bytes.sum()),
        urls: Member::services().map(|service| (service.to_string(), system.url_of(service))).collect(),
        each: rows,
    })
}

/// Who of several brokers leads which stream; nothing where nobody answers in time.
async fn leaders(system: &System) -> Vec<(String, String)> {
    if system.layout().nats_nodes < 2 {
        return vec![];
    }
    let asked = async {
        let bus =
            NatsBus::connect_as(system.bus_settings_of(SAGACTL), SAGACTL, "sagactl-status").await.ok()?;
        bus.reached().await.ok()?;
        let leader_of = async |producer| {
            let stream = stream_of(producer);
            let info = bus.jetstream().get_stream(&stream).await.ok()?;
            let leader = info.cached_info().cluster.as_ref()?.leader.clone()?;
            Some((stream, leader))
        };
        // What admin says is nothing that this program may read.
        let read = producers().filter(|producer| *producer != OPERATOR);
        Some(future::join_all(read.map(leader_of)).await.into_iter().flatten().collect())
    };
    tokio::time::timeout(SAY_WITHIN, asked).await.ok().flatten().unwrap_or_default()
}

async fn look(http: &Http, system: &System, member: Member) -> ProcessLook {
    let running = process::find(system, member);
    // A port that answers without our process is somebody else's.
    let condition = match running {
        Some(_) => readiness::condition(http, system, member).await,
        None => Condition::default(),
    };
    let is_one_of_several = system.layout().replicas > 1;
    ProcessLook {
        name: member,
        pid: running.map(|running| running.pid),
        port: system.port_of(member),
        url: system.url_of(member),
        ready: condition.ready,
        degraded: condition.degraded,
        why_down: if running.is_none() { process::why_down(system, member) } else { None },
        checks: condition.checks,
        complaints: condition.complaints,
        leads: if is_one_of_several && condition.leads { vec![member.kind().to_string()] } else { vec![] },
        rss_mib: running.map(|running| mib(running.rss_bytes)),
        cpu_ms: running.map(|running| running.cpu_ms),
        uptime_s: running.map(|running| running.uptime_s),
    }
}

/// What a process holds, and has used since it started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Resident memory.
    pub rss_mib: f64,
    /// Time on processors.
    pub cpu_ms: u64,
}

/// The same of what runs, by name; of several of a kind together.
pub fn usage(system: &System) -> std::collections::BTreeMap<Member, Usage> {
    let mut usage = std::collections::BTreeMap::new();
    for (member, running) in
        system.members().filter_map(|member| Some((member, process::find(system, member)?)))
    {
        let all: &mut Usage = usage.entry(member.kind()).or_default();
        all.add(Usage { rss_mib: mib(running.rss_bytes), cpu_ms: running.cpu_ms });
    }
    usage
}

impl Usage {
    #[expect(clippy::float_arithmetic, reason = "for people, to a tenth")]
    fn add(&mut self, Self { rss_mib, cpu_ms }: Self) {
        self.rss_mib += rss_mib;
        self.cpu_ms += cpu_ms;
    }
}

#[expect(clippy::float_arithmetic, reason = "for people, to a tenth")]
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mib(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0
}
