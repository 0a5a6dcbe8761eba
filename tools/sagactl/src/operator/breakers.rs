//! Shell: circuit breakers: what each does, and what operators make them do.

use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::admin::{Admin, Form, Items, OrList, Page, show};
use cli::text::or_none;
use cli::{Column, View, left, removable, right, time, truncatable};

/// What operators make breakers do.
#[derive(Debug, Subcommand)]
pub enum BreakerCommand {
    /// List all breakers of all services
    List(Form),
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
        #[command(flatten)]
        form: Form,
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
    #[command(flatten)]
    form: Form,
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
    OrList { command, list }: OrList<BreakerCommand>,
) -> anyhow::Result<ExitCode> {
    let (breaker, action, reason, form) = match command.unwrap_or(BreakerCommand::List(list)) {
        BreakerCommand::List(form) => {
            return admin.list(&["breakers"], &(), Items::OfEach("breakers"), form, shown).await;
        }
        BreakerCommand::Open(Hold { breaker, reason, form }) => (breaker, "open", Some(reason), form),
        BreakerCommand::Close(Hold { breaker, reason, form }) => (breaker, "closed", Some(reason), form),
        BreakerCommand::Reset { breaker, reason, form } => (breaker, "reset", reason, form),
    };
    let BreakerName { service, name } = breaker;
    let body = json!({ "action": action, "reason": reason });
    let answer = admin.post(&["breakers", &service, &name], &body).await?;
    show(answer, form, |now: &Breaker, _| format!("{service}/{} is {}", now.name, now.state))
}

/// A breaker, and whose it is.
#[derive(Debug, Deserialize)]
struct BreakerOf {
    service: String,
    #[serde(flatten)]
    breaker: Breaker,
}

#[derive(Debug, Deserialize)]
struct Breaker {
    name: String,
    #[serde(default)]
    instance: String,
    state: String,
    calls: u64,
    failures: u64,
    slow: u64,
    failure_rate: Option<u8>,
    slow_rate: Option<u8>,
    rejected: u64,
    open_until: Option<Timestamp>,
    #[serde(default)]
    transitions: Vec<Transition>,
}

#[derive(Debug, Deserialize)]
struct Transition {
    at: Timestamp,
    why: String,
}

const COLUMNS: [Column<BreakerOf>; 10] = [
    left("breaker", |of| format!("{}/{}", of.service, of.breaker.name)),
    left("state", |of| of.breaker.state.clone()),
    removable(0, left("at", |of| of.breaker.instance.clone())),
    removable(3, right("calls", |of| of.breaker.calls.to_string())),
    removable(5, right("failed", |of| share(of.breaker.failures, of.breaker.failure_rate))),
    removable(2, right("slow", |of| share(of.breaker.slow, of.breaker.slow_rate))),
    removable(4, right("rejected", |of| of.breaker.rejected.to_string())),
    removable(6, time("open until", |of| of.breaker.open_until)),
    removable(1, time("last change", |of| of.breaker.transitions.last().map(|last| last.at))),
    removable(7, truncatable(left("why", |of| or_none(of.breaker.transitions.last().map(|last| &last.why))))),
];

fn shown(page: &Page<BreakerOf>, view: &View) -> String {
    page.shown("no breakers", &COLUMNS, view)
}

fn share(count: u64, percent: Option<u8>) -> String {
    format!("{count} ({})", or_none(percent.map(|percent| format!("{percent} %"))))
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
        let services = json!([
            {"service": "payment", "breakers": [
                {"name": "bank", "instance": "payment-2", "state": "OPEN", "calls": 10, "failures": 6, "slow": 0, "failure_rate": 60,
                 "slow_rate": 0, "rejected": 4, "policy": policy, "open_until": "2026-11-20T14:18:46Z",
                 "transitions": [{"at": "2026-11-20T14:18:36Z", "from": "CLOSED", "to": "OPEN",
                                  "why": "6 of 10 calls failed"}]},
                {"name": "payment-processing", "instance": "payment-2", "state": "CLOSED", "calls": 1, "failures": 0, "slow": 0,
                 "failure_rate": null, "slow_rate": null, "rejected": 0, "policy": policy, "open_until": null,
                 "transitions": []},
            ]},
            {"service": "inventory", "problem": "inventory does not answer", "breakers": []},
        ]);
        let page = from_value(Items::OfEach("breakers").fields(services)).expect("breakers");
        insta::assert_snapshot!("breakers", shown(&page, &View::FILE));
    }
}
