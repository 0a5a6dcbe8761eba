//! Shell: readiness of a process, and waiting for it.

use std::time::{Duration, Instant};

use anyhow::bail;
use cli::note;
use client::http::Http;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::component::Component;
use super::process::{self, StartedProcess};
use super::system::System;
use super::{data_dir, postgres, process_output};

/// Longest start: a broker with a large store reads it first.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between two lines with the names of late processes.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// Answer of a process to a readiness check.
#[derive(Debug, Default)]
pub struct Readiness {
    pub ready: bool,
    /// True if it works although a check has failed.
    pub degraded: bool,
    pub checks: Value,
    /// Failed checks in the words of the service.
    pub complaints: Vec<String>,
    /// True for the leader among the replicas of a service.
    pub leads: bool,
}

/// Checks a process. Without an answer it is not ready.
pub async fn check(http: &Http, system: &System, component: Component) -> Readiness {
    let port = system.port_of(component);
    let url = format!("{}/readyz", system.url_of(component));
    let ready = match component.kind() {
        Component::NATS => is_in_time(greets_with_jetstream(port)).await,
        Component::POSTGRES => is_in_time(asks_for_password(port)).await,
        // Any answer of a service has come through the load balancer.
        Component::PROXY => http.get_within(&url, CHECK_TIMEOUT).await.is_ok(),
        _ => {
            return match http.get_within(&url, CHECK_TIMEOUT).await {
                Ok(answer) => Readiness::parse(answer.status.is_success(), &answer.body),
                Err(_) => Readiness::default(),
            };
        }
    };
    Readiness { ready, ..Readiness::default() }
}

async fn is_in_time(check: impl Future<Output = std::io::Result<bool>>) -> bool {
    tokio::time::timeout(CHECK_TIMEOUT, check).await.is_ok_and(|answer| answer.unwrap_or(false))
}

impl Readiness {
    fn reason(&self) -> String {
        if self.complaints.is_empty() { "no reason given".to_owned() } else { self.complaints.join("; ") }
    }

    fn parse(ready: bool, body: &Value) -> Self {
        let checks = body["checks"].as_object().into_iter().flatten();
        let failed = checks.filter(|(_, check)| check["state"] != "ok");
        let complaint = |(name, check): (&String, &Value)| {
            format!("{name}: {}", check["text"].as_str().unwrap_or("(no reason given)"))
        };
        Self {
            ready,
            degraded: body["degraded"] == true,
            checks: body["checks"].clone(),
            complaints: failed.map(complaint).collect(),
            leads: body["is_leader"] == true,
        }
    }
}

/// Reads the greeting line of a broker. A broker whose disk was full greets without JetStream.
async fn greets_with_jetstream(port: u16) -> std::io::Result<bool> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    Ok(line.starts_with("INFO ") && line.contains("\"jetstream\":true"))
}

/// Sends a start-up message. A database server that accepts connections asks for the password, any other sends an error
/// (<https://www.postgresql.org/docs/15/protocol-flow.html>, Start-up).
async fn asks_for_password(port: u16) -> std::io::Result<bool> {
    const PROTOCOL: i32 = 3 << 16;
    let name = postgres::database_of(Component::ADMIN);
    let parameters = format!("user\0{name}\0database\0{name}\0\0");
    let length = 8 + i32::try_from(parameters.len()).unwrap_or_default();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(&[&length.to_be_bytes()[..], &PROTOCOL.to_be_bytes(), parameters.as_bytes()].concat())
        .await?;
    Ok(stream.read_u8().await? == b'R')
}

/// Waits until all started processes are ready, and reports each. Those that an operator stops or kills are no longer waited
/// for. Call it without the folder's lock.
pub async fn wait(
    http: &Http,
    system: &System,
    started: &mut [(Component, StartedProcess)],
    limit: Duration,
) -> anyhow::Result<()> {
    let mut late: Vec<Component> = started.iter().map(|(component, _)| *component).collect();
    let waits = started.iter_mut().map(async |(component, started)| {
        anyhow::Ok((*component, wait_for(http, system, *component, started, limit).await?))
    });
    let mut waits: FuturesUnordered<_> = waits.collect();
    let mut reminder = tokio::time::interval_at((Instant::now() + REMIND_EVERY).into(), REMIND_EVERY);
    loop {
        tokio::select! {
            outcome = waits.next() => {
                let Some(outcome) = outcome else { return Ok(()) };
                let (component, outcome) = outcome?;
                late.retain(|other| *other != component);
                note(&match outcome {
                    Outcome::Ready => format!("  {component:<11} ready at {}", system.url_of(component)),
                    Outcome::Ended => format!("  {component:<11} was stopped by another command"),
                });
            }
            _ = reminder.tick() => note(&format!("  waiting for {}", Component::names(late.iter().copied()))),
        }
    }
}

enum Outcome {
    Ready,
    /// Stopped or killed by an operator.
    Ended,
}

async fn wait_for(
    http: &Http,
    system: &System,
    component: Component,
    started: &mut StartedProcess,
    limit: Duration,
) -> anyhow::Result<Outcome> {
    let until = Instant::now() + limit;
    loop {
        let readiness = check(http, system, component).await;
        if readiness.ready {
            return Ok(Outcome::Ready);
        }
        let status = started.child.try_wait()?;
        if status.is_some() {
            // A stop and a kill hold the lock until they have recorded what they did.
            let _lock = data_dir::lock(system.folder()).await?;
            if process::was_ended(system, component) {
                return Ok(Outcome::Ended);
            }
        }
        let failure = match status {
            // Somebody may have started another one in its place.
            Some(status) if process::find(system, component).is_none() => {
                format!("ended right after its start ({status})")
            }
            Some(_) | None if Instant::now() >= until => {
                let limit = humantime_serde::re::humantime::format_duration(limit);
                format!("is not ready after {limit} ({})", readiness.reason())
            }
            Some(_) | None => {
                tokio::time::sleep(process::POLL).await;
                continue;
            }
        };
        bail!(
            "{component} {failure}; {}",
            process_output::last_output(system, component, started.output_start)
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_checks_are_listed_whether_or_not_the_service_is_ready() {
        let check =
            |state: &str, text: &str| json!({"state": state, "text": text, "since": "1970-01-01T00:00:00Z"});
        let checks = json!({"broker": check("degraded", "not connected"), "store": check("ok", "ok")});
        let degraded = Readiness::parse(true, &json!({"ready": true, "degraded": true, "checks": checks}));
        assert!(degraded.ready && degraded.degraded);
        assert_eq!(degraded.complaints, ["broker: not connected"]);
        let silent = Readiness::parse(false, &Value::Null);
        assert!(!silent.ready && !silent.degraded && silent.complaints.is_empty());
    }
}
