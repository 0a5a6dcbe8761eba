//! Pure: the processes of a local system, as they were seen: for people and for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::member::Member;
use cli::table::{Column, left, right, table_with_sum};
use cli::text::or_nothing;
use cli::view::View;

/// The processes of a system.
#[derive(Debug, Clone, Serialize)]
pub struct Processes {
    pub data: String,
    /// Every one of them is; one that is degraded is.
    pub ready: bool,
    pub rss_mib: f64,
    /// Where each service is asked, by its name: of several processes, all of them together.
    pub urls: BTreeMap<String, String>,
    #[serde(rename = "processes")]
    pub each: Vec<ProcessLook>,
}

/// One of them.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessLook {
    pub name: Member,
    pub pid: Option<u32>,
    pub port: u16,
    pub url: String,
    pub ready: bool,
    /// It does what it promises although something is wrong.
    pub degraded: bool,
    /// Of one that does not run, why: what stands in its way, or what it said last; absent when that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_down: Option<String>,
    /// Its checks by name, as its readiness tells them; absent of the broker, and of one that does not answer.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub checks: Value,
    /// What is wrong, check by check, in its own words.
    pub complaints: Vec<String>,
    /// Of one of several brokers, the streams that it leads; of one of several replicas, its service, when it is given
    /// messages first. As far as somebody says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leads: Vec<String>,
    pub rss_mib: Option<f64>,
    /// Time that it has spent on processors since it started.
    pub cpu_ms: Option<u64>,
    pub uptime_s: Option<u64>,
}

const COLUMNS: [Column<ProcessLook>; 6] = [
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
        let down = self.each.iter().filter(|row| row.pid.is_none());
        down.map(|row| row.name.to_string()).collect()
    }

    /// Of those that do not run, by name, why not, as far as that is known.
    pub fn why_down(&self) -> BTreeMap<String, String> {
        let known = self.each.iter().filter_map(|row| Some((row.name.to_string(), row.why_down.clone()?)));
        known.collect()
    }

    /// A table, and below it what they complain of, if that is wanted.
    pub fn shown(&self, with_complaints: bool, view: &View) -> String {
        let rss_mib = format!("{:.1}", self.rss_mib);
        let sum = ["all", "", "", "", &rss_mib, ""].map(str::to_owned);
        let complaint = |row: &ProcessLook| {
            let complaints = row.complaints.iter();
            complaints.map(|complaint| format!("\n{} says: {complaint}", row.name)).collect::<String>()
        };
        let complaints = self.each.iter().filter(|_| with_complaints).map(complaint);
        let table = table_with_sum(&COLUMNS, &self.each, sum, view);
        table + &self.leaders() + &complaints.collect::<String>()
    }

    /// Which of several leads what, in a line; empty where there is one of each.
    fn leaders(&self) -> String {
        let leads = |row: &ProcessLook| format!("{} leads {}", row.name, row.leads.join(", "));
        let leaders: Vec<_> = self.each.iter().filter(|row| !row.leads.is_empty()).map(leads).collect();
        if leaders.is_empty() { String::new() } else { format!("\n{}", leaders.join(" · ")) }
    }
}

/// How one is, in a word.
pub const fn ready(row: &ProcessLook) -> &'static str {
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
