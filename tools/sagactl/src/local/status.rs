//! Shell: the processes of a local system: which run, since when, and what they say of themselves.

use futures::future;

use super::member::Member;
use super::process;
use super::processes::{ProcessLook, Processes};
use super::readiness::{self, Condition};
use super::system::System;
use crate::http::Http;

/// Looks at all of them.
pub async fn processes(system: &System) -> anyhow::Result<Processes> {
    let http = Http::new()?;
    let rows = future::join_all(system.members().map(|member| look(&http, system, member))).await;
    let all_bytes =
        system.members().filter_map(|member| process::find(system, member)).map(|seen| seen.rss_bytes);
    Ok(Processes {
        data: system.folder().display().to_string(),
        ready: rows.iter().all(|row| row.ready),
        rss_mib: mib(all_bytes.sum()),
        each: rows,
    })
}

async fn look(http: &Http, system: &System, member: Member) -> ProcessLook {
    let running = process::find(system, member);
    // A port that answers without our process is somebody else's.
    let condition = match running {
        Some(_) => readiness::condition(http, system, member).await,
        None => Condition::default(),
    };
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
