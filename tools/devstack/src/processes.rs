//! Pure: status of the processes of a local system, for people and for programs.

use std::collections::BTreeMap;

use cli::table::{Column, left, right, table_with_sum};
use cli::text::or_none;
use cli::view::View;
use serde::Serialize;
use serde_json::Value;

use super::component::Component;

/// Status of a local system.
#[derive(Debug, Clone, Serialize)]
pub struct Processes {
    pub data: String,
    /// True if every process is ready; a degraded one is.
    pub ready: bool,
    pub rss_mib: f64,
    /// URL of each service; with replicas, that of the load balancer.
    pub urls: BTreeMap<String, String>,
    #[serde(rename = "processes")]
    pub each: Vec<ProcessStatus>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ProcessStatus {
    pub name: Component,
    pub pid: Option<u32>,
    pub port: u16,
    pub url: String,
    pub ready: bool,
    /// True if it works although a check has failed.
    pub degraded: bool,
    /// Reason why it does not run, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_down: Option<String>,
    /// Readiness checks by name; absent without an answer, and for what is no service.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub checks: Value,
    /// Failed checks in the words of the service.
    pub complaints: Vec<String>,
    /// Streams led by this broker of a cluster; or the service whose leader this replica is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leads: Vec<String>,
    pub rss_mib: Option<f64>,
    /// Processor time since its start.
    pub cpu_ms: Option<u64>,
    pub uptime_s: Option<u64>,
}

const COLUMNS: [Column<ProcessStatus>; 6] = [
    left("name", |row| row.name.to_string()),
    right("pid", |row| or_none(row.pid)),
    right("port", |row| row.port.to_string()),
    left("ready", |row| ready(row).to_owned()),
    right("RSS MiB", |row| or_none(row.rss_mib.map(|mib| format!("{mib:.1}")))),
    right("uptime", |row| or_none(row.uptime_s.map(uptime))),
];

impl Processes {
    /// Names of processes that do not run.
    pub fn down(&self) -> Vec<String> {
        let down = self.each.iter().filter(|row| row.pid.is_none());
        down.map(|row| row.name.to_string()).collect()
    }

    /// Reasons, by name, why processes do not run.
    pub fn why_down(&self) -> BTreeMap<String, String> {
        let known = self.each.iter().filter_map(|row| Some((row.name.to_string(), row.why_down.clone()?)));
        known.collect()
    }

    /// Table of the processes, followed by the leaders and, on request, the failed checks.
    pub fn shown(&self, with_complaints: bool, view: &View) -> String {
        let rss_mib = format!("{:.1}", self.rss_mib);
        let sum = ["all", "", "", "", &rss_mib, ""].map(str::to_owned);
        let complaint = |row: &ProcessStatus| {
            let complaints = row.complaints.iter();
            complaints.map(|complaint| format!("\n{} says: {complaint}", row.name)).collect::<String>()
        };
        let complaints = self.each.iter().filter(|_| with_complaints).map(complaint);
        let table = table_with_sum(&COLUMNS, &self.each, sum, view);
        table + &self.leaders() + &complaints.collect::<String>()
    }

    /// Leaders in one line; empty if there are none.
    fn leaders(&self) -> String {
        let leads = |row: &ProcessStatus| format!("{} leads {}", row.name, row.leads.join(", "));
        let leaders: Vec<_> = self.each.iter().filter(|row| !row.leads.is_empty()).map(leads).collect();
        if leaders.is_empty() { String::new() } else { format!("\n{}", leaders.join(" · ")) }
    }
}

pub const fn ready(row: &ProcessStatus) -> &'static str {
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
