//! Shell: circuit breakers: what each does, and what operators make them do.

use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::admin::{Admin, Asked};
use super::{read, show};
use crate::output::plain_table as table;
use crate::output::say;
use crate::output::text::{moment, or_nothing};

/// What to do with circuit breakers; they are listed when nothing is said.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BreakerOptions {
    #[command(subcommand)]
    command: Option<BreakerCommand>,
    /// The API's own JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BreakerCommand {
    /// Hold one open: nothing is let through until it is closed or reset
    Open {
        /// Which.
        #[arg(value_name = "SERVICE/NAME")]
        breaker: BreakerName,
        /// Why.
        #[arg(long)]
        reason: String,
    },
    /// Hold one closed: everything is let through until it is opened or reset
    Close {
        /// Which.
        #[arg(value_name = "SERVICE/NAME")]
        breaker: BreakerName,
        /// Why.
        #[arg(long)]
        reason: String,
    },
    /// Let one decide for itself again, from closed on
    Reset {
        /// Which.
        #[arg(value_name = "SERVICE/NAME")]
        breaker: BreakerName,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
}

/// `SERVICE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BreakerName {
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

/// `sagactl breakers`.
pub async fn run(admin: &Admin, options: BreakerOptions) -> anyhow::Result<ExitCode> {
    let (breaker, action, reason) = match options.command {
        None => return show(admin.ask(&["breakers"], &Asked::default()).await?, options.json, list),
        Some(BreakerCommand::Open { breaker, reason }) => (breaker, "open", Some(reason)),
        Some(BreakerCommand::Close { breaker, reason }) => (breaker, "closed", Some(reason)),
        Some(BreakerCommand::Reset { breaker, reason }) => (breaker, "reset", reason),
    };
    let BreakerName { service, name } = breaker;
    let mut body = json!({ "action": action });
    if let Some(reason) = reason {
        body["reason"] = reason.into();
    }
    let now: Breaker = read(admin.post(&["breakers", &service, &name], &body).await?)?;
    say(&format!("{service}/{} is {}", now.name, now.state));
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct OfService {
    service: String,
    problem: Option<String>,
    #[serde(default)]
    breakers: Vec<Breaker>,
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

fn list(services: &Vec<OfService>) -> String {
    let percent = |rate: Option<u8>| or_nothing(rate.map(|rate| format!("{rate} %")));
    let rows = services.iter().flat_map(|of| {
        of.breakers.iter().map(move |breaker| {
            [
                format!("{}/{}", of.service, breaker.name),
                breaker.state.clone(),
                breaker.calls.to_string(),
                format!("{} ({})", breaker.failures, percent(breaker.failure_rate)),
                format!("{} ({})", breaker.slow, percent(breaker.slow_rate)),
                breaker.refused.to_string(),
                or_nothing(breaker.open_until.map(moment)),
                or_nothing(
                    breaker.transitions.last().map(|last| format!("{} {}", moment(last.at), last.why)),
                ),
            ]
        })
    });
    let header = ["breaker", "state", "calls", "failed", "slow", "refused", "open until", "last change"];
    let mut text = table(header, rows, &[2, 3, 4, 5]);
    for of in services {
        if let Some(problem) = &of.problem {
            text.push_str(&format!("\n{} cannot be asked: {problem}", of.service));
        }
    }
    text
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
        let services = from_value(json!([
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
        ]));
        insta::assert_snapshot!("breakers", list(&services.expect("breakers")));
    }
}
