//! Shell: the processes of a local system: which run, since when, and what they say of themselves.

use futures::future;
use serde::Serialize;

use super::member::Member;
use super::process;
use super::readiness::{self, Condition};
use super::system::System;
use crate::http::Http;
use crate::output::text::or_nothing;
use crate::output::{Column, View, left, right, table_with_sum};

/// The processes of a system.
#[derive(Debug, Serialize)]
pub struct Processes {
    data: String,
    /// Every one of them is; one that is degraded is.
    ready: bool,
    rss_mib: f64,
    processes: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: Member,
    pid: Option<u32>,
    port: u16,
    url: String,
    ready: bool,
    /// It does what it promises although something is wrong.
    degraded: bool,
    /// What is wrong, check by check, in its own words.
    complaints: Vec<String>,
    rss_mib: Option<f64>,
    uptime_s: Option<u64>,
}

/// Looks at all of them.
pub async fn processes(system: &System) -> anyhow::Result<Processes> {
    let http = Http::new()?;
    let rows = future::join_all(Member::all().map(|member| look(&http, system, member))).await;
    let all_bytes =
        Member::all().filter_map(|member| process::find(system, member)).map(|seen| seen.rss_bytes);
    Ok(Processes {
        data: system.folder().display().to_string(),
        ready: rows.iter().all(|row| row.ready),
        rss_mib: mib(all_bytes.sum()),
        processes: rows,
    })
}

async fn look(http: &Http, system: &System, member: Member) -> Row {
    let running = process::find(system, member);
    // A port that answers without our process is somebody else's.
    let condition = match running {
        Some(_) => readiness::condition(http, system, member).await,
        None => Condition::default(),
    };
    Row {
        name: member,
        pid: running.map(|running| running.pid),
        port: system.port_of(member),
        url: system.url_of(member),
        ready: condition.ready,
        degraded: condition.degraded,
        complaints: condition.complaints,
        rss_mib: running.map(|running| mib(running.rss_bytes)),
        uptime_s: running.map(|running| running.uptime_s),
    }
}

/// Resident memory of what runs, by name.
pub fn memory(system: &System) -> std::collections::BTreeMap<Member, f64> {
    let running = |member| process::find(system, member).map(|running| (member, mib(running.rss_bytes)));
    Member::all().filter_map(running).collect()
}

#[expect(clippy::float_arithmetic, reason = "for people, to a tenth")]
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mib(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0
}

const COLUMNS: [Column<Row>; 6] = [
    left("name", |row| row.name.to_string()),
    right("pid", |row| or_nothing(row.pid)),
    right("port", |row| row.port.to_string()),
    left("ready", |row| ready(row).to_owned()),
    right("RSS MiB", |row| or_nothing(row.rss_mib.map(|mib| format!("{mib:.1}")))),
    right("uptime", |row| or_nothing(row.uptime_s.map(uptime))),
];

impl Processes {
    /// Those that do not run.
    pub fn down(&self) -> Vec<String> {
        let down = self.processes.iter().filter(|row| row.pid.is_none());
        down.map(|row| row.name.to_string()).collect()
    }

    /// A table, and below it what they complain of, if that is wanted.
    pub fn shown(&self, with_complaints: bool, view: &View) -> String {
        let rss_mib = format!("{:.1}", self.rss_mib);
        let sum = ["all", "", "", "", &rss_mib, ""].map(str::to_owned);
        let complaint = |row: &Row| {
            let complaints = row.complaints.iter();
            complaints.map(|complaint| format!("\n{} says: {complaint}", row.name)).collect::<String>()
        };
        let complaints = self.processes.iter().filter(|_| with_complaints).map(complaint);
        table_with_sum(&COLUMNS, &self.processes, sum, view) + &complaints.collect::<String>()
    }
}

const fn ready(row: &Row) -> &'static str {
    match (row.pid, row.ready, row.degraded) {
        (None, _, _) => "not running",
        (Some(_), false, _) => "no",
        (Some(_), true, true) => "degraded",
        (Some(_), true, false) => "yes",
    }
}

fn uptime(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}
