//! Shell: whether a process can do its work, and waiting until it can.

use std::time::{Duration, Instant};

use anyhow::bail;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::member::Member;
use super::postgres;
use super::process::{self, Started};
use super::system::System;
use cli::note;
use client::http::Http;

/// Longest start: a broker with a large store reads it first.
pub const LIMIT: Duration = Duration::from_secs(60);
/// One question may take this long.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// While somebody is late, their names are said this often.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// What a process says of itself.
#[derive(Debug, Default)]
pub struct Condition {
    /// It does what it promises.
    pub ready: bool,
    /// It does so although something is wrong.
    pub degraded: bool,
    /// Its checks by name, as it tells them.
    pub checks: Value,
    /// What is wrong, check by check.
    pub complaints: Vec<String>,
    /// Of several replicas, it is given messages first.
    pub leads: bool,
}

/// How the process is now. One that does not answer is not ready, and has nothing to say.
pub async fn condition(http: &Http, system: &System, member: Member) -> Condition {
    let port = system.port_of(member);
    let asked = match member.kind() {
        Member::NATS => Some(tokio::time::timeout(ASK_TIMEOUT, greets_with_jetstream(port)).await),
        Member::POSTGRES => Some(tokio::time::timeout(ASK_TIMEOUT, asks_for_a_password(port)).await),
        _ => None,
    };
    if let Some(answer) = asked {
        let ready = answer.is_ok_and(|answer| answer.unwrap_or(false));
        return Condition { ready, ..Condition::default() };
    }
    let url = format!("{}/readyz", system.url_of(member));
    match http.get_within(&url, ASK_TIMEOUT).await {
        Ok(answer) => Condition::told(answer.status.is_success(), &answer.body),
        Err(_) => Condition::default(),
    }
}

impl Condition {
    fn told(ready: bool, body: &Value) -> Self {
        let checks = body["checks"].as_object().into_iter().flatten();
        let wrong = checks.filter(|(_, check)| check["state"] != "ok");
        let complaint = |(name, check): (&String, &Value)| {
            format!("{name}: {}", check["text"].as_str().unwrap_or("(it does not say what)"))
        };
        Self {
            ready,
            degraded: body["degraded"] == true,
            checks: body["checks"].clone(),
            complaints: wrong.map(complaint).collect(),
            leads: body["leads"] == true,
        }
    }
}

/// Whether a broker runs and stores nothing: it was told to, and has left off.
pub async fn stores_nothing(system: &System, broker: Member) -> bool {
    let asked = tokio::time::timeout(ASK_TIMEOUT, greets_with_jetstream(system.port_of(broker))).await;
    matches!(asked, Ok(Ok(false)))
}

/// A broker greets whoever connects with a line about itself.
async fn greets_with_jetstream(port: u16) -> std::io::Result<bool> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    if !line.starts_with("INFO ") {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    Ok(line.contains("\"jetstream\":true"))
}

/// A database server that lets nobody in yet, or no more, says so at once; else it asks who somebody is
/// (<https://www.postgresql.org/docs/15/protocol-flow.html>, Start-up).
async fn asks_for_a_password(port: u16) -> std::io::Result<bool> {
    const PROTOCOL: i32 = 3 << 16;
    let name = postgres::database_of(Member::ADMIN);
    let parameters = format!("user\0{name}\0database\0{name}\0\0");
    let length = 8 + i32::try_from(parameters.len()).unwrap_or_default();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(&[&length.to_be_bytes()[..], &PROTOCOL.to_be_bytes(), parameters.as_bytes()].concat())
        .await?;
    Ok(stream.read_u8().await? == b'R')
}

/// Waits until all that were started are ready, saying so of each.
pub async fn wait(
    http: &Http,
    system: &System,
    started: &mut [(Member, Started)],
    limit: Duration,
) -> anyhow::Result<()> {
    let mut late: Vec<Member> = started.iter().map(|(member, _)| *member).collect();
    let waits = started.iter_mut().map(|(member, started)| wait_for(http, system, *member, started, limit));
    let mut waits: FuturesUnordered<_> = waits.collect();
    let mut reminder = tokio::time::interval_at((Instant::now() + REMIND_EVERY).into(), REMIND_EVERY);
    loop {
        tokio::select! {
            ended = waits.next() => match ended {
                Some(ready) => {
                    let ready = ready?;
                    late.retain(|member| *member != ready);
                    note(&format!("  {ready:<11} ready at {}", system.url_of(ready)));
                }
                None => return Ok(()),
            },
            _ = reminder.tick() => note(&format!("  waiting for {}", Member::names(late.iter().copied()))),
        }
    }
}

async fn wait_for(
    http: &Http,
    system: &System,
    member: Member,
    started: &mut Started,
    limit: Duration,
) -> anyhow::Result<Member> {
    let until = Instant::now() + limit;
    loop {
        if condition(http, system, member).await.ready {
            return Ok(member);
        }
        let failed = match started.child.try_wait()? {
            Some(status) => format!("ended right after its start ({status})"),
            None if Instant::now() >= until => {
                let limit = humantime_serde::re::humantime::format_duration(limit);
                format!("is not ready after {limit}{}", what_is_missing(http, system, member).await)
            }
            None => {
                tokio::time::sleep(process::POLL).await;
                continue;
            }
        };
        bail!("{member} {failed}; {}", process::last_words(system, member, started.since));
    }
}

/// What it says itself of why it is not ready.
async fn what_is_missing(http: &Http, system: &System, member: Member) -> String {
    let url = format!("{}/readyz", system.url_of(member));
    match http.get_within(&url, ASK_TIMEOUT).await {
        _ if system.layout().ground().any(|ground| ground == member) => String::new(),
        Ok(answer) => {
            let complaints = Condition::told(false, &answer.body).complaints;
            let why =
                if complaints.is_empty() { "it does not say why".to_owned() } else { complaints.join("; ") };
            format!(" ({why})")
        }
        Err(error) => format!(" ({error:#})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_says_check_by_check_what_is_wrong_whether_or_not_it_is_ready() {
        let check =
            |state: &str, text: &str| json!({"state": state, "text": text, "since": "1970-01-01T00:00:00Z"});
        let checks = json!({"broker": check("degraded", "not connected"), "store": check("ok", "ok")});
        let told = Condition::told(true, &json!({"ready": true, "degraded": true, "checks": checks}));
        assert!(told.ready && told.degraded);
        assert_eq!(told.complaints, ["broker: not connected"]);
        let silent = Condition::told(false, &Value::Null);
        assert!(!silent.ready && !silent.degraded && silent.complaints.is_empty());
    }
}
