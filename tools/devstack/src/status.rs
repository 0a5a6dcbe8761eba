//! Shell: status and resource usage of the processes of a local system.

use std::collections::BTreeMap;
use std::time::Duration;

use client::http::Http;
use contract::topology::{OPERATOR, producers};
use futures::future;
use saga_core::service::stream_of;
use saga_engine::nats::NatsBus;

use super::component::Component;
use super::processes::{ProcessStatus, Processes};
use super::readiness::{self, Readiness};
use super::system::System;
use super::users::SAGACTL;
use super::{process, process_output};

/// Brokers of this machine answer at once, unless they have no majority.
const BROKER_TIMEOUT: Duration = Duration::from_secs(2);

pub async fn processes(system: &System) -> anyhow::Result<Processes> {
    let http = Http::new()?;
    let statuses = future::join_all(system.components().map(|component| status_of(&http, system, component)));
    let (mut each, leaders) = tokio::join!(statuses, stream_leaders(system));
    for (stream, leader) in leaders {
        each.iter_mut()
            .filter(|row| row.name.to_string() == leader)
            .for_each(|row| row.leads.push(stream.clone()));
    }
    let running = system.components().filter_map(|component| process::find(system, component));
    Ok(Processes {
        data: system.folder().display().to_string(),
        ready: each.iter().all(|row| row.ready),
        rss_mib: mib(running.map(|process| process.rss_bytes).sum()),
        urls: Component::services().map(|service| (service.to_string(), system.url_of(service))).collect(),
        each,
    })
}

/// Streams and the brokers that lead them; empty for a single broker, or without an answer in time.
async fn stream_leaders(system: &System) -> Vec<(String, String)> {
    if system.layout().nats_nodes < 2 {
        return vec![];
    }
    let leaders = async {
        let bus =
            NatsBus::connect_as(system.bus_settings_of(SAGACTL), SAGACTL, "sagactl-status").await.ok()?;
        bus.wait_until_connected().await.ok()?;
        let leader_of = async |producer| {
            let stream = stream_of(producer);
            let info = bus.jetstream().get_stream(&stream).await.ok()?;
            let leader = info.cached_info().cluster.as_ref()?.leader.clone()?;
            Some((stream, leader))
        };
        // sagactl may not read the stream of admin.
        let readable = producers().filter(|producer| *producer != OPERATOR);
        Some(future::join_all(readable.map(leader_of)).await.into_iter().flatten().collect())
    };
    tokio::time::timeout(BROKER_TIMEOUT, leaders).await.ok().flatten().unwrap_or_default()
}

async fn status_of(http: &Http, system: &System, component: Component) -> ProcessStatus {
    let running = process::find(system, component);
    // If our process does not run, another program answers at its port.
    let readiness = match running {
        Some(_) => readiness::check(http, system, component).await,
        None => Readiness::default(),
    };
    let is_replicated = system.layout().replicas > 1;
    let why_down = if running.is_none() { process_output::why_down(system, component) } else { None };
    ProcessStatus {
        name: component,
        pid: running.map(|running| running.pid),
        port: system.port_of(component),
        url: system.url_of(component),
        ready: readiness.ready,
        degraded: readiness.degraded,
        why_down,
        checks: readiness.checks,
        complaints: readiness.complaints,
        leads: if is_replicated && readiness.leads { vec![component.kind().to_string()] } else { vec![] },
        rss_mib: running.map(|running| mib(running.rss_bytes)),
        cpu_ms: running.map(|running| running.cpu_ms),
        uptime_s: running.map(|running| running.uptime_s),
    }
}

/// Resources of a process, or of all replicas of a service.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub rss_mib: f64,
    /// Processor time since the start.
    pub cpu_ms: u64,
}

/// Usage of the processes that run, replicas added up.
pub fn usage(system: &System) -> BTreeMap<Component, Usage> {
    let mut usage = BTreeMap::new();
    let running =
        system.components().filter_map(|component| Some((component, process::find(system, component)?)));
    for (component, running) in running {
        let sum: &mut Usage = usage.entry(component.kind()).or_default();
        sum.add(Usage { rss_mib: mib(running.rss_bytes), cpu_ms: running.cpu_ms });
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
