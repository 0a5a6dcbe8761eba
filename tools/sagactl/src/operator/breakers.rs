//! Shell: circuit breakers: what each does, and what operators make them do.

use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::admin::{Admin, OfService, OrList, read};
use crate::output::text::{moment, or_nothing};
use crate::output::{Column, left, right, say, table};

/// What operators make breakers do.
#[derive(Debug, Subcommand)]
pub enum BreakerCommand {
    /// Hold one open: nothing is let through until it is closed or reset
    Open(Hold),
    /// Hold one closed: everything is let through until it is opened or reset
    Close(Hold),
    /// Let one decide for itself again, from closed on
    Reset {
        /// As sagactl breakers lists it.
        #[arg(value_name = "SERVICE/NAME")]
        breaker: BreakerName,
        /// Why, for the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
}

/// Which breaker to hold.
#[derive(Debug, Args)]
pub struct Hold {
    /// As sagactl breakers lists it.
    #[arg(value_name = "SERVICE/NAME")]
    breaker: BreakerName,
    /// Why, for the audit log.
    #[arg(long)]
    reason: String,
}

/// A breaker as people name it: `SERVICE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerName {
    service: String,
    name: String,
}

impl FromStr for BreakerName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((service, name)) if !service.is_empty() && !name.is_empty() => {
                Ok(Self { service: service.to_owned(), name: name.to_owned() })
            }
            Some(_) | None => Err("write it as sagactl breakers lists it: SERVICE/NAME"),
        }
    }
}

/// `sagactl breakers`: without a command, a list of all.
pub async fn run(
    admin: &Admin,
    OrList { command, form }: OrList<BreakerCommand>,
) -> anyhow::Result<ExitCode> {
    let (breaker, action, reason) = match command {
        None => return admin.show(&["breakers"], &(), form, |services: &Vec<_>| list(services)).await,
        Some(BreakerCommand::Open(Hold { breaker, reason })) => (breaker, "open", Some(reason)),
        Some(BreakerCommand::Close(Hold { breaker, reason })) => (breaker, "closed", Some(reason)),
        Some(BreakerCommand::Reset { breaker, reason }) => (breaker, "reset", reason),
    };
    let BreakerName { service, name } = breaker;
    let body = json!({ "action": action, "reason": reason });
    let now: Breaker = read(admin.post(&["breakers", &service, &name], &body).await?)?;
    say(&format!("{service}/{} is {}", now.name, now.state));
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct Breaker {
    name: String,
    state: String,
    calls: u64,
    failures: u64,
    slow: u64,
    failure_rate: Option<u8>,
    slow_rate: Option<u8>,
    refused: u64,
    open_until: Option<Timestamp>,
    #[serde(default)]
    transitions: Vec<Transition>,
}

#[derive(Debug, Deserialize)]
struct Transition {
    at: Timestamp,
    why: String,
}

fn list(services: &[OfService<Breaker>]) -> String {
    let columns: [Column<(&str, &Breaker)>; 8] = [
        left("breaker", |(service, breaker)| format!("{service}/{}", breaker.name)),
        left("state", |(_, breaker)| breaker.state.clone()),
        right("calls", |(_, breaker)| breaker.calls.to_string()),
        right("failed", |(_, breaker)| share(breaker.failures, breaker.failure_rate)),
        right("slow", |(_, breaker)| share(breaker.slow, breaker.slow_rate)),
        right("refused", |(_, breaker)| breaker.refused.to_string()),
        left("open until", |(_, breaker)| or_nothing(breaker.open_until.map(moment))),
        left("last change", |(_, breaker)| or_nothing(breaker.transitions.last().map(change))),
    ];
    table(&columns, &OfService::items(services)) + &OfService::problems(services)
}

fn share(count: u64, percent: Option<u8>) -> String {
    format!("{count} ({})", or_nothing(percent.map(|percent| format!("{percent} %"))))
}

fn change(transition: &Transition) -> String {
    format!("{} {}", moment(transition.at), transition.why)
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn a_breaker_is_named_by_service_and_name() {
        let name: BreakerName = "payment/call/bank".parse().expect("a name");
        assert_eq!((name.service.as_str(), name.name.as_str()), ("payment", "call/bank"));
        assert!(["payment", "/bank", "payment/", ""].iter().all(|bad| bad.parse::<BreakerName>().is_err()));
    }

    #[test]
    fn breakers_are_a_table_and_a_silent_service_is_named() {
        let policy = json!({"failure_rate": 50});
        let services: Vec<_> = from_value(json!([
            {"service": "payment", "breakers": [
                {"name": "bank", "state": "OPEN", "calls": 10, "failures": 6, "slow": 0, "failure_rate": 60,
                 "slow_rate": 0, "refused": 4, "policy": policy, "open_until": "2026-11-20T14:18:46Z",
                 "transitions": [{"at": "2026-11-20T14:18:36Z", "from": "CLOSED", "to": "OPEN",
                                  "why": "6 of 10 calls failed"}]},
                {"name": "payment-processing", "state": "CLOSED", "calls": 1, "failures": 0, "slow": 0,
                 "failure_rate": null, "slow_rate": null, "refused": 0, "policy": policy, "open_until": null,
                 "transitions": []},
            ]},
            {"service": "inventory", "problem": "inventory does not answer", "breakers": []},
        ]))
        .expect("breakers");
        insta::assert_snapshot!("breakers", list(&services));
    }
}
